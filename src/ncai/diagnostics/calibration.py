"""Are predicted probabilities calibrated? Curves, bands and bins from PIT values.

The PIT (probability integral transform) of a row is its predictive cdf at the target.
For a rounded y it is a uniform draw between the cdf just below the target and at it. If
the predictions are right, PIT values are uniform on [0, 1], and a central interval of
probability p covers a row if its PIT is within p / 2 of one half.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import stats


class BinCoverage(NamedTuple):
    """Coverage within one bin of rows.

    Attributes:
        low: smallest value in the bin of the variable that we bin by.
        high: largest value in the bin.
        num_rows: number of rows in the bin.
        coverage: share of these rows that lie in their intervals.
        lower: lower end of the Wilson interval of that share.
        upper: upper end of the Wilson interval.
    """

    low: float
    high: float
    num_rows: int
    coverage: float
    lower: float
    upper: float


def pit_of(predictions, y: ArrayLike) -> np.ndarray:
    """PIT values of predictions of any kind: their `pit`, or else their cdf."""
    return getattr(predictions, "pit", predictions.cdf)(y)


def pit_values(model, X, y: ArrayLike) -> np.ndarray:
    """PIT values of a fitted model with one output."""
    pit = np.asarray(pit_of(model.predict_dist(X), np.asarray(y, float)))
    if pit.ndim > 1 and pit.shape[1] > 1:
        raise ValueError(
            f"the model predicts {pit.shape[1]} outputs; calibration needs one output."
        )
    return pit.reshape(-1)


def coverage_curve(pit: ArrayLike, levels: ArrayLike) -> np.ndarray:
    """Share of rows inside their central interval, for each level."""
    off_centre = np.sort(np.abs(checked_pit(pit) - 0.5))
    # The tolerance counts a row at the very end of its interval as inside.
    reach = np.asarray(levels, float) / 2 + 1e-12
    return np.searchsorted(off_centre, reach, side="right") / len(off_centre)


def binomial_band(
    levels: ArrayLike, num_rows: int, probability: float = 0.95
) -> tuple[Float[Any, "*levels"], Float[Any, "*levels"]]:
    """The range of observed coverage that chance explains, for each level."""
    tail = (1 - probability) / 2
    levels = np.clip(np.asarray(levels, float), 0, 1)
    ends = (stats.binom.ppf(p, num_rows, levels) / num_rows for p in (tail, 1 - tail))
    lower, upper = ends
    return lower, upper


def wilson_interval(
    share: float, num_rows: int, probability: float = 0.95
) -> tuple[float, float]:
    """Wilson's confidence interval of a share that was observed on `num_rows` rows."""
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
        by: N values to bin the rows by, such as an input or the predicted mean.
        level: probability of the interval.
        num_bins: largest number of bins; rows with equal values share a bin.
    """
    pit, by = checked_pit(pit), np.asarray(by, float)
    if by.shape != pit.shape:
        raise ValueError(
            f"by has shape {by.shape}; it must have the shape {pit.shape} of pit."
        )
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
    """PIT values as an array [N], after a check that they are probabilities."""
    values = np.asarray(pit, float).reshape(-1)
    if not values.size or not ((values >= 0) & (values <= 1)).all():
        raise ValueError("pit must hold probabilities between 0 and 1, at least one.")
    return values
