"""`decomposition`: total, aleatoric and epistemic uncertainty over x on Depeweg.

By MFVI, NCAI and `marginal`, beside HMC as the gold standard (paper, fig:decomp). All
have HMC's model (s_w = 10, s_z = 1, s_eps = 0.1), so that all approximate the same
posterior; they come again with the benchmark's empirical Bayes for s_w. The
estimator's default is there too, with its own network, prior and mixture of restarts.
HMC's draws are those in results/hmc of a clone (benchmarks/references/hmc.py), or come
from a file that the variable NCAI_HMC_DRAWS names, or are sampled. Where a clone has
draws for a network of 10 nodes, the methods are compared with them as well.
"""

import json
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

from ncai.datasets.synthetic import Part
from ncai.estimators.bnn_lv import BNNLVRegressor
from ncai.fitting.holdout import to_data
from ncai.inference.base import Training
from ncai.inference.hmc import HMCMarginal
from ncai.inference.nuts import judge_weights, posterior_of_weights
from ncai.inference.posterior import GaussianPosterior
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
    COMMITTED,
    WEIGHT_DRAWS,
    KnownProblem,
    Point,
    committed_draws,
    digest_of_draws,
    oracle_entropy,
    predictive_at,
    reference_problem,
)
from ncai.study.output.tables import Table
from ncai.types import WeightDraws


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


# Names a file with `weights` [chains, draws, weights], of the same data and model.
DRAWS_FILE = "NCAI_HMC_DRAWS"
MIXING = ("max_rhat", "min_ess", "mixed", "num_chains", "num_draws")


def reference_draws(cell: Cell, known: KnownProblem) -> tuple[WeightDraws, dict]:
    """Draws of W, and where they come from with how well their chains mixed.

    From the file that the variable names, else those of this clone if the cell says so,
    else sampled here.
    """
    path, whole_run = os.environ.get(DRAWS_FILE), {}
    if not path and not cell.get("committed"):
        posterior, report = _sampled(cell, known)
        row = {name: getattr(report, name) for name in MIXING}
        return _kept(posterior, cell, row | {"source": "sampled here"})
    if path:
        weights, name = _from_file(Path(path)), Path(path).name
    else:
        hidden = cell.get("hidden", HIDDEN)
        weights, name = committed_draws(hidden, known), COMMITTED.name
        assert weights is not None
        reports = json.loads(COMMITTED.with_suffix(".json").read_text())
        whole_run = {key: reports[str(hidden)][key] for key in MIXING}
    posterior = posterior_of_weights(known.model, weights)
    report = judge_weights(known.model, known.data, weights)
    row = {name: getattr(report, name) for name in MIXING} | whole_run
    source = f"{name} (sha256 {digest_of_draws(weights)})"
    return _kept(posterior, cell, row | {"source": source})


def _kept(posterior, cell: Cell, row: dict) -> tuple[WeightDraws, dict]:
    return posterior.draw(jax.random.key(0), cell["kept"]), row


def _from_file(path: Path) -> np.ndarray:
    if not path.is_file():
        raise FileNotFoundError(f"{DRAWS_FILE}={path} names no file.")
    with np.load(path, allow_pickle=False) as found:
        return found["weights"] if "weights" in found else np.zeros(0)


def _sampled(cell: Cell, known: KnownProblem):
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
    return fit.posterior, fit.sampler


DATASET = "depeweg"
# The paper's network, and a small one of which HMC's draws are cheap to check.
HIDDEN, SMALL = 50, 10
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
        cells = [select, self._reference(scale)]
        sizes = {
            "restarts": scale.restarts,
            "max_steps": scale.max_steps,
            "warm_start_steps": scale.warm_start_steps,
            "weight_draws": 32 if scale.name == "smoke" else WEIGHT_DRAWS,
        }
        chosen = store.load_row(select)
        others: list[dict] = [
            {"method": method, "weight_prior": prior}
            for prior in ("shared", "empirical")
            for method in ("mfvi", "marginal", "ncai")
        ]
        small = self._reference(scale, SMALL)
        if small.get("committed"):
            cells.append(small)
            others += [one | {"hidden": SMALL} for one in others[:3]]
        for one in others:
            if one["method"] != "ncai":
                cells.append(Cell.of(self.name, **one, **sizes))
            elif chosen is not None:
                point = tuple(chosen["chosen"])
                cells.append(Cell.of(self.name, **one, point=point, **sizes))
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

    def _reference(self, scale: Scale, hidden: int = HIDDEN) -> Cell:
        """By the draws of this clone if it has any; the smallest scale samples."""
        size = SAMPLER_SIZES[scale.name]
        found = None if scale.name == "smoke" else committed_draws(hidden)
        settings: dict[str, Any] = size._asdict()
        if found is not None:
            settings = {"committed": digest_of_draws(found), "kept": size.kept}
        if hidden != HIDDEN:
            settings |= {"hidden": hidden}
        return Cell.of(self.name, method=REFERENCE, **settings)

    def run(self, cell: Cell) -> Outcome:
        """Uncertainties over a grid of x, by each measure."""
        known = reference_problem(cell.get("hidden", HIDDEN))
        grid = np.linspace(LOW, HIGH, GRID_POINTS)[:, None]
        if cell["method"] == DEFAULT:
            predictive, row = _default(cell, known, grid)
        else:
            draw = reference_draws if cell["method"] == REFERENCE else _approximation
            draws, row = draw(cell, known)
            predictive = predictive_at(known.model.network, draws, grid)
        train = _rows(known)
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


def _rows(known: KnownProblem) -> Part:
    """The training rows, of which the small problem has only the first."""
    train, count = known.drawn.train, len(known.data.inputs)
    return Part(train.inputs[:count], train.targets[:count], None)


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
    data = to_data(rows_of(_rows(known)))
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


def load_outcomes(scale: Scale, store: Store, hidden: int = HIDDEN) -> Found:
    """From the store, for the network of this size."""
    reference, others = None, {}
    for cell in DECOMPOSITION.cells(scale, store):
        wanted = cell.study == DECOMPOSITION.name
        wanted = wanted and cell.get("hidden", HIDDEN) == hidden
        outcome = store.load(cell) if wanted else None
        if outcome is None or not set(NEEDED) <= set(outcome.arrays):
            continue  # missing, or computed by a version with other measures
        if cell["method"] == REFERENCE:
            reference = outcome
        else:
            others[cell["method"], cell["weight_prior"]] = outcome
    return Found(reference, others)


def distances(scale: Scale, store: Store, hidden: int = HIDDEN) -> pd.DataFrame:
    """A line for each method and prior; empty without the reference.

    Mean absolute difference over the grid of x of each part, and the rank correlation
    of the epistemic part. Variances are compared as standard deviations.
    """
    reference, others = load_outcomes(scale, store, hidden)
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
    """One for entropy, the paper's measure, one for variance and one for CRPS."""
    return [t for size in (HIDDEN, SMALL) for t in _tables(scale, store, size)]


def _tables(scale: Scale, store: Store, hidden: int) -> list[Table]:
    found = distances(scale, store, hidden)
    reference = load_outcomes(scale, store, hidden).reference
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
        name = f"decomposition_{measure}"
        if hidden != HIDDEN:
            title, name = f"{title}, {hidden} hidden nodes", f"{name}_{hidden}"
        out.append(Table(name, title, columns, rows, note))
    return out
