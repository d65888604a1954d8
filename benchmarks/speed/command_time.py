"""What `ncai fit` on a small table takes beyond training, once programs are kept."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROWS = 200


def fit_overhead(say: Callable[[str], None], repeats: int = 3) -> list[dict]:
    """Seconds of the command less those of its training; the first call compiles."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=ROWS)
    y = x + (1 + x**2) * rng.normal(size=ROWS)
    out = []
    with tempfile.TemporaryDirectory() as folder:
        table, model = Path(folder, "table.csv"), Path(folder, "model.ncai")
        np.savetxt(table, np.stack([x, y], 1), delimiter=",", header="x,y", comments="")
        for extra in ((), ("--test", "0")):
            overheads = []
            for _ in range(repeats + 1):
                command = [sys.executable, "-m", "ncai", "fit", str(table)]
                command += ["--target", "y", "--out", str(model), "--force", *extra]
                started = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True)
                seconds = time.perf_counter() - started
                overheads.append(seconds - _training_seconds(model))
            entry = {
                "command": " ".join(["ncai fit", *extra]),
                "rows": ROWS,
                "first_overhead_seconds": overheads[0],
                "overhead_seconds": overheads[1:],
            }
            out.append(entry)
            say(
                f"{entry['command']}: {min(overheads[1:]):.1f} to "
                f"{max(overheads[1:]):.1f} s beyond training "
                f"(first call {overheads[0]:.1f} s)"
            )
    return out


def _training_seconds(path: Path) -> float:
    from ncai import BNNLVRegressor

    return BNNLVRegressor.load(path).fit_seconds_
