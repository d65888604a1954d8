"""Which restarts predict, and their stacking weights in the mixture."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

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

LEAST_SHARE = 1e-3  # restarts with a smaller weight leave the mixture
WORST_GAP = 3.0  # a restart that is this far behind, in nats per row, has failed

BY_OBJECTIVE = "minus the final objective"
BY_HELD_OUT = "average log-likelihood of the held-out rows"
BY_FOLD = "average log-likelihood of the rows that a restart held out"


@dataclass(frozen=True)
class HeldOut:
    """Log densities of held-out rows, by restarts that did not train on them.

    Args:
        rows: the numbers of the rows among all rows, or among the user's validation
            rows if there are any.
        log_probs: log densities under the mixture that predicts, in the units of
            training.
    """

    rows: np.ndarray
    log_probs: np.ndarray


@dataclass(frozen=True)
class Choice:
    """The posterior that predicts, and the score of each restart; higher is better.

    `kept` holds the numbers of the restarts that predict, in the order of the
    posterior.
    """

    posterior: Posterior
    scores: np.ndarray
    score_name: str
    kept: np.ndarray
    held_out: HeldOut | None = None


def choose(
    fit: Fit, settings: Settings, key, holdout: HoldOut, num_trial_members: int = 0
) -> Choice:
    """Choose the restarts that predict.

    The score of a restart is the average log-likelihood of the rows that it held out.
    If no rows were held out, it is minus the final value of the objective.

    Args:
        fit: all restarts.
        settings: the settings of the fit, such as `keep`.
        key: random key of the draws of W.
        holdout: the held-out rows.
        num_trial_members: how many of the last restarts come from a trial fit (see
            `join_fits`).
    """
    posterior = fit.posterior
    if not isinstance(posterior, GaussianPosterior):
        chains = np.arange(posterior.num_components)
        return Choice(posterior, np.zeros(len(chains)), "none", chains)
    if holdout.judges is None:
        return _by_objective(fit, posterior, settings)
    main = len(posterior.shares) - num_trial_members
    judge = Judge(holdout, key, (*range(main), *range(num_trial_members)))
    name = BY_HELD_OUT if holdout.folds is None else BY_FOLD
    restarts = _Restarts(fit, posterior, settings, judge, name)
    weighted = settings.keep == "weighted"
    found = restarts.stacked() if weighted else restarts.selected()
    mixed = mix(found.log_probs[found.kept], found.shares)
    known = np.flatnonzero(~np.isnan(mixed))
    rows = known if holdout.held_index is None else holdout.held_index[known]
    return Choice(
        found.posterior.select(found.kept, found.shares),
        found.scores,
        name,
        found.kept,
        HeldOut(rows, mixed[known]),
    )


def _by_objective(fit: Fit, posterior: GaussianPosterior, settings: Settings) -> Choice:
    """Choose by the training objective, because no rows were held out."""
    values = fit.history["value"]
    scores = np.zeros(len(fit.alive))
    if len(values):  # empty if the time limit ended before the first step
        scores = -np.asarray(values[-1], float)
    scores = _finite_scores(scores, fit, BY_OBJECTIVE)
    kept = np.array([np.argmax(scores)])
    if settings.keep == "equal":
        kept = np.flatnonzero(np.isfinite(scores))
    shares = np.full(len(kept), 1 / len(kept))
    return Choice(posterior.select(kept, shares), scores, BY_OBJECTIVE, kept)


class _Chosen(NamedTuple):
    """All restarts with their held-out log densities, and those that predict."""

    posterior: GaussianPosterior
    log_probs: Float[np.ndarray, "R N"]
    scores: Float[np.ndarray, "R"]
    kept: Int[np.ndarray, "members"]
    shares: Float[np.ndarray, "members"]


@dataclass(frozen=True)
class _Restarts:
    """All restarts of a fit, and the held-out rows that score them."""

    fit: Fit
    posterior: GaussianPosterior
    settings: Settings
    judge: Judge
    score_name: str

    def selected(self) -> _Chosen:
        """Keep the best restart, or all that did not fail, with equal weights."""
        log_probs = self.judge.log_probs(self.posterior)[0]
        scores = self._finite(self.judge.scores(log_probs))
        kept = np.array([np.argmax(scores)])
        if self.settings.keep == "equal":
            kept = _not_failed(scores, log_probs)
        shares = np.full(len(kept), 1 / len(kept))
        return _Chosen(self.posterior, log_probs, scores, kept, shares)

    def stacked(self) -> _Chosen:
        """Recalibrate the noise of groups, fit stacking weights, recalibrate again."""
        fit, judge, groups = self.fit, self.judge, self.fit.groups
        if groups is None:
            groups = np.arange(len(fit.alive))
        found = recalibrate_groups(
            self.posterior, judge, groups, fit.alive, self.settings
        )
        posterior, log_probs = found.posterior, found.log_probs
        scores = self._finite(found.scores)
        living = _not_failed(scores, log_probs)
        shares = group_shares(log_probs[living], groups[living], judge.row_weights)
        if found.recalibrated:
            posterior, log_probs = recalibrate_mixture(posterior, judge, living, shares)
        large = shares > LEAST_SHARE
        kept, shares = living[large], shares[large] / shares[large].sum()
        return _Chosen(posterior, log_probs, scores, kept, shares)

    def _finite(self, scores: np.ndarray) -> np.ndarray:
        return _finite_scores(scores, self.fit, self.score_name)


def _finite_scores(scores: np.ndarray, fit: Fit, name: str) -> np.ndarray:
    """Set the scores of lost restarts to minus infinity; raise if all were lost."""
    alive = fit.alive & np.isfinite(scores)
    if not alive.any():
        raise FitFailedError(
            f"no restart has a finite {name}: try a smaller learning_rate, or check X "
            "and y for extreme values."
        )
    return np.where(alive, scores, -np.inf)


def join_fits(fit: Fit, trial: Fit) -> Fit:
    """Append the restarts of a shorter fit to a fit.

    In the history, the appended restarts are NaN after their last step.
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


def _not_failed(scores: np.ndarray, log_probs: np.ndarray) -> np.ndarray:
    """Return the numbers of the restarts that are finite and not far behind."""
    return np.flatnonzero(np.isfinite(scores) & ~_far_behind(scores, log_probs))


def _far_behind(scores: np.ndarray, log_probs: np.ndarray) -> np.ndarray:
    """Find restarts far behind others that were scored on the same rows.

    One such restart among many hardly affects the log density, but it spoils the mean.
    """
    first_row = np.argmin(np.isnan(log_probs), axis=1)  # identifies a restart's rows
    scores = np.where(np.isfinite(scores), scores, -np.inf)
    best = np.array([scores[first_row == row].max() for row in first_row])
    with np.errstate(invalid="ignore"):
        return ~(best - scores <= WORST_GAP)


def group_shares(log_probs, groups: np.ndarray, row_weights) -> np.ndarray:
    """Fit stacking weights that are equal for all restarts of a group."""
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
    """Fit the mixture weights that maximise the log-likelihood of held-out rows.

    The objective is concave, so EM from equal weights finds its maximum.
    """
    density = np.exp(log_probs - log_probs.max(axis=0))
    shares = np.full(len(log_probs), 1 / len(log_probs))
    for _ in range(num_steps):
        joint = shares[:, None] * density
        responsibility = joint / joint.sum(axis=0)
        shares = responsibility @ row_weights / row_weights.sum()
    return shares
