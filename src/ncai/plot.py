"""Pictures: each function draws on an axis, given or new, and returns it."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from numpy.typing import ArrayLike

COLOURS = {
    "truth": "#4d4d4d",
    "BNN": "#2b8a4b",
    "MFVI": "#2166ac",
    "NCAI": "#b2182b",
}
# A density of 1 is as dark as it gets; the root of it is shown, so that thin tails are
# seen. The same for all pictures, so that they can be compared.
_DARKEST, _POWER = 1.0, 0.5
# Share of the width left free at both sides, so that no point is cut in half.
_ROOM = 0.025


def density(
    model,
    X: ArrayLike,
    y: ArrayLike,
    ax: Axes | None = None,
    *,
    colour: str = COLOURS["NCAI"],
    level: float = 0.95,
    x_limits: tuple[float, float] | None = None,
    y_limits: tuple[float, float] | None = None,
    grid: tuple[int, int] = (200, 240),
) -> Axes:
    """Shade p(y|x) of a model with one input; mean, interval and data on top.

    Args:
        model: a fitted estimator with one output, or the oracle of a synthetic set.
        X: inputs of the data shown, [N] or [N, 1].
        y: their targets.
        ax: where to draw; a new figure if not given.
        colour: of the shades and lines.
        level: probability of the central interval.
        x_limits: ends of the horizontal axis; those of the data, and a little room.
        y_limits: ends of the vertical axis; those of the data, and some room.
        grid: number of points across and up.
    """
    x, y = _one_column(X, "X"), _one_column(y, "y")
    if len(x) != len(y):
        raise ValueError(f"X has {len(x)} rows and y has {len(y)}; they must agree.")
    x_limits = _limits(x, _ROOM) if x_limits is None else x_limits
    y_limits = _limits(y, 0.15) if y_limits is None else y_limits
    x_grid = np.linspace(x_limits[0], x_limits[1], grid[0])
    y_grid = np.linspace(y_limits[0], y_limits[1], grid[1])
    log_density, mean, lower, upper = _predict(model, x_grid, y_grid, level)

    ax = plt.subplots()[1] if ax is None else ax
    ax.imshow(
        np.exp(log_density).T,
        extent=(*x_limits, *y_limits),
        origin="lower",
        aspect="auto",
        interpolation="bilinear",
        cmap=LinearSegmentedColormap.from_list("shades", ["white", colour]),
        norm=PowerNorm(_POWER, vmin=0.0, vmax=_DARKEST),
    )
    ax.plot(x, y, ".", color="black", markersize=2.5, alpha=0.55, label="data")
    ax.plot(x_grid, mean, color="black", linewidth=1.4, label="mean")
    for end, label in ((lower, f"{level:.0%} interval"), (upper, None)):
        ax.plot(x_grid, end, color=colour, linewidth=1.2, label=label)
    ax.set(xlim=x_limits, ylim=y_limits, xlabel="x", ylabel="y")
    return _plain(ax)


def latent(
    model,
    ax: Axes | None = None,
    *,
    colour: str = COLOURS["NCAI"],
    feature: int = 0,
    dimension: int = 0,
) -> Axes:
    """Inferred means of z against an input, for the training rows of a fitted model.

    If the model keeps its assumptions, this looks like noise: no pattern along x, and
    about 95% of the points between the lines at two standard deviations of the prior.

    Args:
        model: a fitted `BNNLVRegressor` that still has its training rows.
        ax: where to draw; a new figure if not given.
        colour: of the points.
        feature: number of the input on the horizontal axis.
        dimension: number of the latent dimension on the vertical axis.
    """
    if getattr(model, "latent_posterior_", None) is None:
        raise ValueError(
            "there are no latents to show: the model has none (latent_dim=0), or was "
            "saved without its training rows."
        )
    scaling = model.scaling_
    inputs = scaling.input_shift + scaling.input_scale * model.training_rows_.inputs
    return latent_values(
        inputs[:, feature],
        model.latent_posterior_.mean[:, dimension],
        model.posterior_.latent_prior_std(),
        ax,
        colour=colour,
    )


def latent_values(
    x: ArrayLike,
    z: ArrayLike,
    prior_std: float,
    ax: Axes | None = None,
    *,
    colour: str = COLOURS["NCAI"],
) -> Axes:
    """Values of z against x, with lines at two standard deviations of the prior."""
    x, z = _one_column(x, "x"), _one_column(z, "z")
    ax = plt.subplots()[1] if ax is None else ax
    ax.plot(x, z, ".", color=colour, markersize=4, alpha=0.6, markeredgewidth=0)
    for side in (-2, 2):
        ax.axhline(side * prior_std, color="black", linewidth=0.9, linestyle="--")
    reach = 1.1 * max(2 * prior_std, np.abs(z).max())
    ax.set(xlim=_limits(x, _ROOM), ylim=(-reach, reach), xlabel="x", ylabel="z")
    return _plain(ax)


def _predict(model, x_grid, y_grid, level):
    """Log density on the grid, mean, and both ends of the central interval."""
    if hasattr(model, "predict_dist"):
        predictive = model.predict_dist(_like_training(model, x_grid))
        mean = np.asarray(predictive.mean()).reshape(len(x_grid))
        ends = np.asarray(predictive.interval(level)).reshape(2, len(x_grid))
        return predictive.log_prob_grid(y_grid), mean, *ends
    # An oracle has no quantiles of its own: find them on a grid twice as tall.
    middle, half = (y_grid[0] + y_grid[-1]) / 2, y_grid[-1] - y_grid[0]
    tall = np.linspace(middle - half, middle + half, 4 * len(y_grid))
    inputs = x_grid[:, None]
    below = np.cumsum(np.exp(model.log_prob_grid(inputs, tall)), axis=1)
    below /= below[:, -1:]
    ends = (
        [np.interp(share, row, tall) for row in below]
        for share in ((1 - level) / 2, (1 + level) / 2)
    )
    mean = np.asarray(model.mean(inputs)).reshape(-1)
    return model.log_prob_grid(inputs, y_grid), mean, *ends


def _like_training(model, x_grid):
    """Inputs as the model saw them: a model fitted to a named column wants its name."""
    if model.n_features_in_ != 1:
        raise ValueError(
            f"the model has {model.n_features_in_} inputs; a density over (x, y) can "
            "be drawn for one."
        )
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return x_grid[:, None]
    import pandas as pd

    return pd.DataFrame(x_grid[:, None], columns=names)


def _one_column(values: ArrayLike, name: str) -> np.ndarray:
    array = np.asarray(values, float)
    if array.ndim == 0 or array.size != len(array) or array.size == 0:
        raise ValueError(f"{name} has shape {array.shape}; it must be [N] or [N, 1].")
    return array.reshape(-1)


def _limits(values: np.ndarray, room: float) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    span = (high - low) or 1.0
    return low - room * span - 1e-9, high + room * span + 1e-9


def _plain(ax: Axes) -> Axes:
    ax.spines[["top", "right"]].set_visible(False)
    return ax
