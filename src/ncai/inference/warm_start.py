"""NCAI's warm start: weights of a deterministic network, latents at (almost) 0."""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ncai.inference.base import GradientMethod, Training
from ncai.inference.starts import random_points, stack_starts
from ncai.model.bnn_lv import Model
from ncai.model.empirical_bayes import initial_priors_of
from ncai.objectives.elbo import DeterministicError
from ncai.runtime.jax_setup import RUN_ONCE
from ncai.training.driver import Driver
from ncai.training.step import initial_state
from ncai.types import Data, Unknowns


def ncai_start(
    keys: PRNGKeyArray,
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
    keys: PRNGKeyArray,
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
