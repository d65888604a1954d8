"""Checks of a fit: calibration, latents against an input, and training curves."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike
from scipy import stats

from ncai.diagnostics.curves import (
    NAMES,
    feature_names,
    history_of,
    settled_limits,
    stage_starts,
    term_values,
)
from ncai.diagnostics.evaluation import (
    binomial_band,
    checked_pit,
    coverage_curve,
    pit_values,
)
from ncai.plot.predictions import COLOURS, axes, limits, one_column, plain

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

    The curve of a calibrated model is close to the diagonal. Below the diagonal
    intervals are too narrow; above it they are too wide. The grey band contains 95% of
    the shares that a calibrated model would have on as many rows, for each probability
    separately.

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

    A hump means that intervals are too wide, a trough means that they are too narrow,
    and a slope means that the mean is shifted. The arguments are those of
    `calibration`; the grey band is for each bar separately.
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


def latent(
    model,
    ax: Axes | None = None,
    *,
    colour: str = COLOURS["NCAI"],
    feature: int | str = 0,
    dimension: int = 0,
) -> Axes:
    """Inferred means of z against an input, for the training rows of a fitted model.

    If the model's assumptions hold, this looks like noise: no pattern along x, and
    about 95% of the points between the lines at two standard deviations of the prior.

    Args:
        model: a fitted `BNNLVRegressor` that still has its training rows.
        ax: where to draw; a new figure if not given.
        colour: colour of the points.
        feature: name or number of the input on the horizontal axis.
        dimension: number of the latent dimension on the vertical axis.
    """
    if getattr(model, "latent_posterior_", None) is None:
        raise ValueError(
            "there are no latents to show: the model has none (latent_dim=0), or was "
            "saved without its training rows."
        )
    scaling = model.scaling_
    inputs = scaling.input_shift + scaling.input_scale * model.training_rows_.inputs
    names = feature_names(model, inputs.shape[1])
    if isinstance(feature, str) and feature not in names:
        raise ValueError(f"feature={feature!r} must be one of {names}.")
    number = names.index(feature) if isinstance(feature, str) else feature
    ax = latent_values(
        inputs[:, number],
        model.latent_posterior_.mean[:, dimension],
        model.posterior_.latent_prior_std(),
        ax,
        colour=colour,
    )
    ax.set_xlabel(names[number])
    return ax


def latent_values(
    x: ArrayLike,
    z: ArrayLike,
    prior_std: float,
    ax: Axes | None = None,
    *,
    colour: str = COLOURS["NCAI"],
) -> Axes:
    """Values of z against x, with lines at two standard deviations of the prior."""
    x, z = one_column(x, "x"), one_column(z, "z")
    ax = axes(ax)
    ax.plot(x, z, ".", color=colour, markersize=4, alpha=0.6, markeredgewidth=0)
    for side in (-2, 2):
        ax.axhline(side * prior_std, color="black", linewidth=0.9, linestyle="--")
    reach = 1.1 * max(2 * prior_std, np.abs(z).max())
    ax.set(xlim=limits(x), ylim=(-reach, reach), xlabel="x", ylabel="z")
    return plain(ax)


def training(
    model_or_history,
    ax: Axes | None = None,
    *,
    term: str = "value",
    colour: str = COLOURS["NCAI"],
) -> Axes:
    """The objective or one of its terms over the steps, one line for each restart.

    Args:
        model_or_history: a model that was fitted (not read from a file), or its
            `history_`.
        ax: where to draw; a new figure if not given.
        term: "value" for the objective, or a term named in `history_`.
        colour: colour of the restart that predicts, if a single one does.
    """
    history, chosen = history_of(model_or_history)
    steps, values = history["step"], term_values(history, term)
    ax = axes(ax)
    for restart in range(values.shape[1]):
        if restart != chosen:
            ax.plot(steps, values[:, restart], color="black", alpha=0.25, linewidth=1)
    if chosen is not None:
        ax.plot(steps, values[:, chosen], color=colour, linewidth=2, label="chosen")
    for step in stage_starts(history):
        ax.axvline(step, color="black", linewidth=0.8, linestyle=":")
    low, high = settled_limits(values)
    ax.set(ylim=(low, high), xlabel="step", ylabel=NAMES.get(term, term))
    return plain(ax)
