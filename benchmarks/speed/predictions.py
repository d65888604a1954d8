"""Rows a second of a prediction, and the memory it takes."""

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

KINDS = {
    "density": lambda dist, y: dist.log_prob(y),
    "interval": lambda dist, y: dist.interval(0.95),
    "quantile": lambda dist, y: dist.quantile(0.9),
    "mean and std": lambda dist, y: (dist.mean(), dist.std()),
}


def prediction_rates(
    say: Callable[[str], None],
    num_rows: int = 20_000,
    kinds=tuple(KINDS),
    large=(("mean and std", 1_000_000),),
) -> list[dict]:
    """One entry a kind, each in a process of its own so that memory can be told."""
    context = multiprocessing.get_context("spawn")
    out = []
    for kind, rows in [*((kind, num_rows) for kind in kinds), *large]:
        with context.Pool(1) as pool:
            found = pool.apply(_measure, (kind, rows))
        out.append(found)
        memory = found["peak_megabytes"]
        say(
            f"{kind}, {rows} rows: {found['rows_a_second']:.0f} rows a second"
            + ("" if memory is None else f", peak memory {memory:.0f} MB")
        )
    return out


def _measure(kind: str, num_rows: int) -> dict:
    from ncai import BNNLVRegressor, make_dataset

    rows = make_dataset("heavy_tail", seed=0).train
    # The default's network and draws; how well it is trained does not matter here.
    model = BNNLVRegressor(max_steps=200, random_state=0)
    model.fit(rows.inputs, rows.targets[:, 0])
    inputs = np.random.default_rng(0).uniform(-4, 4, size=(num_rows, 1))
    targets = np.zeros(num_rows)
    compute = KINDS[kind]
    compute(model.predict_dist(inputs[:5000]), targets[:5000])  # compiles
    started = time.perf_counter()
    compute(model.predict_dist(inputs), targets)
    seconds = time.perf_counter() - started
    return {
        "kind": kind,
        "rows": num_rows,
        "rows_a_second": num_rows / seconds,
        "peak_megabytes": _peak_megabytes(),
    }


def _peak_megabytes() -> float | None:
    """Of this program alone: getrusage would tell the peak of the parent too."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return None
