"""Run what is missing of a study: on this machine's cores, or on many by Dask."""

import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from ncai.study.cells import Cell, Outcome
from ncai.study.scales import Scale
from ncai.study.store import Store

# One thread for each worker: cells side by side gain more than threads within one.
ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NCAI_THREADS": "1",
}


class Study(Protocol):
    """An experiment of the paper."""

    @property
    def name(self) -> str:
        """What the command line calls it."""
        ...

    @property
    def title(self) -> str:
        """What it is, with the paper's labels."""
        ...

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """All cells known so far; more may follow from what these find."""
        ...

    def run(self, cell: Cell) -> Outcome:
        """Compute one cell; nothing but its settings may matter."""
        ...


class Finished(NamedTuple):
    """What a worker says when it is done with a cell."""

    cell: Cell
    failed: str | None
    seconds: float


def run_cell(study_name: str, cell: Cell, folder: str) -> Finished:
    """Compute a cell and store it: what workers call."""
    from ncai.study.registry import STUDIES

    store = Store(Path(folder))
    started = time.monotonic()
    if store.is_done(cell):  # another worker was quicker
        return Finished(cell, None, 0.0)
    try:
        outcome = STUDIES[study_name].run(cell)
    except Exception:
        message = traceback.format_exc()
        store.save_failure(cell, message)
        return Finished(cell, message, time.monotonic() - started)
    seconds = time.monotonic() - started
    store.save(cell, outcome, seconds)
    return Finished(cell, None, seconds)


def run_study(
    study: Study,
    scale: Scale,
    store: Store,
    jobs: int = 1,
    scheduler: str | None = None,
    on_finished: Callable[[Finished, int, int], None] | None = None,
) -> list[Cell]:
    """Run every cell that is not done; returns those that failed.

    What cells find may ask for more cells (hyper-parameters selected on the first
    split, say), so the list is asked for again until nothing new is missing.
    """
    failed: dict[str, Cell] = {}
    while True:
        cells = study.cells(scale, store)
        missing = [c for c in cells if not store.is_done(c) and c.id not in failed]
        if not missing:
            return list(failed.values())
        done = len(cells) - len(missing)
        for finished in _execute(study.name, missing, store, jobs, scheduler):
            if finished.failed is not None:
                failed[finished.cell.id] = finished.cell
            done += 1
            if on_finished is not None:
                on_finished(finished, done, len(cells))


def _execute(name, cells, store, jobs, scheduler) -> Iterator[Finished]:
    folder = str(store.folder.resolve())
    if scheduler is not None:
        yield from _by_dask(name, cells, folder, scheduler)
    elif jobs == 1:
        for cell in cells:
            yield run_cell(name, cell, folder)
    else:
        import joblib

        with _environment(ONE_THREAD):
            work = joblib.Parallel(
                n_jobs=jobs, backend="loky", return_as="generator_unordered"
            )
            yield from work(  # pyright: ignore[reportReturnType]
                joblib.delayed(run_cell)(name, cell, folder) for cell in cells
            )


def _by_dask(name, cells, folder, scheduler) -> Iterator[Finished]:
    """Workers that share the folder; a worker that dies has its cell run elsewhere."""
    from distributed import Client, as_completed  # pyright: ignore

    with Client(scheduler) as client:
        futures = [
            client.submit(run_cell, name, cell, folder, pure=False, retries=2)
            for cell in cells
        ]
        for future in as_completed(futures):
            yield future.result()


@contextmanager
def _environment(values: dict[str, str]):
    """Workers started within inherit these."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
