"""`qualitative`: predictions and latents of BNN, MFVI and NCAI on six 1-D sets.

The fits are those of the benchmark's first reported split: same settings, same random
numbers. They are made again because the benchmark keeps numbers, not functions.
"""

from dataclasses import dataclass

import jax
import numpy as np

from ncai.datasets import make_dataset
from ncai.study.engine.cells import Cell, Outcome
from ncai.study.engine.scales import Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.benchmark import BENCHMARK, fit_and_choose
from ncai.study.experiments.benchmark_scores import WEIGHT_DRAWS, predictive_at
from ncai.study.experiments.oracle_curves import oracle_quantiles
from ncai.study.experiments.paper_settings import SYNTHETIC

ONE_DIMENSIONAL = ("goldberg", "lidar", "williams", "yuan", "heavy_tail", "depeweg")
LEVELS = (0.025, 0.25, 0.5, 0.75, 0.975)
GRID_POINTS = 200


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
