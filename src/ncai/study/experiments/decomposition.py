"""`decomposition`: total, aleatoric and epistemic uncertainty over x on Depeweg.

By MFVI, NCAI and `marginal`, beside HMC as the gold standard (paper, fig:decomp). All
have HMC's model (s_w = 10, s_z = 1, s_eps = 0.1), so that all approximate the same
posterior; they come again with the benchmark's empirical Bayes for s_w. The
estimator's default is there too, with its own network, prior and mixture of restarts.
"""

import zlib
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ncai.estimators.bnn_lv import BNNLVRegressor
from ncai.fitting.fit import to_data
from ncai.fitting.settings import METHOD_PRESETS
from ncai.inference.base import Inference, Training
from ncai.inference.marginal import Marginal
from ncai.inference.mean_field import MeanFieldVI
from ncai.inference.posterior import GaussianPosterior
from ncai.model.bnn_lv import Model, Variance
from ncai.predictive.distribution import PredictiveDistribution
from ncai.study.engine.cells import Cell, Outcome
from ncai.study.engine.scales import Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.benchmark import (
    BENCHMARK,
    penalties_at,
    rows_of,
    validation_scores,
)
from ncai.study.experiments.benchmark_scores import WEIGHT_DRAWS, predictive_at
from ncai.study.experiments.ground_truth import KnownProblem, known_problem
from ncai.study.experiments.oracle_curves import oracle_entropy
from ncai.study.experiments.paper_settings import Point
from ncai.study.experiments.reference import SAMPLER_SIZES, reference_draws
from ncai.types import WeightDraws

DATASET, DRAW = "depeweg", 0
REFERENCE, DEFAULT = "hmc", "default"
OWN_PRIORS = ("own", "own_2", "own_3")  # of the default: the same fit by other seeds
LOW, HIGH, GRID_POINTS = -5.5, 5.5, 111
MEASURES = ("entropy", "variance")
PARTS = ("total", "aleatoric", "epistemic")


@dataclass(frozen=True)
class DecompositionStudy:
    """The study."""

    name: str = "decomposition"
    title: str = "Aleatoric and epistemic uncertainty on Depeweg (fig:decomp)"

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """NCAI's selection in the benchmark; HMC; then each method by each prior."""
        select = BENCHMARK.select_cell(scale, DATASET, "ncai")
        cells = [
            select,
            Cell.of(self.name, method=REFERENCE, **SAMPLER_SIZES[scale.name]._asdict()),
        ]
        sizes = {
            "restarts": scale.restarts,
            "max_steps": scale.max_steps,
            "warm_start_steps": scale.warm_start_steps,
            "plateau": scale.name == "paper",
            "weight_draws": 32 if scale.name == "smoke" else WEIGHT_DRAWS,
        }
        chosen = store.load_row(select)
        for prior in ("shared", "empirical"):
            for method in ("mfvi", "marginal"):
                cells.append(
                    Cell.of(self.name, method=method, weight_prior=prior, **sizes)
                )
            if chosen is not None:
                point = tuple(chosen["chosen"])
                cells.append(
                    Cell.of(
                        self.name,
                        method="ncai",
                        weight_prior=prior,
                        point=point,
                        **sizes,
                    )
                )
        ours = METHOD_PRESETS["default", "marginal"]
        whole = scale.name == "paper"
        cells += [
            Cell.of(
                self.name,
                method=DEFAULT,
                weight_prior=prior,
                restarts=ours["n_restarts"] if whole else scale.restarts,
                max_steps=min(ours["max_steps"], scale.max_steps),
                # A new default is another cell: its numbers would be out of date.
                preset=zlib.crc32(repr(sorted(ours.items())).encode()),
            )
            for prior in (OWN_PRIORS if whole else OWN_PRIORS[:1])
        ]
        return cells

    def run(self, cell: Cell) -> Outcome:
        """Uncertainties over a grid of x, by entropy and by variance."""
        known = known_problem(DATASET, DRAW)
        grid = np.linspace(LOW, HIGH, GRID_POINTS)[:, None]
        if cell["method"] == DEFAULT:
            predictive, row = _default(cell, known, grid)
        else:
            draw = reference_draws if cell["method"] == REFERENCE else _approximation
            draws, row = draw(cell, known)
            predictive = predictive_at(known.model.network, draws, grid)
        train = known.drawn.train
        arrays = {
            "grid": grid[:, 0],
            "inputs": train.inputs[:, 0],
            "targets": train.targets[:, 0],
            "true_entropy": oracle_entropy(known.drawn.oracle, grid),
        }
        for measure in MEASURES:
            parts = predictive.decompose(measure)
            for part in PARTS:
                arrays[f"{measure}_{part}"] = getattr(parts, part)
        return Outcome(row, {k: np.asarray(a, np.float32) for k, a in arrays.items()})


def _default(
    cell: Cell, known: KnownProblem, grid: np.ndarray
) -> tuple[PredictiveDistribution, dict]:
    """`BNNLVRegressor()`, which is told nothing of the truth but the rows."""
    train = known.drawn.train
    model = BNNLVRegressor(
        n_restarts=cell["restarts"], max_steps=cell["max_steps"], random_state=cell.seed
    ).fit(train.inputs, train.targets[:, 0])
    valid = known.drawn.valid
    score = model.log_score(valid.inputs, valid.targets[:, 0])
    return model.predict_dist(grid), {"validation": float(score)}


def _approximation(cell: Cell, known: KnownProblem) -> tuple[WeightDraws, dict]:
    """The restart that is best on the validation rows."""
    training = Training(
        num_restarts=cell["restarts"],
        max_steps=cell["max_steps"],
        warm_start_steps=cell["warm_start_steps"],
        plateau=cell["plateau"],
    )
    method: Inference
    if cell["method"] == "marginal":
        method = Marginal(training)
    elif cell["method"] == "ncai":
        penalties = penalties_at(Point(*cell["point"]))
        method = MeanFieldVI(training, start="ncai", penalties=penalties)
    else:
        method = MeanFieldVI(training, start="random")
    model = known.model
    if cell["weight_prior"] == "empirical":
        model = Model(
            model.network,
            Variance(jnp.asarray(1.0), "empirical"),
            model.latent_variance,
            model.noise_variance,
        )
    data = to_data(rows_of(known.drawn.train))
    fit = method.fit(jax.random.key(cell.seed), model, data)
    posterior = fit.posterior
    assert isinstance(posterior, GaussianPosterior)
    scores = validation_scores(fit, known.drawn.valid)
    best = int(np.argmax(scores))
    kept = posterior.select(best)
    row = {
        "validation": float(scores[best]),
        "prior_var_w": float(np.asarray(kept.priors.weight_variance)[0]),
    }
    return kept.draw(jax.random.key(cell.seed), cell["weight_draws"]), row


DECOMPOSITION = DecompositionStudy()
