"""Shared code of measurements: timing in turn, worker processes, the machine."""

import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median

import jax
import numpy as np

from ncai.datasets import make_dataset

PEERS = Path(__file__).parent / "peers"
CLONE = Path(__file__).parents[2]
# Searched in this order: the user's choice, that of `make peers`, our own.
PEERS_PYTHON = (
    os.environ.get("NCAI_PEERS_PYTHON", ""),
    str(CLONE / ".venv-peers/bin/python"),
    sys.executable,
)
PACKAGES = ("ncai", "jax", "jaxlib", "numpy", "scipy", "scikit-learn")


def seconds_in_turn(
    functions: Mapping[str, Callable[[], object]], repeats: int = 5
) -> dict[str, list[float]]:
    """Time the calls in turn, round by round; the first round is discarded."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for round_number in range(repeats + 1):
        for name, function in functions.items():
            started = time.perf_counter()
            jax.block_until_ready(function())
            if round_number:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def ratios(numerator: list[float], denominator: list[float]) -> dict[str, float]:
    """Median, least and most of the ratios of calls made in the same round."""
    return spread([a / b for a, b in zip(numerator, denominator, strict=True)])


def spread(values: list[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": median(values), "least": min(values), "most": max(values)}


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
        # No compilation cache, so that every call compiles like a first call.
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


def describe_machine() -> dict:
    """Processor, cores, versions and date."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "date": datetime.date.today().isoformat(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
