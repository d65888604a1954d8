"""Which restarts predict, and their stacking weights in the mixture."""

from dataclasses import dataclass, replace

import jax
import numpy as np
from jaxtyping import Float

from ncai.fitting.holdout import HoldOut
from ncai.fitting.noise_recalibration import (
    Judge,
    mix,
    recalibrate_groups,
    recalibrate_mixture,
)
from ncai.fitting.settings import Settings
from ncai.inference.posterior import Fit, GaussianPosterior, Posterior
from ncai.training.driver import FitFailedError

LEAST_SHARE = 1e-3  # of the mixture: what has less is left out
WORST_GAP = 3.0  # nats a row behind the best on the same rows: training went astray
BY_OBJECTIVE = "minus the final objective"
BY_HELD_OUT = "average log-likelihood of the held-out rows"
BY_FOLD = "average log-likelihood of the rows that a restart held out"


@dataclass(frozen=True)
class HeldOut:
    """Log densities of rows by restarts that did not learn from them.

    Args:
        rows: their numbers among the judging rows.
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


def choose(
    fit: Fit, settings: Settings, key, holdout: HoldOut, num_trial_members: int = 0
) -> Choice:
    """The restarts that predict.

    The score is the average log-likelihood of the held-out rows, with folds of those
    that a restart did not see; without any it is minus the final value of the
    objective.

    Args:
        fit: all restarts.
        settings: how they are kept.
        key: of draws of W.
        holdout: the rows that judge.
        num_trial_members: how many of the last restarts come from a short trial fit
            (see `join_fits`).
    """
    posterior = fit.posterior
    if not isinstance(posterior, GaussianPosterior):
        chains = np.arange(posterior.num_components)
        return Choice(posterior, np.zeros(len(chains)), "none", chains)
    if holdout.judges is None:
        return _by_objective(fit, posterior, settings)
    main = len(posterior.shares) - num_trial_members
    judge = Judge(holdout, key, (*range(main), *range(num_trial_members)))
    if settings.keep == "weighted":
        return _stack(fit, posterior, settings, judge)
    log_probs = judge.log_probs(posterior)[0]
    scores = _finite_scores(judge.scores(log_probs), fit, _name(holdout))
    kept = np.array([np.argmax(scores)])
    if settings.keep == "equal":
        kept = np.flatnonzero(np.isfinite(scores) & ~_far_behind(scores, log_probs))
    shares = np.full(len(kept), 1 / len(kept))
    return _choice(posterior, log_probs, scores, holdout, (kept, shares))


def _by_objective(fit: Fit, posterior: GaussianPosterior, settings: Settings) -> Choice:
    """Nothing was held out: the training objective chooses."""
    values = fit.history["value"]
    scores = np.zeros(len(fit.alive))
    if len(values):  # none, if the time limit left no time for a single step
        scores = -np.asarray(values[-1], float)
    scores = _finite_scores(scores, fit, BY_OBJECTIVE)
    kept = np.array([np.argmax(scores)])
    if settings.keep == "equal":
        kept = np.flatnonzero(np.isfinite(scores))
    shares = np.full(len(kept), 1 / len(kept))
    return Choice(posterior.select(kept, shares), scores, BY_OBJECTIVE, kept)


def _stack(
    fit: Fit,
    posterior: GaussianPosterior,
    settings: Settings,
    judge: Judge,
) -> Choice:
    """Recalibrate the noise of each group, weight the groups, recalibrate them all."""
    groups = np.arange(len(fit.alive)) if fit.groups is None else fit.groups
    found = recalibrate_groups(posterior, judge, groups, fit.alive, settings)
    posterior, log_probs = found.posterior, found.log_probs
    scores = _finite_scores(found.scores, fit, _name(judge.holdout))
    living = np.flatnonzero(np.isfinite(scores) & ~_far_behind(scores, log_probs))
    shares = group_shares(log_probs[living], groups[living], judge.row_weights)
    if found.recalibrated:
        posterior, log_probs = recalibrate_mixture(posterior, judge, living, shares)
    large = shares > LEAST_SHARE
    kept, shares = living[large], shares[large] / shares[large].sum()
    return _choice(posterior, log_probs, scores, judge.holdout, (kept, shares))


def _choice(
    posterior: GaussianPosterior,
    log_probs: Float[np.ndarray, "R N"],
    scores: np.ndarray,
    holdout: HoldOut,
    kept_and_shares: tuple[np.ndarray, np.ndarray],
) -> Choice:
    kept, shares = kept_and_shares
    mixed = mix(log_probs[kept], shares)
    known = np.flatnonzero(~np.isnan(mixed))
    chosen = posterior.select(kept, shares)
    held_out = HeldOut(known, mixed[known])
    return Choice(chosen, scores, _name(holdout), kept, held_out)


def _name(holdout: HoldOut) -> str:
    return BY_HELD_OUT if holdout.folds is None else BY_FOLD


def _finite_scores(scores: np.ndarray, fit: Fit, name: str) -> np.ndarray:
    """Scores with minus infinity for restarts that were lost; one must be left."""
    alive = fit.alive & np.isfinite(scores)
    if not alive.any():
        raise FitFailedError(
            f"no restart has a finite {name}: try a smaller learning_rate, or check X "
            "and y for extreme values."
        )
    return np.where(alive, scores, -np.inf)


def join_fits(fit: Fit, trial: Fit) -> Fit:
    """A fit with the restarts of a shorter one after its own.

    In the history those ended early: they are NaN from there on.
    """
    long, short = fit.posterior, trial.posterior
    assert isinstance(long, GaussianPosterior)
    assert isinstance(short, GaussianPosterior)
    count = long.num_components + short.num_components
    mean, scale, priors = jax.tree.map(
        lambda a, b: np.concatenate([np.asarray(a), np.asarray(b)]),
        (long.mean, long.scale, long.priors),
        (short.mean, short.scale, short.priors),
    )
    history = dict(fit.history)
    for name, values in fit.history.items():
        if np.ndim(values) == 2 and name in trial.history:
            added = np.full((len(values), short.num_components), np.nan)
            early = trial.history[name][: len(values)]
            added[: len(early)] = early
            history[name] = np.concatenate([values, added], axis=1)
    shares = np.full(count, 1 / count)
    own = np.arange(long.num_components) if fit.groups is None else fit.groups
    return replace(
        fit,
        posterior=GaussianPosterior(long.model, mean, scale, priors, shares),
        history=history,
        alive=np.concatenate([fit.alive, trial.alive]),
        stop_reasons=[*trial.stop_reasons, *fit.stop_reasons],
        num_steps=fit.num_steps + trial.num_steps,
        groups=np.concatenate([own, np.full(short.num_components, own.max() + 1)]),
    )


def _far_behind(scores: np.ndarray, log_probs: np.ndarray) -> np.ndarray:
    """Restarts that a mixture is better without, judged beside those on the same rows.

    In a log density one of many hardly shows; in a mean it does.
    """
    first_row = np.argmin(np.isnan(log_probs), axis=1)  # which rows a restart has
    scores = np.where(np.isfinite(scores), scores, -np.inf)
    best = np.array([scores[first_row == row].max() for row in first_row])
    with np.errstate(invalid="ignore"):
        return ~(best - scores <= WORST_GAP)


def group_shares(log_probs, groups: np.ndarray, row_weights) -> np.ndarray:
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
