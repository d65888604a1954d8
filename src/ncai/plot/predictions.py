"""Predictions: their density, shaded, and aleatoric against epistemic uncertainty."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from numpy.typing import ArrayLike

from ncai.diagnostics.curves import (
    QUANTILES,
    ConditionalDensity,
    as_inputs,
    conditional_density,
    darkest_density,
    feature_names,
    find_feature,
    partial_dependence,
    rows_along,
)
from ncai.predictive.decomposition import Decomposition

# Colours of Okabe and Ito, distinct for colour-blind readers too.
COLOURS = {
    "truth": "#4d4d4d",
    "BNN": "#009e73",
    "MFVI": "#0072b2",
    "NCAI": "#d55e00",
}
ALEATORIC, EPISTEMIC = COLOURS["NCAI"], COLOURS["MFVI"]
# Share of the width left free on both sides, so that no point is cut in half.
ROOM = 0.025
# The root of the density is shown, so that thin tails stay visible.
_POWER = 0.5
# Number of rows to average over, with others="average".
_AVERAGED = 40


@dataclass(frozen=True)
class DensityStyle:
    """How `density` draws; give any of these to it as keyword arguments.

    Attributes:
        colour: colour of the shades and lines.
        x_limits: ends of the horizontal axis; by default the range of the data.
        y_limits: ends of the vertical axis; by default the range of the data.
        grid: number of points across and up.
        darkest: the density that gets the full colour; by default the median over x of
            the peaks of p(y|x). Give pictures that are to be compared the same value.
        x_label: name of x; by default the model's own name of the input.
        y_label: name of y.
        x_unit: unit of x, for the label.
        y_unit: unit of y, for the label.
    """

    colour: str = COLOURS["NCAI"]
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float] | None = None
    grid: tuple[int, int] = (200, 240)
    darkest: float | None = None
    x_label: str | None = None
    y_label: str = "y"
    x_unit: str | None = None
    y_unit: str | None = None


def density(
    model,
    X: ArrayLike,
    y: ArrayLike,
    ax: Axes | None = None,
    *,
    feature: str | int | None = None,
    others: str = "median",
    level: float = 0.95,
    **style: Any,
) -> Axes:
    """Shade p(y|x) over one input; draw the mean, an interval and the data on top.

    Args:
        model: a fitted estimator with one output, or the oracle of a synthetic set.
        X: inputs of the data shown, [N, D] (or [N] for one input).
        y: their targets.
        ax: where to draw; a new figure if not given.
        feature: name or number of the input shown; needed if there are several.
        others: how to set the other inputs: "median" for their medians, or "average"
            for the density averaged over rows of X (partial dependence).
        level: probability of the central interval: 0.5, 0.8 or 0.95.
        **style: fields of `DensityStyle`, such as `colour`, `grid` or `x_unit`.
    """
    if others not in ("median", "average"):
        raise ValueError(f"others={others!r} must be 'median' or 'average'.")
    ends = _interval(level)
    inputs, y = _inputs(model, X), one_column(y, "y")
    if len(inputs) != len(y):
        raise ValueError(
            f"X has {len(inputs)} rows and y has {len(y)}; they must agree."
        )
    number = find_feature(model, feature, inputs.shape[1])
    column = inputs[:, number]
    look = _complete(style, column, y, feature_names(model, inputs.shape[1])[number])
    shown = _density_over(model, inputs, number, look, others == "average")
    ax = axes(ax)
    _shade(ax, shown, look)
    ax.plot(column, y, ".", color="black", markersize=2.5, alpha=0.55, label="data")
    ax.plot(shown.x, shown.mean, color="black", linewidth=1.4, label="mean")
    for end, label in zip(ends, (f"{level:.0%} interval", None), strict=True):
        values = shown.quantiles[:, end]
        ax.plot(shown.x, values, color=look.colour, linewidth=1.2, label=label)
    ax.set(xlim=look.x_limits, ylim=look.y_limits)
    ax.set_xlabel(with_unit(look.x_label or "x", look.x_unit))
    ax.set_ylabel(with_unit(look.y_label, look.y_unit))
    return plain(ax)


def _complete(style: dict[str, Any], x, y, x_name: str) -> DensityStyle:
    """The style with the limits of the data and the name of the input filled in."""
    look = DensityStyle(**style)
    return replace(
        look,
        x_limits=limits(x) if look.x_limits is None else look.x_limits,
        y_limits=limits(y, 0.15) if look.y_limits is None else look.y_limits,
        x_label=look.x_label or x_name,
    )


def _density_over(
    model, inputs: np.ndarray, feature: int, look: DensityStyle, average: bool
) -> ConditionalDensity:
    """The density on the grid, with the other inputs averaged over or at medians."""
    assert look.x_limits is not None
    assert look.y_limits is not None
    x_grid = np.linspace(*look.x_limits, look.grid[0])
    y_grid = np.linspace(*look.y_limits, look.grid[1])
    if average and inputs.shape[1] > 1:
        picked = np.linspace(0, len(inputs) - 1, min(_AVERAGED, len(inputs)))
        rows = inputs[picked.astype(int)]
        return partial_dependence(model, rows, feature, x_grid, y_grid)
    rows = rows_along(inputs, feature, x_grid)
    return conditional_density(model, rows, x_grid, y_grid)


def _shade(ax: Axes, shown: ConditionalDensity, look: DensityStyle) -> None:
    ax.imshow(
        shown.density.T,
        extent=(*look.x_limits, *look.y_limits),  # pyright: ignore
        origin="lower",
        aspect="auto",
        interpolation="bilinear",
        cmap=LinearSegmentedColormap.from_list("shades", ["white", look.colour]),
        norm=PowerNorm(_POWER, vmin=0.0, vmax=look.darkest or darkest_density(shown)),
    )


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


# What the parts of a decomposition are called on an axis.
WORDS = {
    "crps": "CRPS uncertainty of y",
    "variance": "standard deviation of y",
    "entropy": "entropy of y",
}


def decomposition(
    model_or_parts,
    X: ArrayLike,
    ax: Axes | None = None,
    *,
    feature: str | int | None = None,
    grid: int = 120,
    unit: str | None = None,
) -> Axes:
    """Draw the total, aleatoric and epistemic uncertainty, in the units of y.

    With one input, or with a `feature`, these are lines over this input, with the other
    inputs at their median. Otherwise it is a scatter plot of the rows, with the
    aleatoric part on the horizontal axis and the epistemic part on the vertical axis.

    Args:
        model_or_parts: a fitted model with one output, whose uncertainty is decomposed
            by CRPS; or a `Decomposition` of the rows X (variances are drawn as standard
            deviations).
        X: rows, [N, D] or [N].
        ax: where to draw; a new figure if not given.
        feature: name or number of the input to draw over.
        grid: number of points across.
        unit: unit of y, for the labels.
    """
    inputs = np.asarray(X, float)
    inputs = inputs[:, None] if inputs.ndim == 1 else inputs
    over_input = feature is not None or inputs.shape[1] == 1
    number = find_feature(model_or_parts, feature, inputs.shape[1]) if over_input else 0
    if isinstance(model_or_parts, Decomposition):
        x, parts = inputs[:, number], model_or_parts
        if len(parts.total) != len(x):
            raise ValueError(
                f"X has {len(x)} rows and the decomposition {len(parts.total)}; they "
                "must agree."
            )
    else:
        x = np.linspace(*limits(inputs[:, number], 0), grid)
        rows = rows_along(inputs, number, x) if over_input else inputs
        parts = model_or_parts.decompose_uncertainty(as_inputs(model_or_parts, rows))
    parts = parts.as_stds()
    ax = axes(ax)
    if over_input:
        return _lines(ax, x, parts, feature_names(model_or_parts)[number], unit)
    return _scatter(ax, parts, unit)


def _lines(ax: Axes, x, parts: Decomposition, name: str, unit) -> Axes:
    order = np.argsort(x)
    for label, values, colour, style in (
        ("total", parts.total, COLOURS["truth"], "-"),
        ("aleatoric (stays with more data)", parts.aleatoric, ALEATORIC, "-"),
        ("epistemic (shrinks with more data)", parts.epistemic, EPISTEMIC, "--"),
    ):
        ax.plot(x[order], values[order], style, color=colour, linewidth=2, label=label)
    ax.set(xlim=limits(x, 0), xlabel=name)
    ax.set_ylabel(with_unit(WORDS[parts.measure], unit))
    ax.set_ylim(0, 1.3 * float(parts.total.max()) + 1e-12)  # room for the legend
    ax.legend(frameon=False, loc="upper left", fontsize="small")
    return plain(ax)


def _scatter(ax: Axes, parts: Decomposition, unit) -> Axes:
    ax.plot(
        parts.aleatoric,
        parts.epistemic,
        ".",
        color=COLOURS["truth"],
        markersize=5,
        alpha=0.5,
        markeredgewidth=0,
    )
    ax.set(xlim=(0, 1.05 * float(parts.aleatoric.max()) + 1e-12))
    ax.set(ylim=(0, 1.05 * float(parts.epistemic.max()) + 1e-12))
    ax.set_xlabel(with_unit(f"aleatoric {WORDS[parts.measure]}", unit))
    ax.set_ylabel(with_unit(f"epistemic {WORDS[parts.measure]}", unit))
    return plain(ax)


# ----- What all pictures share --------------------------------------------------------


def axes(ax: Axes | None) -> Axes:
    """The given axis, or the axis of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def plain(ax: Axes) -> Axes:
    """Remove the lines at the top and on the right."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def limits(values: np.ndarray, room: float = ROOM) -> tuple[float, float]:
    """Ends of an axis that shows all values and some room."""
    low, high = float(np.min(values)), float(np.max(values))
    span = (high - low) or 1.0
    return low - room * span - 1e-9, high + room * span + 1e-9


def one_column(values: ArrayLike, name: str) -> np.ndarray:
    """Values given as [N] or [N, 1], as [N]."""
    array = np.asarray(values, float)
    if array.ndim == 0 or array.size != len(array) or array.size == 0:
        raise ValueError(f"{name} has shape {array.shape}; it must be [N] or [N, 1].")
    return array.reshape(-1)


def with_unit(name: str, unit: str | None) -> str:
    """A label such as `speed (m/s)`."""
    return f"{name} ({unit})" if unit else name
