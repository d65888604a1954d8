"""`mfvi`: variational inference with the paper's factorised Gaussian.

NCAI trains the same family (`ncai.inference.ncai`); this file has the code of both.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
from jaxtyping import PRNGKeyArray

from ncai.inference.base import GradientMethod, Training
from ncai.inference.map import map_points
from ncai.inference.posterior import Fit, Posterior, gaussian_fit
from ncai.inference.warm_start import (
    as_gaussian,
    starting_points,
    starting_state,
    with_latents_of,
)
from ncai.model.bnn_lv import Model
from ncai.model.mean_field import MeanField, mean_field_of
from ncai.objectives.elbo import NegativeElbo
from ncai.runtime.arguments import count, flag, setting
from ncai.training.driver import Driver
from ncai.training.step import Stage, TrainState, initial_state
from ncai.types import Data, Unknowns

# Prefixes of the parameters: which are trained and which are held fixed.
HOLD: Any = 0.0
LEARN: Any = 1.0
MEANS_HELD = MeanField(HOLD, LEARN)
NOISE_HELD = MeanField(Unknowns(LEARN, LEARN, HOLD), Unknowns(LEARN, LEARN, HOLD))
ONLY_NOISE = MeanField(Unknowns(HOLD, HOLD, LEARN), Unknowns(HOLD, HOLD, LEARN))


@dataclass(frozen=True, kw_only=True, repr=False)
class MeanFieldMethod(GradientMethod):
    """The base of the methods with a factorised Gaussian over W and z.

    Learned noise stays at its initial value until the rest is trained; it is then
    trained alone, with the rest fixed. If it were free from the start, it would grow to
    explain everything before z means anything. If it were freed together with the rest
    later, the ELBO would still replace z by noise, because its bound is loose in z and
    makes weights expensive (in trials, z collapsed to its prior on Heavy-Tail, and the
    noise ended far too large on Depeweg too). Restarts begin with different noise, so
    that validation can choose. A plain BNN has no z, so it learns its noise from the
    first step.

    Args:
        hold_means: train only the widths of the posterior around `start` ("Fixed at GT"
            in the paper).
        n_mc_samples: number of Monte Carlo samples of (W, z) per step.
    """

    starts: ClassVar[tuple[str, ...]] = ("random", "ncai", "map")
    own_start: ClassVar[str]

    hold_means: bool = setting(False, flag)
    n_mc_samples: int = setting(1, count())

    @abstractmethod
    def stages(self, model: Model, training: Training) -> list[Stage]:
        """Return the stages of the main training, in order."""

    @abstractmethod
    def final_objective(self, num_restarts: int) -> Any:
        """Return the objective that the last stages minimise, without a ramp."""

    @property
    def elbo(self) -> NegativeElbo:
        """Return the negative ELBO without penalties."""
        return NegativeElbo(int(self.n_mc_samples))

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
        state = self._starting_state(key, model, data, training, driver)
        stages = self.stages(model, training)
        if self.hold_means:
            stages = [self.stage("scales", self.elbo, training, trainable=MEANS_HELD)]
        for stage in stages:
            state = driver.run_from(stage, model, data, state)
        return gaussian_fit(model, state.params, state.priors, driver)

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
        old = with_latents_of(as_gaussian(posterior, self.label), data.inputs.shape[0])
        keys = jax.random.split(key, old.num_components)
        stage = self.continued_stage(
            self.final_objective(len(keys)),
            training,
            rate_drops=0,
            trainable=noise_held(model),
        )
        q = mean_field_of(old.mean, old.scale)
        state = driver.run(stage, model, data, initial_state(q, old.priors, keys))
        return gaussian_fit(model, state.params, state.priors, driver)

    def elbo_stages(self, model: Model, training: Training) -> list[Stage]:
        """Return the stages of plain variational inference; with z, noise is last."""
        held = noise_held(model)
        if held is LEARN:
            return [self.stage("elbo", self.elbo, training)]
        main = self.stage("elbo", self.elbo, training, trainable=held)
        return [main, self.noise_stage(training)]

    def noise_stage(self, training: Training) -> Stage:
        """Return the stage that trains the noise alone, with the rest fixed."""
        return self.stage(
            "noise",
            self.elbo,
            training,
            max_steps=max(training.max_steps // 10, 1),
            rate_drops=0,
            trainable=ONLY_NOISE,
        )

    def _starting_state(self, key, model, data, training, driver) -> TrainState:
        start_key, *state_keys = jax.random.split(key, 4)
        start = self.start if isinstance(self.start, str) else self.own_start
        from_mode = training.start is None and start == "map"
        if from_mode:
            point, _ = map_points(self, start_key, model, data, training, driver)
        else:
            keys = jax.random.split(start_key, training.num_restarts)
            point = starting_points(start, keys, model, data, self, training, driver)
        state = starting_state(state_keys, model, point, training, self.noise_starts)
        means_are_given = from_mode or training.start is not None
        if means_are_given and not self.hold_means:
            # The paper trains the variances to convergence before it frees the means.
            stage = self.stage(
                "scales",
                self.elbo,
                training,
                max_steps=training.settle_steps,
                rate_drops=0,
                trainable=MEANS_HELD,
            )
            state = driver.run_from(stage, model, data, state)
        return state


@dataclass(frozen=True, kw_only=True, repr=False)
class MFVI(MeanFieldMethod):
    """Plain mean-field variational inference.

    The settings are those of `MeanFieldMethod`, `GradientMethod` and `Method`. `start`
    is "random" (the default), "ncai", "map" or values.
    """

    name: ClassVar[str] = "mfvi"
    label: ClassVar[str] = "MFVI"
    own_start: ClassVar[str] = "random"

    def stages(self, model: Model, training: Training) -> list[Stage]:
        """The ELBO, and then the noise."""
        return self.elbo_stages(model, training)

    def final_objective(self, num_restarts: int) -> NegativeElbo:
        """The ELBO."""
        del num_restarts
        return self.elbo


def plain_mfvi(method: GradientMethod) -> MFVI:
    """Return MFVI with those settings of another method that MFVI has, too.

    Methods that differ from MFVI only in z are MFVI for a model without z.
    """
    shared = method.get_params()
    known = MFVI().get_params()
    given = {name: value for name, value in shared.items() if name in known}
    return MFVI(**given)


def noise_held(model: Model) -> Any:
    """Return which parameters train while the noise is held (`MeanFieldMethod`)."""
    if model.noise_is_unknown and model.network.latent_dim > 0:
        return NOISE_HELD
    return LEARN
