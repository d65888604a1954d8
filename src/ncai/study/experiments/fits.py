"""`fits`: the posteriors that the benchmark and its variants are computed from.

Training takes hours, and the metrics of its posteriors take seconds. So each fit is a
cell of its own and keeps its posterior: a new metric, or another way to predict, needs
no training. Hyper-parameters are chosen on the first split of a set, by validation
log-likelihood; the other splits are reported, each with the restart that is best on its
validation rows. Every method has the same number of steps and never stops early.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from ncai.datasets.synthetic import Part
from ncai.fitting.holdout import to_data
from ncai.inference.base import Method, Training
from ncai.inference.iwae import IWAE
from ncai.inference.map import MAP
from ncai.inference.marginal import Marginal
from ncai.inference.mean_field import MFVI
from ncai.inference.ncai import NCAI, NCAI0, TOLERANCES
from ncai.inference.posterior import GaussianPosterior
from ncai.model.bnn_lv import Model, NoiseMoments, PriorState, Variance
from ncai.model.networks import MLP, FlatNetwork
from ncai.model.quadrature import latent_rule, node_log_joint
from ncai.study.engine import Cell, Outcome, Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.problems import (
    DATASETS,
    FIXED_LATENT_VARIANCE,
    HIDDEN,
    METHODS,
    Point,
    grid,
    load_problem,
)
from ncai.types import Data, TrainingRows, Unknowns

# The scores that choose use this many draws of W, and nodes of z by dimension K.
SCORE_DRAWS, SCORE_NODES = 64, (1, 128, 24)
# These methods are listed here and not looked up in the registry, so that the digest of
# a result covers their code and the code of no others.
PAPER_METHODS: dict[str, type[Method]] = {
    "bnn": MFVI,
    "mfvi": MFVI,
    "ncai0": NCAI0,
    "ncai": NCAI,
    "map": MAP,
}


def paper_method(name: str, points: tuple[Point, ...] = ()) -> Method:
    """Return a method of the paper; restarts of NCAI use the tolerances in turn."""
    shared: dict[str, Any] = {"plateau": False}
    if name == "ncai" and points:
        shared |= {
            tolerance: tuple(getattr(point, tolerance) for point in points)
            for tolerance in TOLERANCES
        }
    return PAPER_METHODS[name](**shared).resolved("paper")


def tighter_method(name: str) -> Method:
    """Return a method with a tighter bound, NCAI's start and temperature 1."""
    classes = {"marginal": Marginal, "iwae": IWAE}
    return classes[name](plateau=False, start="ncai").resolved("paper")


def make_model(dataset: str, method: str, num_inputs: int, latent_dim: int) -> Model:
    """Create a model with empirical Bayes for s_w, and for s_z unless it is fixed."""
    latent_dim = 0 if method == "bnn" else latent_dim
    latent = FIXED_LATENT_VARIANCE.get(dataset)
    return Model(
        FlatNetwork(MLP(HIDDEN[dataset]), num_inputs, latent_dim, 1),
        Variance(jnp.asarray(1.0), "empirical"),
        Variance(jnp.asarray(1.0), "empirical")
        if latent is None
        else Variance(jnp.asarray(latent)),
        Variance(jnp.asarray([0.1])),  # `fixed_noise` has the values of the grid
    )


def rows_of(part: Part) -> TrainingRows:
    """Return rows of weight 1."""
    return TrainingRows(part.inputs, part.targets, np.ones(len(part.inputs)))


# ----- Scores of restarts -----------------------------------------------------------


def log_likelihoods(posterior: GaussianPosterior, part: Part) -> np.ndarray:
    """Average log p(y|x, D) of rows for each restart alone, [R], by quadrature over z.

    This uses the quadrature of the model, so that a change in how the package predicts
    does not change which fits are chosen.
    """
    data = to_data(rows_of(part))
    key = jax.random.key(0)
    scores = []
    for restart in range(posterior.num_components):
        draws = posterior.select(restart).draw(key, SCORE_DRAWS)
        terms = jnp.asarray(draws.weights), jnp.asarray(draws.noise_std)
        latent_variance = jnp.square(jnp.asarray(draws.latent_std))
        log_probs = _log_probs(posterior.model, data, *terms, latent_variance)
        scores.append(float(np.mean(np.asarray(log_probs)[: len(part.inputs)])))
    return np.asarray(scores)


@jax.jit
def _log_probs(model: Model, data: Data, weights, noise_std, latent_variance):
    dims = model.network.latent_dim
    rule = latent_rule(dims, SCORE_NODES[dims])

    def given(draw):
        weights, noise_std, latent_variance = draw
        noise = NoiseMoments(2 * jnp.log(noise_std), noise_std**-2)
        joint = node_log_joint(model, data, rule, weights, noise, latent_variance)
        return logsumexp(joint, axis=0)

    by_draw = jax.lax.map(given, (weights, noise_std, latent_variance))
    return logsumexp(by_draw, axis=0) - jnp.log(len(weights))


# ----- Posteriors as arrays ---------------------------------------------------------


def posterior_arrays(
    posterior: GaussianPosterior, num_rows: int
) -> dict[str, np.ndarray]:
    """Return the arrays of one restart that `stored_posterior` needs."""
    found = {
        "weight_mean": posterior.mean.weights[0],
        "weight_std": posterior.scale.weights[0],
        "latent_mean": posterior.mean.latents[0, :num_rows],
        "latent_std": posterior.scale.latents[0, :num_rows],
        "weight_variance": posterior.priors.weight_variance[0],
        "latent_variance": posterior.priors.latent_variance[0],
        "noise_variance": posterior.priors.noise_variance[0],
    }
    return {name: np.asarray(value, np.float32) for name, value in found.items()}


def stored_posterior(model: Model, arrays: dict[str, np.ndarray]) -> GaussianPosterior:
    """Return the posterior of one restart from the arrays of `posterior_arrays`."""
    none = np.zeros((1, 0), np.float32)
    mean, std = (
        Unknowns(
            jnp.asarray(arrays[f"weight_{part}"])[None],
            jnp.asarray(arrays[f"latent_{part}"])[None],
            jnp.asarray(none),
        )
        for part in ("mean", "std")
    )
    priors = PriorState(
        *(
            jnp.asarray(arrays[f"{name}_variance"])[None]
            for name in ("weight", "latent", "noise")
        )
    )
    return GaussianPosterior(model, mean, std, priors, np.ones(1))


# ----- The cells --------------------------------------------------------------------


@dataclass(frozen=True)
class Fits:
    """Fits of the paper's methods.

    Args:
        name: name of the study.
        title: title of the study.
        datasets: its data sets, unless the scale names some.
        methods: the methods that are fitted.
        latent_dim: number of dimensions of z.
    """

    name: str = "fits"
    title: str = "Fits of the paper's methods on eleven data sets"
    datasets: tuple[str, ...] = DATASETS
    methods: tuple[str, ...] = METHODS
    latent_dim: int = 1

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """The cells that select on split 0, then the other splits with their choice."""
        cells = []
        for dataset in self.sets(scale):
            for method in self.methods:
                cells.append(self.select_cell(scale, dataset, method))
                cells += self.report_cells(scale, store, dataset, method)
        return cells

    def sets(self, scale: Scale) -> tuple[str, ...]:
        """The data sets at this scale."""
        return scale.datasets or self.datasets

    def select_cell(self, scale: Scale, dataset: str, method: str) -> Cell:
        """The cell that chooses a point of the grid."""
        return self._cell(scale, dataset, method, 0, phase="select")

    def report_cells(
        self, scale: Scale, store: Store, dataset: str, method: str
    ) -> list[Cell]:
        """The cells of the reported splits, once a point has been chosen."""
        found = store.load_row(self.select_cell(scale, dataset, method))
        if found is None:
            return []
        point = tuple(found["chosen"])
        return [
            self._cell(scale, dataset, method, number, phase="report", point=point)
            for number in range(1, scale.splits)
        ]

    def selected_method(self, scale: Scale, store: Store, dataset: str) -> str | None:
        """NCAI0 or NCAI, by validation on the first split; None if a result is missing.

        This is what the paper's main tables call NCAI.
        """
        scores = {}
        for method in ("ncai0", "ncai"):
            row = store.load_row(self.select_cell(scale, dataset, method))
            if row is None:
                return None
            scores[method] = row["validation"]
        return max(scores, key=scores.__getitem__)

    def _cell(self, scale: Scale, dataset, method, number, **more) -> Cell:
        return Cell.of(
            self.name,
            dataset=dataset,
            method=method,
            split=number,
            restarts=scale.restarts,
            max_steps=scale.max_steps,
            warm_start_steps=scale.warm_start_steps,
            latent_dim=self.latent_dim,
            **more,
        )

    def method(self, cell: Cell, points: tuple[Point, ...]) -> Method:
        """The method with its settings."""
        return paper_method(cell["method"], points)

    def run(self, cell: Cell) -> Outcome:
        """Fit all restarts (for selection: of all points); choose by validation."""
        problem = load_problem(cell["dataset"], cell["split"])
        points = points_of(cell)
        training = Training(
            num_restarts=cell["restarts"] * len(points),
            max_steps=cell["max_steps"],
            warm_start_steps=cell["warm_start_steps"],
            fixed_noise=tuple(p.noise for p in points),
        )
        method, data = self.method(cell, points), to_data(rows_of(problem.train))
        model = model_of(cell, problem.train.inputs.shape[1])
        fit = method.fit(jax.random.key(cell.seed), model, data, training)
        posterior = fit.posterior
        assert isinstance(posterior, GaussianPosterior)
        valid, test = (
            np.where(fit.alive, log_likelihoods(posterior, part), -np.inf)
            for part in (problem.valid, problem.test)
        )
        best = int(np.argmax(valid))
        of_point = np.arange(len(valid)) % len(points) == best % len(points)
        by_point = valid.reshape(-1, len(points))  # restart r has point r % len(points)
        row = {
            "chosen": list(points[best % len(points)].settings()),
            "validation": float(valid[best]),
            "validation_by_point": by_point.max(axis=0).tolist(),
            "mean_validation_by_point": by_point.mean(axis=0).tolist(),
            "validation_by_restart": valid[of_point].tolist(),
            "test_by_restart": test[of_point].tolist(),
            "points": [list(p.settings()) for p in points],
            "restarts_lost": int((~fit.alive).sum()),
            "steps": fit.num_steps,
            "rise_at_the_end": -rise_at_the_end(fit.history["value"][:, best]),
        }
        kept = posterior.select(best)
        return Outcome(row, posterior_arrays(kept, len(problem.train.inputs)))


def rise_at_the_end(values: np.ndarray, share: float = 0.1) -> float:
    """How much the last tenth of a history lies above the tenth before it, in nats."""
    known = np.asarray(values, float)
    known = known[~np.isnan(known)]
    count = max(int(share * len(known)), 1)
    if len(known) < 2 * count:
        return float("nan")
    return float(known[-count:].mean() - known[-2 * count : -count].mean())


def points_of(cell: Cell) -> tuple[Point, ...]:
    """The points of the grid that a cell fits."""
    if cell["phase"] == "select":
        return grid(cell["dataset"], cell["method"])
    return (Point(*cell["point"]),)


def model_of(cell: Cell, num_inputs: int) -> Model:
    """The model of a cell."""
    return make_model(cell["dataset"], cell["method"], num_inputs, cell["latent_dim"])


@dataclass(frozen=True)
class BoundFits(Fits):
    """Fits by tighter bounds, which are not in the paper."""

    name: str = "fits-tighter-bounds"
    title: str = "Fits by tighter bounds: importance-weighted, and z integrated out"
    datasets: tuple[str, ...] = ("heavy_tail", "depeweg", "goldberg", "lidar", "yacht")
    methods: tuple[str, ...] = ("iwae", "marginal")

    def method(self, cell: Cell, points: tuple[Point, ...]) -> Method:
        """The method with its settings, which do not depend on the point."""
        del points
        return tighter_method(cell["method"])


FITS = Fits()
TWO_LATENTS = Fits(
    "fits-two-latents",
    "Fits with two latent dimensions on two real sets",
    datasets=("yacht", "lidar"),  # with six inputs and with one
    methods=("mfvi", "ncai0", "ncai"),
    latent_dim=2,
)
BOUND_FITS = BoundFits()
