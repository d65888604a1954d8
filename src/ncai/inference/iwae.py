"""`iwae`: W and z by the importance-weighted bound, for any number of latents."""

from dataclasses import dataclass, field

import jax
from jaxtyping import PRNGKeyArray

from ncai.inference.base import (
    Inference,
    Training,
    gaussian_fit,
    starting_points,
    starting_state,
)
from ncai.inference.marginal import with_unit_latents
from ncai.inference.posterior import Fit
from ncai.model.bnn_lv import Model, PriorState
from ncai.model.mean_field import MeanField
from ncai.objectives.importance_bound import NegativeImportanceBound
from ncai.training.driver import Driver
from ncai.training.step import initial_state
from ncai.types import Data, Unknowns


@dataclass(frozen=True)
class ImportanceWeighted(Inference):
    """A factorised Gaussian over W and z, the latter only proposing samples.

    Args:
        training: restarts, steps, rates.
        start: "ncai": weights of a network trained at z = 0, or "random", or values.
        temperatures: of the prior of W, restart by restart in turn.
        num_latent_samples: M; 1 is the ELBO.
    """

    training: Training = field(default_factory=Training)
    start: str | Unknowns = "ncai"
    temperatures: tuple[float, ...] = (1.0,)
    num_latent_samples: int = 8

    def fit(
        self, key: PRNGKeyArray, model: Model, data: Data, driver: Driver | None = None
    ) -> Fit:
        """One Gaussian for each restart."""
        driver = driver or Driver()
        model = with_unit_latents(model)
        start_key, *state_keys = jax.random.split(key, 4)
        num_restarts = self.training.num_restarts
        keys = jax.random.split(start_key, num_restarts)
        point = starting_points(self.start, keys, model, data, self.training, driver)
        state = starting_state(state_keys, model, point, self.training)
        stage = self.training.stage("bound", self._objectives(num_restarts))
        state = driver.run_from(stage, model, data, state)
        return gaussian_fit(model, state.params, state.priors, driver)

    def continue_from(
        self,
        key: PRNGKeyArray,
        model: Model,
        data: Data,
        q: MeanField,
        priors: PriorState,
        driver: Driver,
    ) -> Fit:
        """Train on from a fit, on other rows: short, and with a low rate."""
        keys = jax.random.split(key, q.mean.weights.shape[0])
        stage = self.training.stage(
            "refit",
            self._objectives(len(keys)),
            max_steps=max(self.training.max_steps // 5, 1),
            learning_rate=self.training.learning_rate / 3,
        )
        model = with_unit_latents(model)
        state = driver.run(stage, model, data, initial_state(q, priors, keys))
        return gaussian_fit(model, state.params, state.priors, driver)

    def _objectives(self, num_restarts: int) -> tuple[NegativeImportanceBound, ...]:
        return tuple(
            NegativeImportanceBound(
                self.temperatures[i % len(self.temperatures)], self.num_latent_samples
            )
            for i in range(num_restarts)
        )
