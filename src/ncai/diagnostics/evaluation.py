"""Scores and calibration of predictive distributions.

The PIT (probability integral transform) of a row is its predictive cdf at the target.
For a rounded y it is a uniform draw between the cdf just below the target and at it. If
the predictions are right, PIT values are uniform on [0, 1], and a central interval of
probability p covers a row if its PIT is within p / 2 of one half.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import stats

from ncai.predictive.simple import Predictions
from ncai.stats.scores import pit_uniformity


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


LEVELS = (0.5, 0.8, 0.95)
# The scores that tables of methods show. Larger is better only for the first.
MAIN_SCORES = ("log_likelihood", "crps", *(f"coverage_{100 * p:.0f}" for p in LEVELS))


def row_scores(predictions: Predictions, targets: np.ndarray) -> dict[str, np.ndarray]:
    """The scores of each row, [N] each; the metrics are their averages.

    Intervals of a rounded y end at possible values, so they cover more than their
    level. Coverage then comes from PIT values, where chance decides whether a row at an
    end counts as covered.
    """
    y = np.asarray(targets, np.float64)
    error = y - predictions.mean()
    ends = [[(1 - level) / 2, (1 + level) / 2] for level in LEVELS]
    quantiles = predictions.quantile(np.ravel(ends))
    rows = {
        "log_likelihood": predictions.log_prob(y),
        "crps": predictions.crps(y),
        "squared_error": error**2,
        "absolute_error": np.abs(error),
    }
    rows["pit"] = np.clip(pit_of(predictions, y), 0, 1)
    rounded = np.any(getattr(predictions, "rounding_step", 0.0))
    for place, level in enumerate(LEVELS):
        lower, upper = quantiles[:, 2 * place], quantiles[:, 2 * place + 1]
        name = f"{100 * level:.0f}"
        missed = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
        held = (lower <= y) & (y <= upper)
        if rounded:
            held = np.abs(rows["pit"] - 0.5) <= level / 2
        rows[f"coverage_{name}"] = held.astype(np.float64)
        rows[f"width_{name}"] = upper - lower
        rows[f"interval_score_{name}"] = upper - lower + 2 / (1 - level) * missed
    return rows


def average_scores(rows: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The metrics: averages over rows, and the root of the mean squared error."""
    scores = {
        _METRICS.get(name, name): float(np.mean(values))
        for name, values in rows.items()
        if name != "pit"
    }
    scores["rmse"] = float(np.sqrt(scores["rmse"]))
    return scores


def bootstrap_intervals(
    rows: Mapping[str, np.ndarray],
    num_resamples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, tuple[float, float]]:
    """Percentile bootstrap intervals of the metrics, from resampled rows."""
    names = [name for name in rows if name != "pit"]
    table = np.stack([rows[name] for name in names], axis=1)
    rng = np.random.default_rng(seed)
    means = np.empty((num_resamples, len(names)))
    for number in range(num_resamples):
        counts = np.bincount(
            rng.integers(len(table), size=len(table)), minlength=len(table)
        )
        means[number] = counts @ table / len(table)
    ends = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0).T
    found = {
        _METRICS.get(name, name): (float(low), float(high))
        for name, (low, high) in zip(names, ends, strict=True)
    }
    found["rmse"] = tuple(float(np.sqrt(end)) for end in found["rmse"])  # pyright: ignore
    return found


def evaluate_rows(
    rows: Mapping[str, np.ndarray], num_resamples: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """All metrics with their intervals, and a test of calibration."""
    scores = average_scores(rows)
    intervals = bootstrap_intervals(rows, num_resamples, seed)
    pit = pit_uniformity(rows["pit"])
    return {
        "rows": len(rows["pit"]),
        "bootstrap_resamples": num_resamples,
        "metrics": {
            name: {
                "value": scores[name],
                "lower_95": intervals[name][0],
                "upper_95": intervals[name][1],
            }
            for name in scores
        },
        "calibration": {"ks": pit.statistic, "p_value": pit.p_value},
    }


def paired_difference(
    ours: np.ndarray, theirs: np.ndarray, num_resamples: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """Mean of ours minus theirs on the same rows, with its 95 % bootstrap interval."""
    difference = np.asarray(ours) - np.asarray(theirs)
    rng = np.random.default_rng(seed)
    means = [
        difference[rng.integers(len(difference), size=len(difference))].mean()
        for _ in range(num_resamples)
    ]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(difference.mean()), float(low), float(high)


_METRICS = {"squared_error": "rmse", "absolute_error": "mae"}
