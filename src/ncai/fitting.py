"""From arrays to a fitted posterior: hold out, pad, train, choose, perhaps refit."""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ncai.inference.importance import ImportanceWeighted
from ncai.inference.marginal import Marginal
from ncai.inference.mean_field import MeanFieldVI
from ncai.networks import FlatNetwork
from ncai.optimise import Driver, FitFailedError, Progress
from ncai.posterior import Fit, GaussianPosterior, Posterior
from ncai.predictive import PredictiveDistribution
from ncai.scaling import Scaling
from ncai.settings import build_method, build_model
from ncai.types import Data, Rows, Unknowns
from ncai.variational import MeanField, raw_scale_of

FEWEST_HELD_OUT = 5


@dataclass(frozen=True)
class Result:
    """What a fit hands to the estimator."""

    posterior: Posterior
    fit: Fit
    train_index: np.ndarray
    first_train_index: np.ndarray  # before a refit adds the held-out rows
    scores: np.ndarray
    score_name: str
    seconds: float


def padded_size(num_rows: int) -> int:
    """The next size of a sparse list, at most an eighth more: 8, 16, 24, ..., 768, ...

    Data of nearly the same size then share a compiled program.
    """
    step = max(8, 2 ** max(num_rows.bit_length() - 4, 0))
    return -(-num_rows // step) * step


def to_data(rows: Rows) -> Data:
    """Rows for JAX, padded with rows of weight 0."""
    extra = padded_size(len(rows)) - len(rows)

    def pad(array):
        widths = [(0, extra)] + [(0, 0)] * (array.ndim - 1)
        return jnp.asarray(np.pad(array, widths), jnp.result_type(float))

    return Data(pad(rows.inputs), pad(rows.targets), pad(rows.weights))


def pad_start(start: Unknowns | None, index: np.ndarray) -> Unknowns | None:
    """A start given for all rows, for the padded training rows."""
    if start is None:
        return None
    latents = np.asarray(start.latents)[..., index, :]
    extra = padded_size(len(index)) - len(index)
    widths = [(0, 0)] * (latents.ndim - 2) + [(0, extra), (0, 0)]
    return start._replace(latents=jnp.asarray(np.pad(latents, widths)))


def hold_out(
    num_rows: int, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers to train on and to hold out (none, if that would be too few)."""
    num_held = round(fraction * num_rows)
    if num_held < FEWEST_HELD_OUT or num_rows - num_held < FEWEST_HELD_OUT:
        return np.arange(num_rows), np.arange(0)
    order = np.random.default_rng(seed).permutation(num_rows)
    return np.sort(order[num_held:]), np.sort(order[:num_held])


def fit_rows(
    rows: Rows,
    settings: Mapping[str, Any],
    network: FlatNetwork,
    seed: int,
    valid: Rows | None = None,
    start: Unknowns | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Fit, choose among restarts, and refit on all rows if asked."""
    started = time.monotonic()
    model = build_model(settings, network)
    method_key, refit_key, score_key = jax.random.split(jax.random.key(seed), 3)
    driver = Driver(on_progress, settings["time_limit"])
    samples = settings["inference"] in ("hmc", "hmc_marginal")
    train_index, held = np.arange(len(rows)), np.arange(0)
    if valid is None and not samples:
        train_index, held = hold_out(len(rows), settings["validation_fraction"], seed)
        if len(held):
            valid = rows.pick(held)
    train, first_train_index = rows.pick(train_index), train_index
    method = build_method(settings, pad_start(start, train_index))
    fit = method.fit(method_key, model, to_data(train), driver)
    _warn_of_losses(fit)

    posterior, scores, score_name = choose(fit, valid, settings["keep"], score_key)
    if (
        settings["refit"]
        and len(held)
        and not fit.interrupted
        and isinstance(method, MeanFieldVI | Marginal | ImportanceWeighted)
        and isinstance(posterior, GaussianPosterior)
    ):
        order = np.concatenate([train_index, held])
        again = Driver(on_progress, settings["time_limit"], started=driver.started)
        refitted = _refit(
            method, refit_key, model, posterior, len(train), rows.pick(order), again
        )
        if refitted is not None:
            posterior, train_index = refitted, order
        fit = replace(
            fit,
            stop_reasons=fit.stop_reasons + again.stop_reasons,
            num_steps=fit.num_steps + again.steps,
            interrupted=again.interrupted,
        )
    if fit.interrupted:
        warnings.warn(
            f"stopped by Ctrl-C after {fit.num_steps} steps: the model is fitted, with "
            "the best found so far.",
            stacklevel=3,
        )
    posterior = _without_padding(posterior, len(train_index))
    seconds = time.monotonic() - started
    return Result(
        posterior, fit, train_index, first_train_index, scores, score_name, seconds
    )


def fit_scaled(
    rows: Rows,
    settings: Mapping[str, Any],
    network: FlatNetwork,
    seed: int,
    valid: Rows | None = None,
    start: Unknowns | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> tuple[Scaling, Result]:
    """Fit rows in the user's units, under each transform of y that is asked for.

    Of several, the one with the best density of the held-out rows in the units of y.
    """
    started = time.monotonic()
    best, best_score = None, -np.inf
    names = _transforms_to_try(rows, settings, valid)
    time_limit = settings["time_limit"]
    for name in names:
        scaling = Scaling.learn(rows, settings["standardize"], name)
        scaled_valid = None if valid is None else scaling.apply(valid)
        share = {"time_limit": time_limit and time_limit / len(names)}
        result = fit_rows(
            scaling.apply(rows),
            {**settings, **share},
            network,
            seed,
            scaled_valid,
            start,
            on_progress,
        )
        if len(names) == 1:
            return scaling, result
        held = valid
        if held is None:
            unseen = np.setdiff1d(np.arange(len(rows)), result.first_train_index)
            held = rows.pick(unseen)
        score = result.scores.max() + scaling.log_density_shift(held)
        if best is None or score > best_score:
            best, best_score = (scaling, result), score
        if result.fit.interrupted:
            break
    assert best is not None
    scaling, result = best
    return scaling, replace(result, seconds=time.monotonic() - started)


def _transforms_to_try(rows: Rows, settings, valid: Rows | None) -> list[str]:
    asked = settings["target_transform"]
    if asked != "auto":
        return [asked]
    held_out = len(hold_out(len(rows), settings["validation_fraction"], 0)[1])
    if settings["inference"] in ("hmc", "hmc_marginal"):
        held_out = 0
    if valid is None and not held_out:
        return ["none"]  # nothing to choose by
    positive = (rows.targets > 0).all() and (valid is None or (valid.targets > 0).all())
    return ["none", "log"] if positive else ["none", "yeo_johnson"]


def choose(fit: Fit, valid: Rows | None, keep: str, key):
    """The restarts that predict, and the score of each.

    The score is the average log-likelihood of the held-out rows, or, without any, minus
    the final value of the objective.
    """
    posterior = fit.posterior
    if not isinstance(posterior, GaussianPosterior):
        return posterior, np.zeros(posterior.num_components), "none"
    if valid is None:
        values = fit.history["value"]
        scores = np.zeros(len(fit.alive))
        if len(values):  # none, if the time limit left no time for a single step
            scores = -np.asarray(values[-1], float)
        name = "minus the final objective"
        log_probs = None
    else:
        log_probs = np.stack(
            [
                score_rows(posterior.select(i), valid, key)
                for i in range(posterior.num_components)
            ]
        )
        share = valid.weights / valid.weights.sum()
        scores = log_probs @ share
        name = "average log-likelihood of the held-out rows"
    alive = fit.alive & np.isfinite(scores)
    if not alive.any():
        raise FitFailedError(
            f"no restart has a finite {name}: try a smaller learning_rate, or check X "
            "and y for extreme values."
        )
    scores = np.where(alive, scores, -np.inf)
    living = np.flatnonzero(alive)
    if keep == "best" or (keep == "weighted" and log_probs is None):
        return posterior.select(int(np.argmax(scores))), scores, name
    if keep == "equal":
        return posterior.select(living), scores, name
    assert log_probs is not None
    assert valid is not None
    shares = stacking_weights(log_probs[living], valid.weights)
    kept = shares > 1e-3
    shares = shares[kept] / shares[kept].sum()
    return posterior.select(living[kept], shares), scores, name


def score_rows(posterior: Posterior, rows: Rows, key) -> np.ndarray:
    """Log predictive density of rows, in the units of training."""
    predictive = PredictiveDistribution(
        network=posterior.model.network,
        inputs=rows.inputs,
        draws=posterior.draw(key, 64),
        num_latent_draws=32,
        target_shift=np.zeros(rows.targets.shape[1]),
        target_scale=np.ones(rows.targets.shape[1]),
        single_output=False,
    )
    return predictive.log_prob(rows.targets)


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


def _warn_of_losses(fit: Fit) -> None:
    lost = np.flatnonzero(~fit.alive)
    if len(lost):
        warnings.warn(
            f"{len(lost)} of {len(fit.alive)} restarts became non-finite and were "
            f"dropped (numbers {lost.tolist()}); the others are used. A smaller "
            "learning_rate may keep them.",
            stacklevel=4,
        )


def _refit(
    method: MeanFieldVI | Marginal | ImportanceWeighted,
    key,
    model,
    posterior: GaussianPosterior,
    num_old: int,
    rows: Rows,
    driver: Driver,
) -> GaussianPosterior | None:
    """The chosen restarts trained on with new rows; None if none came through."""
    begin = _with_new_rows(posterior, num_old, len(rows))
    try:
        fit = method.continue_from(key, model, to_data(rows), *begin, driver)
    except KeyboardInterrupt:
        driver.interrupted = True
        driver.stop_reasons.append("refit: interrupted, and left out")
        return None
    except FitFailedError:
        warnings.warn(
            "the refit with the held-out rows became non-finite: the model is the one "
            "fitted without them. A smaller learning_rate may help.",
            stacklevel=4,
        )
        driver.stop_reasons.append("refit: became non-finite, and left out")
        return None
    _warn_of_losses(fit)
    living = np.flatnonzero(fit.alive)
    shares = posterior.shares[living]
    return fit.posterior.select(living, shares / shares.sum())  # pyright: ignore


def _with_new_rows(posterior: GaussianPosterior, num_old: int, num_all: int):
    """Q and variances with latents for new rows, each as wide as its prior."""
    size = padded_size(num_all)
    mean, scale, priors = posterior.mean, posterior.scale, posterior.priors
    num_kept, _, dims = mean.latents.shape
    new_mean = np.zeros((num_kept, size, dims))
    new_scale = np.array(
        np.broadcast_to(
            np.sqrt(np.asarray(priors.latent_variance))[:, None, None], new_mean.shape
        )
    )
    new_mean[:, :num_old] = mean.latents[:, :num_old]
    new_scale[:, :num_old] = scale.latents[:, :num_old]
    real = jnp.result_type(float)
    mean = mean._replace(latents=jnp.asarray(new_mean, real))
    scale = scale._replace(latents=jnp.asarray(new_scale, real))
    raw = jax.tree.map(lambda s: raw_scale_of(jnp.maximum(s, 1e-6)), scale)
    return MeanField(mean, raw), priors


def _without_padding(posterior: Posterior, num_rows: int) -> Posterior:
    """Latents of the real rows only."""
    if isinstance(posterior, GaussianPosterior):
        return replace(
            posterior,
            mean=posterior.mean._replace(latents=posterior.mean.latents[:, :num_rows]),
            scale=posterior.scale._replace(
                latents=posterior.scale.latents[:, :num_rows]
            ),
        )
    samples = posterior.samples
    return replace(
        posterior, samples=samples._replace(latents=samples.latents[:, :, :num_rows])
    )
