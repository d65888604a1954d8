"""Conditional densities along one input, for pictures of what the noise looks like."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ncai.predictive.distribution import PredictiveDistribution
from ncai.predictive.simple import Predictions

# Ends of the central 50, 80 and 95 % intervals.
QUANTILES = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
# An input with no more values than this is shown value by value, not as a line.
MOST_DISCRETE = 6


@dataclass(frozen=True, eq=False)
class ConditionalDensity:
    """p(y|x) of one model at G values of an input.

    Attributes:
        x: the values, [G].
        y: values of the target, [H].
        density: p(y|x), [G, H].
        mean: of y given x, [G].
        quantiles: `QUANTILES` of y given x, [G, 7].
    """

    x: np.ndarray
    y: np.ndarray
    density: np.ndarray
    mean: np.ndarray
    quantiles: np.ndarray


def feature_names(model, num_inputs: int | None = None) -> list[str]:
    """Names of the inputs: those the model was fitted with, or x, or x0, x1, ..."""
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        return [str(name) for name in names]
    count = num_inputs or int(getattr(model, "n_features_in_", 1))
    return ["x"] if count == 1 else [f"x{i}" for i in range(count)]


def find_feature(model, feature: str | int | None, num_inputs: int) -> int:
    """Number of an input given by name or number; None if there is only one."""
    names = feature_names(model, num_inputs)
    if feature is None:
        if num_inputs == 1:
            return 0
        raise ValueError(
            f"the model has {num_inputs} inputs: say which one to show as feature=, "
            f"one of {names}."
        )
    if isinstance(feature, str):
        if feature not in names:
            raise ValueError(f"feature={feature!r} must be one of {names}.")
        return names.index(feature)
    if feature not in range(num_inputs):
        raise ValueError(
            f"feature={feature!r} must be a name, or a number from 0 to "
            f"{num_inputs - 1}."
        )
    return int(feature)


def as_inputs(model, rows: np.ndarray):
    """Inputs as the model saw them: one fitted to named columns wants their names."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return rows
    import pandas as pd

    return pd.DataFrame(rows, columns=names)


def is_discrete(column: ArrayLike) -> bool:
    """Whether an input has so few values that each is shown by itself."""
    return len(np.unique(np.asarray(column, float))) <= MOST_DISCRETE


def rows_along(inputs: np.ndarray, feature: int, values: ArrayLike) -> np.ndarray:
    """Rows with one input at the given values and the others at their median."""
    values = np.asarray(values, float)
    rows = np.tile(np.median(np.asarray(inputs, float), axis=0), (len(values), 1))
    rows[:, feature] = values
    return rows


def conditional_density(
    model, rows: np.ndarray, x: ArrayLike, y_grid: np.ndarray
) -> ConditionalDensity:
    """p(y|x) at rows: of an estimator with one output, a baseline, or an oracle."""
    x = np.asarray(x, float)
    if hasattr(model, "predict") and not hasattr(model, "predict_dist"):
        return _of_baseline(model.predict(rows), x, y_grid)
    if not hasattr(model, "predict_dist"):
        return _of_oracle(model, rows, x, y_grid)
    predictive = model.predict_dist(as_inputs(model, rows))
    if predictive.network.output_dim > 1:
        raise ValueError(
            f"the model predicts {predictive.network.output_dim} outputs; a density "
            "is drawn for one."
        )
    return ConditionalDensity(
        x,
        y_grid,
        np.exp(predictive.log_prob_grid(y_grid)),
        np.asarray(predictive.mean()).reshape(len(rows)),
        np.asarray(predictive.quantile(QUANTILES)).reshape(len(rows), -1),
    )


def _of_baseline(predictions: Predictions, x, y_grid) -> ConditionalDensity:
    columns = [predictions.log_prob(np.full(len(x), y)) for y in y_grid]
    return ConditionalDensity(
        x,
        y_grid,
        np.exp(np.stack(columns, axis=1)),
        predictions.mean(),
        np.asarray(predictions.quantile(QUANTILES)),
    )


def darkest_density(shown: ConditionalDensity) -> float:
    """The density to show darkest: the median of the peaks of p(y|x).

    Where y is nearly certain the density is a spike, which must not pale all others.
    """
    return max(float(np.median(shown.density.max(axis=1))), 1e-300)


def _of_oracle(oracle, rows, x, y_grid) -> ConditionalDensity:
    # An oracle has no quantiles of its own: find them on a grid twice as tall.
    middle, half = (y_grid[0] + y_grid[-1]) / 2, y_grid[-1] - y_grid[0]
    tall = np.linspace(middle - half, middle + half, 4 * len(y_grid))
    below = np.cumsum(np.exp(oracle.log_prob_grid(rows, tall)), axis=1)
    below /= below[:, -1:]
    quantiles = np.stack([np.interp(QUANTILES, row, tall) for row in below])
    return ConditionalDensity(
        x,
        y_grid,
        np.exp(oracle.log_prob_grid(rows, y_grid)),
        np.asarray(oracle.mean(rows)).reshape(-1),
        quantiles,
    )


def partial_dependence(
    model, inputs: np.ndarray, feature: int, x: ArrayLike, y_grid: np.ndarray
) -> ConditionalDensity:
    """The density averaged over the other inputs of the rows given.

    The average of densities is a density; its quantiles are found on the grid.
    """
    x = np.asarray(x, float)
    rows = np.repeat(np.asarray(inputs, float), len(x), axis=0)
    rows[:, feature] = np.tile(x, len(inputs))
    predictive = model.predict_dist(as_inputs(model, rows))
    density = np.exp(predictive.log_prob_grid(y_grid))
    density = density.reshape(len(inputs), len(x), -1).mean(axis=0)
    mean = np.asarray(predictive.mean()).reshape(len(inputs), len(x)).mean(axis=0)
    below = np.cumsum(density, axis=1)
    below /= np.maximum(below[:, -1:], 1e-300)
    quantiles = np.stack([np.interp(QUANTILES, row, y_grid) for row in below])
    return ConditionalDensity(x, y_grid, density, mean, quantiles)


def row_densities(predictive: PredictiveDistribution, values: ArrayLike) -> np.ndarray:
    """p(y|x) of each row at values of its own, [N, G], for a single output.

    Of a rounded y it is the density before rounding.
    """
    return np.exp(predictive.log_prob_grid(np.asarray(values, float)))
