"""How compiled programs are kept and run, and on how many threads.

Compiling takes seconds, training often less. JAX can keep what it compiled; this turns
that on unless the user has decided for themselves: by JAX's own setting
(`JAX_COMPILATION_CACHE_DIR`), by `NCAI_CACHE_DIR`, or with `NCAI_CACHE_DIR=off`.
"""

import functools
import os
import stat
import sys
from pathlib import Path
from typing import Any

# Options for programs that run once a fit: compile in a hurry.
RUN_ONCE: Any = {"xla_backend_optimization_level": 0}
# For a process that is to use one core, set before JAX's first use in it. NPROC is the
# size of the pool of XLA: with more threads in it than programs that run, small
# operations are split among them, at twice the CPU time.
ONE_THREAD = {
    "NCAI_THREADS": "1",
    "NPROC": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
LARGEST_CACHE = 1_000_000_000  # bytes
SHORTEST_COMPILATION = 0.02  # seconds worth a file


def user_cache_folder() -> Path | None:
    """Where this package keeps files that can be made again; None if switched off."""
    named = os.environ.get("NCAI_CACHE_DIR")
    if named:
        return None if named.lower() == "off" else Path(named).expanduser()
    try:
        if sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local"))
        elif sys.platform == "darwin":
            base = Path.home() / "Library/Caches"
        else:
            base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no home
        return None
    return base / "ncai"


@functools.cache
def prepare_jax() -> Path | None:
    """Turn JAX's cache on, once a process; the folder in use, or None.

    At JAX's first use its pool of threads is made too, no larger than was asked for.
    """
    import jax

    if os.environ.get("NCAI_THREADS") and "NPROC" not in os.environ:
        # XLA reads it when its client is made; programs started later are not to.
        os.environ["NPROC"] = str(num_threads())
        try:
            jax.local_devices()
        finally:
            del os.environ["NPROC"]
    if jax.config.jax_compilation_cache_dir:  # pyright: ignore
        return None
    base = user_cache_folder()
    if base is None:
        return None
    folder = base / "compiled"
    # A program from the cache is run: nobody else may put one there.
    if not _is_private(folder):
        return None
    _drop_oldest(folder, LARGEST_CACHE)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update(
        "jax_persistent_cache_min_compile_time_secs", SHORTEST_COMPILATION
    )
    return folder


def _is_private(folder: Path) -> bool:
    """Make the folder if need be; whether it is writable, ours and nobody else's."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.name == "posix":
            info = folder.stat()
            others_may_write = info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if info.st_uid != os.getuid() or others_may_write:
                return False
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _drop_oldest(folder: Path, limit: int) -> None:
    """Forget the oldest programs until half the limit is free, once it is passed."""
    found = []
    for path in folder.iterdir():
        try:
            info = path.stat()
        except OSError:  # another process was quicker
            continue
        found.append((info.st_mtime, info.st_size, path))
    total = sum(size for _, size, _ in found)
    if total <= limit:
        return
    for _, size, path in sorted(found):
        path.unlink(missing_ok=True)
        total -= size
        if total <= limit / 2:
            return


def num_threads() -> int:
    """Threads that run compiled programs side by side: NCAI_THREADS, or all cores."""
    asked = os.environ.get("NCAI_THREADS", "")
    if not asked:
        return os.cpu_count() or 1
    if not asked.isdecimal() or not int(asked):
        raise ValueError(
            f"NCAI_THREADS={asked!r} must be a whole number of at least 1."
        )
    return int(asked)
