"""Aleatoric against epistemic uncertainty."""

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from ncai.diagnostics.conditional import (
    as_inputs,
    feature_names,
    find_feature,
    rows_along,
)
from ncai.plot.style import (
    ALEATORIC,
    COLOURS,
    EPISTEMIC,
    axes,
    limits,
    plain,
    with_unit,
)
from ncai.predictive.decomposition import Decomposition


def decomposition(
    model_or_parts,
    X: ArrayLike,
    ax: Axes | None = None,
    *,
    feature: str | int | None = None,
    grid: int = 120,
    unit: str | None = None,
) -> Axes:
    """Standard deviations of y: total, aleatoric, epistemic.

    With one input, or a `feature`, lines over it (other inputs at their median); else
    a scatter plot of the rows, aleatoric across and epistemic up.

    Args:
        model_or_parts: a fitted model with one output, or a `Decomposition` of the
            variance of the rows X.
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
    stds = Decomposition(*(np.sqrt(np.asarray(p).reshape(-1)) for p in parts))
    ax = axes(ax)
    if over_input:
        return _lines(ax, x, stds, feature_names(model_or_parts)[number], unit)
    return _scatter(ax, stds, unit)


def _lines(ax: Axes, x, stds: Decomposition, name: str, unit) -> Axes:
    order = np.argsort(x)
    for label, values, colour, style in (
        ("total", stds.total, COLOURS["truth"], "-"),
        ("aleatoric (stays with more data)", stds.aleatoric, ALEATORIC, "-"),
        ("epistemic (shrinks with more data)", stds.epistemic, EPISTEMIC, "--"),
    ):
        ax.plot(x[order], values[order], style, color=colour, linewidth=2, label=label)
    ax.set(xlim=limits(x, 0), xlabel=name)
    ax.set_ylabel(with_unit("standard deviation of y", unit))
    ax.set_ylim(0, 1.3 * float(stds.total.max()) + 1e-12)  # room for the legend
    ax.legend(frameon=False, loc="upper left", fontsize="small")
    return plain(ax)


def _scatter(ax: Axes, stds: Decomposition, unit) -> Axes:
    ax.plot(
        stds.aleatoric,
        stds.epistemic,
        ".",
        color=COLOURS["truth"],
        markersize=5,
        alpha=0.5,
        markeredgewidth=0,
    )
    ax.set(xlim=(0, 1.05 * float(stds.aleatoric.max()) + 1e-12))
    ax.set(ylim=(0, 1.05 * float(stds.epistemic.max()) + 1e-12))
    ax.set_xlabel(with_unit("aleatoric standard deviation", unit))
    ax.set_ylabel(with_unit("epistemic standard deviation", unit))
    return plain(ax)
