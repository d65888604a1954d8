"""What the studies on sets with a known truth share."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from ncai.datasets import make_dataset
from ncai.datasets.oracles import Truth
from ncai.datasets.synthetic import SyntheticData
from ncai.model.bnn_lv import Model, Variance
from ncai.study.engine.cells import Cell
from ncai.study.engine.scales import Scale
from ncai.types import Data, Unknowns

GROUND_TRUTH_SETS = ("heavy_tail", "depeweg", "bimodal")
WEIGHT_VARIANCE = 10.0  # the paper's, wherever W_true takes part


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
