"""The predictive density, shaded."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from numpy.typing import ArrayLike

from ncai.diagnostics.conditional import (
    QUANTILES,
    conditional_density,
    darkest_density,
    feature_names,
    find_feature,
    partial_dependence,
    rows_along,
)
from ncai.plot.style import COLOURS, axes, limits, one_column, plain, with_unit

# The root of the density is shown, so that thin tails are seen.
_POWER = 0.5
# Rows whose other inputs are averaged over, with others="average".
_AVERAGED = 40


def density(
    model,
    X: ArrayLike,
    y: ArrayLike,
    ax: Axes | None = None,
    *,
    feature: str | int | None = None,
    others: str = "median",
    colour: str = COLOURS["NCAI"],
    level: float = 0.95,
    x_limits: tuple[float, float] | None = None,
    y_limits: tuple[float, float] | None = None,
    grid: tuple[int, int] = (200, 240),
    darkest: float | None = None,
    x_label: str | None = None,
    y_label: str = "y",
    x_unit: str | None = None,
    y_unit: str | None = None,
) -> Axes:
    """Shade p(y|x) over one input; mean, interval and data on top.

    Args:
        model: a fitted estimator with one output, or the oracle of a synthetic set.
        X: inputs of the data shown, [N, D] (or [N] for one input).
        y: their targets.
        ax: where to draw; a new figure if not given.
        feature: name or number of the input shown; needed if there are several.
        others: where the other inputs are: at their "median", or "average" for the
            density averaged over rows of X (partial dependence).
        colour: of the shades and lines.
        level: probability of the central interval: 0.5, 0.8 or 0.95.
        x_limits: ends of the horizontal axis; those of the data, and a little room.
        y_limits: ends of the vertical axis; those of the data, and some room.
        grid: number of points across and up.
        darkest: density that is shown darkest; if not given, the peak that p(y|x) has
            at half of the x. Give the same to pictures that are to be compared.
        x_label: name of x; the model's own name of the input if not given.
        y_label: name of y.
        x_unit: unit of x, for the label.
        y_unit: unit of y, for the label.
    """
    if others not in ("median", "average"):
        raise ValueError(f"others={others!r} must be 'median' or 'average'.")
    lower, upper = _interval(level)
    inputs, y = _inputs(model, X), one_column(y, "y")
    if len(inputs) != len(y):
        raise ValueError(
            f"X has {len(inputs)} rows and y has {len(y)}; they must agree."
        )
    number = find_feature(model, feature, inputs.shape[1])
    column = inputs[:, number]
    x_limits = limits(column) if x_limits is None else x_limits
    y_limits = limits(y, 0.15) if y_limits is None else y_limits
    x_grid = np.linspace(x_limits[0], x_limits[1], grid[0])
    y_grid = np.linspace(y_limits[0], y_limits[1], grid[1])
    if others == "average" and inputs.shape[1] > 1:
        picked = np.linspace(0, len(inputs) - 1, min(_AVERAGED, len(inputs)))
        rows = inputs[picked.astype(int)]
        shown = partial_dependence(model, rows, number, x_grid, y_grid)
    else:
        rows = rows_along(inputs, number, x_grid)
        shown = conditional_density(model, rows, x_grid, y_grid)

    ax = axes(ax)
    ax.imshow(
        shown.density.T,
        extent=(*x_limits, *y_limits),
        origin="lower",
        aspect="auto",
        interpolation="bilinear",
        cmap=LinearSegmentedColormap.from_list("shades", ["white", colour]),
        norm=PowerNorm(_POWER, vmin=0.0, vmax=darkest or darkest_density(shown)),
    )
    ax.plot(column, y, ".", color="black", markersize=2.5, alpha=0.55, label="data")
    ax.plot(x_grid, shown.mean, color="black", linewidth=1.4, label="mean")
    for end, label in ((lower, f"{level:.0%} interval"), (upper, None)):
        ax.plot(
            x_grid, shown.quantiles[:, end], color=colour, linewidth=1.2, label=label
        )
    name = x_label or feature_names(model, inputs.shape[1])[number]
    ax.set(xlim=x_limits, ylim=y_limits)
    ax.set(xlabel=with_unit(name, x_unit), ylabel=with_unit(y_label, y_unit))
    return plain(ax)


def _interval(level: float) -> tuple[int, int]:
    """Where `QUANTILES` holds the ends of a central interval."""
    for low in range(len(QUANTILES) // 2):
        if abs(QUANTILES[low] - (1 - level) / 2) < 1e-9:
            return low, len(QUANTILES) - 1 - low
    raise ValueError(f"level={level!r} must be 0.5, 0.8 or 0.95.")


def _inputs(model, X: ArrayLike) -> np.ndarray:
    array = np.asarray(X, float)
    if array.ndim == 1:
        array = array[:, None]
    expected = int(getattr(model, "n_features_in_", 1))
    if array.ndim != 2 or array.shape[1] != expected or not len(array):
        right = "[N] or [N, 1]" if expected == 1 else f"[N, {expected}]"
        raise ValueError(f"X has shape {array.shape}; it must be {right}.")
    return array
