"""`ncai`: Noise-Constrained Approximate Inference; `ncai0`: without its penalties."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ncai.inference.base import Training
from ncai.inference.mean_field import (
    MFVI,
    NOISE_HELD,
    MeanFieldMethod,
    noise_held,
    plain_mfvi,
)
from ncai.model.bnn_lv import Model
from ncai.objectives.elbo import NegativeElbo
from ncai.objectives.penalties import Penalties
from ncai.runtime.arguments import (
    at_least_zero,
    portion,
    positive_numbers,
    setting,
    word,
)
from ncai.training.step import Stage

WEIGHTS = ("hz_weight", "offdiagonal_weight", "dependence_weight")
TOLERANCES = ("hz_tolerance", "input_tolerance", "target_tolerance")


@dataclass(frozen=True, kw_only=True, repr=False)
class NCAI0(MeanFieldMethod):
    """NCAI's warm start, then a plain ELBO: NCAI without its penalties.

    The settings are those of `MFVI`; the default of `start` is "ncai".
    """

    name: ClassVar[str] = "ncai0"
    label: ClassVar[str] = "NCAI0"
    own_start: ClassVar[str] = "ncai"

    def without_latents(self) -> MFVI:
        """Return MFVI: the warm start acts on z, so without z the two are the same."""
        return plain_mfvi(self)

    def stages(self, model: Model, training: Training) -> list[Stage]:
        """The ELBO, and then the noise."""
        return self.elbo_stages(model, training)

    def final_objective(self, num_restarts: int) -> NegativeElbo:
        """The ELBO."""
        del num_restarts
        return self.elbo


@dataclass(frozen=True, kw_only=True, repr=False)
class NCAI(MeanFieldMethod):
    """The warm start, the ELBO, and then penalties on z (paper, Eq. 27).

    The first half of the steps minimises the plain negative ELBO; the penalties then
    grow from 0. If they acted from the first step, they would spoil the fit, because
    the latents have not moved yet. A tolerance may be a list, which the restarts use in
    turn (a grid in one run).

    Args:
        hz_weight: lambda_1, the weight of the penalty on z that are not Gaussian; 0
            turns it off.
        offdiagonal_weight: lambda_2, the weight of the penalty on correlated dimensions
            of z; 0 turns it off.
        dependence_weight: lambda_3, the weight of the penalty on z that depend on x and
            y; 0 turns it off.
        hz_tolerance: eps_T.
        input_tolerance: eps_x; `float("inf")` removes x from the penalty.
        target_tolerance: eps_y; `float("inf")` removes y from the penalty.
        penalise: "means" of z, as in the paper, or "samples" of the aggregated
            posterior.
        ramp_fraction: part of the second half of training over which the penalties
            grow.
    """

    name: ClassVar[str] = "ncai"
    label: ClassVar[str] = "NCAI"
    own_start: ClassVar[str] = "ncai"

    hz_weight: float = setting(1.0, at_least_zero)
    offdiagonal_weight: float = setting(10.0, at_least_zero)
    dependence_weight: float = setting(1.0, at_least_zero)
    hz_tolerance: float | Sequence[float] = setting(0.01, positive_numbers)
    input_tolerance: float | Sequence[float] = setting(0.5, positive_numbers)
    target_tolerance: float | Sequence[float] = setting(1.0, positive_numbers)
    penalise: str = setting("means", word("means", "samples"))
    ramp_fraction: float = setting(0.5, portion)

    def without_latents(self) -> MFVI:
        """Return MFVI: the start and the penalties have no effect without z."""
        return plain_mfvi(self)

    def stages(self, model: Model, training: Training) -> list[Stage]:
        """Return the stages: the ELBO, the penalties, and then the noise."""
        held = noise_held(model)
        first = training.max_steps // 2
        second = training.max_steps - first
        ramp = max(int(self.ramp_fraction * second), 1)
        stages = [
            self.stage(
                "elbo",
                self.elbo,
                training,
                max_steps=first,
                rate_drops=0,
                trainable=held,
            ),
            self.stage(
                "penalties",
                self._penalised(training.num_restarts, float(ramp)),
                training,
                max_steps=second,
                settle_steps=ramp,
                trainable=held,
            ),
        ]
        return [*stages, self.noise_stage(training)] if held is NOISE_HELD else stages

    def final_objective(self, num_restarts: int) -> tuple[NegativeElbo, ...]:
        """Return the objective with the penalties at their full weight."""
        return self._penalised(num_restarts, 1.0)

    def penalties_of(self, restart: int) -> Penalties:
        """Return the penalties of a restart."""
        tolerances = [np.atleast_1d(getattr(self, name)) for name in TOLERANCES]
        return Penalties(
            *(float(getattr(self, name)) for name in WEIGHTS),
            *(float(values[restart % len(values)]) for values in tolerances),
            on=self.penalise,
        )

    def _penalised(self, num_restarts: int, ramp: float) -> tuple[NegativeElbo, ...]:
        return tuple(
            replace(self.elbo, penalties=self.penalties_of(restart), ramp_steps=ramp)
            for restart in range(num_restarts)
        )
