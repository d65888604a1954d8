"""From arrays to a fitted posterior: hold out, pad, train, choose, perhaps refit."""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ncai.fitting.settings import build_method, build_model, has_folds
from ncai.fitting.stacking import HeldOut, choose, fold_of, join_fits
from ncai.inference.iwae import ImportanceWeighted
from ncai.inference.marginal import Marginal
from ncai.inference.mean_field import MeanFieldVI
from ncai.inference.posterior import Fit, GaussianPosterior, Posterior
from ncai.model.mean_field import mean_field_of
from ncai.model.networks import FlatNetwork
from ncai.training.driver import Driver, FitFailedError, Progress
from ncai.types import Data, Rows, Unknowns

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
    kept: np.ndarray  # numbers of the restarts that predict
    held_out: HeldOut | None
    seconds: float
    held_out_score: float | None = None  # in the units of y


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


def draw_folds(num_rows: int, num_folds: int, seed: int) -> np.ndarray:
    """The fold of each row: equal parts, drawn with the seed."""
    return np.random.default_rng(seed).permutation(num_rows) % min(num_folds, num_rows)


def without_own_fold(data: Data, folds: np.ndarray, num_restarts: int) -> Data:
    """Rows whose weight is 0 for the restart that holds out their fold."""
    weights = np.tile(np.asarray(data.row_weights), (num_restarts, 1))
    for restart, row_weights in enumerate(weights):
        row_weights[: len(folds)][folds == fold_of(restart, folds)] = 0
    return data._replace(row_weights=jnp.asarray(weights))


def fit_rows(
    rows: Rows,
    settings: Mapping[str, Any],
    network: FlatNetwork,
    seed: int,
    valid: Rows | None = None,
    start: Unknowns | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    quick: Fit | None = None,
) -> Result:
    """Fit, choose among restarts, and refit on all rows if asked.

    `quick` is a shorter fit to the same rows, whose restarts may be chosen too.
    """
    started = time.monotonic()
    model = build_model(settings, network)
    method_key, refit_key, score_key = jax.random.split(jax.random.key(seed), 3)
    if quick is not None:  # other starts than those of the quick fit
        method_key = jax.random.fold_in(method_key, 1)
    driver = Driver(on_progress, settings["time_limit"])
    samples = settings["inference"] in ("hmc", "hmc_marginal")
    train_index, held = np.arange(len(rows)), np.arange(0)
    folds = None
    if valid is None and has_folds(settings) and len(rows) >= FEWEST_HELD_OUT:
        folds = draw_folds(len(rows), settings["n_folds"], seed)
    elif valid is None and not samples:
        train_index, held = hold_out(len(rows), settings["validation_fraction"], seed)
        if len(held):
            valid = rows.pick(held)
    train, first_train_index = rows.pick(train_index), train_index
    method = build_method(settings, pad_start(start, train_index))
    data = to_data(train)
    if folds is not None:
        data = without_own_fold(data, folds, settings["n_restarts"])
    fit = method.fit(method_key, model, data, driver)
    _warn_of_losses(fit)

    added = [] if quick is None else [quick]
    if isinstance(method, Marginal):
        count = settings["n_snapshots"]
        added += _snapshots(method, refit_key, model, data, fit, count, driver)
        fit = replace(fit, interrupted=driver.interrupted)
    for other in added:
        fit = join_fits(fit, other)
    sizes = [len(other.alive) for other in added]
    chosen = choose(fit, settings, score_key, valid, train, folds, sizes)
    posterior, held_out, kept = chosen.posterior, chosen.held_out, chosen.kept
    if len(held) and held_out is not None:  # their numbers among all rows
        held_out = replace(held_out, rows=held[held_out.rows])
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
            posterior, came_through = refitted
            train_index, kept = order, kept[came_through]
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
        posterior,
        fit,
        train_index,
        first_train_index,
        chosen.scores,
        chosen.score_name,
        kept,
        held_out,
        seconds,
    )


def _warn_of_losses(fit: Fit) -> None:
    lost = np.flatnonzero(~fit.alive)
    if len(lost):
        warnings.warn(
            f"{len(lost)} of {len(fit.alive)} restarts became non-finite and were "
            f"dropped (numbers {lost.tolist()}); the others are used. A smaller "
            "learning_rate may keep them.",
            stacklevel=4,
        )


def _snapshots(
    method: Marginal, key, model, data: Data, fit: Fit, count: int, driver: Driver
) -> list[Fit]:
    """Fits that training went on to, one after another; those that came through."""
    found: list[Fit] = []
    for number in range(count):
        last = (found or [fit])[-1].posterior
        assert isinstance(last, GaussianPosterior)
        if driver.interrupted or driver.out_of_time():
            break
        again = Driver(driver.on_progress, driver.time_limit, started=driver.started)
        begin = mean_field_of(last.mean, last.scale, last.factor), last.priors
        try:
            found.append(
                method.continue_from(
                    jax.random.fold_in(key, number + 1),
                    model,
                    data,
                    *begin,
                    again,
                    name=f"snapshot {number + 1}",
                    rate=1.0,
                )
            )
        except (KeyboardInterrupt, FitFailedError) as error:
            driver.interrupted |= isinstance(error, KeyboardInterrupt)
            reason = "interrupted" if driver.interrupted else "became non-finite"
            driver.stop_reasons.append(f"snapshot {number + 1}: {reason}, and left out")
            break
        driver.interrupted |= again.interrupted
    return found


def _refit(
    method: MeanFieldVI | Marginal | ImportanceWeighted,
    key,
    model,
    posterior: GaussianPosterior,
    num_old: int,
    rows: Rows,
    driver: Driver,
) -> tuple[GaussianPosterior, np.ndarray] | None:
    """The chosen restarts trained on with new rows, and which came through, if any."""
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
    return fit.posterior.select(living, shares / shares.sum()), living  # pyright: ignore


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
    known = min(num_old, mean.latents.shape[1])  # none, where z is integrated out
    new_mean[:, :known] = mean.latents[:, :known]
    new_scale[:, :known] = scale.latents[:, :known]
    real = jnp.result_type(float)
    mean = mean._replace(latents=jnp.asarray(new_mean, real))
    scale = scale._replace(latents=jnp.asarray(new_scale, real))
    return mean_field_of(mean, scale, posterior.factor), priors


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
