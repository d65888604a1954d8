"""`map`: the joint mode of (W, Z), which the paper shows to be a poor summary."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ncai.inference.base import GradientMethod, Training
from ncai.inference.posterior import Fit, GaussianPosterior, Posterior, driver_fit
from ncai.inference.warm_start import (
    as_gaussian,
    initial_priors_of,
    random_points,
    stack_starts,
    with_latents_of,
)
from ncai.model.bnn_lv import Model, PriorState
from ncai.objectives.elbo import NegativeLogJoint
from ncai.training.driver import Driver
from ncai.training.step import initial_state
from ncai.types import Data, Unknowns


@dataclass(frozen=True, kw_only=True, repr=False)
class MAP(GradientMethod):
    """Gradient descent on -log p(Y, W, Z | X) from several starts.

    Starts given as values are used for the first restarts, and random points for the
    others (in the paper: one start at the truth and nine random ones). The settings are
    those of `GradientMethod`.
    """

    name: ClassVar[str] = "map"
    label: ClassVar[str] = "MAP"

    def fit(
        self,
        key: PRNGKeyArray,
        model: Model,
        data: Data,
        training: Training,
        driver: Driver | None = None,
    ) -> Fit:
        """Find one mode for each restart; return them as Gaussians of zero width."""
        driver = driver or Driver()
        point, priors = map_points(self, key, model, data, training, driver)
        return _points_fit(model, point, priors, driver)

    def continue_from(
        self,
        key: PRNGKeyArray,
        model: Model,
        data: Data,
        posterior: Posterior,
        training: Training,
        driver: Driver | None = None,
    ) -> Fit:
        """Continue from the modes of a fit."""
        driver = driver or Driver()
        old = with_latents_of(as_gaussian(posterior, self.label), data.inputs.shape[0])
        keys = jax.random.split(key, old.num_components)
        stage = self.continued_stage(NegativeLogJoint(), training)
        point = jax.tree.map(jnp.asarray, old.mean)
        state = driver.run(stage, model, data, initial_state(point, old.priors, keys))
        return _points_fit(model, state.params, state.priors, driver)


def map_points(
    method: GradientMethod,
    key: PRNGKeyArray,
    model: Model,
    data: Data,
    training: Training,
    driver: Driver,
) -> tuple[Unknowns, PriorState]:
    """Find one joint mode for each restart, and the variances that belong to it."""
    keys = jax.random.split(key, training.num_restarts)
    start = random_points(keys, model, data.inputs.shape[0])
    given = training.start
    if given is not None:
        num_given = min(
            training.num_restarts, jnp.atleast_2d(jnp.asarray(given.weights)).shape[0]
        )
        first = stack_starts(given, num_given, model)
        start = jax.tree.map(
            lambda g, s: jnp.concatenate([g, s[num_given:]]), first, start
        )
    priors = initial_priors_of(keys, model)
    state = initial_state(start, priors, keys)
    stage = method.stage("map", NegativeLogJoint(), training)
    state = driver.run(stage, model, data, state)
    return state.params, state.priors


def _points_fit(model: Model, point: Unknowns, priors: PriorState, driver) -> Fit:
    scale = jax.tree.map(jnp.zeros_like, point)
    # Learned noise is a point estimate too.
    scale = scale._replace(log_noise_var=scale.log_noise_var[:, :0])
    count = point.weights.shape[0]
    shares = np.full(count, 1 / count)
    return driver_fit(GaussianPosterior(model, point, scale, priors, shares), driver)
