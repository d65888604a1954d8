"""NCAI's penalties on z: HZ, off-diagonal covariance, PC(x) and PC(y) (Appendix D).

This file weights, smooths and adds the penalties. The statistics themselves are in
`ncai.stats.henze_zirkler` and `ncai.stats.correlation`. All of them take row weights,
so that padding and sample weights need no special case: a row of weight 2 counts as
two rows. All are finite, with finite gradients, where the latent means are all equal,
as they are when NCAI starts.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ncai.stats.correlation import offdiagonal_norm, squared_correlation
from ncai.stats.henze_zirkler import henze_zirkler_statistic
from ncai.types import Number

# The smoothed exponential follows its tangent above this exponent.
LARGEST_EXPONENT = 8.0


def smooth_exponential(value: Float[Array, "*S"] | float) -> Float[Array, "*S"]:
    """exp(value) up to a cap, and its tangent beyond: the smoothing of the penalties.

    The result never overflows, and its gradient never vanishes.
    """
    capped = jnp.minimum(value, LARGEST_EXPONENT)
    return jnp.exp(capped) * (1.0 + value - capped)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "hz_weight",
        "offdiagonal_weight",
        "dependence_weight",
        "hz_tolerance",
        "input_tolerance",
        "target_tolerance",
    ],
    meta_fields=["on"],
)
@dataclass(frozen=True)
class Penalties:
    """Weights and tolerances of the NCAI objective (paper, Eq. 27).

    Args:
        hz_weight: lambda_1, on the distance of z from a Gaussian. 0 switches it off.
        offdiagonal_weight: lambda_2, on correlations between dimensions of z.
        dependence_weight: lambda_3, on the dependence of z on x and y.
        hz_tolerance: eps_T. The exponent is HZ / (N eps_T).
        input_tolerance: eps_x; `inf` switches the factor of x off.
        target_tolerance: eps_y; `inf` switches the factor of y off.
        on: "means" as in the paper, or "samples" of the aggregated posterior, whose
            distribution (unlike the means') is Gaussian under exact inference.
    """

    hz_weight: Number = 1.0
    offdiagonal_weight: Number = 10.0
    dependence_weight: Number = 1.0
    hz_tolerance: Number = 0.01
    input_tolerance: Number = 0.5
    target_tolerance: Number = 1.0
    on: str = "means"

    def values(
        self,
        latents: Float[Array, "N K"],
        inputs: Float[Array, "N D"],
        targets: Float[Array, "N L"],
        row_weights: Float[Array, "N"],
    ) -> dict[str, Float[Array, ""]]:
        """The unweighted statistics, by name."""
        return {
            "hz": henze_zirkler_statistic(latents, row_weights),
            "offdiagonal": offdiagonal_norm(latents, row_weights),
            "pc_inputs": squared_correlation(inputs, latents, row_weights),
            "pc_targets": squared_correlation(targets, latents, row_weights),
        }

    def total(
        self, values: dict[str, Float[Array, ""]], num_rows: Float[Array, ""]
    ) -> Float[Array, ""]:
        """The weighted penalty, in nats: everything in Eq. 27 but the ELBO."""
        gaussian = smooth_exponential(values["hz"] / (num_rows * self.hz_tolerance))
        dependence = smooth_exponential(
            values["pc_inputs"] / self.input_tolerance
            + values["pc_targets"] / self.target_tolerance
        )
        return num_rows * (
            self.hz_weight * gaussian
            + self.offdiagonal_weight * values["offdiagonal"]
            + self.dependence_weight * dependence
        )
