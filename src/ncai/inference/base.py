"""What the methods share: the interface, training settings, and starting values."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ncai.inference.posterior import Fit, GaussianPosterior
from ncai.model.bnn_lv import Model, PriorState, initial_priors_of
from ncai.model.mean_field import MeanField, raw_scale_of, scale_of, scale_of_rows
from ncai.objectives.elbo import DeterministicError
from ncai.runtime.jax_setup import RUN_ONCE
from ncai.training.driver import Driver, Stage
from ncai.training.step import TrainState, initial_state
from ncai.types import Data, Unknowns


@dataclass(frozen=True)
class Training:
    """Settings of a training run that are not about the method.

    Args:
        num_restarts: starts from different random values, trained side by side.
        max_steps: limit on the steps of the main training.
        learning_rate: Adam's.
        schedule: "constant" (the paper's), or "cosine": in each stage the rate falls to
            0, which takes far fewer steps. With it, `plateau` is not looked at.
        num_samples: Monte Carlo draws of (W, Z) a step.
        plateau: stop early when no restart improves, after lowering its rate.
        rate_drops: how often a restart's rate is lowered to a third at a plateau.
        tolerance: the improvement, in nats a row from one window of 1000 steps to the
            next, below which a restart is on a plateau.
        warm_start_steps: steps of the deterministic network of the NCAI start.
        settle_steps: steps for the scales alone, where a start has its means given.
        noise_starts: where learned noise begins, restart by restart in turn; if empty,
            at the model's value.
        fixed_noise: values of fixed noise, restart by restart in turn (a grid in one
            run); if empty, the model's.
    """

    num_restarts: int = 10
    max_steps: int = 30_000
    learning_rate: float = 0.01
    schedule: str = "constant"
    num_samples: int = 1
    plateau: bool = False
    rate_drops: int = 0
    tolerance: float = 1e-3
    warm_start_steps: int = 5_000
    settle_steps: int = 3_000
    noise_starts: tuple[float, ...] = ()
    fixed_noise: tuple[float, ...] = ()

    def stage(self, name: str, objective: Any, **changes) -> Stage:
        """A stage with these settings."""
        settings = {
            "max_steps": self.max_steps,
            "learning_rate": self.learning_rate,
            "schedule": self.schedule,
            # Half way down its cosine a rate is too small to tell a plateau by.
            "plateau": self.plateau and self.schedule == "constant",
            "rate_drops": self.rate_drops,
            "tolerance": self.tolerance,
        }
        return Stage(name, objective, **(settings | changes))


class Inference(ABC):
    """A method: all settings are fields; one call gives a `Fit` with every restart."""

    @abstractmethod
    def fit(
        self, key: PRNGKeyArray, model: Model, data: Data, driver: Driver | None = None
    ) -> Fit:
        """Approximate the posterior of the model given the data."""


def noise_start(model: Model) -> jax.Array:
    """Where the unknown log variance of the noise begins (empty if it is not one)."""
    if model.noise_is_unknown:
        return jnp.log(jnp.asarray(model.noise_variance.value, float))
    return jnp.zeros(0)


def random_point(key: PRNGKeyArray, model: Model, num_rows: int) -> Unknowns:
    """Random weights, and latents drawn like xavier-normal's: near 0."""
    weight_key, latent_key = jax.random.split(key)
    dims = model.network.latent_dim
    spread = (2.0 / (num_rows + dims)) ** 0.5
    return Unknowns(
        model.network.init(weight_key),
        spread * jax.random.normal(latent_key, (num_rows, dims)),
        noise_start(model),
    )


@jax.jit(static_argnames=("num_rows",), compiler_options=RUN_ONCE)
def random_points(keys: PRNGKeyArray, model: Model, num_rows: int) -> Unknowns:
    """A random point for each key."""
    return jax.vmap(lambda key: random_point(key, model, num_rows))(keys)


def mean_field_at(key: PRNGKeyArray, model: Model, point: Unknowns) -> MeanField:
    """A narrow q around a point.

    The paper draws "all variational parameters" from xavier-normal, which has no
    meaning for the variance of a vector; scales start near 0.05, a little apart.
    """
    keys = jax.random.split(key, 3)

    def scale(key, like):
        jitter = jnp.exp(0.1 * jax.random.normal(key, like.shape))
        return raw_scale_of(0.05 * jitter)

    noise_like = (
        point.log_noise_var
        if model.noise_variance.mode == "variational"
        else point.log_noise_var[:0]
    )
    return MeanField(
        point,
        Unknowns(
            scale(keys[0], point.weights),
            scale(keys[1], point.latents),
            scale(keys[2], noise_like),
        ),
    )


def ncai_start(
    keys: PRNGKeyArray, model: Model, data: Data, training: Training, driver: Driver
) -> Unknowns:
    """Step 1 of NCAI: weights of a deterministic network, latents at (almost) 0.

    One network for each restart, trained at z = 0. The latents get a spread of 1e-3 of
    their prior width so that no covariance is singular.
    """
    num_rows = data.inputs.shape[0]
    points = random_points(keys, model, num_rows)
    priors = initial_priors_of(keys, model)
    state = initial_state(points.weights, priors, keys)
    stage = Stage(
        "warm start",
        DeterministicError(),
        max_steps=training.warm_start_steps,
        learning_rate=training.learning_rate,
        schedule=training.schedule,
        plateau=training.plateau,
        tolerance=1e-4,
        window=500,
        per_row=False,
        worth_keeping=False,
    )
    state = driver.run(stage, model, data, state)

    latents = _tiny_latents(keys, priors.latent_variance, points.latents)
    return Unknowns(state.params, latents, points.log_noise_var)


def starting_points(
    start: str | Unknowns,
    keys: PRNGKeyArray,
    model: Model,
    data: Data,
    training: Training,
    driver: Driver,
) -> Unknowns:
    """A point for each restart: given by value, of NCAI's warm start, or random."""
    if isinstance(start, Unknowns):
        return stack_starts(start, len(keys), model)
    if start == "ncai":
        return ncai_start(keys, model, data, training, driver)
    return random_points(keys, model, data.inputs.shape[0])


@jax.jit(compiler_options=RUN_ONCE)
def _tiny_latents(keys, latent_variance, like):
    noise = jax.vmap(lambda k: jax.random.normal(k, like.shape[1:]))(keys)
    return 1e-3 * jnp.sqrt(latent_variance)[:, None, None] * noise


def stack_starts(given: Unknowns, num_restarts: int, model: Model) -> Unknowns:
    """A start given by value, once for each restart.

    Its arrays may have a leading axis of their own, one entry a start; those are used
    in turn.
    """
    single = jnp.ndim(given.weights) == 1
    weights = jnp.atleast_2d(jnp.asarray(given.weights, float))
    latents = jnp.asarray(given.latents, float)
    latents = latents[None] if single else latents
    pick = np.arange(num_restarts) % weights.shape[0]
    noise = jnp.broadcast_to(
        noise_start(model), (num_restarts, noise_start(model).size)
    )
    return Unknowns(weights[pick], latents[pick], noise)


def starting_state(
    keys: list[PRNGKeyArray], model: Model, point: Unknowns, training: Training
) -> TrainState:
    """A narrow q around the points, and variances, before the first step.

    `keys` are three: for the scales, the variances, and the steps that follow.

    Compiled as one program: step by step, JAX would compile dozens of small ones, which
    takes longer than many a fit.
    """
    scale_key, prior_key, train_key = keys
    count = point.weights.shape[0]
    priors = initial_priors_of(jax.random.split(prior_key, count), model)
    return _starting_state(
        (scale_key, train_key),
        model,
        point,
        priors,
        np.asarray(training.noise_starts, float),
        np.asarray(training.fixed_noise, float),
    )


@jax.jit(compiler_options=RUN_ONCE)
def _starting_state(
    keys, model, point, priors, noise_starts, fixed_noise
) -> TrainState:
    scale_key, train_key = keys
    count = point.weights.shape[0]

    def in_turn(values, like):
        values = values[jnp.arange(count) % len(values)]
        return jnp.broadcast_to(values[:, None], like.shape).astype(like.dtype)

    if model.noise_is_unknown and noise_starts.size:
        log_noise = in_turn(jnp.log(noise_starts), point.log_noise_var)
        point = point._replace(log_noise_var=log_noise)
    q = jax.vmap(lambda k, p: mean_field_at(k, model, p))(
        jax.random.split(scale_key, count), point
    )
    if model.noise_variance.mode == "fixed" and fixed_noise.size:
        priors = priors._replace(
            noise_variance=in_turn(fixed_noise, priors.noise_variance)
        )
    return initial_state(q, priors, jax.random.split(train_key, count))


def gaussian_fit(model: Model, q: MeanField, priors: PriorState, driver: Driver) -> Fit:
    """The result of a variational method."""
    num_restarts = q.mean.weights.shape[0]
    scale, factor = _scale_of(q), q.factor
    if factor is not None:
        factor = factor * scale_of_rows(factor, scale.weights)
    shares = np.full(num_restarts, 1 / num_restarts)
    posterior = GaussianPosterior(model, q.mean, scale, priors, shares, factor)
    return driver_fit(posterior, driver)


_scale_of = jax.jit(scale_of)


def driver_fit(posterior: GaussianPosterior, driver: Driver) -> Fit:
    """A `Fit` from what the driver saw."""
    alive = driver.alive
    if alive is None:
        alive = np.ones(posterior.num_components, bool)
    return Fit(
        posterior,
        driver.history.stacked() | {"stage": list(driver.history.stage)},
        alive,
        driver.stop_reasons,
        driver.steps,
        driver.interrupted,
    )
