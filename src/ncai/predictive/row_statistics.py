"""What a compiled prediction does with one row's mixture, one function per question.

Each has the signature that `map_mixtures` asks for: the row's component means
[S, M, L], their noise [S, L], the row's own arguments, and arguments that all rows
share. They are thin; the maths is in `mixture`. `statistics_of` chooses those that
depend on how y follows from the scale of training.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, logsumexp
from jaxtyping import Float

from ncai.predictive import mixture
from ncai.predictive.target_map import TargetMap
from ncai.preprocessing.target_transforms import NAMES, inverse, log_inverse_slope

# Gauss-Hermite nodes and weights for averages over the output noise.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


# ----- Densities and probabilities, on the scale of training --------------------------


def log_prob(means, noise_std, targets, shared):
    """Joint log density at the row's targets [L], and how many components make it."""
    del shared
    return _counted_log_mean(mixture.log_components(means, noise_std, targets))


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


def log_mass(means, noise_std, edges, shared):
    """Joint log probability between a row's edges, and how many components make it.

    Args:
        means: of the components.
        noise_std: of the components.
        edges: lower and upper ends, [L] each.
        shared: two masks [L]: which outputs are rounded (the others have their density
            at the upper end), and which outputs count at all.
    """
    return _counted_log_mean(_log_masses(means, noise_std, edges, shared))


def weighted_log_mass(means, noise_std, edges, shared):
    """The same for components with weights [S, M]: `shared = (masks, log_weights)`."""
    masks, log_weights = shared
    return logsumexp(_log_masses(means, noise_std, edges, masks) + log_weights)


def cdf(means, noise_std, targets, shared):
    """P(y <= target) for each output."""
    del shared
    return _over_outputs(mixture.cdf, means, noise_std, targets)


def prob_above(means, noise_std, targets, shared):
    """P(y > target) for each output, accurate when it is tiny: not 1 - cdf."""
    return cdf(-means, noise_std, -targets, shared)


def log_prob_on_grid(means, noise_std, row, shared):
    """Log density of one output at shared points: `shared = (points [G], output)`."""
    points, output = shared
    del row
    return log_prob_at_points(means, noise_std, points, output)


def log_prob_at_points(means, noise_std, points, output):
    """Log density of one output at the row's own points [G]."""
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


def _counted_log_mean(log_parts):
    """Log of the average of exp(log_parts), and about how many parts make it."""
    top = jnp.max(log_parts)
    top = jnp.where(jnp.isneginf(top), 0.0, top)  # all are 0
    parts = jnp.exp(log_parts - top)
    total = jnp.sum(parts)
    log_mean = top + jnp.log(total) - float(np.log(log_parts.size))
    squares = jnp.sum(parts**2)
    return log_mean, jnp.where(squares > 0, total**2 / squares, 0.0)


def _log_masses(means, noise_std, edges, masks):
    """Log probability between the edges under each component; see `log_mass`."""
    lower, upper = edges
    rounded, counted = masks
    log_parts = jnp.zeros((), means.dtype)
    for output in range(means.shape[-1]):
        mean, std = mixture.one_output(means, noise_std, output)
        low, high = (lower[output] - mean) / std, (upper[output] - mean) / std
        density = -0.5 * jnp.square(high) - jnp.log(std) - 0.5 * mixture.LOG_2PI
        part = jnp.where(rounded[output], _log_between(low, high), density)
        log_parts = log_parts + jnp.where(counted[output], part, 0.0)
    return log_parts


def _log_between(low, high):
    """Log of Phi(high) - Phi(low), also where both are far out on one side."""
    above = low > 0
    low, high = jnp.where(above, -high, low), jnp.where(above, -low, high)
    log_high, log_low = log_ndtr(high), log_ndtr(low)
    nothing = jnp.isneginf(log_high)  # nor is there anything below
    ratio = jnp.exp(jnp.where(nothing, -1.0, log_low - log_high))
    # Narrow cells far out: the two logarithms are equal to rounding.
    inside = jnp.log1p(-jnp.minimum(ratio, 1 - 1e-7))
    return jnp.where(nothing, -jnp.inf, log_high + inside)


# ----- Moments and scores, which depend on the target map -----------------------------


@dataclass(frozen=True, eq=False)
class TargetStatistics:
    """Compiled statistics of y, and the units of what they return.

    A result v stands for offset + unit * v if it is a value of y, for unit * v if it is
    a distance, and for unit^2 * v if it is a variance.

    Args:
        moments: mean and variance of each output.
        variance_parts: E_W Var[y|W], Var_W E[y|W] and E[y], all before rounding.
        crps: continuous ranked probability score of each output.
        shared: constants of the target map, an argument of each statistic.
        offset: one number for each output.
        unit: one number for each output.
    """

    moments: Callable
    variance_parts: Callable
    crps: Callable
    shared: tuple[np.ndarray, ...]
    offset: Float[np.ndarray, "L"]
    unit: Float[np.ndarray, "L"]


def statistics_of(target_map: TargetMap) -> TargetStatistics:
    """The statistics of y, chosen by what its map is made of.

    - Linear: the closed forms of a Gaussian mixture.
    - Transformed: moments average the inverse of the transform over the noise by
      Gauss-Hermite quadrature. The CRPS is that of an even sample of y.
    - Rounded: moments are those before rounding plus what rounding adds to an even
      sample of y. The CRPS is that of the sample, rounded.
    """
    name, one = target_map.transform.name, np.ones(target_map.num_outputs)
    if target_map.rounded.any():
        moments, parts, crps = _ROUNDED[name]
        shared, offset = _rounding_constants(target_map), target_map.lattice.origin
        return TargetStatistics(moments, parts, crps, shared, offset, one)
    if target_map.is_linear:
        moments, parts, crps = _LINEAR
        shift, scale = target_map.shift, target_map.scale
        return TargetStatistics(moments, parts, crps, (), shift, scale)
    moments, parts, crps = _TRANSFORMED[name]
    shared = transform_constants(target_map)
    return TargetStatistics(moments, parts, crps, shared, 0 * one, one)


def transform_constants(target_map: TargetMap) -> tuple[np.ndarray, ...]:
    """Shift, scale and the transform's shape, in 32-bit numbers."""
    shape = np.broadcast_arrays(target_map.shift, *target_map.transform.shape)[1:]
    return _in_32_bits(target_map.shift, target_map.scale, *shape)


def _rounding_constants(target_map: TargetMap) -> tuple[np.ndarray, ...]:
    """Origin, step and lowest value of the lattice, then those of the transform.

    Values are relative to the lattice's origin. Without a transform it is taken off the
    shift, before numbers become 32-bit; with one, only from the y that come out.
    """
    origin, lattice = target_map.lattice.origin, target_map.lattice
    lowest = lattice.lowest - origin
    if target_map.is_linear:
        target_map = replace(target_map, shift=target_map.shift - origin)
        origin = 0 * origin
    constants = _in_32_bits(origin, lattice.step, lowest)
    return constants + transform_constants(target_map)


def _in_32_bits(*arrays) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(array, np.float32) for array in arrays)


def _linear_moments(means, noise_std, row, shared):
    del row, shared
    return mixture.joint_moments(means, noise_std)


def _linear_parts(means, noise_std, row, shared):
    del row, shared
    return mixture.joint_variance_parts(means, noise_std)


def _linear_crps(means, noise_std, targets, shared):
    del shared
    return _over_outputs(mixture.crps, means, noise_std, targets)


def _transformed_moments(name, means, noise_std, row, shared):
    within, between, centre = _transformed_parts(name, means, noise_std, row, shared)
    return centre, within + between


def _transformed_parts(name, means, noise_std, row, shared):
    del row
    shift, scale, *shape = shared
    if name == "none":
        within, between, centre = mixture.joint_variance_parts(means, noise_std)
        return scale**2 * within, scale**2 * between, shift + scale * centre
    # Squares of differences from a value in the middle: large numbers do not cancel.
    middle = inverse(name, shift + scale * means.mean((0, 1)), *shape)

    def moments(t):
        away = inverse(name, t, *shape) - middle
        return away, jnp.square(away)

    first, second = _over_noise(moments, means, noise_std, shift, scale)
    given_weights = first.mean(1)
    within = second.mean(1) - jnp.square(given_weights)
    centre = given_weights.mean(0)
    between = jnp.square(given_weights - centre).mean(0)
    return jnp.maximum(within, 0).mean(0), between, middle + centre


def _transformed_crps(name, means, noise_std, targets, shared):
    return _sample_crps(_even_sample(name, means, noise_std, shared), targets)


def _mean_log_slope(name, means, noise_std, row, shared):
    """E[log dy/dt] of each output."""
    del row
    shift, scale, *shape = shared
    (slope,) = _over_noise(
        lambda t: (log_inverse_slope(name, t, *shape),), means, noise_std, shift, scale
    )
    return slope.mean((0, 1))


def _rounded_moments(name, means, noise_std, row, shared):
    within, between, centre = _rounded_parts(name, means, noise_std, row, shared)
    sample, rounded = _rounded_sample(name, means, noise_std, shared)
    sample, rounded = sample - centre, rounded - centre
    # The sample says what rounding adds; the exact moments carry the rest. Squares are
    # not subtracted from each other, which would cost digits if they are large.
    moved = (rounded - sample).mean(0)
    widened = ((rounded - sample) * (rounded + sample)).mean(0)
    variance = within + between + widened - jnp.square(moved)
    return centre + moved, jnp.maximum(variance, 0)


def _rounded_parts(name, means, noise_std, row, shared):
    origin, _, _, *constants = shared
    parts = _transformed_parts(name, means, noise_std, row, constants)
    within, between, centre = parts
    return within, between, centre - origin


def _rounded_crps(name, means, noise_std, targets, shared):
    return _sample_crps(_rounded_sample(name, means, noise_std, shared)[1], targets)


def _even_sample(name, means, noise_std, constants):
    """Evenly spread values of y before rounding, [R, L]."""
    shift, scale, *shape = constants
    noise = mixture.even_noise(means.shape, means.dtype)
    t = shift + scale * (means + noise_std[:, None, :] * noise)
    return inverse(name, t, *shape).reshape(-1, means.shape[-1])


def _rounded_sample(name, means, noise_std, shared):
    """The even sample before and after rounding, relative to the lattice's origin."""
    origin, step, lowest, *constants = shared
    sample = _even_sample(name, means, noise_std, constants) - origin
    width = jnp.where(step > 0, step, 1.0)
    nearest = jnp.maximum(width * jnp.floor(sample / width + 0.5), lowest)
    return sample, jnp.where(step > 0, nearest, sample)


def _sample_crps(sample, targets):
    """CRPS of a sample [R, L]."""
    spread = jax.vmap(mixture.half_mean_difference, 1)(sample)
    return jnp.abs(sample - targets).mean(0) - spread


def _over_noise(function, means, noise_std, shift, scale):
    """Averages over the noise of functions of t, for each component [S, M, L].

    Node by node: an axis of so few would keep the compiler from vector instructions.
    """

    def add(totals, node_and_weight):
        node, weight = node_and_weight
        found = function(shift + scale * (means + node * noise_std[:, None]))
        pairs = zip(totals, found, strict=True)
        return tuple(total + weight * part for total, part in pairs), None

    zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(function, means))
    nodes = tuple(jnp.asarray(a, means.dtype) for a in (_NODES, _WEIGHTS))
    return jax.lax.scan(add, zeros, nodes)[0]


def _for_each_transform(*functions) -> dict[str, tuple[Callable, ...]]:
    """The functions for each transform, made once: new ones would compile again."""
    return {
        name: tuple(wraps(function)(partial(function, name)) for function in functions)
        for name in NAMES
    }


_LINEAR = (_linear_moments, _linear_parts, _linear_crps)
_TRANSFORMED = _for_each_transform(
    _transformed_moments, _transformed_parts, _transformed_crps
)
_ROUNDED = _for_each_transform(_rounded_moments, _rounded_parts, _rounded_crps)
MEAN_LOG_SLOPES = {
    name: found[0] for name, found in _for_each_transform(_mean_log_slope).items()
}
