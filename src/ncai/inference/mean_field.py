"""`mfvi`, `ncai0` and `ncai`: variational inference with the factorised Gaussian.

They differ in where they start and in what they add to the negative ELBO; so they are
three settings of one class.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

from ncai.inference.base import (
    Inference,
    Training,
    gaussian_fit,
    starting_points,
    starting_state,
)
from ncai.inference.map import map_points
from ncai.inference.posterior import Fit
from ncai.model.bnn_lv import Model, PriorState
from ncai.model.mean_field import MeanField
from ncai.objectives.elbo import NegativeElbo
from ncai.objectives.penalties import Penalties
from ncai.training.driver import Driver, Stage
from ncai.training.step import TrainState, initial_state
from ncai.types import Data, Unknowns

STARTS = ("random", "ncai", "map")
# Prefixes of the parameters: what is learned and what is held.
HOLD: Any = 0.0
LEARN: Any = 1.0
MEANS_HELD = MeanField(HOLD, LEARN)
NOISE_HELD = MeanField(Unknowns(LEARN, LEARN, HOLD), Unknowns(LEARN, LEARN, HOLD))
ONLY_NOISE = MeanField(Unknowns(HOLD, HOLD, LEARN), Unknowns(HOLD, HOLD, LEARN))


@dataclass(frozen=True)
class MeanFieldVI(Inference):
    """Variational inference from a chosen start, with or without NCAI's penalties.

    Learned noise is held at its start until the rest is trained, and then learned with
    the rest held. Free from the start it grows to explain everything before z has a
    meaning; freed later, the ELBO still trades z for noise, since its bound is loose in
    z and costs weights dearly (seen in trials: z collapsed to its prior on Heavy-Tail,
    and the noise ended far too large on Depeweg too). Restarts begin at different
    noise, so that validation can choose. A plain BNN has no z to lose, and learns its
    noise all along.

    Args:
        training: restarts, steps, rates.
        start: "random"; "ncai", the warm start; "map", the joint mode; or the values
            themselves (the truth, say).
        hold_means: train the scales only (the paper's "Fixed at GT").
        penalties: NCAI's, or a tuple of them for the restarts to take in turn (a grid
            in one run), or None. With them, the first half of the steps is plain ELBO;
            the penalties then grow from 0 (from the first step on they would wreck the
            fit, as latents have not yet moved).
        ramp_fraction: the part of the second half over which they grow.
    """

    training: Training = field(default_factory=Training)
    start: str | Unknowns = "random"
    hold_means: bool = False
    penalties: Penalties | tuple[Penalties, ...] | None = None
    ramp_fraction: float = 0.5

    def fit(
        self, key: PRNGKeyArray, model: Model, data: Data, driver: Driver | None = None
    ) -> Fit:
        """One Gaussian for each restart."""
        driver = driver or Driver()
        state = self._starting_state(key, model, data, driver)
        for stage in self._stages(model):
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
        """Train on from a fit, on other rows (a refit with the held-out ones added).

        Short, and with a low rate: the weights are nearly there.
        """
        keys = jax.random.split(key, q.mean.weights.shape[0])
        stage = self.training.stage(
            "refit",
            self._penalised(len(keys), 1.0),
            max_steps=max(self.training.max_steps // 5, 1),
            learning_rate=self.training.learning_rate / 3,
            rate_drops=0,
            trainable=_noise_held(model),
        )
        state = driver.run(stage, model, data, initial_state(q, priors, keys))
        return gaussian_fit(model, state.params, state.priors, driver)

    def _starting_state(self, key, model, data, driver) -> TrainState:
        start_key, *state_keys = jax.random.split(key, 4)
        keys = jax.random.split(start_key, self.training.num_restarts)
        means_are_given = isinstance(self.start, Unknowns) or self.start == "map"
        if self.start == "map":
            point, _ = map_points(start_key, model, data, self.training, driver)
        else:
            point = starting_points(
                self.start, keys, model, data, self.training, driver
            )
        state = starting_state(state_keys, model, point, self.training)
        if means_are_given and not self.hold_means:
            # The paper trains the variances to convergence before it lets go.
            stage = self.training.stage(
                "scales",
                NegativeElbo(self.training.num_samples),
                max_steps=self.training.settle_steps,
                rate_drops=0,
                trainable=MEANS_HELD,
            )
            state = driver.run_from(stage, model, data, state)
        return state

    def _stages(self, model: Model) -> list[Stage]:
        elbo = NegativeElbo(self.training.num_samples)
        if self.hold_means:
            return [self.training.stage("scales", elbo, trainable=MEANS_HELD)]
        learn_noise_last = _noise_held(model) is NOISE_HELD
        if self.penalties is None and not learn_noise_last:
            return [self.training.stage("elbo", elbo)]
        noise_held = _noise_held(model)
        noise_stage = self.training.stage(
            "noise",
            elbo,
            max_steps=max(self.training.max_steps // 10, 1),
            rate_drops=0,
            trainable=ONLY_NOISE,
        )
        if self.penalties is None:
            return [
                self.training.stage("elbo", elbo, trainable=noise_held),
                noise_stage,
            ]
        first = self.training.max_steps // 2
        second = self.training.max_steps - first
        ramp = max(int(self.ramp_fraction * second), 1)
        stages = [
            self.training.stage(
                "elbo", elbo, max_steps=first, rate_drops=0, trainable=noise_held
            ),
            self.training.stage(
                "penalties",
                self._penalised(self.training.num_restarts, float(ramp)),
                max_steps=second,
                settle_steps=ramp,
                trainable=noise_held,
            ),
        ]
        return [*stages, noise_stage] if learn_noise_last else stages

    def _penalised(self, num_restarts: int, ramp: float):
        """The objective with penalties; one for each restart where they differ."""
        elbo = NegativeElbo(self.training.num_samples)
        if not isinstance(self.penalties, tuple):
            return replace(elbo, penalties=self.penalties, ramp_steps=ramp)
        return tuple(
            replace(
                elbo,
                penalties=self.penalties[i % len(self.penalties)],
                ramp_steps=ramp,
            )
            for i in range(num_restarts)
        )


def _noise_held(model: Model) -> Any:
    """What is learned while noise waits for its turn (see `MeanFieldVI`)."""
    if model.noise_is_unknown and model.network.latent_dim > 0:
        return NOISE_HELD
    return LEARN
