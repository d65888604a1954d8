"""Fit our estimators split after split, as a worker process of `run.py`.

Reads a task (see `peers/protocol.py`, whose lines it prints too) that also has the
arguments of the estimator as "given" and the points to choose from as "grid".
"""

import json
import sys
import time
import warnings
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.quality.methods import estimator_of
from ncai.estimators.bnn_lv import BNNLVRegressor
from ncai.estimators.conformal import ConformalRegressor


def main(path: str) -> None:
    """Run the task."""
    warnings.simplefilter("ignore")
    with open(path) as file:
        task = json.load(file)
    _say(versions={name: version(name) for name in ("ncai", "jax", "numpy")})
    settings = task.get("settings")
    if settings is None and task["grid"]:
        worked = time.process_time()
        first = _load(task["first_file"])
        scores = [
            _validation_nll(first, task["given"], point) for point in task["grid"]
        ]
        settings = task["grid"][int(np.argmin(scores))]
        seconds = time.process_time() - worked
        _say(settings=settings, points=len(scores), tuning_seconds=seconds)
    for split, file in task["files"].items():
        arrays = _load(file)
        started, worked = time.perf_counter(), time.process_time()
        given = task["given"] | (settings or {})
        if task.get("conformal"):
            guarded = _guarded(arrays, given, int(split))
            model = guarded.estimator_
        else:
            guarded = model = _fit(arrays, given, int(split))
        seconds = time.perf_counter() - started
        cpu_seconds = time.process_time() - worked
        predicted = model.predict_dist(arrays["test_inputs"])
        targets = arrays["test_targets"]
        lower, upper = guarded.predict_interval(arrays["test_inputs"], 0.95).T
        _say(
            split=int(split),
            seconds=seconds,
            cpu_seconds=cpu_seconds,
            held_out=model.held_out_score_,
            log_density=predicted.log_prob(targets),
            crps=predicted.crps(targets),
            mean=predicted.mean(),
            lower=lower,
            upper=upper,
        )


def _load(path: str) -> dict[str, np.ndarray]:
    with np.load(path) as found:
        return dict(found)


def _fit(arrays: dict[str, np.ndarray], settings: dict, seed: int) -> BNNLVRegressor:
    valid = {}
    if "valid_inputs" in arrays:
        valid = {"X_valid": arrays["valid_inputs"], "y_valid": arrays["valid_targets"]}
    model = estimator_of(settings, random_state=seed)
    return model.fit(arrays["train_inputs"], arrays["train_targets"], **valid)


def _guarded(
    arrays: dict[str, np.ndarray], settings: dict, seed: int
) -> ConformalRegressor:
    """Correct intervals with the validation part, or else with held-out rows."""
    model = estimator_of(settings, random_state=seed)
    rows = arrays["train_inputs"], arrays["train_targets"]
    if "valid_inputs" not in arrays:
        return ConformalRegressor(model, random_state=seed).fit(*rows)
    valid = arrays["valid_inputs"], arrays["valid_targets"]
    return ConformalRegressor(model.fit(*rows)).calibrate(*valid)


def _validation_nll(arrays: dict[str, np.ndarray], given: dict, point: dict) -> float:
    """Return the NLL of the best restart on rows that it was not trained on."""
    model = _fit(arrays, given | point, 0)
    return -float(np.nanmax(model.restart_scores_))


def _say(**values: Any) -> None:
    def plain(value):
        if isinstance(value, np.ndarray):
            return [float(f"{v:.7g}") for v in value]
        return value

    print(json.dumps({k: plain(v) for k, v in values.items()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
