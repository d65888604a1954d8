"""The Gaussian components of the predictive density of one row.

A row has one component for each weight draw s, each value m of z for this draw, and
each width j of the noise of this draw.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from ncai.predictive.mixture import Mixture

LOG_2PI = float(np.log(2 * np.pi))
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


def joint_log_density(
    components: Components, targets: Float[Array, "L"], scale: float | Array = 1.0
) -> Float[Array, ""]:
    """Log p(y|x) of all outputs together (Eq. `posterior-predictive`).

    `scale` multiplies the noise. logsumexp keeps the result finite in far tails, where
    each component alone underflows.
    """
    return logsumexp(log_components(components, targets, scale))


def log_components(
    components: Components, targets: Float[Array, "L"], scale: float | Array = 1.0
) -> Float[Array, "S M J"]:
    """Logarithm of weight times density of the targets, for each component."""
    log_parts = components.log_weights
    for output in range(components.means.shape[-1]):
        std = components.stds(output, scale)
        scaled = (targets[output] - components.means[..., output, None]) / std
        log_parts = log_parts - 0.5 * jnp.square(scaled) - jnp.log(std) - 0.5 * LOG_2PI
    return log_parts


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
