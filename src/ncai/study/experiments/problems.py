"""What the experiments run on: the paper's settings, its splits and the known truths.

Networks, grids and units are those of the paper's tables of architectures and of its
paragraph on remaining hyper-parameters, with our reading of the swapped grids of eps_x
and eps_y (docs/paper/paper_to_code.md).
"""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ncai.datasets import load_dataset, make_dataset
from ncai.datasets.oracles import Oracle, Truth
from ncai.datasets.splits import Scaling, split
from ncai.datasets.synthetic import Part, SyntheticData
from ncai.model.bnn_lv import Model, Variance
from ncai.study.engine.cells import Cell, Scale
from ncai.types import Data, Unknowns

NUM_ORACLE_POINTS = 20_000
SYNTHETIC = ("heavy_tail", "depeweg", "goldberg", "yuan", "williams")
REAL = ("lidar", "yacht", "energy", "airfoil", "abalone", "wine_red")
DATASETS = (*SYNTHETIC, *REAL)
METHODS = ("bnn", "mfvi", "ncai0", "ncai")
HIDDEN = {
    "williams": (20, 20),
    "yuan": (20,),
    "goldberg": (20,),
    "heavy_tail": (50,),
    "depeweg": (50,),
    "bimodal": (50, 50),
    "lidar": (10,),
    "yacht": (5,),
    "energy": (10,),
    "airfoil": (30,),
    "abalone": (10,),
    "wine_red": (20,),
}
# s_z where the paper fixes it; elsewhere empirical Bayes.
FIXED_LATENT_VARIANCE = {"heavy_tail": 0.01, "depeweg": 1.0}
# Which of both the paper's main tables show as NCAI: those numbers stand in its
# summary tables under this method.
PUBLISHED_SELECTION = {
    "heavy_tail": "ncai",
    "depeweg": "ncai0",
    "goldberg": "ncai",
    "yuan": "ncai0",
    "williams": "ncai0",
    "lidar": "ncai",
    "yacht": "ncai0",
    "energy": "ncai",
    "airfoil": "ncai0",
    "abalone": "ncai0",
    "wine_red": "ncai",
}
GROUND_TRUTH_SETS = ("heavy_tail", "depeweg", "bimodal")
WEIGHT_VARIANCE = 10.0  # the paper's, wherever W_true takes part
TARGET_POINTS = 2001


@dataclass(frozen=True)
class Point:
    """A point of the grid of hyper-parameters; what a method lacks is None."""

    noise: float
    hz_tolerance: float | None = None
    input_tolerance: float | None = None
    target_tolerance: float | None = None

    def settings(self) -> tuple[float | None, ...]:
        """As plain values."""
        return (
            self.noise,
            self.hz_tolerance,
            self.input_tolerance,
            self.target_tolerance,
        )


def grid(dataset: str, method: str) -> tuple[Point, ...]:
    """The points that the first split chooses from."""
    ground_truth = dataset in FIXED_LATENT_VARIANCE
    if method == "bnn":
        return tuple(
            Point(n) for n in ((1.0, 0.5, 0.1) if ground_truth else (1.0, 0.1, 0.01))
        )
    noises = (0.1,) if ground_truth else (0.1, 0.01)
    if method != "ncai":
        return tuple(Point(n) for n in noises)
    return tuple(
        Point(*values)
        for values in itertools.product(noises, (0.01, 0.0003), (0.1, 0.5), (0.5, 1.0))
    )


@dataclass(frozen=True, eq=False)
class Problem:
    """A split in the units of training, and the way back to raw units."""

    train: Part
    valid: Part
    test: Part
    scaling: Scaling
    oracle_test: float | None


def load_problem(dataset: str, split_number: int) -> Problem:
    """The split of this number; its own draw where the set is synthetic."""
    oracle = None
    if dataset in SYNTHETIC:
        drawn = make_dataset(dataset, seed=split_number)
        parts = (drawn.train, drawn.valid, drawn.test)
        standardise = drawn.standardise
        log_prob = drawn.oracle.log_prob(drawn.test.inputs, drawn.test.targets)
        oracle = float(np.mean(log_prob))
    else:
        dealt = split(load_dataset(dataset, subsample="paper"), seed=split_number)
        parts = (dealt.train, dealt.valid, dealt.test)
        standardise = True
    scaling = Scaling.of(parts[0])
    if not standardise:
        num_inputs = parts[0].inputs.shape[1]
        scaling = Scaling(
            np.zeros(num_inputs), np.ones(num_inputs), np.zeros(1), np.ones(1)
        )
    elif oracle is not None:
        oracle += float(np.log(scaling.target_scale[0]))
    train, valid, test = (scaling.apply(p) for p in parts)
    return Problem(train, valid, test, scaling, oracle)


@functools.cache
def expected_oracle(dataset: str) -> float:
    """Best possible test log-likelihood of a synthetic set, over many test points.

    In the units that the benchmark scores in. What published numbers, which come from
    other draws of the data, are held against.
    """
    drawn = make_dataset(dataset, seed=0, num_test=NUM_ORACLE_POINTS)
    value = float(np.mean(drawn.oracle.log_prob(drawn.test.inputs, drawn.test.targets)))
    spread = float(np.std(drawn.test.targets)) if drawn.standardise else 1.0
    return value + float(np.log(spread))


class KnownProblem(NamedTuple):
    """Data, the model that made them, and the values that it had."""

    drawn: SyntheticData
    data: Data
    model: Model
    truth: Unknowns


def known_problem(dataset: str, draw: int) -> KnownProblem:
    """A fresh draw, with s_z and the noise at their true values."""
    drawn = make_dataset(dataset, seed=draw)
    known = drawn.truth
    assert isinstance(known, Truth)
    train = drawn.train
    data = Data(
        jnp.asarray(train.inputs, jnp.float32),
        jnp.asarray(train.targets, jnp.float32),
        jnp.ones(len(train.inputs), jnp.float32),
    )
    model = Model(
        known.flat_network,
        Variance(jnp.asarray(WEIGHT_VARIANCE)),
        Variance(jnp.asarray(known.latent_var)),
        Variance(jnp.asarray([known.noise_var])),
    )
    truth = Unknowns(
        jnp.asarray(np.asarray(known.weights), jnp.float32),
        jnp.asarray(train.latents, jnp.float32),
        jnp.zeros(0, jnp.float32),
    )
    return KnownProblem(drawn, data, model, truth)


def cells_of(study: str, scale: Scale, *more: dict) -> list[Cell]:
    """A cell for each set and draw, and for each of these further settings."""
    return [
        Cell.of(
            study,
            dataset=dataset,
            draw=draw,
            restarts=scale.restarts,
            max_steps=scale.max_steps,
            **settings,
        )
        for dataset in scale.ground_truth_sets or GROUND_TRUTH_SETS
        for draw in range(scale.draws)
        for settings in more or ({},)
    ]


def _log_density(oracle: Oracle, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values of y that reach past all likely ones, and log p(y|x), [rows, values]."""
    samples = oracle.sample(np.repeat(inputs, 20, axis=0), seed=0)
    margin = 0.5 * float(np.ptp(samples))
    targets = np.linspace(samples.min() - margin, samples.max() + margin, TARGET_POINTS)
    return targets, oracle.log_prob_grid(inputs, targets)


def oracle_quantiles(
    oracle: Oracle, inputs: np.ndarray, levels: Sequence[float]
) -> np.ndarray:
    """Of y at each input, [levels, rows]."""
    targets, log_density = _log_density(oracle, inputs)
    reached = np.cumsum(np.exp(log_density), axis=1)
    reached /= reached[:, -1:]
    # The sum up to a grid value holds all of its bin, which ends half a step on.
    ends = targets + 0.5 * (targets[1] - targets[0])
    return np.stack([np.interp(levels, row, ends) for row in reached], axis=1)


def oracle_entropy(oracle: Oracle, inputs: np.ndarray) -> np.ndarray:
    """Of y at each input: all of it is aleatoric."""
    targets, log_density = _log_density(oracle, inputs)
    step = targets[1] - targets[0]
    return -step * np.sum(np.exp(log_density) * log_density, axis=1)
