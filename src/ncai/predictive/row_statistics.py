"""What a compiled prediction does with one row's mixture, one function per question.

Each has the signature that `map_mixtures` asks for: the row's component means
[S, M, L], their noise [S, L], the row's own arguments, and arguments that all rows
share. They are thin; the maths is in `mixture`.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.ndimage import gaussian_filter1d

from ncai.predictive import mixture


def moments(means, noise_std, row, shared):
    """Mean and variance of each output."""
    del row, shared
    return mixture.joint_moments(means, noise_std)


def log_prob(means, noise_std, targets, shared):
    """Joint log density at the row's targets [L], and how many components make it."""
    del shared
    return counted_log_mean(mixture.log_components(means, noise_std, targets))


def counted_log_mean(log_parts):
    """Log of the average of exp(log_parts), and about how many parts make it."""
    top = jnp.max(log_parts)
    top = jnp.where(jnp.isneginf(top), 0.0, top)  # all are 0
    parts = jnp.exp(log_parts - top)
    total = jnp.sum(parts)
    log_mean = top + jnp.log(total) - float(np.log(log_parts.size))
    squares = jnp.sum(parts**2)
    return log_mean, jnp.where(squares > 0, total**2 / squares, 0.0)


def weighted_log_prob(means, noise_std, targets, shared):
    """Joint log density at the row's targets where components have weights [S, M]."""
    _, log_weights = shared
    return mixture.joint_log_density(means, noise_std, targets, log_weights)


def log_prob_at_scales(means, noise_std, targets, shared):
    """Joint log density at the row's targets, were the noise so many times as wide.

    `shared` are P such factors, and the components' log weights or None.
    """
    scales, log_weights = shared
    return jax.lax.map(
        lambda scale: mixture.joint_log_density(
            means, scale * noise_std, targets, log_weights
        ),
        scales,
    )


def cdf(means, noise_std, targets, shared):
    """P(y <= target) for each output."""
    del shared
    return _over_outputs(mixture.cdf, means, noise_std, targets)


def prob_above(means, noise_std, targets, shared):
    """P(y > target) for each output, accurate when it is tiny: not 1 - cdf."""
    return cdf(-means, noise_std, -targets, shared)


def crps(means, noise_std, targets, shared):
    """Continuous ranked probability score of each output."""
    del shared
    return _over_outputs(mixture.crps, means, noise_std, targets)


def grid(means, noise_std, row, shared):
    """Log density of one output at shared points: `shared = (points [G], output)`."""
    del row
    points, output = shared
    means, noise_std = means[..., output, None], noise_std[:, output, None]
    log_density = partial(mixture.joint_log_density, means, noise_std)
    return jax.lax.map(log_density, points[:, None])


def quantiles(means, noise_std, row, shared):
    """Quantiles [L, Q]; `shared` [Q, 2] holds tail probabilities and sides."""
    del row

    def levels(means, noise_std, _):
        # One level at a time, so that each stops when it has converged.
        return jax.lax.map(partial(mixture.quantile, means, noise_std), shared)

    return _over_outputs(levels, means, noise_std, jnp.zeros(means.shape[-1]))


def highest_density(means, noise_std, row, shared):
    """Points, densities and threshold of one output: `shared = (level, output)`."""
    del row
    level, output = shared
    one = mixture.one_output(means, noise_std, output)
    return mixture.highest_density_level(*one, level)


def _over_outputs(function, means, noise_std, arguments):
    """Run `function(means, noise_std, argument)` on each output's mixture."""
    return jax.lax.map(
        lambda args: function(*mixture.one_output(means, noise_std, args[0]), args[1]),
        (jnp.arange(means.shape[-1]), arguments),
    )


# A set of highest density with a gap below this part of its length is looked for anew
# in a density blurred by half of that: what parts such pieces is the ripple of a
# mixture, not the valley between two humps.
SMALLEST_GAP = 0.04
_BLURRED_POINTS = 1024


def highest_density_set(
    points: Float[np.ndarray, "G"],
    density: Float[np.ndarray, "G"],
    threshold: float,
    level: float,
) -> Float[np.ndarray, "intervals 2"]:
    """The intervals where the density is highest, which hold `level` together.

    `threshold` is what the density exceeds there, if ripples count.
    """
    found = intervals_above(points, density, threshold)
    length = np.diff(found, axis=1).sum()
    gaps = found[1:, 0] - found[:-1, 1]
    if not (gaps < SMALLEST_GAP * length).any():
        return found
    steps = 0.5 * (density[1:] + density[:-1]) * np.diff(points)
    below = np.concatenate([[0.0], np.cumsum(steps)]) / steps.sum()
    margin = 0.5 * length
    first = max(points[0], found[0, 0] - margin)
    last = min(points[-1], found[-1, 1] + margin)
    even = np.linspace(first, last, _BLURRED_POINTS)
    width = 0.5 * SMALLEST_GAP * length / (even[1] - even[0])
    blurred = gaussian_filter1d(np.interp(even, points, density), width, mode="nearest")
    low, high = 0.0, float(blurred.max())
    for _ in range(30):
        middle = 0.5 * (low + high)
        found = intervals_above(even, blurred, middle)
        if np.diff(np.interp(found, points, below), axis=1).sum() >= level:
            low = middle
        else:
            high = middle
    return intervals_above(even, blurred, low)


def intervals_above(
    points: Float[np.ndarray, "G"], density: Float[np.ndarray, "G"], threshold: float
) -> Float[np.ndarray, "intervals 2"]:
    """Ends of the stretches where a density, straight between points, is above."""
    above = np.concatenate([[False], density > threshold, [False]])
    # A density that is still above at the last point ends there.
    points = np.concatenate([points[:1], points, points[-1:]])
    density = np.concatenate([[threshold], density, [threshold]])
    left = np.flatnonzero(above[1:] != above[:-1])
    rise = density[left + 1] - density[left]
    part = (threshold - density[left]) / np.where(rise == 0, 1, rise)
    ends = points[left] + part * (points[left + 1] - points[left])
    return ends.reshape(-1, 2)
