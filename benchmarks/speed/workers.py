"""Run a task in a child process and take in what it measured."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ncai.datasets import make_dataset

PEERS = Path(__file__).parent / "peers"
CLONE = Path(__file__).parents[2]
# Looked for in this order: named by the user, made by `make peers`, our own.
PEERS_PYTHON = (
    os.environ.get("NCAI_PEERS_PYTHON", ""),
    str(CLONE / ".venv-peers/bin/python"),
    sys.executable,
)


def python_with(module: str) -> str | None:
    """An interpreter that can import the module, or None."""
    for python in PEERS_PYTHON:
        if python and Path(python).exists():
            check = subprocess.run(
                [python, "-c", f"import {module}"], capture_output=True, check=False
            )
            if check.returncode == 0:
                return python
    return None


def worker_environment(**variables: str) -> dict[str, str]:
    """Variables of a worker process: it finds `benchmarks` and the same `ncai`."""
    paths = [str(CLONE), str(CLONE / "src"), os.environ.get("PYTHONPATH", "")]
    found = os.pathsep.join(path for path in paths if path)
    return os.environ | {"PYTHONPATH": found} | variables


def run_worker(command: Sequence[str], task: dict) -> dict:
    """The JSON that the worker prints last."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.json"
        path.write_text(json.dumps(task))
        # Each call is a first call: no program from an earlier one.
        environment = worker_environment(NCAI_CACHE_DIR="off")
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        done = subprocess.run(
            [*command, str(path)],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"{' '.join(command)} failed: {lines[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def case_data(name: str, folder: Path) -> Path:
    """Inputs and targets of a case, as a file that every worker can read."""
    path = folder / f"{name}.npz"
    if name == "abalone-like":
        rng = np.random.default_rng(0)
        inputs = rng.normal(size=(700, 10))
        mean = np.tanh(inputs[:, :3]).sum(axis=1)
        noise = rng.exponential(size=700) * np.exp(0.3 * inputs[:, 0])
        targets = (mean + noise)[:, None]
        targets = (targets - targets.mean()) / targets.std()
    else:
        rows = make_dataset(name, seed=0).train
        inputs, targets = rows.inputs, rows.targets
    np.savez(path, inputs=inputs, targets=targets)
    return path
