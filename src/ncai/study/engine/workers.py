"""Where cells run: in this process, on this machine's cores, or on Dask's workers.

All three look alike to the runner: an executor of `concurrent.futures`, and the number
of cells that it can take at a time.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, NamedTuple

from ncai.runtime.jax_setup import ONE_THREAD

LARGEST_GROWTH = 2_000_000_000  # bytes, of a worker process


class Workers(NamedTuple):
    """Take cells: `submit(function, *arguments)` gives a future."""

    submit: Callable[..., Future]
    slots: Callable[[], int]


@contextmanager
def workers(jobs: int, scheduler: str | None) -> Iterator[Workers]:
    """Those of a Dask scheduler if one is named; else `jobs` processes.

    With `jobs=0` cells run in this process, with the threads that it happens to have.
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
    """Runs at once, in this process."""

    def submit(self, fn, /, *args, **kwargs) -> Future:
        done: Future = Future()
        done.set_result(fn(*args, **kwargs))
        return done


@contextmanager
def _processes(jobs: int) -> Iterator[Workers]:
    """Joblib's processes, also for one job: the threads are set before they start."""
    from joblib.externals.loky import get_reusable_executor

    def pool():
        # After a worker's death this makes a new pool; else it gives the one there is.
        return get_reusable_executor(
            max_workers=jobs,
            # Cells side by side gain more than threads within one, and results are bit
            # for bit the same whatever the number of workers.
            env=ONE_THREAD,
            timeout=600,
            initializer=_let_memory_grow,
        )

    # Said when a worker is replaced, which loses nothing.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
    try:
        yield Workers(lambda *work: pool().submit(*work), lambda: jobs)
    except BaseException:
        pool().shutdown(wait=True, kill_workers=True)
        raise
    pool().shutdown(wait=True)


def _let_memory_grow() -> None:
    """Loky replaces a worker that has grown by 300 MB, as JAX makes any that compiles.

    Each new one would compile all again, so it may grow further.
    """
    from joblib.externals.loky import process_executor

    process_executor._MAX_MEMORY_LEAK_SIZE = LARGEST_GROWTH


@contextmanager
def _dask(address: str) -> Iterator[Workers]:
    """A scheduler that the user started; a worker that dies has its cell run elsewhere.

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
    """For a process that somebody else started: JAX reads these at its first use."""
    os.environ.update(ONE_THREAD)
    return function(*arguments)
