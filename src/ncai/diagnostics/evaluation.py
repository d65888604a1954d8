"""Scores of predictive distributions: for each row, on average, and their intervals."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ncai.diagnostics.calibration import pit_of
from ncai.predictive.simple import Predictions
from ncai.stats.scores import pit_uniformity

LEVELS = (0.5, 0.8, 0.95)
# The scores that tables of methods show. Only for the first one larger is better.
MAIN_SCORES = ("log_likelihood", "crps", *(f"coverage_{100 * p:.0f}" for p in LEVELS))


def row_scores(predictions: Predictions, targets: np.ndarray) -> dict[str, np.ndarray]:
    """The scores of each row, [N] each; the metrics are their averages.

    Intervals of a rounded y end at possible values and so cover more than their level.
    Coverage then comes from PIT values: a row at an end counts as covered at random.
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
