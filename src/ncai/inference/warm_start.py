"""Where training begins: NCAI's warm start, random points, or points by value."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from ncai.inference.base import GradientMethod, Training
from ncai.inference.posterior import GaussianPosterior, Posterior
from ncai.model.bnn_lv import Model
from ncai.model.empirical_bayes import initial_priors_of
from ncai.model.mean_field import MeanField, raw_scale_of
from ncai.objectives.elbo import DeterministicError
from ncai.runtime.jax_setup import RUN_ONCE
from ncai.training.driver import Driver
from ncai.training.step import TrainState, initial_state
from ncai.types import Data, Unknowns


def ncai_start(
    keys: Key[Array, "R"],
    model: Model,
    data: Data,
    method: GradientMethod,
    training: Training,
    driver: Driver,
) -> Unknowns:
    """Step 1 of NCAI: one network for each restart, trained at z = 0.

    The latents get a spread of 1e-3 of their prior width so that no covariance is
    singular.
    """
    points = random_points(keys, model, data.inputs.shape[0])
    priors = initial_priors_of(keys, model)
    state = initial_state(points.weights, priors, keys)
    stage = method.stage(
        "warm start",
        DeterministicError(),
        training,
        max_steps=training.warm_start_steps,
        plateau=bool(method.plateau),
        rate_drops=0,
        tolerance=1e-4,
        window=500,
        per_row=False,
        worth_keeping=False,
    )
    state = driver.run(stage, model, data, state)
    latents = _tiny_latents(keys, priors.latent_variance, points.latents)
    return Unknowns(state.params, latents, points.log_noise_var)


@jax.jit(compiler_options=RUN_ONCE)
def _tiny_latents(keys, latent_variance, like):
    noise = jax.vmap(lambda k: jax.random.normal(k, like.shape[1:]))(keys)
    return 1e-3 * jnp.sqrt(latent_variance)[:, None, None] * noise


def starting_points(
    start: str,
    keys: Key[Array, "R"],
    model: Model,
    data: Data,
    method: GradientMethod,
    training: Training,
    driver: Driver,
) -> Unknowns:
    """A point for each restart: given by value, of NCAI's warm start, or random."""
    if training.start is not None:
        return stack_starts(training.start, len(keys), model)
    if start == "ncai":
        return ncai_start(keys, model, data, method, training, driver)
    return random_points(keys, model, data.inputs.shape[0])


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
def random_points(keys: Key[Array, "R"], model: Model, num_rows: int) -> Unknowns:
    """A random point for each key."""
    return jax.vmap(lambda key: random_point(key, model, num_rows))(keys)


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


def starting_state(
    keys: list[PRNGKeyArray],
    model: Model,
    point: Unknowns,
    training: Training,
    noise_starts: tuple[float, ...] | None,
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
        np.asarray(noise_starts or (), float),
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


def with_latents_of(posterior: GaussianPosterior, num_rows: int) -> GaussianPosterior:
    """The posterior with a q(z) for so many rows: that of a new row is its prior."""
    mean, scale, priors = posterior.mean, posterior.scale, posterior.priors
    num_restarts, num_known, dims = mean.latents.shape
    width = np.sqrt(np.asarray(priors.latent_variance))[:, None, None]
    new_mean = np.zeros((num_restarts, num_rows, dims))
    new_scale = np.array(np.broadcast_to(width, new_mean.shape))
    known = min(num_known, num_rows)
    new_mean[:, :known] = mean.latents[:, :known]
    new_scale[:, :known] = scale.latents[:, :known]
    real = jnp.result_type(float)
    return replace(
        posterior,
        mean=mean._replace(latents=jnp.asarray(new_mean, real)),
        scale=scale._replace(latents=jnp.asarray(new_scale, real)),
    )


def as_gaussian(posterior: Posterior, method: str) -> GaussianPosterior:
    """The posterior, refused if it is a sampler's draws."""
    if not isinstance(posterior, GaussianPosterior):
        raise ValueError(
            f"{method} cannot go on from draws of a sampler; it needs a Gaussian "
            "posterior, as the variational methods leave it."
        )
    return posterior
