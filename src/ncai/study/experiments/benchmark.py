"""`benchmark`: BNN, and BNN+LV by MFVI, NCAI0 and NCAI, on eleven data sets.

Every metric of the paper's summary tables, for the posteriors that `fits` keeps.
"""

from dataclasses import dataclass

import jax
import numpy as np

from ncai.datasets import make_dataset
from ncai.study.engine import Cell, Outcome, Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.fits import (
    BOUND_FITS,
    FITS,
    TWO_LATENTS,
    Fits,
    model_of,
    stored_posterior,
)
from ncai.study.experiments.problems import (
    SYNTHETIC,
    WEIGHT_DRAWS,
    load_problem,
    oracle_quantiles,
    predictive_at,
    score,
)

ONE_DIMENSIONAL = ("goldberg", "lidar", "williams", "yuan", "heavy_tail", "depeweg")
LEVELS = (0.025, 0.25, 0.5, 0.75, 0.975)
GRID_POINTS = 200
# Entries of the row of a fit that tables and figures show next to the metrics.
FROM_THE_FIT = ("validation", "validation_by_restart", "test_by_restart", "steps")


@dataclass(frozen=True)
class Benchmark:
    """The metrics of fits.

    Args:
        name: name of the study.
        title: title above its tables.
        fits: the study whose fits it scores.
        exact_latents: whether z was integrated out, so that its posterior is exact.
    """

    name: str = "benchmark"
    title: str = "Benchmark on eleven data sets (main tables, summary tables)"
    fits: Fits = FITS
    exact_latents: bool = False

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that are compared."""
        return self.fits.methods

    def sets(self, scale: Scale) -> tuple[str, ...]:
        """The data sets at this scale."""
        return self.fits.sets(scale)

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """The fits, then a cell for each finished fit of a reported split."""
        fits = self.fits.cells(scale, store)
        reported = [cell for cell in fits if cell["phase"] == "report"]
        scores = [self.of_fit(cell) for cell in reported if store.is_done(cell)]
        return [*fits, *scores]

    def report_cells(
        self, scale: Scale, store: Store, dataset: str, method: str
    ) -> list[Cell]:
        """The cells of the reported splits, once a point has been chosen."""
        fits = self.fits.report_cells(scale, store, dataset, method)
        return [self.of_fit(cell) for cell in fits]

    def of_fit(self, fit: Cell) -> Cell:
        """The cell that scores a fit."""
        return Cell(self.name, fit.settings)

    def source(self, cell: Cell) -> Cell:
        """The fit that a cell scores."""
        return Cell(self.fits.name, cell.settings)

    def derive(self, cell: Cell, fit: Outcome) -> Outcome:
        """Score the posterior of a fit."""
        problem = load_problem(cell["dataset"], cell["split"])
        model = model_of(cell, problem.train.inputs.shape[1])
        posterior = stored_posterior(model, dict(fit.arrays))
        metrics, arrays = score(posterior, problem, cell.seed, self.exact_latents)
        kept = {name: fit.row[name] for name in FROM_THE_FIT}
        restarts = np.asarray(fit.row["test_by_restart"], float)
        mean = float(np.mean(restarts[np.isfinite(restarts)]))
        return Outcome(kept | {"avg_ll_test_any_restart": mean} | metrics, arrays)


BENCHMARK = Benchmark()
LATENT_DIM = Benchmark(
    "latent-dim",
    "The benchmark with two latent dimensions on two real sets (sensitivity)",
    TWO_LATENTS,
)
TIGHTER_BOUNDS = Benchmark(
    "tighter-bounds",
    "The benchmark by tighter bounds: importance-weighted, and z integrated out",
    BOUND_FITS,
    exact_latents=True,
)


@dataclass(frozen=True)
class Qualitative:
    """Quantiles and latents of the benchmark's first reported split."""

    name: str = "qualitative"
    title: str = "Posterior predictives and latents in one dimension"
    fits: Fits = FITS

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """The selections of the benchmark, then a cell for each set and method."""
        cells = []
        for dataset in ONE_DIMENSIONAL:
            if scale.datasets is not None and dataset not in scale.datasets:
                continue
            for method in ("bnn", "mfvi", "ncai0", "ncai"):
                cells.append(FITS.select_cell(scale, dataset, method))
            selected = FITS.selected_method(scale, store, dataset)
            for method in ("bnn", "mfvi", selected):
                if method is None:
                    continue
                fits = FITS.report_cells(scale, store, dataset, method)[:1]
                done = [fit for fit in fits if store.is_done(fit)]
                cells += [*fits, *(Cell(self.name, fit.settings) for fit in done)]
        return cells

    def source(self, cell: Cell) -> Cell:
        """The fit that a cell shows."""
        return Cell(self.fits.name, cell.settings)

    def derive(self, cell: Cell, fit: Outcome) -> Outcome:
        """Quantiles of y over x, in raw units, and z of the training rows."""
        problem = load_problem(cell["dataset"], cell["split"])
        model = model_of(cell, problem.train.inputs.shape[1])
        posterior = stored_posterior(model, dict(fit.arrays))
        scaling = problem.scaling
        shift, scale = (
            float(a[0]) for a in (scaling.target_shift, scaling.target_scale)
        )
        inputs = problem.train.inputs
        grid = np.linspace(inputs.min(), inputs.max(), GRID_POINTS)[:, None]
        draws = posterior.draw(jax.random.key(cell.seed), WEIGHT_DRAWS)
        predictive = predictive_at(model.network, draws, grid, shift, scale)
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
        if model.network.latent_dim:
            latents = posterior.latent_moments()[0][: len(inputs), 0]
            arrays["latents"] = np.asarray(latents) / posterior.latent_prior_std()
        arrays = {name: np.asarray(a, np.float32) for name, a in arrays.items()}
        return Outcome({"validation": fit.row["validation"]}, arrays)


QUALITATIVE = Qualitative()
