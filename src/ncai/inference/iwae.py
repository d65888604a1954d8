"""`iwae`: the importance-weighted bound, for any number of latent dimensions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
from jaxtyping import PRNGKeyArray

from ncai.inference.base import DEFAULT, PAPER, Preset, Supports, Training
from ncai.inference.posterior import Fit, Posterior, gaussian_fit
from ncai.inference.temperature import TemperedMethod, with_unit_latents
from ncai.inference.warm_start import (
    as_gaussian,
    starting_points,
    starting_state,
    with_latents_of,
)
from ncai.model.bnn_lv import Model
from ncai.model.mean_field import mean_field_of
from ncai.objectives.importance_bound import NegativeImportanceBound
from ncai.runtime.arguments import count, setting
from ncai.training.driver import Driver
from ncai.training.step import initial_state
from ncai.types import Data


@dataclass(frozen=True, kw_only=True, repr=False)
class IWAE(TemperedMethod):
    """A factorised Gaussian over W and z; q(z) is only an importance proposal.

    Args:
        n_latent_samples: samples of z per step, for one W; with 1 the bound is the
            ELBO.
    """

    name: ClassVar[str] = "iwae"
    label: ClassVar[str] = "IWAE"
    supports: ClassVar[Supports] = Supports(
        folds=True, row_latents=False, exact_latents=True, empirical_noise=False
    )
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER,
        "default": replace(
            DEFAULT,
            max_steps=6_000,
            method={
                **DEFAULT.method,
                "learning_rate": 0.03,
                "schedule": "cosine",
                "temperature": 0.1,
                "noise_starts": (0.1,),
            },
        ),
    }

    n_latent_samples: int = setting(8, count())

    def fit(
        self,
        key: PRNGKeyArray,
        model: Model,
        data: Data,
        training: Training,
        driver: Driver | None = None,
    ) -> Fit:
        """Fit one Gaussian for each restart."""
        driver = driver or Driver()
        model = with_unit_latents(model)
        start_key, *state_keys = jax.random.split(key, 4)
        keys = jax.random.split(start_key, training.num_restarts)
        start = self.start if isinstance(self.start, str) else "ncai"
        point = starting_points(start, keys, model, data, self, training, driver)
        state = starting_state(state_keys, model, point, training, self.noise_starts)
        stage = self.stage("bound", self._bounds(training, len(keys)), training)
        state = driver.run_from(stage, model, data, state)
        groups = self.groups(len(keys), training.folded)
        return gaussian_fit(model, state.params, state.priors, driver, groups)

    def continue_from(
        self,
        key: PRNGKeyArray,
        model: Model,
        data: Data,
        posterior: Posterior,
        training: Training,
        driver: Driver | None = None,
    ) -> Fit:
        """Continue training from a fit, briefly and at a low rate."""
        driver = driver or Driver()
        model = with_unit_latents(model)
        old = with_latents_of(as_gaussian(posterior, self.label), data.inputs.shape[0])
        keys = jax.random.split(key, old.num_components)
        stage = self.continued_stage(self._bounds(training, len(keys)), training)
        q = mean_field_of(old.mean, old.scale)
        state = driver.run(stage, model, data, initial_state(q, old.priors, keys))
        return gaussian_fit(model, state.params, state.priors, driver)

    def _bounds(
        self, training: Training, num_restarts: int
    ) -> tuple[NegativeImportanceBound, ...]:
        return tuple(
            NegativeImportanceBound(temperature, int(self.n_latent_samples))
            for temperature in self.restart_temperatures(num_restarts, training.folded)
        )
