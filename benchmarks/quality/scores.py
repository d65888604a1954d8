"""From what a worker says of each test row to the numbers of one split."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.quality.problems import Problem
from ncai.stats.scores import average_log_likelihood, mpiw, picp, rmse


def score_split(said: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    """NLL, CRPS, RMSE, coverage and width in raw units, and the gap to the oracle."""
    targets = problem.test[1]
    row = {"split": said["split"]}
    values = {
        name: np.asarray(said[name], float)
        for name in ("log_density", "crps", "mean", "lower", "upper")
    }
    for name, found in values.items():
        if found.shape != targets.shape or np.isnan(found).any():
            raise ValueError(f"{name} of split {said['split']} is not a number a row.")
    row |= {
        "nll": -average_log_likelihood(values["log_density"]),
        "crps": float(values["crps"].mean()),
        "rmse": rmse(targets, values["mean"]),
        "coverage": picp(targets, values["lower"], values["upper"]),
        "width": mpiw(values["lower"], values["upper"]),
        "gap": math.nan if problem.oracle is None else 0.0,
        "test_rows": len(targets),
        "seconds": said["seconds"],
        "cpu_seconds": said["cpu_seconds"],
        "held_out": said.get("held_out"),
    }
    if problem.oracle is not None:
        row["gap"] = row["nll"] + problem.oracle
    return row
