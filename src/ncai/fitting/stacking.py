"""Which restarts predict, and how much each counts."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ncai.fitting.noise_recalibration import (
    AS_LEARNED,
    OF_GROUPS,
    OF_GROUPS_WITHOUT_SPREAD,
    OF_MIXTURE,
    NoiseGrid,
    for_more_members,
    log_probs_on_grid,
    mix,
    width_of_mixture,
    widths_by_group,
)
from ncai.fitting.settings import restart_temperatures
from ncai.inference.posterior import Fit, GaussianPosterior, Posterior
from ncai.runtime.jax_setup import num_threads
from ncai.training.driver import FitFailedError
from ncai.types import Rows

LEAST_SHARE = 1e-3  # of the mixture: what has less is left out
WORST_GAP = 3.0  # nats a row behind the best on the same rows: training went astray


@dataclass(frozen=True)
class HeldOut:
    """Log densities of rows by restarts that did not learn from them.

    Args:
        rows: their numbers among the validation rows, or those trained on (folds).
        log_probs: of the mixture that predicts, in the units of training.
    """

    rows: np.ndarray
    log_probs: np.ndarray


@dataclass(frozen=True)
class Choice:
    """What predicts, and the score of each restart: higher is better.

    `kept` holds the numbers of the restarts that predict, as the posterior has them.
    """

    posterior: Posterior
    scores: np.ndarray
    score_name: str
    kept: np.ndarray
    held_out: HeldOut | None = None


def fold_of(restart: int, folds: np.ndarray) -> int:
    """The fold that a restart holds out."""
    return restart % (int(folds.max()) + 1)


def choose(
    fit: Fit,
    settings: Mapping[str, Any],
    key,
    valid: Rows | None,
    train: Rows,
    folds: np.ndarray | None = None,
    added: Sequence[int] = (),
) -> Choice:
    """The restarts that predict.

    The score is the average log-likelihood of the held-out rows: those of `valid`, or
    with folds the part of `train` that a restart did not see. Without either it is
    minus the final value of the objective. `added` tells how many restarts come from
    each of the fits that were joined to the first (see `join_fits`).

    Where restarts are weighted, the width of learned noise is chosen with them: see
    `noise_widths`.
    """
    posterior = fit.posterior
    if not isinstance(posterior, GaussianPosterior):
        chains = np.arange(posterior.num_components)
        return Choice(posterior, np.zeros(len(chains)), "none", chains)
    judged = train if folds is not None else valid
    if judged is None:
        values = fit.history["value"]
        scores = np.zeros(len(fit.alive))
        if len(values):  # none, if the time limit left no time for a single step
            scores = -np.asarray(values[-1], float)
        name = "minus the final objective"
        log_probs = None
    else:
        grid = _widths_to_try(settings, posterior)
        on_grid = _log_probs(posterior, judged, key, folds, added, grid)
        log_probs = on_grid[0]
        scores = _scores(log_probs, judged)
        name = "average log-likelihood of the held-out rows"
        if folds is not None:
            name = "average log-likelihood of the rows that a restart held out"
    alive = fit.alive & np.isfinite(scores)
    if not alive.any():
        raise FitFailedError(
            f"no restart has a finite {name}: try a smaller learning_rate, or check X "
            "and y for extreme values."
        )
    scores = np.where(alive, scores, -np.inf)
    living = np.flatnonzero(alive)
    keep = settings["keep"]
    if keep == "best" or (keep == "weighted" and log_probs is None):
        kept, shares = np.array([np.argmax(scores)]), np.ones(1)
    elif log_probs is None or judged is None or keep == "equal":
        if log_probs is not None:
            living = np.flatnonzero(alive & ~_far_behind(scores, log_probs))
        kept, shares = living, np.full(len(living), 1 / len(living))
    else:
        groups = _groups(settings, folds, added)
        widths = np.zeros(len(alive), int)
        widths[living] = widths_by_group(
            on_grid[:, living], groups[living], judged.weights
        )
        log_probs = on_grid[widths, np.arange(len(alive))]
        posterior = posterior.with_noise(grid.factors[widths], grid.spreads[widths])
        # A restart is as good as it is at its width.
        scores = np.where(alive, _scores(log_probs, judged), -np.inf)
        living = np.flatnonzero(alive & ~_far_behind(scores, log_probs))
        shares = _group_shares(log_probs[living], groups[living], judged.weights)
        if len(grid.factors) > 1:
            on_grid = _log_probs(posterior, judged, key, folds, added, OF_MIXTURE)
            # With folds a row is held out by one restart of a group. Weights that leave
            # one group only would make the width that of a restart alone, not of the
            # many which predict together; so there all groups count the same.
            counts = shares if folds is None else np.ones(len(living))
            best = width_of_mixture(on_grid[:, living], counts, judged.weights)
            judges = np.mean(np.sum(~np.isnan(log_probs[living]), axis=0))
            factor = for_more_members(
                float(OF_MIXTURE.factors[best]), float(judges), len(living)
            )
            every = np.ones(len(alive))
            posterior = posterior.with_noise(factor * every, 0 * every)
            log_probs = on_grid[best]
        kept = living[shares > LEAST_SHARE]
        shares = shares[shares > LEAST_SHARE]
        shares = shares / shares.sum()
    chosen = posterior.select(kept, shares)
    if log_probs is None:
        return Choice(chosen, scores, name, kept)
    mixed = mix(log_probs[kept], shares)
    known = np.flatnonzero(~np.isnan(mixed))
    return Choice(chosen, scores, name, kept, HeldOut(known, mixed[known]))


def join_fits(fit: Fit, quick: Fit) -> Fit:
    """A fit with the restarts of a shorter one (or a later one) after its own.

    In the history those ended early: they are NaN from there on.
    """
    long, short = fit.posterior, quick.posterior
    assert isinstance(long, GaussianPosterior)
    assert isinstance(short, GaussianPosterior)
    count = long.num_components + short.num_components
    mean, scale, priors, factor = jax.tree.map(
        lambda a, b: np.concatenate([np.asarray(a), np.asarray(b)]),
        (long.mean, long.scale, long.priors, long.factor),
        (short.mean, short.scale, short.priors, short.factor),
    )
    history = dict(fit.history)
    for name, values in fit.history.items():
        if np.ndim(values) == 2 and name in quick.history:
            added = np.full((len(values), short.num_components), np.nan)
            early = quick.history[name][: len(values)]
            added[: len(early)] = early
            history[name] = np.concatenate([values, added], axis=1)
    return replace(
        fit,
        posterior=GaussianPosterior(
            long.model, mean, scale, priors, np.full(count, 1 / count), factor
        ),
        history=history,
        alive=np.concatenate([fit.alive, quick.alive]),
        stop_reasons=[*quick.stop_reasons, *fit.stop_reasons],
        num_steps=fit.num_steps + quick.num_steps,
    )


def _widths_to_try(settings: Mapping[str, Any], posterior: Posterior) -> NoiseGrid:
    """Widths of the noise are chosen where restarts are weighted, if it is learned."""
    mode = posterior.model.noise_variance.mode
    if not settings["tune_noise"] or settings["keep"] != "weighted" or mode == "fixed":
        return AS_LEARNED
    return OF_GROUPS if mode == "variational" else OF_GROUPS_WITHOUT_SPREAD


def _log_probs(
    posterior,
    rows: Rows,
    key,
    folds: np.ndarray | None,
    added: Sequence[int],
    grid: NoiseGrid,
) -> Float[np.ndarray, "G R N"]:
    """At each width of the noise; NaN where a restart learned from a row."""
    count = posterior.num_components
    found = np.full((len(grid.factors), count, len(rows)), np.nan)
    sizes = (count - sum(added), *added)
    numbers = [number for size in sizes for number in range(size)]  # within its fit

    def judge(i: int) -> None:
        own = np.ones(len(rows), bool)
        if folds is not None:
            own = folds == fold_of(numbers[i], folds)
        part = rows.pick(own)
        found[:, i, own] = log_probs_on_grid(posterior.select(i), part, key, grid)

    judge(0)  # which compiles; the others side by side
    with ThreadPoolExecutor(num_threads()) as pool:
        list(pool.map(judge, range(1, count)))
    return found


def _scores(log_probs: Float[np.ndarray, "R N"], rows: Rows) -> np.ndarray:
    """The average of each restart over the rows that it did not learn from."""
    weights = np.where(np.isnan(log_probs), 0.0, rows.weights)
    totals = (weights * np.nan_to_num(log_probs, nan=0.0)).sum(axis=1)
    return totals / np.maximum(weights.sum(axis=1), 1e-300)


def _far_behind(scores: np.ndarray, log_probs: np.ndarray) -> np.ndarray:
    """Restarts that a mixture is better without, judged beside those on the same rows.

    In a log density one of many hardly shows; in a mean it does.
    """
    first_row = np.argmin(np.isnan(log_probs), axis=1)  # tells restarts' rows apart
    scores = np.where(np.isfinite(scores), scores, -np.inf)
    best = np.array([scores[first_row == row].max() for row in first_row])
    with np.errstate(invalid="ignore"):
        return ~(best - scores <= WORST_GAP)


def _groups(settings: Mapping[str, Any], folds, added: Sequence[int]) -> np.ndarray:
    """Restarts that share a weight: those of a temperature, and those of an added fit.

    With one temperature and no folds each has a weight of its own.
    """
    temperatures = np.array(restart_temperatures(settings))
    if folds is None and len(set(temperatures)) == 1:
        own = np.arange(len(temperatures))
    else:
        own = np.unique(temperatures, return_inverse=True)[1]
    more = np.repeat(np.arange(len(added)), added) + own.max() + 1
    return np.concatenate([own, more])


def _group_shares(log_probs, groups: np.ndarray, row_weights) -> np.ndarray:
    """Weights of restarts, equal within a group, that fit the held-out rows best."""
    names = np.unique(groups)
    by_group = np.stack(
        [mix(log_probs[groups == g], np.ones((groups == g).sum())) for g in names]
    )
    known = ~np.isnan(by_group).any(axis=0)
    shares = np.full(len(names), 1 / len(names))
    if known.any():
        shares = stacking_weights(by_group[:, known], row_weights[known])
    sizes = np.array([(groups == g).sum() for g in names])
    return (shares / sizes)[np.searchsorted(names, groups)]


def stacking_weights(
    log_probs: np.ndarray, row_weights: np.ndarray, num_steps: int = 500
) -> np.ndarray:
    """Mixture weights of the restarts that maximise the held-out log-likelihood.

    By EM, from equal weights: the objective is concave.
    """
    density = np.exp(log_probs - log_probs.max(axis=0))
    shares = np.full(len(log_probs), 1 / len(log_probs))
    for _ in range(num_steps):
        joint = shares[:, None] * density
        responsibility = joint / joint.sum(axis=0)
        shares = responsibility @ row_weights / row_weights.sum()
    return shares
