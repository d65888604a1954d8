"""Quantiles, sets of highest density, and a check for unreliable std."""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.ndimage import gaussian_filter1d
from scipy.special import ndtri

from ncai.predictive import mixture, row_statistics
from ncai.predictive.row_map import Mixtures, map_mixtures
from ncai.predictive.target_map import TargetMap, numbers

KINDS = ("central", "highest_density")
SMALLEST_TAIL = 1e-30  # probabilities are stored as 32-bit numbers
# If the gap between two pieces of a highest-density set is shorter than this share of
# its length, it is a ripple of the mixture and not the valley between two modes. The
# set is then computed again from a density that is blurred by half of that length.
SMALLEST_GAP = 0.04
_BLURRED_POINTS = 1024
# Number of values of y among which the set is searched if y is transformed.
_GRID_POINTS = 512
# Intervals of a lower level say nothing about the tails.
LEAST_LEVEL = 0.8
# A log-normal whose logarithm has a standard deviation of 1.5 stays just below this.
MOST_TIMES = 2.0


def quantile_levels(q: ArrayLike) -> Float[np.ndarray, "..."]:
    """Return `q` as an array of zero or one axes; reject values outside (0, 1)."""
    levels = numbers("q", q)
    if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(
            f"q={q!r} must be a number, or a list of numbers, strictly between 0 and 1."
        )
    if (levels < SMALLEST_TAIL).any():
        raise ValueError(f"q={q!r} must be at least {SMALLEST_TAIL:g}.")
    return levels


def checked_level(level: float) -> float:
    """Return the probability of an interval; reject values outside (0, 1)."""
    if np.ndim(level) or not 0 < numbers("level", level) < 1:
        raise ValueError(f"level={level!r} must be a number strictly between 0 and 1.")
    return float(level)


def quantiles(
    mixtures: Mixtures, levels: Float[np.ndarray, "Q"]
) -> Float[np.ndarray, "N L Q"]:
    """Quantiles on the scale of training."""
    side = np.where(levels <= 0.5, 1.0, -1.0)
    tails = np.stack([np.minimum(levels, 1 - levels), side], -1).astype(np.float32)
    return map_mixtures(
        row_statistics.quantiles, mixtures, shared=tails, values_per_row=len(levels)
    )


def highest_density_sets(
    mixtures: Mixtures, target_map: TargetMap, level: float, output: int | None
) -> list[Float[np.ndarray, "intervals 2"]]:
    """Return the smallest set of each row that contains y with probability `level`.

    The sets are for one output. If it is rounded, the ends are rounded afterwards, so a
    set contains at least `level`.
    """
    if output is None and target_map.num_outputs > 1:
        raise ValueError(
            f"output=None: give output=0 to {target_map.num_outputs - 1}, since a set "
            "of highest density is found for one output at a time."
        )
    output = target_map.checked_output(0 if output is None else output)
    one = target_map.of_output(output)
    find = _sets_of_linear if target_map.is_linear else _sets_of_transformed
    found = find(mixtures, one, level, output)
    if not one.rounded.any():
        return found
    return [_merged(one.nearest(ends[..., None])[..., 0]) for ends in found]


def _sets_of_linear(mixtures: Mixtures, one: TargetMap, level: float, output: int):
    points, density, threshold = map_mixtures(
        row_statistics.highest_density,
        mixtures,
        shared=(np.float32(level), np.int32(output)),
        values_per_row=2 * mixture.FINE_GRID_SIZES[-1],
    )
    points = one.from_training(points)
    return [
        highest_density_set(*row, level)
        for row in zip(points, density, threshold, strict=True)
    ]


def _sets_of_transformed(mixtures: Mixtures, one: TargetMap, level: float, output: int):
    ends = quantiles(mixtures, np.array([5e-5, 1 - 5e-5]))[:, output]
    share = np.linspace(0, 1, _GRID_POINTS)
    # Half of the points are even in t and half in y. Where the slope is steep, points
    # that are even in only one of them leave gaps in the other.
    even = ends[:, :1] + share[::2] * (ends[:, 1:] - ends[:, :1])
    low, high = one.from_training(ends[:, :1]), one.from_training(ends[:, 1:])
    evenly_in_y = low + share[1::2] * (high - low)
    points = np.sort(np.concatenate([one.from_training(even), evenly_in_y], axis=1))
    log_density = map_mixtures(
        row_statistics.log_prob_at_points,
        mixtures,
        one.to_training(points),
        np.int32(output),
        values_per_row=_GRID_POINTS,
    )
    density = np.exp(log_density + one.log_slope(points))
    return [
        highest_density_set(*row, _threshold(*row, level), level)
        for row in zip(points, density, strict=True)
    ]


def _threshold(points, density, level) -> float:
    """Return the height above which the density contains probability `level`."""
    mass = density * np.gradient(points)
    order = np.argsort(-density)
    filled = np.cumsum(mass[order]) / mass.sum()
    return float(density[order[min(np.searchsorted(filled, level), len(order) - 1)]])


def highest_density_set(
    points: Float[np.ndarray, "G"],
    density: Float[np.ndarray, "G"],
    threshold: float,
    level: float,
) -> Float[np.ndarray, "intervals 2"]:
    """Return the intervals of highest density; together they contain `level`.

    `threshold` is the height that the density exceeds there if ripples are kept.
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
    """Return the intervals where a piecewise linear density exceeds a threshold."""
    above = np.concatenate([[False], density > threshold, [False]])
    # If the density still exceeds the threshold at the last point, it ends there.
    points = np.concatenate([points[:1], points, points[-1:]])
    density = np.concatenate([[threshold], density, [threshold]])
    left = np.flatnonzero(above[1:] != above[:-1])
    rise = density[left + 1] - density[left]
    part = (threshold - density[left]) / np.where(rise == 0, 1, rise)
    ends = points[left] + part * (points[left + 1] - points[left])
    return ends.reshape(-1, 2)


def _merged(intervals: Float[np.ndarray, "intervals 2"]) -> np.ndarray:
    """Merge intervals that touch after rounding."""
    out = [intervals[0]]
    for low, high in intervals[1:]:
        if low <= out[-1][1]:
            out[-1] = np.array([out[-1][0], max(high, out[-1][1])])
        else:
            out.append(np.array([low, high]))
    return np.stack(out)


def rests_on_rare_draws(
    predictive: Any, std: np.ndarray, width: np.ndarray, level: float = 0.95
) -> np.ndarray:
    """Whether std is far larger than the width of a central interval suggests.

    If the logarithm of y was learned, y is the exponential of the output of the
    network. One draw in a thousand can then make up most of a variance, although it
    does not change the intervals at all.

    Args:
        predictive: the predictive distribution that `std` and `width` belong to.
        std: standard deviations.
        width: widths of the central intervals of probability `level`.
        level: the probability; below 0.8 the result is always False.
    """
    if level < LEAST_LEVEL:
        return np.zeros(np.shape(std), bool)
    # A rounded value stands for the whole cell around it.
    width = width + getattr(predictive, "rounding_step", 0.0)
    of_a_normal = width / (2 * ndtri((1 + level) / 2))
    return std > MOST_TIMES * of_a_normal
