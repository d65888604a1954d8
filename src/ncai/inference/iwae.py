"""`iwae`: W and z by the importance-weighted bound, for any number of latents."""

from dataclasses import dataclass, field, replace

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
from ncai.objectives.constraints import Constraints
from ncai.objectives.importance_bound import NegativeImportanceBound
from ncai.objectives.penalties import Penalties
from ncai.training.driver import Driver, Stage
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
        penalties: NCAI's, which come in the second half of the steps, as NCAI's do.
        ramp_fraction: the part of the second half over which they grow.
    """

    training: Training = field(default_factory=Training)
    start: str | Unknowns = "ncai"
    temperatures: tuple[float, ...] = (1.0,)
    num_latent_samples: int = 8
    penalties: Penalties | Constraints | None = None
    ramp_fraction: float = 0.5

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
        for stage in self._stages(num_restarts):
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
            self._penalised(len(keys), 1.0),
            max_steps=max(self.training.max_steps // 5, 1),
            learning_rate=self.training.learning_rate / 3,
        )
        model = with_unit_latents(model)
        state = driver.run(stage, model, data, initial_state(q, priors, keys))
        return gaussian_fit(model, state.params, state.priors, driver)

    def _stages(self, num_restarts: int) -> list[Stage]:
        bound = self._objectives(num_restarts)
        if self.penalties is None:
            return [self.training.stage("bound", bound)]
        first = self.training.max_steps // 2
        second = self.training.max_steps - first
        ramp = max(int(self.ramp_fraction * second), 1)
        return [
            self.training.stage("bound", bound, max_steps=first, rate_drops=0),
            self.training.stage(
                "penalties",
                self._penalised(num_restarts, float(ramp)),
                max_steps=second,
                settle_steps=ramp,
            ),
        ]

    def _penalised(
        self, num_restarts: int, ramp: float
    ) -> tuple[NegativeImportanceBound, ...]:
        return tuple(
            replace(objective, penalties=self.penalties, ramp_steps=ramp)
            for objective in self._objectives(num_restarts)
        )

    def _objectives(self, num_restarts: int) -> tuple[NegativeImportanceBound, ...]:
        return tuple(
            NegativeImportanceBound(
                self.temperatures[i % len(self.temperatures)], self.num_latent_samples
            )
            for i in range(num_restarts)
        )
