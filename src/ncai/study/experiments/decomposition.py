"""`decomposition`: total, aleatoric and epistemic uncertainty over x on Depeweg.

The study compares MFVI, NCAI and `marginal` with HMC as the gold standard (paper,
fig:decomp). Each is fitted with the model of HMC (s_w = 10, s_z = 1, s_eps = 0.1), so
that all approximate the same posterior, and again with empirical Bayes for s_w, as in
the benchmark. The default of the estimator is fitted too, with its own network, prior
and mixture of restarts. The draws of HMC come from a file of an earlier run, or are
sampled.
"""

import hashlib
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from ncai.estimators.bnn_lv import BNNLVRegressor
from ncai.fitting.holdout import to_data
from ncai.inference.base import Training
from ncai.inference.hmc import HMCMarginal
from ncai.inference.nuts import (
    DrawInfo,
    Target,
    check_points,
    judge_mixing,
    predictive_summary,
)
from ncai.inference.posterior import (
    GaussianPosterior,
    Posterior,
    SamplePosterior,
    SamplerReport,
)
from ncai.inference.warm_start import initial_priors
from ncai.model.bnn_lv import Model, Variance
from ncai.predictive.decomposition import PARTS
from ncai.predictive.distribution import PredictiveDistribution
from ncai.study.engine import Cell, Outcome, Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.fits import (
    FITS,
    log_likelihoods,
    paper_method,
    rows_of,
    tighter_method,
)
from ncai.study.experiments.problems import (
    WEIGHT_DRAWS,
    KnownProblem,
    Point,
    known_problem,
    oracle_entropy,
    predictive_at,
)
from ncai.study.output.tables import Table
from ncai.types import Unknowns, WeightDraws

# The environment variable that names a file with `weights` [chains, draws, weights],
# for the same data and model.
DRAWS_FILE = "NCAI_HMC_DRAWS"


class SamplerSize(NamedTuple):
    """Sizes of the HMC run; `kept` draws are used, and `start_steps` find its start."""

    chains: int
    warmup: int
    draws: int
    doublings: int
    kept: int
    start_steps: int


SAMPLER_SIZES = {
    "smoke": SamplerSize(2, 25, 25, 3, 32, 30),
    "small": SamplerSize(4, 300, 500, 8, 512, 3_000),
    "paper": SamplerSize(4, 600, 4_000, 10, 1_024, 5_000),
}


def reference_draws(cell: Cell, known: KnownProblem) -> tuple[WeightDraws, dict]:
    """Return draws of W, their source, and how well their chains mixed."""
    path = os.environ.get(DRAWS_FILE)
    if path:
        posterior, report, source = posterior_from_file(Path(path), known)
    else:
        posterior, report, source = _sampled(cell, known)
    row = {
        "source": source,
        "max_rhat": report.max_rhat,
        "min_ess": report.min_ess,
        "mixed": report.mixed,
        "num_chains": report.num_chains,
        "num_draws": report.num_draws,
    }
    return posterior.draw(jax.random.key(0), cell["kept"]), row


def posterior_from_file(
    path: Path, known: KnownProblem
) -> tuple[Posterior, SamplerReport, str]:
    """Return the draws of an earlier run, how well they mixed, and their label."""
    network = known.model.network
    if not path.is_file():
        raise FileNotFoundError(f"{DRAWS_FILE}={path} names no file.")
    with np.load(path, allow_pickle=False) as found:
        weights: Any = found["weights"] if "weights" in found else np.zeros(0)
    if weights.ndim != 3 or weights.shape[2] != network.num_weights:
        raise ValueError(
            f"{path} holds weights of shape {list(weights.shape)}; it must be "
            f"[chains, draws, {network.num_weights}]."
        )
    chains, draws, _ = weights.shape
    samples = Unknowns(
        jnp.asarray(weights, jnp.float32),
        jnp.zeros((chains, draws, 0, network.latent_dim)),
        jnp.zeros((chains, draws, 0)),
    )
    priors = initial_priors(jax.random.key(0), known.model)
    target = Target(known.model, known.data, priors, None)
    inputs, nodes = check_points(target)
    by_draw = jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), samples)
    summary = np.asarray(predictive_summary(target, by_draw, inputs, nodes))
    # The file contains only the draws, not the sampler's information on each.
    nothing = jnp.zeros((draws, chains))
    report = judge_mixing(summary, DrawInfo(nothing, nothing, nothing, nothing))
    posterior = SamplePosterior(
        known.model,
        samples,
        jax.tree.map(lambda a: jnp.broadcast_to(a, (chains, *a.shape)), priors),
        np.full(chains, 1 / chains),
    )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return posterior, report, f"{path.name} (sha256 {digest})"


def _sampled(cell: Cell, known: KnownProblem) -> tuple[Posterior, SamplerReport, str]:
    method = HMCMarginal(
        n_chains=cell["chains"],
        n_warmup=cell["warmup"],
        n_draws=cell["draws"],
        max_doublings=cell["doublings"],
        start_steps=cell["start_steps"],
    ).resolved("paper")
    training = Training(max_steps=cell["start_steps"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the table shows it
        fit = method.fit(jax.random.key(cell.seed), known.model, known.data, training)
    assert fit.sampler is not None
    return fit.posterior, fit.sampler, "sampled here"


DATASET, DRAW = "depeweg", 0
REFERENCE, DEFAULT = "hmc", "default"
OWN_PRIORS = ("own", "own_2", "own_3")  # the default, fitted with three seeds
LOW, HIGH, GRID_POINTS = -5.5, 5.5, 111
MEASURES = ("entropy", "variance", "crps")
NEEDED = tuple(f"{measure}_{part}" for measure in MEASURES for part in PARTS)
METHOD_LABELS = {
    "mfvi": "MFVI",
    "ncai": "NCAI",
    "marginal": "marginal",
    "default": "default",
    "hmc": "HMC",
}
PRIOR_LABELS = {
    "shared": "10, as HMC's",
    "empirical": "empirical Bayes",
    "own": "its own network",
    "own_2": "its own, another seed",
    "own_3": "its own, a third seed",
}


@dataclass(frozen=True)
class DecompositionStudy:
    """The study `decomposition`."""

    name: str = "decomposition"
    title: str = "Aleatoric and epistemic uncertainty on Depeweg (fig:decomp)"

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """NCAI's selection in the benchmark, HMC, then each method with each prior."""
        select = FITS.select_cell(scale, DATASET, "ncai")
        cells = [
            select,
            Cell.of(self.name, method=REFERENCE, **SAMPLER_SIZES[scale.name]._asdict()),
        ]
        sizes = {
            "restarts": scale.restarts,
            "max_steps": scale.max_steps,
            "warm_start_steps": scale.warm_start_steps,
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
        ours = BNNLVRegressor().resolved_settings()
        whole = scale.name == "paper"
        cells += [
            Cell.of(
                self.name,
                method=DEFAULT,
                weight_prior=prior,
                restarts=ours.n_restarts if whole else scale.restarts,
                max_steps=min(ours.max_steps, scale.max_steps),
            )
            for prior in (OWN_PRIORS if whole else OWN_PRIORS[:1])
        ]
        return cells

    def run(self, cell: Cell) -> Outcome:
        """Compute the parts of the uncertainty over a grid of x, by each measure."""
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
    """Fit `BNNLVRegressor()`, which knows nothing of the truth except the rows."""
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
    )
    points = (Point(*cell["point"]),) if cell["method"] == "ncai" else ()
    method = (
        tighter_method("marginal").set_params(start="random")
        if cell["method"] == "marginal"
        else paper_method(cell["method"], points)
    )
    model = known.model
    if cell["weight_prior"] == "empirical":
        model = Model(
            model.network,
            Variance(jnp.asarray(1.0), "empirical"),
            model.latent_variance,
            model.noise_variance,
        )
    data = to_data(rows_of(known.drawn.train))
    fit = method.fit(jax.random.key(cell.seed), model, data, training)
    posterior = fit.posterior
    assert isinstance(posterior, GaussianPosterior)
    scores = log_likelihoods(posterior, known.drawn.valid)
    scores = np.where(fit.alive, scores, -np.inf)
    best = int(np.argmax(scores))
    kept = posterior.select(best)
    row = {
        "validation": float(scores[best]),
        "prior_var_w": float(np.asarray(kept.priors.weight_variance)[0]),
    }
    return kept.draw(jax.random.key(cell.seed), cell["weight_draws"]), row


DECOMPOSITION = DecompositionStudy()


class Found(NamedTuple):
    """The outcomes so far: of HMC, and of the others by method and prior."""

    reference: Outcome | None
    others: dict[tuple[str, str], Outcome]


def load_outcomes(scale: Scale, store: Store) -> Found:
    """Load the outcomes from the store."""
    reference, others = None, {}
    for cell in DECOMPOSITION.cells(scale, store):
        outcome = store.load(cell) if cell.study == DECOMPOSITION.name else None
        if outcome is None or not set(NEEDED) <= set(outcome.arrays):
            continue  # missing, or computed by a version with other measures
        if cell["method"] == REFERENCE:
            reference = outcome
        else:
            others[cell["method"], cell["weight_prior"]] = outcome
    return Found(reference, others)


def distances(scale: Scale, store: Store) -> pd.DataFrame:
    """A line for each method and prior; empty without the reference.

    Mean absolute difference over the grid of x of each part, and the rank correlation
    of the epistemic part. Variances are compared as standard deviations.
    """
    reference, others = load_outcomes(scale, store)
    if reference is None:
        return pd.DataFrame()
    lines = []
    for (method, prior), outcome in others.items():
        line: dict = {"method": method, "weight_prior": prior}
        for measure in MEASURES:
            for part in PARTS:
                ours, theirs = (
                    _comparable(measure, o.arrays[f"{measure}_{part}"])
                    for o in (outcome, reference)
                )
                line[f"{measure}_{part}"] = float(np.mean(np.abs(ours - theirs)))
            ours, theirs = (
                o.arrays[f"{measure}_epistemic"] for o in (outcome, reference)
            )
            line[f"{measure}_rank"] = float(spearmanr(ours, theirs)[0])  # pyright: ignore
        lines.append(line)
    return pd.DataFrame(lines)


def _comparable(measure: str, values: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(values, 0)) if measure == "variance" else values


def tables(scale: Scale, store: Store) -> list[Table]:
    """Return a table each for entropy (the paper's measure), variance and CRPS."""
    found = distances(scale, store)
    reference = load_outcomes(scale, store).reference
    if reference is None or found.empty:
        return []
    row = reference.row
    verdict = "mixed" if row["mixed"] else "NOT mixed: a rough picture only"
    note = (
        "Mean absolute difference from HMC's over x, and rank correlation of the "
        f"epistemic part with HMC's. HMC: {row['source']}, {row['num_chains']} chains "
        f"of {row['num_draws']} draws, largest R-hat {row['max_rhat']:.3f}, smallest "
        f"effective sample size {row['min_ess']:.0f} ({verdict})."
    )
    units = {
        "entropy": "entropy, nats",
        "variance": "standard deviations, units of y",
        "crps": "CRPS, units of y",
    }
    out = []
    for measure in MEASURES:
        columns = (
            "method",
            "s_w",
            *PARTS,
            "rank correlation of epistemic",
        )
        rows = tuple(
            (
                METHOD_LABELS[line["method"]],
                PRIOR_LABELS[line["weight_prior"]],
                *(f"{line[f'{measure}_{part}']:.3f}" for part in PARTS),
                f"{line[f'{measure}_rank']:.2f}",
            )
            for line in found.to_dict("records")
        )
        title = f"Distance of each decomposition from HMC's ({units[measure]})"
        out.append(Table(f"decomposition_{measure}", title, columns, rows, note))
    return out
