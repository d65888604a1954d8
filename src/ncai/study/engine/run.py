"""Run what is missing of a study: on this machine's cores, or on many by Dask."""

import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple, Protocol

from ncai.study.engine.cells import Cell, Outcome
from ncai.study.engine.scales import Scale
from ncai.study.engine.store import Store
from ncai.study.engine.workers import Workers, workers

# How often a cell may take its worker down with it, for lack of memory, say.
MOST_DEATHS = 2
# Workers may join a Dask scheduler at any time: how often to look, in seconds.
LOOK_EVERY = 5.0


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
        """All cells known so far; more may follow from what these find.

        Some may be cells of another study, whose outcome this one builds on.
        """
        ...

    def run(self, cell: Cell) -> Outcome:
        """Compute one cell; nothing but its settings may matter."""
        ...


class Finished(NamedTuple):
    """What a worker says when it is done with a cell."""

    cell: Cell
    failed: str | None
    seconds: float


class Watcher:
    """Told what happens during a run; this one does not care."""

    def known(self, cells: list[Cell], missing: list[Cell], slots: int) -> None:
        """These are all cells so far; the missing ones run, or wait."""

    def started(self, cell: Cell) -> None:
        """A worker has it."""

    def finished(self, finished: Finished) -> None:
        """It is done, or failed."""


def run_cell(cell: Cell, folder: str) -> Finished:
    """Compute a cell and store it: what workers call."""
    from ncai.study.registry import STUDIES

    store = Store(Path(folder))
    started = time.monotonic()
    if store.is_done(cell):  # another worker was quicker
        return Finished(cell, None, 0.0)
    try:
        outcome = STUDIES[cell.study].run(cell)
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
    watcher: Watcher | None = None,
) -> list[Cell]:
    """Run every cell that is not done; returns those that failed.

    What cells find may ask for more cells (hyper-parameters selected on the first
    split, say), so the list is asked for again whenever a worker would be idle.

    Args:
        study: what to run.
        scale: how large.
        store: where outcomes are, and go.
        jobs: processes on this machine; 0 runs in this one.
        scheduler: address of a Dask scheduler, instead of `jobs`.
        watcher: told what happens.
    """
    watcher = watcher or Watcher()
    failed: dict[str, Cell] = {}
    store.drop_leftovers()
    # Nothing to do needs no workers, nor a scheduler that answers.
    if all(store.is_done(cell) for cell in study.cells(scale, store)):
        watcher.known(study.cells(scale, store), [], 0)
        return []
    taken: set[str] = set()
    with workers(jobs, scheduler) as found:

        def more() -> list[Cell]:
            """Cells that no worker has had yet."""
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
    """No more at a time than there are places, so what is out is what is running."""
    folder = str(store.folder.resolve())
    waiting, running = deque(more()), {}
    deaths: Counter[str] = Counter()
    news = False  # something ended since the list was asked for
    while waiting or running or news:
        while waiting and len(running) < found.slots():
            cell = waiting.popleft()
            watcher.started(cell)
            running[found.submit(run_cell, cell, folder)] = cell
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
            # A worker's death ends the whole pool: other cells are not to blame.
            if isinstance(error, BrokenProcessPool) and deaths[cell.id] < MOST_DEATHS:
                waiting.append(cell)
                continue
            yield _lost(error, cell, store)


def _error(future: Future) -> BaseException | None:
    try:
        return future.exception()
    except CancelledError as error:  # its scheduler is gone
        return error


def _lost(error: BaseException, cell: Cell, store: Store) -> Finished:
    """The cell came to no end of its own: its worker died, or could not start."""
    message = "".join(traceback.format_exception(error))
    store.save_failure(cell, message)
    return Finished(cell, message, 0.0)
