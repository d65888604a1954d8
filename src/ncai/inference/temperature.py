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
from ncai.runtime.arguments import flag, folds, positive_numbers, setting


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

    temperature: float | Sequence[float] | None = setting(None, positive_numbers)
    n_folds: int | None = setting(None, folds)
    recalibrate_noise: bool | None = setting(None, flag)

    def without_latents(self) -> MFVI:
        """It differs in z alone: without one, it is mean-field inference."""
        return plain_mfvi(self)

    def for_trial(self) -> Self:
        """All restarts at the middle temperature."""
        middle = np.exp(np.log(self.listed_temperatures()).mean())
        return replace(self, temperature=float(middle))

    def listed_temperatures(self) -> tuple[float, ...]:
        """The temperatures as given."""
        return positive_numbers("temperature", self.temperature)

    def restart_temperatures(
        self, num_restarts: int, folded: bool
    ) -> tuple[float, ...]:
        """The temperature of each restart.

        Of several, with folds, each is used on every fold before the next has its turn.
        """
        listed = self.listed_temperatures()
        block = int(self.n_folds or 1) if folded else 1
        return tuple(listed[i // block % len(listed)] for i in range(num_restarts))

    def groups(self, num_restarts: int, folded: bool) -> np.ndarray | None:
        """Restarts of a temperature share a stacking weight.

        With one temperature and no folds each has a weight of its own.
        """
        temperatures = self.restart_temperatures(num_restarts, folded)
        if not folded and len(set(temperatures)) == 1:
            return None
        return np.unique(temperatures, return_inverse=True)[1]


def with_unit_latents(model: Model) -> Model:
    """The model with the width of z held: weights that multiply z do its work."""
    if model.latent_variance.mode == "fixed":
        return model
    return replace(model, latent_variance=Variance(jnp.asarray(1.0)))
