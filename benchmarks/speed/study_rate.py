"""Cells an hour of the study's benchmark at paper scale, with one worker and with two.

The full study has larger cells too (a selection trains a whole grid): this tells how
well workers share a machine, and what a report cell of a small set costs.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ncai.study.engine.cells import SCALES, Cell, Scale
from ncai.study.engine.run import run_study
from ncai.study.engine.store import Store
from ncai.study.experiments.benchmark import BENCHMARK

DATASET = "goldberg"
POINTS = {"mfvi": (0.1, None, None, None), "ncai": (0.1, 0.01, 0.5, 1.0)}


@dataclass(frozen=True)
class SomeCells:
    """Report cells of one set, as the benchmark has them."""

    splits: tuple[int, ...]
    name: str = "benchmark"
    title: str = "A sample of the benchmark"

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """The same number of each method."""
        del store
        return [
            BENCHMARK._cell(
                scale, DATASET, method, split, phase="report", point=POINTS[method]
            )
            for split in self.splits
            for method in POINTS
        ]

    def run(self, cell: Cell):
        """As the benchmark does."""
        return BENCHMARK.run(cell)


def study_rates(say: Callable[[str], None], splits: tuple[int, ...] = (1, 2, 3)):
    """One entry for each number of workers; each compiles once before it is timed."""
    out = []
    for jobs in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            store = Store(Path(folder))
            # Kept programs make the second round start warm, as a long study is.
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
