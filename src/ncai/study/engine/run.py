"""Run the missing cells of a study: in this process, on several cores, or with Dask.

The runner sees all three as an executor of `concurrent.futures` and the number of cells
that it can run at the same time.
"""

import os
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ncai.runtime.jax_setup import ONE_THREAD
from ncai.study.engine import AnyStudy, Cell, DerivedStudy, Outcome, Scale
from ncai.study.engine.digest import digest_of_study
from ncai.study.engine.store import Store
from ncai.study.registry import STUDIES

# How often the worker of a cell may die, for example because memory runs out.
MOST_DEATHS = 2
# Seconds between checks for workers that have joined a Dask scheduler.
LOOK_EVERY = 5.0
LARGEST_GROWTH = 2_000_000_000  # bytes by which a worker process may grow


class Workers(NamedTuple):
    """Run cells: `submit(function, *arguments)` returns a future."""

    submit: Callable[..., Future]
    slots: Callable[[], int]


class Finished(NamedTuple):
    """What a worker reports when a cell has finished or failed."""

    cell: Cell
    failed: str | None
    seconds: float


class Watcher:
    """Receives the events of a run; this base class ignores them."""

    def known(self, cells: list[Cell], missing: list[Cell], slots: int) -> None:
        """The cells known so far; the missing ones are running or waiting."""

    def started(self, cell: Cell) -> None:
        """A worker has started a cell."""

    def finished(self, finished: Finished) -> None:
        """A cell has finished or failed."""


def run_cell(cell: Cell, folder: str, without_stale: bool = False) -> Finished:
    """Compute a cell and store it; workers call this function."""
    store = Store(Path(folder), without_stale)
    started = time.monotonic()
    if store.is_done(cell):  # another worker was quicker
        return Finished(cell, None, 0.0)
    try:
        outcome = _compute(cell, store)
    except Exception:
        message = traceback.format_exc()
        store.save_failure(cell, message)
        return Finished(cell, message, time.monotonic() - started)
    seconds = time.monotonic() - started
    store.save(cell, outcome, seconds, digest_of_study(STUDIES[cell.study]))
    return Finished(cell, None, seconds)


def _compute(cell: Cell, store: Store) -> Outcome:
    study = STUDIES[cell.study]
    if not isinstance(study, DerivedStudy):
        return study.run(cell)
    source = study.source(cell)
    fit = store.load(source)
    if fit is None:
        raise RuntimeError(f"{cell.id} needs the fit {source.id}, which is not there.")
    return study.derive(cell, fit)


def run_study(
    study: AnyStudy,
    scale: Scale,
    store: Store,
    jobs: int = 1,
    scheduler: str | None = None,
    watcher: Watcher | None = None,
) -> list[Cell]:
    """Run every cell that is not done; return those that failed.

    The results of cells may lead to more cells (for example, when hyper-parameters have
    been selected on the first split), so the list is computed again whenever a worker
    would be idle.

    Args:
        study: the study to run.
        scale: its sizes.
        store: the results.
        jobs: number of processes on this machine; 0 runs the cells in this process.
        scheduler: address of a Dask scheduler; `jobs` is then not used.
        watcher: receives the events of the run.
    """
    watcher = watcher or Watcher()
    failed: dict[str, Cell] = {}
    store.drop_leftovers()
    # If there is nothing to do, no workers and no scheduler are needed.
    if all(store.is_done(cell) for cell in study.cells(scale, store)):
        watcher.known(study.cells(scale, store), [], 0)
        return []
    taken: set[str] = set()
    with workers(jobs, scheduler) as found:

        def more() -> list[Cell]:
            """Return the cells that no worker has started yet."""
            cells = study.cells(scale, store)
            missing = [c for c in cells if not store.is_done(c) and c.id not in failed]
            new = [cell for cell in missing if cell.id not in taken]
            taken.update(cell.id for cell in new)
            if new or not missing:
                watcher.known(cells, missing, found.slots())
            return new

        for finished in _execute(found, more, store, watcher):
            if finished.failed is not None:
                failed[finished.cell.id] = finished.cell
            watcher.finished(finished)
    return list(failed.values())


def _execute(
    found: Workers, more: Callable[[], list[Cell]], store: Store, watcher: Watcher
) -> Iterator[Finished]:
    """Submit at most as many cells as there are slots, so that all of them run."""
    folder = str(store.folder.resolve())
    waiting, running = deque(more()), {}
    deaths: Counter[str] = Counter()
    news = False  # whether a cell has ended since the list was computed
    while waiting or running or news:
        while waiting and len(running) < found.slots():
            cell = waiting.popleft()
            watcher.started(cell)
            future = found.submit(run_cell, cell, folder, store.without_stale)
            running[future] = cell
        if news and len(running) < found.slots():
            news = False
            waiting.extend(more())
            continue
        done, _ = wait(running, timeout=LOOK_EVERY, return_when=FIRST_COMPLETED)
        news |= bool(done)
        for future in done:
            cell = running.pop(future)
            error = _error(future)
            if error is None:
                yield future.result()
                continue
            deaths[cell.id] += 1
            # The death of a worker ends the whole pool; the other cells did not fail.
            if isinstance(error, BrokenProcessPool) and deaths[cell.id] < MOST_DEATHS:
                waiting.append(cell)
                continue
            yield _lost(error, cell, store)


def _error(future: Future) -> BaseException | None:
    try:
        return future.exception()
    except CancelledError as error:  # the scheduler is gone
        return error


def _lost(error: BaseException, cell: Cell, store: Store) -> Finished:
    """Record that the worker of a cell died or could not start."""
    message = "".join(traceback.format_exception(error))
    store.save_failure(cell, message)
    return Finished(cell, message, 0.0)


@contextmanager
def workers(jobs: int, scheduler: str | None) -> Iterator[Workers]:
    """Yield the workers of a Dask scheduler if one is given; else `jobs` processes.

    With `jobs=0`, cells run in this process, with its present number of threads.
    """
    if scheduler is not None:
        with _dask(scheduler) as found:
            yield found
    elif jobs == 0:
        here = _Here()
        yield Workers(here.submit, lambda: 1)
    else:
        with _processes(jobs) as found:
            yield found


class _Here(Executor):
    """Runs each cell immediately, in this process."""

    def submit(self, fn, /, *args, **kwargs) -> Future:
        done: Future = Future()
        done.set_result(fn(*args, **kwargs))
        return done


@contextmanager
def _processes(jobs: int) -> Iterator[Workers]:
    """Use joblib's processes, even for one job, to set threads before they start."""
    from joblib.externals.loky import get_reusable_executor

    def pool():
        # This returns the present pool, or a new one if a worker has died.
        return get_reusable_executor(
            max_workers=jobs,
            # Parallel cells gain more than threads within a cell, and results are bit
            # for bit the same for any number of workers.
            env=ONE_THREAD,
            timeout=600,
            initializer=_let_memory_grow,
        )

    # Loky warns when it replaces a worker, but nothing is lost.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
    try:
        yield Workers(lambda *work: pool().submit(*work), lambda: jobs)
    except BaseException:
        pool().shutdown(wait=True, kill_workers=True)
        raise
    pool().shutdown(wait=True)


def _let_memory_grow() -> None:
    """Let workers grow: loky replaces a worker that has grown by 300 MB.

    JAX grows by more when it compiles, and each new worker would compile everything
    again.
    """
    from joblib.externals.loky import process_executor

    process_executor._MAX_MEMORY_LEAK_SIZE = LARGEST_GROWTH


@contextmanager
def _dask(address: str) -> Iterator[Workers]:
    """Use a scheduler that the user started; if a worker dies, another runs its cell.

    Workers must see the folder of results.
    """
    try:
        from distributed import Client
    except ImportError:
        raise ValueError(
            "--scheduler needs Dask, which is not installed: "
            'pip install "ncai[distributed]".'
        ) from None
    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise OSError(
            f"--scheduler {address} cannot be reached ({error}): start one with "
            "`dask scheduler` and give the address that it prints, tcp://HOST:PORT."
        ) from error
    with client:
        executor = client.get_executor(pure=False, retries=2)

        def slots() -> int:
            return max(1, sum(client.nthreads().values()))  # pyright: ignore

        try:
            yield Workers(lambda *work: executor.submit(_with_one_thread, *work), slots)
        except BaseException:
            executor.shutdown(wait=False)
            raise


def _with_one_thread(function: Callable, *arguments: Any) -> Any:
    """Set one thread in a process that the user started, before JAX is first used."""
    os.environ.update(ONE_THREAD)
    return function(*arguments)
