"""`map`: the joint mode of (W, Z), which the paper shows to be a poor summary."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ncai.inference.base import (
    Inference,
    Training,
    driver_fit,
    random_points,
    stack_starts,
)
from ncai.inference.posterior import Fit, GaussianPosterior
from ncai.model.bnn_lv import Model, initial_priors_of
from ncai.objectives.elbo import NegativeLogJoint
from ncai.training.driver import Driver
from ncai.training.step import initial_state
from ncai.types import Data, Unknowns


@dataclass(frozen=True)
class MAP(Inference):
    """Gradient descent on -log p(Y, W, Z | X) from several starts.

    Args:
        training: restarts, steps, rates.
        given: starts by value; they fill the first restarts, random ones the rest (the
            paper's 1 at the truth and 9 random ones).
    """

    training: Training = field(default_factory=Training)
    given: Unknowns | None = None

    def fit(
        self, key: PRNGKeyArray, model: Model, data: Data, driver: Driver | None = None
    ) -> Fit:
        """The modes found, as Gaussians of zero width."""
        driver = driver or Driver()
        point, priors = map_points(
            key, model, data, self.training, driver, given=self.given
        )
        scale = jax.tree.map(jnp.zeros_like, point)
        shares = np.full(self.training.num_restarts, 1 / self.training.num_restarts)
        # Learned noise stays a point too.
        scale = scale._replace(log_noise_var=scale.log_noise_var[:, :0])
        posterior = GaussianPosterior(model, point, scale, priors, shares)
        return driver_fit(posterior, driver)


def map_points(
    key: PRNGKeyArray,
    model: Model,
    data: Data,
    training: Training,
    driver: Driver,
    given: Unknowns | None = None,
):
    """One joint mode for each restart, and the variances that belong to it."""
    num_rows = data.inputs.shape[0]
    keys = jax.random.split(key, training.num_restarts)
    start = random_points(keys, model, num_rows)
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
    stage = training.stage("map", NegativeLogJoint())
    state = driver.run(stage, model, data, state)
    return state.params, state.priors
