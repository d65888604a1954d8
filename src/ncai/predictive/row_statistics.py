"""Statistics of the mixture of one row, one function for each.

Each function has the signature that `map_mixtures` requires: the `Components` of the
row, the arguments of the row, and arguments that all rows share. The mathematics is in
`mixture`. All statistics are about u, the target on the scale of training; the
statistics of y are in `moments`.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, logsumexp

from ncai.predictive import mixture
from ncai.predictive.components import (
    LOG_2PI,
    NUM_FEW,
    NUM_FEWEST,
    Components,
    few_of,
    joint_log_density,
    one_output,
)


def log_prob(components: Components, targets, shared):
    """Joint log density at the row's targets [L]."""
    del shared
    return joint_log_density(components, targets)


def log_prob_at_scales(components: Components, targets, scales):
    """Joint log density at the row's targets, with the noise times each scale."""
    return jax.lax.map(
        lambda scale: joint_log_density(components, targets, scale), scales
    )


def log_mass(components: Components, edges, masks):
    """Joint log probability between a row's edges.

    Args:
        components: the components of the row.
        edges: lower and upper ends, [L] each.
        masks: two masks [L]: which outputs are rounded (for the others, the density at
            the upper end is used), and which outputs count at all.
    """
    lower, upper = edges
    rounded, counted = masks
    log_parts = components.log_weights
    for output in range(components.means.shape[-1]):
        mean, std = components.means[..., output, None], components.stds(output)
        low, high = (lower[output] - mean) / std, (upper[output] - mean) / std
        density = -0.5 * jnp.square(high) - jnp.log(std) - 0.5 * LOG_2PI
        part = jnp.where(rounded[output], _log_between(low, high), density)
        log_parts = log_parts + jnp.where(counted[output], part, 0.0)
    return logsumexp(log_parts)


def _log_between(low, high):
    """Log of Phi(high) - Phi(low), even if both are far out on the same side."""
    above = low > 0
    low, high = jnp.where(above, -high, low), jnp.where(above, -low, high)
    log_high, log_low = log_ndtr(high), log_ndtr(low)
    nothing = jnp.isneginf(log_high)  # Phi(low) is then 0, too
    ratio = jnp.exp(jnp.where(nothing, -1.0, log_low - log_high))
    # In narrow cells far out, the two logarithms can be equal up to rounding.
    inside = jnp.log1p(-jnp.minimum(ratio, 1 - 1e-7))
    return jnp.where(nothing, -jnp.inf, log_high + inside)


def cdf(components: Components, targets, shared):
    """P(y <= target) for each output."""
    del shared
    return over_outputs(
        lambda output, target: mixture.cdf(one_output(components, output), target),
        components,
        targets,
    )


def prob_above(components: Components, targets, shared):
    """P(y > target) for each output; unlike 1 - cdf, it is accurate if tiny."""
    return cdf(components.mirrored(), -targets, shared)


def log_prob_on_grid(components: Components, row, shared):
    """Log density of one output at shared points: `shared = (points [G], output)`."""
    points, output = shared
    del row
    return log_prob_at_points(components, points, output)


def log_prob_at_points(components: Components, points, output):
    """Log density of one output at the row's own points [G]."""
    one = components._replace(
        means=components.means[..., output, None],
        blur=components.blur[..., output, None],
        noise_std=components.noise_std[:, output, None],
    )
    return jax.lax.map(partial(joint_log_density, one), points[:, None])


def quantiles(components: Components, row, shared):
    """Quantiles [L, Q]; `shared` [Q, 2] holds tail probabilities and sides."""
    del row

    def levels(output, _):
        whole = one_output(components, output)
        few = few_of(components, whole, NUM_FEW)
        # One level at a time, so that each stops when it has converged.
        return jax.lax.map(partial(mixture.quantile, whole, few), shared)

    return over_outputs(levels, components, jnp.zeros(components.means.shape[-1]))


def highest_density(components: Components, row, shared):
    """Points, densities and threshold of one output: `shared = (level, output)`."""
    del row
    level, output = shared
    whole = one_output(components, output)
    few = few_of(components, whole, NUM_FEWEST)
    return mixture.highest_density_level(whole, few, level)


def over_outputs(function, components: Components, arguments):
    """Run `function(output, argument)` for each output."""
    outputs = jnp.arange(components.means.shape[-1])
    return jax.lax.map(lambda pair: function(*pair), (outputs, arguments))
