"""Methods at a temperature: what they share, and which restart has which temperature.

What q(W) costs, its KL from the prior, counts `temperature` times. 1 is Bayes' rule;
less is a cold posterior, narrower than that, as if each row had been seen
1 / temperature times.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import jax.numpy as jnp
import numpy as np

from ncai.inference.base import GradientMethod
from ncai.inference.mean_field import MFVI, plain_mfvi
from ncai.model.bnn_lv import Model, Variance
from ncai.runtime import arguments


@dataclass(frozen=True, kw_only=True, repr=False)
class TemperedMethod(GradientMethod):
    """A method whose prior of W has a temperature and whose restarts may have folds.

    Args:
        temperature: of the posterior of W: a number, or several for the restarts to
            take in turn. What q(W) costs, its KL from the prior, counts so many times.
            1 is Bayes' rule; less is a cold posterior, narrower than that, as if each
            row had been seen 1 / temperature times.
        n_folds: cross-validation folds. Each restart holds out another fold, so that
            every row is learned from and every row helps to choose. 0 is off; with
            keep="best" there are none.
        recalibrate_noise: with keep="weighted", choose on the held-out rows how wide
            the noise of each temperature's restarts is, how much that differs from draw
            to draw, and how wide that of the mixture is.
    """

    starts: ClassVar[tuple[str, ...]] = ("random", "ncai")

    temperature: float | Sequence[float] | None = None
    n_folds: int | None = None
    recalibrate_noise: bool | None = None

    def check(self) -> None:
        """Refuse settings that cannot be, in one sentence each."""
        super().check()
        if self.temperature is not None:
            arguments.positive_numbers("temperature", self.temperature)
        if self.n_folds is not None:
            arguments.whole_number("n_folds", self.n_folds, 0)
            if self.n_folds == 1:
                raise ValueError("n_folds=1 must be 0, which is off, or at least 2.")
        if self.recalibrate_noise is not None:
            arguments.flag("recalibrate_noise", self.recalibrate_noise)

    def resolved(self, preset: str) -> Self:
        """Filled by the preset; rows that are held out from all leave no folds."""
        given = self
        if self.validation_fraction is not None and self.n_folds is None:
            given = replace(self, n_folds=0)
        return super(TemperedMethod, given).resolved(preset)

    def without_latents(self) -> MFVI:
        """It differs in z alone: without one, it is mean-field inference."""
        return plain_mfvi(self)

    def for_trial(self) -> Self:
        """All restarts at the middle temperature."""
        middle = np.exp(np.log(self.listed_temperatures()).mean())
        return replace(self, temperature=float(middle))

    @property
    def num_folds(self) -> int:
        """Cross-validation folds that the restarts hold out in turn."""
        return int(self.n_folds or 0)

    @property
    def recalibrates_noise(self) -> bool:
        """Whether held-out rows set the width of the noise of a weighted mixture."""
        return bool(self.recalibrate_noise)

    def listed_temperatures(self) -> tuple[float, ...]:
        """The temperatures as given."""
        return arguments.positive_numbers("temperature", self.temperature)

    def restart_temperatures(
        self, num_restarts: int, folded: bool
    ) -> tuple[float, ...]:
        """The temperature of each restart.

        Of several, with folds, each is used on every fold before the next has its turn.
        """
        listed = self.listed_temperatures()
        block = self.num_folds if folded else 1
        return tuple(listed[i // block % len(listed)] for i in range(num_restarts))

    def stacking_groups(self, num_restarts: int, folded: bool) -> np.ndarray:
        """Restarts of a temperature share a stacking weight.

        With one temperature and no folds each has a weight of its own.
        """
        temperatures = np.array(self.restart_temperatures(num_restarts, folded))
        if not folded and len(set(temperatures)) == 1:
            return np.arange(num_restarts)
        return np.unique(temperatures, return_inverse=True)[1]


def with_unit_latents(model: Model) -> Model:
    """The model with the width of z held: weights that multiply z do its work."""
    if model.latent_variance.mode == "fixed":
        return model
    return replace(model, latent_variance=Variance(jnp.asarray(1.0)))
