"""The record of training, prepared for pictures."""

from collections.abc import Mapping
from typing import Any

import numpy as np

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
    """The history of the main fit: a trial has steps of its own."""
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
