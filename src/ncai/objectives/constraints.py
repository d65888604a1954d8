"""What NCAI asks of z, as constraints whose multipliers tune themselves.

The paper writes its objective as a Lagrangian and then fixes the multipliers (lambda)
and tolerances (eps) by hand. Here they are found: each constraint says that a statistic
of z is no larger than white noise of this size would have it on average, and its
multiplier grows while the constraint is broken and falls once it holds (the method of
multipliers, a step of dual ascent after every chunk of training).
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ncai.objectives.penalties import hz_expected, squared_correlation, statistics_of

# Beyond this a broken constraint pulls no harder: a far start must not wreck a fit.
LARGEST_PULL = 5.0


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["hz_multiplier", "offdiagonal_multiplier", "dependence_multiplier"],
    meta_fields=["on"],
)
@dataclass(frozen=True)
class Constraints:
    """z Gaussian, its dimensions uncorrelated, and neither told by x: one level each.

    All are in the units of test statistics, of order 1 for white noise whatever the
    number of rows, so one step size of the ascent, 1, fits all. y has no constraint: a
    z that explains the noise of y is correlated with it.

    Args:
        hz_multiplier: of HZ less its mean for a Gaussian sample.
        offdiagonal_multiplier: of the squared correlations between dimensions of z.
        dependence_multiplier: of N times PC(x), less 1.
        on: the "means" of z, or "samples" of its aggregated posterior.
    """

    hz_multiplier: float | Float[Array, ""] = 0.0
    offdiagonal_multiplier: float | Float[Array, ""] = 0.0
    dependence_multiplier: float | Float[Array, ""] = 0.0
    on: str = "means"

    def values(
        self,
        latents: Float[Array, "N K"],
        inputs: Float[Array, "N D"],
        targets: Float[Array, "N L"],
        row_weights: Float[Array, "N"],
    ) -> dict[str, Float[Array, ""]]:
        """The statistics, and how far each is above its level."""
        found = statistics_of(latents, inputs, targets, row_weights)
        num_rows, dims = jnp.sum(row_weights), latents.shape[1]
        excesses = {
            "hz_excess": found["hz"] - hz_expected(num_rows, dims),
            "dependence_excess": num_rows * found["pc_inputs"] - 1.0,
        }
        if dims > 1:
            # Of all pairs of dimensions; each with itself has a correlation of 1.
            every = dims * squared_correlation(latents, latents, row_weights)
            between = (every - 1.0) / (dims - 1)
            excesses["offdiagonal_excess"] = num_rows * between - 1.0
        return found | excesses

    def total(
        self, values: dict[str, Float[Array, ""]], num_rows: Float[Array, ""], dims: int
    ) -> Float[Array, ""]:
        """The augmented Lagrangian's part, in nats."""
        del num_rows
        total = lagrangian(values["hz_excess"], self.hz_multiplier)
        total += lagrangian(values["dependence_excess"], self.dependence_multiplier)
        if dims > 1:
            total += lagrangian(
                values["offdiagonal_excess"], self.offdiagonal_multiplier
            )
        return total

    def after_chunk(self, terms: dict[str, np.ndarray]) -> "Constraints":
        """Dual ascent, from the averages over a chunk of steps."""
        return replace(
            self,
            **{
                f"{name}_multiplier": next_multiplier(
                    getattr(self, f"{name}_multiplier"), terms[f"{name}_excess"]
                )
                for name in ("hz", "offdiagonal", "dependence")
                if f"{name}_excess" in terms
            },
        )


def lagrangian(
    excess: Float[Array, ""], multiplier: float | Float[Array, ""]
) -> Float[Array, ""]:
    """(max(0, multiplier + excess)^2 - multiplier^2) / 2, for excess <= 0 wanted.

    Its slope is max(0, multiplier + excess): 0 where the constraint holds with room to
    spare. Past `LARGEST_PULL` it goes on as a straight line.
    """
    near = jnp.minimum(excess, LARGEST_PULL)
    pull = jnp.maximum(multiplier + near, 0.0)
    return 0.5 * (pull**2 - multiplier**2) + pull * (excess - near)


def next_multiplier(multiplier, excess) -> np.ndarray:
    """A step of ascent; what is not finite leaves the multiplier as it was."""
    step = np.nan_to_num(np.clip(excess, -LARGEST_PULL, LARGEST_PULL), nan=0.0)
    return np.maximum(np.asarray(multiplier) + step, 0.0).astype(np.float32)
