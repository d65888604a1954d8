"""Moments and scores of y itself, which depend on the map from u to y.

`statistics_of` chooses the compiled functions for a `TargetMap`. All moments come from
`draw_moments`, which gives the mean and the variance of y given each draw of W.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ncai.predictive import mixture
from ncai.predictive.components import NUM_SOME, Components, few_of, one_output
from ncai.predictive.row_statistics import over_outputs
from ncai.predictive.target_map import TargetMap
from ncai.preprocessing.target_transforms import NAMES, inverse, log_inverse_slope

# Gauss-Hermite nodes and weights for averages over the output noise.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True, eq=False)
class TargetStatistics:
    """Compiled statistics of y, and the units of their results.

    A result v means offset + unit * v if it is a value of y, unit * v if it is a
    distance, and unit^2 * v if it is a variance.

    Args:
        moments: the function for the mean and the variance of each output.
        crps: the function for the continuous ranked probability score of each output.
        shared: constants of the target map, which each function takes as an argument.
        offset: one number for each output.
        unit: one number for each output.
    """

    moments: Callable
    crps: Callable
    shared: tuple[np.ndarray, ...]
    offset: Float[np.ndarray, "L"]
    unit: Float[np.ndarray, "L"]


def statistics_of(target_map: TargetMap) -> TargetStatistics:
    """Return the statistics of y for the kind of its map.

    - Linear: moments have closed forms. `mixture.crps` gives the CRPS.
    - Transformed: moments average the inverse of the transform over the noise by
      Gauss-Hermite quadrature. The CRPS comes from an evenly spread sample of y.
    - Rounded: moments are the moments before rounding plus the change that rounding
      makes to an evenly spread sample of y. The CRPS comes from the rounded sample.
    """
    name, one = target_map.transform.name, np.ones(target_map.num_outputs)
    if target_map.rounded.any():
        shared, offset = _rounding_constants(target_map), target_map.lattice.origin
        moments, crps = _ROUNDED[name]
        return TargetStatistics(moments, crps, shared, offset, one)
    if target_map.is_linear:
        shift, scale = target_map.shift, target_map.scale
        return TargetStatistics(_moments, _linear_crps, (), shift, scale)
    shared = transform_constants(target_map)
    moments, crps = _TRANSFORMED[name]
    return TargetStatistics(moments, crps, shared, 0 * one, one)


def transform_constants(target_map: TargetMap) -> tuple[np.ndarray, ...]:
    """Shift, scale and the transform's shape, in 32-bit numbers; empty if linear."""
    if target_map.is_linear:
        return ()
    return _all_constants(target_map)


def _all_constants(target_map: TargetMap) -> tuple[np.ndarray, ...]:
    shape = np.broadcast_arrays(target_map.shift, *target_map.transform.shape)[1:]
    return _in_32_bits(target_map.shift, target_map.scale, *shape)


def _rounding_constants(target_map: TargetMap) -> tuple[np.ndarray, ...]:
    """Origin, step and lowest value of the lattice, then constants of the transform.

    Values are relative to the origin of the lattice. Without a transform, the origin is
    subtracted from the shift before the conversion to 32-bit numbers. With a transform,
    it is only subtracted from the resulting y.
    """
    origin, lattice = target_map.lattice.origin, target_map.lattice
    lowest = lattice.lowest - origin
    if target_map.is_linear:
        target_map = replace(target_map, shift=target_map.shift - origin)
        origin = 0 * origin
    constants = _in_32_bits(origin, lattice.step, lowest)
    return constants + _all_constants(target_map)


def _in_32_bits(*arrays) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(array, np.float32) for array in arrays)


# ----- Moments ------------------------------------------------------------------------


class DrawMoments(NamedTuple):
    """Moments of each output given each draw of W.

    Args:
        centre: a central value of y. Means are relative to it, so that their squares do
            not lose digits if y is large.
        means: E[y|W] - centre.
        variances: Var[y|W].
        shares: the weights of the draws in the mixture.
    """

    centre: Float[Array, "L"]
    means: Float[Array, "S L"]
    variances: Float[Array, "S L"]
    shares: Float[Array, "S 1"]

    def of_all(self) -> tuple[Float[Array, "L"], Float[Array, "L"]]:
        """Mean and variance of y, by the law of total variance."""
        mean = jnp.sum(self.shares * self.means, axis=0)
        parts = self.variances + jnp.square(self.means - mean)
        return self.centre + mean, jnp.sum(self.shares * parts, axis=0)


def draw_moments(name: str, components: Components, constants) -> DrawMoments:
    """Moments given each draw of W, before rounding.

    `constants` are the shift, the scale and the shape of the transform with this name.
    If they are empty, moments are in the units of training.
    """
    joint = jnp.exp(components.log_weights)
    shares = joint.sum((1, 2))[:, None]
    given = joint / shares[..., None]
    if name == "none":
        found = _linear_draw_moments(components, given, shares)
        if not constants:
            return found
        shift, scale = constants[:2]
        return DrawMoments(
            shift + scale * found.centre,
            scale * found.means,
            scale**2 * found.variances,
            shares,
        )
    shift, scale, *shape = constants
    middle = jnp.einsum("smj,sml->l", joint, components.means)
    centre = inverse(name, shift + scale * middle, *shape)

    def powers(t):
        away = inverse(name, t, *shape) - centre
        return away, jnp.square(away)

    first, second = _over_noise(powers, components, shift, scale)
    means = jnp.einsum("smj,smjl->sl", given, first)
    variances = jnp.einsum("smj,smjl->sl", given, second) - jnp.square(means)
    return DrawMoments(centre, means, jnp.maximum(variances, 0), shares)


def _linear_draw_moments(components: Components, given, shares) -> DrawMoments:
    by_node = given.sum(2)[..., None]
    means = (by_node * components.means).sum(1)
    centre = (shares * means).sum(0)
    away = jnp.square(components.means - means[:, None, :])
    within = (by_node * (away + jnp.square(components.blur))).sum(1)
    factors = jnp.einsum("smj,sj->s", given, jnp.square(components.noise_factors))
    noise = factors[:, None] * jnp.square(components.noise_std)
    return DrawMoments(centre, means - centre, within + noise, shares)


def _over_noise(function, components: Components, shift, scale):
    """Averages over the noise of functions of t, for each component: [S, M, J, L].

    We loop over the nodes, because an axis with so few entries would keep the compiler
    from using vector instructions.
    """
    num_outputs = components.means.shape[-1]
    stds = jnp.stack([components.stds(output) for output in range(num_outputs)], -1)
    means = components.means[:, :, None, :]

    def add(totals, node_and_weight):
        node, weight = node_and_weight
        found = function(shift + scale * (means + node * stds))
        pairs = zip(totals, found, strict=True)
        return tuple(total + weight * part for total, part in pairs), None

    zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(function, stds))
    nodes = tuple(jnp.asarray(a, stds.dtype) for a in (_NODES, _WEIGHTS))
    return jax.lax.scan(add, zeros, nodes)[0]


def _moments(components: Components, row, shared):
    del row
    return draw_moments("none", components, shared).of_all()


def _transformed_moments(name, components: Components, row, shared):
    del row
    return draw_moments(name, components, shared).of_all()


def _rounded_moments(name, components: Components, row, shared):
    origin, _, _, *constants = shared
    centre, variance = _transformed_moments(name, components, row, constants)
    centre = centre - origin
    sample, rounded, weights = _rounded_sample(name, components, shared)
    sample, rounded = sample - centre, rounded - centre
    # The sample gives the change by rounding, and the moments before rounding give the
    # rest. We do not subtract squares, because large squares would lose digits.
    moved = weights @ (rounded - sample)
    widened = weights @ ((rounded - sample) * (rounded + sample))
    return centre + moved, jnp.maximum(variance + widened - jnp.square(moved), 0)


def mean_log_slope(name, components: Components, row, shared):
    """E[log dy/du] of each output, minus the logarithm of the scale."""
    del row
    shift, scale, *shape = shared
    (slope,) = _over_noise(
        lambda t: (log_inverse_slope(name, t, *shape),), components, shift, scale
    )
    return jnp.einsum("smj,smjl->l", jnp.exp(components.log_weights), slope)


# ----- Scores -------------------------------------------------------------------------


def _linear_crps(components: Components, targets, shared):
    del shared

    def one(output, target):
        whole = one_output(components, output)
        some = few_of(components, whole, NUM_SOME)
        return mixture.crps(whole, some, target)

    return over_outputs(one, components, targets)


def _transformed_crps(name, components: Components, targets, shared):
    return _sample_crps(*_even_sample(name, components, shared), targets)


def _rounded_crps(name, components: Components, targets, shared):
    _, rounded, weights = _rounded_sample(name, components, shared)
    return _sample_crps(rounded, weights, targets)


def _even_sample(name, components: Components, constants):
    """Evenly spread values of y before rounding, [R, L], and their weights [R]."""
    shift, scale, *shape = constants
    num_outputs = components.means.shape[-1]
    parts = [
        few_of(components, one_output(components, output), NUM_SOME)
        for output in range(num_outputs)
    ]
    count = parts[0].means.size
    noise = mixture.even_noise(count * num_outputs, components.means.dtype)
    noise = noise.reshape(-1, count, num_outputs)
    means = jnp.stack([part.means for part in parts], -1)
    stds = jnp.stack([part.stds for part in parts], -1)
    sample = inverse(name, shift + scale * (means + stds * noise), *shape)
    weights = jnp.broadcast_to(parts[0].weights / len(noise), noise.shape[:2])
    return sample.reshape(-1, num_outputs), weights.ravel()


def _rounded_sample(name, components: Components, shared):
    """The evenly spread sample before and after rounding, and its weights.

    Its values are relative to the origin of the lattice.
    """
    origin, step, lowest, *constants = shared
    sample, weights = _even_sample(name, components, constants)
    sample = sample - origin
    width = jnp.where(step > 0, step, 1.0)
    nearest = jnp.maximum(width * jnp.floor(sample / width + 0.5), lowest)
    return sample, jnp.where(step > 0, nearest, sample), weights


def _sample_crps(sample, weights, targets):
    """CRPS of a weighted sample [R, L]."""
    spread = jax.vmap(mixture.half_mean_difference, (1, None))(sample, weights)
    return weights @ jnp.abs(sample - targets) - spread


def for_each_transform(*functions) -> dict[str, tuple[Callable, ...]]:
    """Bind functions to each transform, once: new functions would compile again."""
    return {
        name: tuple(wraps(function)(partial(function, name)) for function in functions)
        for name in NAMES
    }


_TRANSFORMED = for_each_transform(_transformed_moments, _transformed_crps)
_ROUNDED = for_each_transform(_rounded_moments, _rounded_crps)
