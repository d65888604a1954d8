"""The Gaussian components of the predictive density of one row.

A row has one component for each weight draw s, each value m of z for this draw, and
each width j of the noise of this draw.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

# How many components represent all of them where an approximation is enough.
NUM_SOME, NUM_FEW, NUM_FEWEST = 4096, 512, 128


class Components(NamedTuple):
    """The mixture of one row, for all outputs.

    Args:
        means: f(x, z_sm; W_s).
        blur: how much each component is widened, because it represents all z around its
            node.
        noise_std: standard deviation of the output noise of each draw.
        noise_factors: factors that turn `noise_std` into the widths of the noise.
        log_weights: logarithms of the weights of all components, which add up to 1.
        few: indices of components that were picked in proportion to their weights.
    """

    means: Float[Array, "S M L"]
    blur: Float[Array, "S M L"]
    noise_std: Float[Array, "S L"]
    noise_factors: Float[Array, "S J"]
    log_weights: Float[Array, "S M J"]
    few: Int[Array, "F"]

    def mirrored(self) -> "Components":
        """The mixture of minus y."""
        return self._replace(means=-self.means)

    def stds(self, output: int | Array, scale: float | Array = 1.0):
        """Standard deviations of one output's components, [S, M, J].

        `scale` multiplies the noise.
        """
        noise = scale * self.noise_std[:, output, None] * self.noise_factors
        blur = self.blur[..., output, None]
        return jnp.sqrt(jnp.square(noise)[:, None, :] + jnp.square(blur))


class Mixture(NamedTuple):
    """Gaussian components of one output; a leading axis is the axis of draws."""

    means: Float[Array, "*S C"]
    stds: Float[Array, "*S C"]
    weights: Float[Array, "*S C"]

    def mirrored(self) -> "Mixture":
        """The mixture of minus y."""
        return self._replace(means=-self.means)

    def mean(self) -> Float[Array, ""]:
        """E[y]."""
        return jnp.sum(self.weights * self.means)


def blur_of(
    means: Float[Array, "N S M L"], shares: Float[Array, "S M"]
) -> Float[Array, "N S M L"]:
    """How much components are widened: a share of the distance to the nearer neighbour.

    Where the noise is smaller than the distances between components, the mixture would
    have spikes, which the density of y does not have. Gaps between modes stay empty,
    because the distance is measured to the nearer neighbour.
    """
    if means.shape[-2] < 2:
        return jnp.zeros_like(means)
    away = jnp.abs(jnp.diff(means, axis=-2))
    below = jnp.concatenate([away[..., :1, :], away], axis=-2)
    above = jnp.concatenate([away, away[..., -1:, :]], axis=-2)
    return shares[..., None] * jnp.minimum(below, above)


def picks_by_weight(
    weights: Float[np.ndarray, "S M J"], size: int
) -> Int[np.ndarray, "size"]:
    """Pick components in proportion to their weights, and return their indices.

    Golden-ratio steps visit all weight draws evenly and favour no value of z, whereas
    steps of a fixed length could favour some. The first steps alone are even, too.
    Components of the same noise width are next to each other, so each width gets its
    share of the steps.
    """
    order = np.moveaxis(np.arange(weights.size).reshape(weights.shape), -1, 0).ravel()
    edges = np.cumsum(weights.ravel()[order], dtype=np.float64)
    places = np.arange(size) * (np.sqrt(5) - 1) / 2 % 1.0
    found = np.searchsorted(edges / edges[-1], places, side="right")
    return order[np.minimum(found, len(order) - 1)].astype(np.int32)


def one_output(components: Components, output: int | Array) -> Mixture:
    """The mixture of one output."""
    stds = components.stds(output)
    means = jnp.broadcast_to(components.means[..., output, None], stds.shape)
    weights = jnp.exp(components.log_weights)
    return Mixture(means.ravel(), stds.ravel(), weights.ravel())


def by_draw(components: Components, output: int | Array) -> Mixture:
    """The mixture of one output given each weight draw; its weights add up to 1."""
    whole = one_output(components, output)
    num_draws = components.means.shape[0]
    means, stds, weights = (leaf.reshape(num_draws, -1) for leaf in whole)
    return Mixture(means, stds, weights / weights.sum(1, keepdims=True))


def shares_of_draws(components: Components) -> Float[Array, "S"]:
    """The weight of each draw in the mixture."""
    return jnp.exp(components.log_weights).sum((1, 2))


def few_of(components: Components, mixture: Mixture, size: int) -> Mixture:
    """Return at most `size` equally weighted components that represent all."""
    if mixture.means.size <= size:
        return mixture
    picks = components.few[:size]
    weights = jnp.full(size, 1 / size, mixture.means.dtype)
    return Mixture(mixture.means[picks], mixture.stds[picks], weights)
