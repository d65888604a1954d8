"""The predictive density of one row as a mixture of Gaussians: pure functions.

They take the `Mixture` of one output; the joint density of all outputs is in
`components`. Where an approximation is enough, functions use only a few of the
components.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, ndtri
from jaxtyping import Array, Float

_BELL = float((2 * np.pi) ** -0.5)
_ERFC_FIT = (
    0.17087277,
    -0.82215223,
    1.48851587,
    -1.13520398,
    0.27886807,
    -0.18628806,
    0.09678418,
    0.37409196,
    1.00002368,
    -1.26551223,
)

# Number of points in each round of `mass_grid`.
GRID_SIZES = (32, 32, 128)
# Size of a sample that represents a mixture where its tails matter.
SAMPLE_SIZE = 8192
FINE_GRID_SIZES = (32, 64, 256)


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


def normal_cdf(scaled: Float[Array, "..."]) -> Float[Array, "..."]:
    """Standard normal cdf, accurate to 2e-7 and, in the lower tail, to 2e-5 of itself.

    Chebyshev's fit of log(erfc(x) exp(x^2)) in 1 / (1 + x/2), as in Numerical Recipes.
    `jax.scipy.special.ndtr` chooses a formula for each element. Without such choices,
    the compiler uses vector instructions, which is five times as fast.
    """
    distance = jnp.abs(scaled) * np.float32(0.5**0.5)
    ratio = 2 / (2 + distance)
    log_part = jnp.full_like(ratio, _ERFC_FIT[0])
    for coefficient in _ERFC_FIT[1:]:
        log_part = log_part * ratio + np.float32(coefficient)
    tail = 0.5 * ratio * jnp.exp(log_part - jnp.square(distance))
    side = jnp.sign(scaled + np.float32(1e-30))  # 1 at zero
    return jnp.maximum(side, 0) - side * tail


def cdf(mixture: Mixture, value: Float[Array, ""]) -> Float[Array, ""]:
    """P(y <= value)."""
    scaled = (value - mixture.means) / mixture.stds
    return jnp.minimum(jnp.sum(mixture.weights * normal_cdf(scaled)), 1.0)


def pdf(mixture: Mixture, value: Float[Array, ""]) -> Float[Array, ""]:
    """Density at `value`; underflows to 0 in far tails, unlike `joint_log_density`."""
    scaled = (value - mixture.means) / mixture.stds
    heights = mixture.weights * (_BELL / mixture.stds)
    return jnp.sum(jnp.exp(-0.5 * jnp.square(scaled)) * heights)


def cdf_grid(mixture: Mixture, points: Float[Array, "G"]) -> Float[Array, "G"]:
    """P(y <= point) at every point, to about 1e-7."""
    scaled = _to_points(mixture, points) * np.float32(0.5**0.5)
    # With points on the last axis, the sum over components uses vector instructions.
    return 0.5 + 0.5 * jnp.sum(erf(scaled) * mixture.weights[:, None], axis=0)


def pdf_grid(mixture: Mixture, points: Float[Array, "G"]) -> Float[Array, "G"]:
    """Density at every point."""
    scaled = _to_points(mixture, points)
    heights = mixture.weights * (_BELL / mixture.stds)
    return jnp.sum(jnp.exp(-0.5 * jnp.square(scaled)) * heights[:, None], axis=0)


def _to_points(mixture: Mixture, points):
    return (points[None, :] - mixture.means[:, None]) * (1 / mixture.stds)[:, None]


def lower_quantile(
    mixture: Mixture,
    level: Float[Array, ""],
    start: Float[Array, ""] | None = None,
    max_steps: int = 60,
) -> Float[Array, ""]:
    """Find the value at which the cdf equals `level`, for levels up to one half.

    This is Newton's method on the log cdf, which is nearly quadratic in a tail. It
    stays inside a bracket. Bisection replaces a step that is not at most half as long
    as the one before; this also crosses the flat stretches between the modes of a
    mixture. `quantile` finds higher levels by mirroring, because 32-bit numbers near 1
    are too coarse for a tail.
    """
    normal_level = ndtri(level)
    # No component has passed `level` at the smallest quantile of a component, and all
    # have at the largest, so these two are an exact bracket.
    ends = mixture.means + mixture.stds * normal_level
    low, high = ends.min(), ends.max()
    centre = mixture.mean()
    squares = jnp.square(mixture.means - centre) + jnp.square(mixture.stds)
    spread = jnp.sqrt(jnp.sum(mixture.weights * squares))
    if start is None:
        start = centre + spread * normal_level
    start = jnp.clip(start, low, high)
    x_tolerance = 1e-6 * spread
    cdf_tolerance = jnp.minimum(1e-6, 1e-4 * level)

    def unfinished(state):
        steps, _, low, high, _, miss = state
        wide = high - low > x_tolerance
        return (steps < max_steps) & wide & (jnp.abs(miss) > cdf_tolerance)

    def step(state):
        steps, here, low, high, last_move, _ = state
        mass, density = cdf(mixture, here), pdf(mixture, here)
        miss = mass - level
        low, high = jnp.where(miss < 0, here, low), jnp.where(miss < 0, high, here)
        newton = here - jnp.log(mass / level) * mass / density
        # `not (a and b)` also catches a Newton step that is not a number.
        good = (newton > low) & (newton < high)
        good = good & (jnp.abs(newton - here) < 0.5 * last_move)
        there = jnp.where(good, newton, 0.5 * (low + high))
        done = jnp.abs(miss) <= cdf_tolerance
        there = jnp.where(done, here, there)
        return steps + 1, there, low, high, jnp.abs(there - here), miss

    first = (0, start, low, high, 2 * (high - low), jnp.ones_like(level))
    return jax.lax.while_loop(unfinished, step, first)[1]


def quantile(
    mixture: Mixture, few: Mixture, tail_and_side: Float[Array, "2"]
) -> Float[Array, ""]:
    """The quantile with probability `tail` below (side 1) or above (side -1) it.

    The search starts at the quantile of `few` components, which is cheap to find.
    """
    tail, side = tail_and_side
    mixture, few = (m._replace(means=side * m.means) for m in (mixture, few))
    start = lower_quantile(few, tail)
    return side * lower_quantile(mixture, tail, start)


def mass_grid(mixture: Mixture, few: Mixture, sizes=GRID_SIZES) -> Float[Array, "G"]:
    """Increasing points over the whole range, dense where the mixture has its mass.

    The range of a mixture says little about its shape, because a single extreme
    component widens it. So each round uses the cdf at the points of the round before:
    most of the new points follow this cdf, some follow the cdf of wider components,
    which marks where the density ends, and a few are even. The cdf of `few` components
    is enough for this.
    """
    reach = 5.0 * mixture.stds
    low, high = (mixture.means - reach).min(), (mixture.means + reach).max()
    unit = jnp.linspace(0, 1, sizes[0] // 2, dtype=mixture.means.dtype)
    wider = few._replace(stds=3.0 * few.stds)
    # Half of the first points are even and half are among the components, because an
    # extreme component may be a million widths away.
    among = jnp.sort(few.means)
    among = among[np.linspace(0, among.size - 1, sizes[0] // 2).astype(int)]
    points = jnp.sort(jnp.concatenate([low + (high - low) * unit, among]))
    for size in sizes[1:]:
        mass = 0.6 * cdf_grid(few, points) + 0.25 * cdf_grid(wider, points)
        warp = mass + 0.15 * (points - low) / (high - low)
        targets = jnp.linspace(warp[0], warp[-1], size, dtype=points.dtype)
        # The barrier keeps XLA from interpolating again for each component.
        points = jax.lax.optimization_barrier(jnp.interp(targets, warp, points))
    return points


def smoothed(mixture: Mixture, neighbours: int) -> Mixture:
    """Blur each component by its distance to its neighbours.

    This is for z of several dimensions, where the values of f have no order. Where the
    noise is smaller than the distances between components, the mixture would have
    spikes, which the density of y does not have. Where the noise is larger, the blur
    changes nothing. The blur is half the distance to neighbour number `neighbours` on
    the nearer side, so that gaps between modes stay empty. The more random the
    components are, the more neighbours are needed.
    """
    means, stds, weights = jax.lax.sort(tuple(mixture), num_keys=1)
    if means.size > 2 * neighbours:
        away = means[neighbours:] - means[:-neighbours]
        nothing = jnp.full(neighbours, jnp.inf, means.dtype)
        below, above = jnp.append(nothing, away), jnp.append(away, nothing)
        blur = 0.5 * jnp.minimum(below, above)
        stds = jnp.sqrt(jnp.square(stds) + jnp.square(blur))
    return Mixture(means, stds, weights)


def entropy(mixture: Mixture, few: Mixture) -> Float[Array, ""]:
    """Differential entropy -∫ p log p, in nats.

    The density counts as constant between two points, with the probability that the cdf
    gives. Unlike with the trapezoidal rule, a component that is narrower than the
    distance between two points therefore does no harm.
    """
    centre = mixture.mean()  # differences of large numbers would lose digits
    mixture, few = (m._replace(means=m.means - centre) for m in (mixture, few))
    points = mass_grid(mixture, few)
    masses = jnp.diff(cdf_grid(mixture, points))
    widths = jnp.diff(points)
    log_widths = jnp.log(jnp.where(widths > 0, widths, 1.0))
    return jnp.sum(jax.scipy.special.entr(jnp.maximum(masses, 0)) + masses * log_widths)


def crps(mixture: Mixture, some: Mixture, target: Float[Array, ""]) -> Float[Array, ""]:
    """Continuous ranked probability score: E|y' - y| - E|y' - y''| / 2.

    The first term is exact. The second is half the mean difference within an evenly
    spread sample of `some` components. Unlike an integral of F(1 - F) over a grid, it
    stays accurate if the tails are heavy.
    """
    means, stds, weights = mixture
    distance = means - target
    scaled = distance / stds
    bell = jnp.exp(-0.5 * jnp.square(scaled)) * np.float32(np.sqrt(2 / np.pi))
    to_target = stds * bell + distance * (1 - 2 * normal_cdf(-scaled))
    sample = some.means + some.stds * even_noise(some.means.size, means.dtype)
    shares = jnp.broadcast_to(some.weights / len(sample), sample.shape)
    half_spread = half_mean_difference(sample.ravel(), shares.ravel())
    return jnp.sum(weights * to_target) - half_spread


def even_noise(count: int, dtype) -> Float[Array, "R C"]:
    """Evenly spread standard normal noise, several values for each component.

    Each value also occurs with the opposite sign, so the noise has no correlation with
    the means.
    """
    repeats = -(-SAMPLE_SIZE // (2 * count))
    uniform = (0.5 + np.arange(repeats * count) * np.sqrt(2)) % 1.0
    noise = ndtri(jnp.asarray(np.clip(uniform, 1e-6, 1 - 1e-6), dtype))
    noise = noise.reshape(repeats, count)
    return jnp.concatenate([noise, -noise])


def half_mean_difference(
    sample: Float[Array, "N"], weights: Float[Array, "N"]
) -> Float[Array, ""]:
    """E|y' - y''| / 2 for two values drawn from the weighted sample."""
    ordered, weights = jax.lax.sort((sample, weights), num_keys=1)
    below = jnp.cumsum(weights)
    # These ranks lie between -1 and 1, and their weighted sum is 0. So we can subtract
    # a centre, and then no large sums cancel.
    ranks = 2 * below - weights - below[-1]
    return jnp.sum(weights * ranks * (ordered - ordered[len(ordered) // 2]))


def highest_density_level(
    mixture: Mixture, few: Mixture, level: Float[Array, ""]
) -> tuple[Float[Array, "G"], Float[Array, "G"], Float[Array, ""]]:
    """Points, their density, and the threshold above which it contains `level`."""
    points = mass_grid(mixture, few, FINE_GRID_SIZES)
    density = pdf_grid(mixture, points)
    high = jnp.maximum(density[:-1], density[1:])
    low = jnp.minimum(density[:-1], density[1:])
    # The cdf gives the probability between two points, so a component narrower than
    # their distance does not count as one that is as wide.
    masses = jnp.maximum(jnp.diff(cdf_grid(mixture, points)), 0)
    widths = 2 * masses / jnp.maximum(low + high, 1e-30)
    total = jnp.sum(masses)

    def mass_above(threshold):
        # This is exact for a density that is linear between the points.
        part = (high - threshold) / jnp.maximum(high - low, 1e-30)
        crossed = part * 0.5 * (high + threshold)
        inside = jnp.where(low >= threshold, 0.5 * (low + high), crossed)
        return jnp.sum(widths * jnp.where(high > threshold, inside, 0))

    def halve(_, bracket):
        middle = 0.5 * (bracket[0] + bracket[1])
        too_much = mass_above(middle) > level * total
        return (
            jnp.where(too_much, middle, bracket[0]),
            jnp.where(too_much, bracket[1], middle),
        )

    below, above = jax.lax.fori_loop(
        0, 40, halve, (jnp.zeros_like(total), density.max())
    )
    return points, density, 0.5 * (below + above)
