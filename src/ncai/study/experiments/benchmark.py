"""`benchmark`: BNN, and BNN+LV by MFVI, NCAI0 and NCAI, on eleven data sets.

The first split of a set selects hyper-parameters, and NCAI0 or NCAI, by validation
log-likelihood; the others are reported, each with the restart that is best on its
validation rows.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ncai.datasets import make_dataset
from ncai.datasets.synthetic import Part
from ncai.fitting.holdout import to_data
from ncai.fitting.noise_recalibration import score_rows
from ncai.inference.base import Method, Training
from ncai.inference.iwae import IWAE
from ncai.inference.marginal import Marginal
from ncai.inference.mean_field import MFVI
from ncai.inference.ncai import NCAI, NCAI0, TOLERANCES
from ncai.inference.posterior import Fit, GaussianPosterior
from ncai.model.bnn_lv import Model, Variance
from ncai.model.networks import MLP, FlatNetwork
from ncai.study.engine import Cell, Outcome, Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.problems import (
    DATASETS,
    FIXED_LATENT_VARIANCE,
    HIDDEN,
    METHODS,
    SYNTHETIC,
    WEIGHT_DRAWS,
    Point,
    Problem,
    grid,
    load_problem,
    oracle_quantiles,
    predictive_at,
    score,
)
from ncai.types import TrainingRows

ONE_DIMENSIONAL = ("goldberg", "lidar", "williams", "yuan", "heavy_tail", "depeweg")
LEVELS = (0.025, 0.25, 0.5, 0.75, 0.975)
GRID_POINTS = 200


# Named here, not looked up in the registry: the digest of a result then covers the
# code of these methods and of no others.
METHOD_CLASSES: dict[str, type[Method]] = {
    "bnn": MFVI,
    "mfvi": MFVI,
    "ncai0": NCAI0,
    "ncai": NCAI,
    "marginal": Marginal,
    "iwae": IWAE,
}


def make_model(dataset: str, method: str, num_inputs: int, latent_dim: int) -> Model:
    """Empirical Bayes for s_w, and for s_z unless the paper fixes it."""
    latent_dim = 0 if method == "bnn" else latent_dim
    latent = FIXED_LATENT_VARIANCE.get(dataset)
    return Model(
        FlatNetwork(MLP(HIDDEN[dataset]), num_inputs, latent_dim, 1),
        Variance(jnp.asarray(1.0), "empirical"),
        Variance(jnp.asarray(1.0), "empirical")
        if latent is None
        else Variance(jnp.asarray(latent)),
        Variance(jnp.asarray([0.1])),  # `fixed_noise` has the grid's values
    )


def fit_points(cell: Cell, problem: Problem, points: tuple[Point, ...]) -> Fit:
    """All points and restarts in one run; restart r has point r modulo their number."""
    training = Training(
        num_restarts=cell["restarts"] * len(points),
        max_steps=cell["max_steps"],
        warm_start_steps=cell["warm_start_steps"],
        fixed_noise=tuple(p.noise for p in points),
    )
    model = make_model(
        cell["dataset"],
        cell["method"],
        problem.train.inputs.shape[1],
        cell["latent_dim"],
    )
    method = make_method(cell["method"], cell["plateau"], points)
    data = to_data(rows_of(problem.train))
    return method.fit(jax.random.key(cell.seed), model, data, training)


def make_method(name: str, plateau: bool, points: tuple[Point, ...] = ()) -> Method:
    """The paper's methods, and ours from the start of NCAI, at temperature 1.

    The restarts of NCAI take the tolerances of the points in turn.
    """
    shared: dict[str, Any] = {"plateau": plateau, "rate_drops": 0}
    if name in ("marginal", "iwae"):
        shared["start"] = "ncai"
    if name == "ncai" and points:
        shared |= {
            tolerance: tuple(getattr(point, tolerance) for point in points)
            for tolerance in TOLERANCES
        }
    method = METHOD_CLASSES[name](**shared)
    return method.resolved("paper")


def rows_of(part: Part) -> TrainingRows:
    """Rows that count once each."""
    return TrainingRows(part.inputs, part.targets, np.ones(len(part.inputs)))


def validation_scores(fit: Fit, valid: Part) -> np.ndarray:
    """Average log-likelihood of the validation rows, for each restart."""
    rows = rows_of(valid)
    posterior = fit.posterior
    assert isinstance(posterior, GaussianPosterior)
    scores = [
        score_rows(posterior.select(i), rows, jax.random.key(0)).mean()
        for i in range(posterior.num_components)
    ]
    return np.where(fit.alive, scores, -np.inf)


class Chosen(NamedTuple):
    """The fit of a cell that its validation rows like best."""

    problem: Problem
    posterior: GaussianPosterior
    row: dict


def fit_and_choose(cell: Cell) -> Chosen:
    """All restarts, of all points if the cell is to select; the best by validation."""
    problem = load_problem(cell["dataset"], cell["split"])
    if cell["phase"] == "select":
        points = grid(cell["dataset"], cell["method"])
    else:
        points = (Point(*cell["point"]),)
    fit = fit_points(cell, problem, points)
    scores = validation_scores(fit, problem.valid)
    best = int(np.argmax(scores))
    by_point = scores.reshape(-1, len(points))
    row = {
        "chosen": list(points[best % len(points)].settings()),
        "validation": float(scores[best]),
        "validation_by_point": by_point.max(axis=0).tolist(),
        "points": [list(p.settings()) for p in points],
        "restarts_lost": int((~fit.alive).sum()),
        "stop_reasons": list(fit.stop_reasons),
        "steps": fit.num_steps,
    }
    posterior = fit.posterior
    assert isinstance(posterior, GaussianPosterior)
    return Chosen(problem, posterior.select(best), row)


@dataclass(frozen=True)
class Benchmark:
    """The study, on all sets and methods or on some.

    Args:
        name: of the study.
        title: above its tables.
        datasets: its sets. A scale that names sets has the last word.
        methods: those compared.
        latent_dim: dimensions of z.
    """

    name: str = "benchmark"
    title: str = "Benchmark on eleven data sets (main tables, summary tables)"
    datasets: tuple[str, ...] = DATASETS
    methods: tuple[str, ...] = METHODS
    latent_dim: int = 1

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """Selection on split 0; then, with what it chose, the other splits."""
        cells = []
        for dataset in self.sets(scale):
            for method in self.methods:
                cells.append(self.select_cell(scale, dataset, method))
                cells += self.report_cells(scale, store, dataset, method)
        return cells

    def sets(self, scale: Scale) -> tuple[str, ...]:
        """Its data sets at this scale."""
        return scale.datasets or self.datasets

    def select_cell(self, scale: Scale, dataset: str, method: str) -> Cell:
        """The one that chooses a point of the grid."""
        return self._cell(scale, dataset, method, 0, phase="select")

    def report_cells(
        self, scale: Scale, store: Store, dataset: str, method: str
    ) -> list[Cell]:
        """The splits that count, once a point has been chosen."""
        found = store.load_row(self.select_cell(scale, dataset, method))
        if found is None:
            return []
        point = tuple(found["chosen"])
        return [
            self._cell(scale, dataset, method, number, phase="report", point=point)
            for number in range(1, scale.splits)
        ]

    def selected_method(self, scale: Scale, store: Store, dataset: str) -> str | None:
        """NCAI0 or NCAI, by validation on the first split; None while one is missing.

        This is what the paper's main tables call NCAI.
        """
        scores = {}
        for method in ("ncai0", "ncai"):
            row = store.load_row(self.select_cell(scale, dataset, method))
            if row is None:
                return None
            scores[method] = row["validation"]
        return max(scores, key=scores.__getitem__)

    def stops_early(self, scale: Scale) -> bool:
        """Whether training may end before its last step, once nothing improves."""
        return scale.name == "paper"

    def _cell(self, scale: Scale, dataset, method, number, **more) -> Cell:
        return Cell.of(
            self.name,
            dataset=dataset,
            method=method,
            split=number,
            restarts=scale.restarts,
            max_steps=scale.max_steps,
            warm_start_steps=scale.warm_start_steps,
            plateau=self.stops_early(scale),
            latent_dim=self.latent_dim,
            **more,
        )

    def run(self, cell: Cell) -> Outcome:
        """Fit, choose on validation, and score."""
        problem, posterior, row = fit_and_choose(cell)
        exact = cell["method"] != "bnn" and (
            METHOD_CLASSES[cell["method"]].supports.exact_latents
        )
        metrics, arrays = score(posterior, problem, cell.seed, exact)
        return Outcome(row | metrics, arrays)


@dataclass(frozen=True)
class FullLength(Benchmark):
    """Splits of the benchmark once more, with every step: what stopping early costs."""

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """The reported splits, at the points that the benchmark chose or has to."""
        return [
            cell
            for dataset in self.sets(scale)
            for method in self.methods
            for cell in (
                self.select_cell(scale, dataset, method),
                *self.report_cells(scale, store, dataset, method),
            )
        ]

    def select_cell(self, scale: Scale, dataset: str, method: str) -> Cell:
        """The benchmark's own."""
        return BENCHMARK.select_cell(scale, dataset, method)

    def stops_early(self, scale: Scale) -> bool:
        """Never."""
        del scale
        return False


BENCHMARK = Benchmark()
LATENT_DIM = Benchmark(
    "latent-dim",
    "The benchmark with two latent dimensions on two real sets (sensitivity)",
    datasets=("yacht", "lidar"),  # six inputs, and one
    methods=("mfvi", "ncai0", "ncai"),
    latent_dim=2,
)
TIGHTER_BOUNDS = Benchmark(
    "tighter-bounds",
    "The benchmark by tighter bounds: importance-weighted, and z integrated out",
    datasets=("heavy_tail", "depeweg", "goldberg", "lidar", "yacht"),
    methods=("iwae", "marginal"),
)
# Without NCAI: its penalties take long to reach their full weight, so it stops late.
FULL_LENGTH = FullLength(
    "full-length",
    "The benchmark without its convergence stop, on two sets (sensitivity)",
    datasets=("heavy_tail", "goldberg"),
    methods=("bnn", "mfvi", "ncai0"),
)


@dataclass(frozen=True)
class Qualitative:
    """The study."""

    name: str = "qualitative"
    title: str = "Posterior predictives and latents in one dimension"

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """The benchmark's selections; then a cell for each set and method shown."""
        cells = []
        for dataset in ONE_DIMENSIONAL:
            if scale.datasets is not None and dataset not in scale.datasets:
                continue
            for method in ("bnn", "mfvi", "ncai0", "ncai"):
                cells.append(BENCHMARK.select_cell(scale, dataset, method))
            selected = BENCHMARK.selected_method(scale, store, dataset)
            for method in ("bnn", "mfvi", selected):
                if method is None:
                    continue
                fits = BENCHMARK.report_cells(scale, store, dataset, method)[:1]
                cells += [Cell(self.name, fit.settings) for fit in fits]
        return cells

    def run(self, cell: Cell) -> Outcome:
        """Quantiles of y over x, in raw units, and z of the training rows."""
        same_fit = Cell(BENCHMARK.name, cell.settings)
        problem, posterior, row = fit_and_choose(same_fit)
        scaling = problem.scaling
        shift, scale = (
            float(a[0]) for a in (scaling.target_shift, scaling.target_scale)
        )
        inputs = problem.train.inputs
        grid = np.linspace(inputs.min(), inputs.max(), GRID_POINTS)[:, None]
        draws = posterior.draw(jax.random.key(same_fit.seed), WEIGHT_DRAWS)
        predictive = predictive_at(posterior.model.network, draws, grid, shift, scale)
        raw_grid = grid * scaling.input_scale + scaling.input_shift
        raw_inputs = inputs * scaling.input_scale + scaling.input_shift
        arrays = {
            "grid": raw_grid[:, 0],
            "quantiles": predictive.quantile(LEVELS).T,
            "inputs": raw_inputs[:, 0],
            "targets": problem.train.targets[:, 0] * scale + shift,
        }
        if cell["dataset"] in SYNTHETIC:
            oracle = make_dataset(cell["dataset"], seed=cell["split"]).oracle
            arrays["true_quantiles"] = oracle_quantiles(oracle, raw_grid, LEVELS)
        if posterior.model.network.latent_dim:
            latents = np.asarray(posterior.latent_moments()[0])[: len(inputs), 0]
            arrays["latents"] = latents / posterior.latent_prior_std()
        arrays = {name: np.asarray(a, np.float32) for name, a in arrays.items()}
        return Outcome({"validation": row["validation"]}, arrays)


QUALITATIVE = Qualitative()
