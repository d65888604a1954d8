"""Train restarts on rows in the units of training, and choose which predict."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import numpy as np

from ncai.fitting.holdout import pad_start, plan_holdout
from ncai.fitting.settings import Settings
from ncai.fitting.stacking import HeldOut, choose, join_fits
from ncai.inference.base import Training
from ncai.inference.posterior import Fit, GaussianPosterior, Posterior
from ncai.model.networks import FlatNetwork
from ncai.training.driver import Driver, Progress
from ncai.types import TrainingRows, Unknowns


@dataclass(frozen=True)
class FitTask:
    """Everything that a fit needs except its rows.

    Args:
        settings: resolved and checked.
        network: f, with known sizes.
        seed: seed of all random numbers.
        start: a start given as values for all rows, if there is one.
        on_progress: called after each chunk of steps.
        trial: the trial fit to the same rows, whose restarts may join the mixture.
    """

    settings: Settings
    network: FlatNetwork
    seed: int
    start: Unknowns | None = None
    on_progress: Callable[[Progress], None] | None = None
    trial: Fit | None = None


@dataclass(frozen=True)
class Result:
    """The result of a fit, for the estimator."""

    posterior: Posterior
    fit: Fit
    train_index: np.ndarray
    scores: np.ndarray
    score_name: str
    kept: np.ndarray  # numbers of the restarts that predict
    held_out: HeldOut | None
    seconds: float
    held_out_score: float | None = None  # in the units of y


def fit_rows(
    task: FitTask, rows: TrainingRows, valid: TrainingRows | None = None
) -> Result:
    """Hold out, train, and choose among restarts."""
    started = time.monotonic()
    settings = task.settings
    key, _, score_key = jax.random.split(jax.random.key(task.seed), 3)
    if task.trial is not None:  # use other starts than the trial fit
        key = jax.random.fold_in(key, 1)
    holdout = plan_holdout(rows, settings, task.seed, valid)
    data = holdout.data(rows, settings.n_restarts)
    training = Training.of(
        settings.n_restarts,
        settings.max_steps,
        start=pad_start(task.start, holdout.train_index),
        folded=settings.has_folds,
    )
    model = settings.method.build_model(task.network, settings.noise_variance)
    driver = Driver(task.on_progress, settings.time_limit)
    fit = settings.method.fit(key, model, data, training, driver)
    lost = np.flatnonzero(~fit.alive)
    if len(lost):
        warnings.warn(
            f"{len(lost)} of {len(fit.alive)} restarts became non-finite and were "
            f"dropped (numbers {lost.tolist()}); the others are used. A smaller "
            "learning_rate may keep them.",
            stacklevel=4,
        )
    num_trial_members = 0
    if task.trial is not None:
        fit = join_fits(fit, task.trial)
        num_trial_members = len(task.trial.alive)
    chosen = choose(fit, settings, score_key, holdout, num_trial_members)
    if fit.interrupted:
        warnings.warn(
            f"stopped by Ctrl-C after {fit.num_steps} steps: the model is fitted, with "
            "the best found so far.",
            stacklevel=3,
        )
    return Result(
        _without_padding(chosen.posterior, len(holdout.train_index)),
        fit,
        holdout.train_index,
        chosen.scores,
        chosen.score_name,
        chosen.kept,
        chosen.held_out,
        time.monotonic() - started,
    )


def _without_padding(posterior: Posterior, num_rows: int) -> Posterior:
    """Return the posterior without the latents of padding rows."""
    if isinstance(posterior, GaussianPosterior):
        mean, scale = (
            part._replace(latents=part.latents[:, :num_rows])
            for part in (posterior.mean, posterior.scale)
        )
        return replace(posterior, mean=mean, scale=scale)
    samples = posterior.samples
    return replace(
        posterior, samples=samples._replace(latents=samples.latents[:, :, :num_rows])
    )
