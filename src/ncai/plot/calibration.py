"""Do predicted probabilities come true? The curve, and the histogram of PIT values."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike
from scipy import stats

from ncai.diagnostics.calibration import (
    binomial_band,
    checked_pit,
    coverage_curve,
    pit_values,
)
from ncai.plot.style import COLOURS, axes, plain

_LEVELS = np.linspace(0, 1, 101)


def calibration(
    model_or_pit,
    X=None,
    y: ArrayLike | None = None,
    ax: Axes | None = None,
    *,
    colour: str = COLOURS["NCAI"],
    label: str | None = None,
) -> Axes:
    """Share of targets inside central intervals, against the intervals' probability.

    On the diagonal the share is right; below it intervals are too narrow, above it too
    wide. The grey band holds 95% of the shares that a calibrated model would have on as
    many rows, for each probability on its own.

    Args:
        model_or_pit: a fitted model with one output, or PIT values [N].
        X: rows to evaluate the model on; not with PIT values.
        y: their targets; not with PIT values.
        ax: where to draw; a new figure if not given.
        colour: colour of the curve.
        label: label of the curve in a legend.
    """
    pit_of_rows = _pit_of(model_or_pit, X, y)
    ax = axes(ax)
    low, high = binomial_band(_LEVELS, len(pit_of_rows))
    ax.fill_between(_LEVELS, low, high, color="black", alpha=0.12, linewidth=0)
    ax.plot([0, 1], [0, 1], color="black", linewidth=0.9, linestyle="--")
    coverage = coverage_curve(pit_of_rows, _LEVELS)
    ax.plot(_LEVELS, coverage, color=colour, linewidth=2, label=label)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set(xlabel="probability of the interval", ylabel="share of rows inside")
    ax.xaxis.set_major_formatter(PercentFormatter(1))
    ax.yaxis.set_major_formatter(PercentFormatter(1))
    return plain(ax)


def pit(
    model_or_pit,
    X=None,
    y: ArrayLike | None = None,
    ax: Axes | None = None,
    *,
    colour: str = COLOURS["NCAI"],
    bins: int = 10,
) -> Axes:
    """Histogram of the predictive cdf at the targets: flat if the model is calibrated.

    A hump means that intervals are too wide, a trough that they are too narrow, a slope
    that the mean is shifted. Arguments as in `calibration`; the grey band is for each
    bar on its own.
    """
    pit_of_rows = _pit_of(model_or_pit, X, y)
    counts, edges = np.histogram(pit_of_rows, bins=bins, range=(0, 1))
    expected = len(pit_of_rows) / bins
    ax = axes(ax)
    ax.bar(
        edges[:-1],
        counts,
        width=np.diff(edges),
        align="edge",
        color=colour,
        alpha=0.75,
        edgecolor="white",
    )
    low, high = stats.binom.ppf([0.025, 0.975], len(pit_of_rows), 1 / bins)
    ax.axhspan(low, high, color="black", alpha=0.12, linewidth=0)
    ax.axhline(expected, color="black", linewidth=0.9, linestyle="--")
    ax.set(xlim=(0, 1), xlabel="predictive cdf at y (PIT)", ylabel="rows")
    return plain(ax)


def _pit_of(model_or_pit, X, y) -> np.ndarray:
    if not hasattr(model_or_pit, "predict_dist"):
        if X is not None or y is not None:
            raise ValueError("give PIT values alone, or a fitted model with X and y.")
        return checked_pit(model_or_pit)
    if X is None or y is None:
        raise ValueError("a fitted model needs X and y, the rows to evaluate it on.")
    return pit_values(model_or_pit, X, y)
