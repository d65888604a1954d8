"""Starting points of training: NCAI's warm start, random points or given values."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from ncai.inference.base import GradientMethod, Training
from ncai.inference.posterior import GaussianPosterior, Posterior
from ncai.model.bnn_lv import Model, PriorState, Variance, noise_start
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

    The latents get a spread of 1e-3 prior standard deviations, so that no covariance is
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
    """Return a point for each restart: given values, NCAI's warm start, or random."""
    if training.start is not None:
        return stack_starts(training.start, len(keys), model)
    if start == "ncai":
        return ncai_start(keys, model, data, method, training, driver)
    return random_points(keys, model, data.inputs.shape[0])


def initial_priors(key: PRNGKeyArray, model: Model) -> PriorState:
    """The variances at the start: fixed values, or draws from the hyper-prior."""
    one = initial_priors_of(jnp.reshape(key, (1,)), model)
    return jax.tree.map(lambda a: a[0], one)


def initial_priors_of(keys: Key[Array, "R"], model: Model) -> PriorState:
    """`initial_priors` for each key."""
    variances = model.weight_variance, model.latent_variance, model.noise_variance
    return PriorState(*_first_variances(keys, variances))


# A separate program that does not depend on network or data: the gamma sampler
# takes a second to compile, which would be too long for every new shape.
@jax.jit(compiler_options=RUN_ONCE)
def _first_variances(keys, variances: tuple[Variance, ...]) -> tuple[Array, ...]:
    def first(key, variance: Variance):
        if variance.mode == "empirical":
            gamma = jax.random.gamma(key, variance.alpha, jnp.shape(variance.value))
            return variance.beta / jnp.maximum(gamma, 1e-3)
        return jnp.asarray(variance.value, float)

    def one(key):
        each = jax.random.split(key, len(variances))
        return tuple(first(k, v) for k, v in zip(each, variances, strict=True))

    return jax.vmap(one)(keys)


def random_point(key: PRNGKeyArray, model: Model, num_rows: int) -> Unknowns:
    """Draw random weights, and latents near 0 as from a Xavier-normal distribution."""
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
    """Repeat a start given as values for each restart.

    Its arrays may have a leading axis with several starts, which the restarts use in
    turn.
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
    """Return a narrow q around a point.

    The paper draws "all variational parameters" from a Xavier-normal distribution,
    which is not defined for the variance of a vector. Our scales start near 0.05, with
    small differences.
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
    """Return a narrow q around the points, and variances, before the first step.

    `keys` has three keys: for the scales, for the variances, and for the training
    steps.

    This is compiled as one program. Otherwise JAX would compile dozens of small ones,
    which can take longer than the fit.
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
    """Extend the posterior to this many rows; q(z) of a new row is the prior."""
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
    """Return the posterior; reject the draws of a sampler."""
    if not isinstance(posterior, GaussianPosterior):
        raise ValueError(
            f"{method} cannot go on from draws of a sampler; it needs a Gaussian "
            "posterior, as the variational methods leave it."
        )
    return posterior
