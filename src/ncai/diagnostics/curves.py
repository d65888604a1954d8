"""Numbers behind pictures: conditional densities along an input, training curves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
        mean: mean of y given x, [G].
        quantiles: the quantiles of y given x at the levels `QUANTILES`, [G, 7].
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
    """Inputs in the form that the model was fitted to, with names if it had names."""
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

    If y is nearly certain at some x, the density is a spike there. With the median,
    such a spike does not make all other densities pale.
    """
    return max(float(np.median(shown.density.max(axis=1))), 1e-300)


def _of_oracle(oracle, rows, x, y_grid) -> ConditionalDensity:
    # An oracle has no quantiles, so we find them on a grid that is twice as tall.
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
    """p(y|x) of each row at G values for this row, [N, G], for a single output.

    If y is rounded, it is the density before rounding.
    """
    return np.exp(predictive.log_prob_grid(np.asarray(values, float)))


NAMES = {
    "value": "objective",
    "elbo": "ELBO",
    "expected_log_likelihood": "expected log-likelihood",
    "kl_weights": "KL of W",
    "kl_latents": "KL of z",
    "kl_noise": "KL of the noise",
    "hz": "HZ of z",
    "pc_inputs": "PC of z and x",
    "pc_targets": "PC of z and y",
    "mean_squared_error": "mean squared error",
    "log_hyperprior": "log hyperprior",
    "offdiagonal": "off-diagonal covariance of z",
    "penalty": "penalty",
    "log_joint": "log joint",
}


def history_of(model_or_history) -> tuple[Mapping[str, Any], int | None]:
    """The history, and the number of the restart that predicts if only one does."""
    if isinstance(model_or_history, Mapping):
        history, chosen = model_or_history, None
    else:
        history = _of_the_main_fit(model_or_history)
        chosen = chosen_restart(model_or_history)
    if history is None or not len(history.get("step", ())):
        raise ValueError(
            "there is no history of training: the model was read from a file, was not "
            "trained step by step, or ran out of time before its main fit."
        )
    return history, chosen


def _of_the_main_fit(model) -> Mapping[str, Any] | None:
    """The history of the main fit, without the trial fit."""
    history = getattr(model, "history_", None)
    if history is None or model.settings_.method.supports.sampling:
        return history
    count = model.settings_.n_restarts
    return {
        name: np.asarray(values)[:, :count] if np.ndim(values) == 2 else values
        for name, values in history.items()
    }


def chosen_restart(model) -> int | None:
    """The restart that predicts; None if several do, or the chains of a sampler."""
    scores = np.asarray(model.restart_scores_)
    if len(model.posterior_.shares) > 1 or model.score_name_ == "none":
        return None
    return int(np.argmax(scores))


def restart_shares(model) -> np.ndarray | None:
    """Weight of each restart in predictions; None if that is not known."""
    kept = getattr(model, "kept_restarts_", None)
    if kept is None:
        return None
    shares = np.zeros(len(model.restart_scores_))
    shares[kept] = model.posterior_.shares
    return shares


def restart_kinds(model) -> list[str]:
    """The part of training that each restart belongs to: "main" or "trial".

    They come in the estimator's order: the main fit, and then the trial.
    """
    count, full = len(model.restart_scores_), model.settings_.n_restarts
    in_trial = [why.startswith("trial ") for why in model.stop_reasons_ or []]
    if in_trial and all(in_trial):  # no time was left for the main fit
        return ["trial"] * count
    num_trial = max(count - full, 0)
    return ["main"] * (count - num_trial) + ["trial"] * num_trial


def terms_of(history: Mapping[str, Any]) -> list[str]:
    """Names of the recorded terms, the objective first."""
    recorded = [name for name in history if name not in ("step", "stage")]
    order = {name: place for place, name in enumerate(NAMES)}
    return sorted(recorded, key=lambda name: order.get(name, len(order)))


def term_values(history: Mapping[str, Any], term: str) -> np.ndarray:
    """Averages of a term over chunks of steps, [chunks, restarts]; NaN if unused.

    The objective of a warm start is the squared error. It has a scale of its own, so it
    is shown under that name and not as the objective.
    """
    known = terms_of(history)
    if term not in known:
        raise ValueError(f"term={term!r} must be one of {known}.")
    values = np.array(history[term], float)
    if term == "value" and "mean_squared_error" in history:
        values[np.isfinite(np.asarray(history["mean_squared_error"], float))] = np.nan
    return values


def stage_starts(history: Mapping[str, Any]) -> np.ndarray:
    """Steps at which the second and later stages of training began."""
    stages = np.asarray(history["stage"]).astype(str)
    steps = np.asarray(history["step"])
    return steps[:-1][stages[1:] != stages[:-1]]


def settled_limits(values: np.ndarray) -> tuple[float, float]:
    """Ends of an axis for the values after the first tenth of the steps."""
    used = values[np.isfinite(values).any(axis=1)]
    settled = used[len(used) // 10 :]
    settled = settled[np.isfinite(settled)]
    if not settled.size:
        return 0.0, 1.0
    low, high = np.quantile(settled, [0.0, 0.98])
    room = 0.08 * (high - low) or 0.5 * max(abs(high), 1e-9)
    return float(low - room), float(high + room)
