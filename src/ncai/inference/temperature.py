"""The base of methods with cold posteriors, and the temperature of each restart.

The KL divergence of q(W) from the prior is multiplied by the temperature. 1 is Bayes'
rule; a lower value gives a cold posterior, which is narrower, as if each row had been
seen 1 / temperature times.
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
    """A method with a temperature whose restarts may hold out folds.

    Args:
        temperature: factor of the KL divergence of q(W) from the prior: a number, or
            several that the restarts use in turn. 1 is Bayes' rule; a lower value gives
            a cold posterior, which is narrower, as if each row had been seen 1 /
            temperature times.
        n_folds: number of cross-validation folds. Each restart holds out one fold, so
            that every row is used for training and for the choice. 0 turns folds off;
            with keep="best" there are none.
        recalibrate_noise: whether, with keep="weighted", held-out rows recalibrate the
            noise. For each temperature they set its width and a mixture of widths,
            which has heavier tails; then they set one factor for the whole mixture.
    """

    starts: ClassVar[tuple[str, ...]] = ("random", "ncai")

    temperature: float | Sequence[float] | None = setting(None, positive_numbers)
    n_folds: int | None = setting(None, folds)
    recalibrate_noise: bool | None = setting(None, flag)

    def without_latents(self) -> MFVI:
        """Return MFVI: the methods differ from it only in z."""
        return plain_mfvi(self)

    def for_trial(self) -> Self:
        """Return the method with all restarts at the middle temperature."""
        middle = np.exp(np.log(self.listed_temperatures()).mean())
        return replace(self, temperature=float(middle))

    def listed_temperatures(self) -> tuple[float, ...]:
        """The temperatures as a tuple."""
        return positive_numbers("temperature", self.temperature)

    def restart_temperatures(
        self, num_restarts: int, folded: bool
    ) -> tuple[float, ...]:
        """Return the temperature of each restart.

        With folds, each temperature is used for every fold before the next temperature.
        """
        listed = self.listed_temperatures()
        block = int(self.n_folds or 1) if folded else 1
        return tuple(listed[i // block % len(listed)] for i in range(num_restarts))

    def decomposed_given(self) -> str:
        """What the aleatoric part is conditional on: the member if all are cold.

        The width of a cold posterior says how much training disturbed the weights, and
        not what the data leave undecided: only the members' disagreement does.
        """
        return "member" if max(self.listed_temperatures()) < 1 else "weights"

    def groups(self, num_restarts: int, folded: bool) -> np.ndarray | None:
        """Return the groups of restarts that share a stacking weight, by temperature.

        With one temperature and no folds, each restart has its own weight.
        """
        temperatures = self.restart_temperatures(num_restarts, folded)
        if not folded and len(set(temperatures)) == 1:
            return None
        return np.unique(temperatures, return_inverse=True)[1]


def with_unit_latents(model: Model) -> Model:
    """Fix the prior variance of z, because the weights that multiply z can scale it."""
    if model.latent_variance.mode == "fixed":
        return model
    return replace(model, latent_variance=Variance(jnp.asarray(1.0)))
