"""The time of whole fits, predictions, commands and studies.

`time_to_quality` asks how soon a fit is as good as the paper's 30,000 steps of NCAI.
Both sides are ours: NCAI with the paper's settings and network, and "marginal" with two
hidden layers, z entering the last (as the default preset has it), for more and more
steps. Good is the log-likelihood of the validation rows, of the restart that is best on
them; times are of second calls, so nothing compiles.

`study_rates` counts cells an hour of the study's benchmark at paper scale, with one
worker and with two. The full study has larger cells too (a selection trains a whole
grid): it shows how well workers share a machine, and what a report cell of a small set
costs.
"""

import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ncai.datasets import make_dataset
from ncai.fitting.noise_recalibration import score_rows
from ncai.inference.base import Method, Training
from ncai.inference.marginal import Marginal
from ncai.inference.ncai import NCAI
from ncai.model.bnn_lv import Model, Variance
from ncai.model.networks import MLP, FlatNetwork
from ncai.study.engine import SCALES, Cell, Scale
from ncai.study.engine.run import run_study
from ncai.study.engine.store import Store
from ncai.study.experiments.fits import FITS
from ncai.types import Data, TrainingRows

PAPER_STEPS = 30_000
MARGINAL_STEPS = (250, 500, 750, 1000, 1250, 1500, 2000, 2500, 3000, 4000)
# s_z and the noise, as the paper fixes them.
SETS = {"heavy_tail": (0.01, 0.1), "depeweg": (1.0, 0.1)}
KINDS = {
    "density": lambda dist, y: dist.log_prob(y),
    "interval": lambda dist, y: dist.interval(0.95),
    "quantile": lambda dist, y: dist.quantile(0.9),
    "mean and std": lambda dist, y: (dist.mean(), dist.std()),
}
TABLE_ROWS = 200
DATASET = "goldberg"
POINTS = {"mfvi": (0.1, None, None, None), "ncai": (0.1, 0.01, 0.5, 1.0)}


def time_to_quality(say: Callable[[str], None], repeats: int = 3) -> list[dict]:
    """One entry a set."""
    return [_one_set(say, name, repeats) for name in SETS]


def _one_set(say, name: str, repeats: int) -> dict:
    _, noise = SETS[name]
    paper, learned = _models(name)
    measure = partial(_seconds_and_score, name, repeats)
    seconds, target = measure(NCAI().resolved("paper"), paper, PAPER_STEPS)
    result = {
        "set": name,
        "ncai": {"steps": PAPER_STEPS, "seconds": seconds, "validation": target},
        "marginal": [],
    }
    for steps in MARGINAL_STEPS:
        method = Marginal(
            learning_rate=0.1,  # for so few steps; the default preset has more
            schedule="cosine",
            temperature=0.1,
            noise_starts=(noise,),
        ).resolved("paper")
        took, score = measure(method, learned, steps)
        result["marginal"].append(
            {"steps": steps, "seconds": took, "validation": score}
        )
        if score >= target:
            break
    last = result["marginal"][-1]
    result["reached"] = last["validation"] >= target
    result["times_shorter"] = seconds / last["seconds"]
    say(
        f"{name}: NCAI, {PAPER_STEPS} steps: validation {target:.3f} in "
        f"{seconds:.1f} s; marginal, {last['steps']} steps: {last['validation']:.3f} "
        f"in {last['seconds']:.1f} s ({result['times_shorter']:.1f}x shorter)"
    )
    return result


def _models(name: str) -> tuple[Model, Model]:
    """The paper's, and the one that "marginal" is fitted with."""
    latent_variance, noise = SETS[name]
    empirical = Variance(jnp.asarray(1.0), "empirical")
    paper = Model(
        FlatNetwork(MLP((50,)), 1, 1, 1),
        empirical,
        Variance(jnp.asarray(latent_variance)),
        Variance(jnp.asarray([noise])),
    )
    learned = Model(
        FlatNetwork(MLP((50, 50), latent_layer="last"), 1, 1, 1),
        empirical,
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray([noise]), "variational", 1.0, 0.02),
    )
    return paper, learned


def _seconds_and_score(
    name: str, repeats: int, method: Method, model: Model, steps: int
) -> tuple[float, float]:
    """Median seconds of a fit, and the validation score of its best restart."""
    parts = make_dataset(name, seed=0)
    train, valid = parts.train, parts.valid
    data = Data(
        jnp.asarray(train.inputs, jnp.float32),
        jnp.asarray(train.targets, jnp.float32),
        jnp.ones(len(train.inputs), jnp.float32),
    )
    rows = TrainingRows(valid.inputs, valid.targets, np.ones(len(valid.inputs)))
    seconds = []
    for call in range(repeats + 1):
        started = time.perf_counter()
        fit = method.fit(jax.random.key(0), model, data, Training(max_steps=steps))
        jax.block_until_ready(fit.posterior)
        if call:
            seconds.append(time.perf_counter() - started)
    posterior = fit.posterior  # the same each time
    scores = [
        score_rows(posterior.select(i), rows, jax.random.key(1)).mean()
        for i in range(posterior.num_components)
    ]
    return float(np.median(seconds)), float(np.max(scores))


def prediction_rates(
    say: Callable[[str], None],
    num_rows: int = 20_000,
    kinds=tuple(KINDS),
    large=(("mean and std", 1_000_000),),
) -> list[dict]:
    """Return an entry for each kind, each in its own process to measure its memory."""
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
    """Return the peak of this program alone; getrusage would include the parent's."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return None


def fit_overhead(say: Callable[[str], None], repeats: int = 3) -> list[dict]:
    """Return the seconds of the command minus those of its training."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=TABLE_ROWS)
    y = x + (1 + x**2) * rng.normal(size=TABLE_ROWS)
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
                "rows": TABLE_ROWS,
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


@dataclass(frozen=True)
class SomeCells:
    """Fits of one set, as the benchmark has them."""

    splits: tuple[int, ...]
    name: str = "fits"
    title: str = "A sample of the benchmark's fits"

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """The same number of each method."""
        del store
        return [
            FITS._cell(
                scale, DATASET, method, split, phase="report", point=POINTS[method]
            )
            for split in self.splits
            for method in POINTS
        ]

    def run(self, cell: Cell):
        """As the benchmark does."""
        return FITS.run(cell)


def study_rates(say: Callable[[str], None], splits: tuple[int, ...] = (1, 2, 3)):
    """One entry for each number of workers; each compiles once before it is timed."""
    out = []
    for jobs in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            store = Store(Path(folder))
            # Cached programs make the second round as fast as a long study.
            run_study(SomeCells((4,)), SCALES["paper"], store, jobs)
            started = time.perf_counter()
            study = SomeCells(splits)
            failed = run_study(study, SCALES["paper"], store, jobs)
            seconds = time.perf_counter() - started
        cells = len(splits) * len(POINTS)
        if failed:
            raise RuntimeError(f"{len(failed)} cells of the study failed.")
        out.append({"workers": jobs, "cells": cells, "seconds": seconds})
        say(f"{jobs} workers: {3600 * cells / seconds:.0f} cells an hour")
    return out
