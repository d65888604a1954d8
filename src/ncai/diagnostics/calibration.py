"""Do predicted probabilities come true? Curves, bands and bins from PIT values.

The PIT of a row is its predictive cdf at the target (where y is rounded, an even value
between the cdf below it and at it). Where predictions are right, PIT
values are uniform on [0, 1], and a central interval of probability p holds a row if its
PIT is no further than p / 2 from one half.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


class BinCoverage(NamedTuple):
    """Coverage within one bin of rows.

    Attributes:
        low: least value of the variable binned by.
        high: largest one.
        num_rows: rows in the bin.
        coverage: share of them in their intervals.
        lower: end of the Wilson interval of that share.
        upper: the other end.
    """

    low: float
    high: float
    num_rows: int
    coverage: float
    lower: float
    upper: float


def pit_of(predictions, y: ArrayLike) -> np.ndarray:
    """PIT values of predictions of any kind; most have no better than their cdf."""
    return getattr(predictions, "pit", predictions.cdf)(y)


def pit_values(model, X, y: ArrayLike) -> np.ndarray:
    """The predictive cdf of a fitted model with one output at each target."""
    pit = np.asarray(pit_of(model.predict_dist(X), np.asarray(y, float)))
    if pit.ndim > 1 and pit.shape[1] > 1:
        raise ValueError(
            f"the model predicts {pit.shape[1]} outputs; calibration is shown for one."
        )
    return pit.reshape(-1)


def coverage_curve(pit: ArrayLike, levels: ArrayLike) -> np.ndarray:
    """Share of rows in their central interval, for each level."""
    off_centre = np.sort(np.abs(checked_pit(pit) - 0.5))
    # The tolerance keeps a row at the very end of its interval inside.
    reach = np.asarray(levels, float) / 2 + 1e-12
    return np.searchsorted(off_centre, reach, side="right") / len(off_centre)


def binomial_band(
    levels: ArrayLike, num_rows: int, probability: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Between what a right coverage lies by chance, level by level."""
    tail = (1 - probability) / 2
    levels = np.clip(np.asarray(levels, float), 0, 1)
    ends = (stats.binom.ppf(p, num_rows, levels) / num_rows for p in (tail, 1 - tail))
    lower, upper = ends
    return lower, upper


def wilson_interval(
    share: float, num_rows: int, probability: float = 0.95
) -> tuple[float, float]:
    """Interval of a share that was counted on `num_rows` rows."""
    deviations = stats.norm.ppf((1 + probability) / 2)
    weight = deviations**2 / num_rows
    middle = (share + weight / 2) / (1 + weight)
    half = np.sqrt(share * (1 - share) * weight + weight**2 / 4) / (1 + weight)
    return float(middle - half), float(middle + half)


def coverage_by_bin(
    pit: ArrayLike, by: ArrayLike, level: float, num_bins: int = 5
) -> list[BinCoverage]:
    """Coverage of the central interval in bins of about equally many rows.

    Args:
        pit: PIT values of N rows.
        by: N values to sort the rows by, such as an input or the predicted mean.
        level: probability of the interval.
        num_bins: at most so many; rows of one value stay together.
    """
    pit, by = checked_pit(pit), np.asarray(by, float)
    if by.shape != pit.shape:
        raise ValueError(f"by has shape {by.shape}; it must be {pit.shape} as pit is.")
    values, place = np.unique(by, return_inverse=True)
    if len(values) > num_bins:
        edges = np.unique(np.quantile(by, np.linspace(0, 1, num_bins + 1)))
        last = max(len(edges) - 2, 0)
        place = np.clip(np.searchsorted(edges, by, side="right") - 1, 0, last)
    bins = []
    for number in np.unique(place):
        chosen = place == number
        share = float(coverage_curve(pit[chosen], [level])[0])
        count = int(chosen.sum())
        bins.append(
            BinCoverage(
                float(by[chosen].min()),
                float(by[chosen].max()),
                count,
                share,
                *wilson_interval(share, count),
            )
        )
    return bins


def checked_pit(pit: ArrayLike) -> np.ndarray:
    """PIT values as an array [N], refused if they are no probabilities."""
    values = np.asarray(pit, float).reshape(-1)
    if not values.size or not ((values >= 0) & (values <= 1)).all():
        raise ValueError("pit must hold probabilities between 0 and 1, at least one.")
    return values
