"""JAX's compilation cache and the number of threads.

Compiling takes seconds, and training often takes less. So we turn on JAX's cache of
compiled programs, unless the user decided otherwise: by JAX's own setting
(`JAX_COMPILATION_CACHE_DIR`), by another folder in `NCAI_CACHE_DIR`, or by
`NCAI_CACHE_DIR=off`.

JAX cannot run in a process that was forked after its threads had started: it would wait
for them for ever. We note such a fork and refuse to compute in it.
"""

import functools
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any

# For programs that run once per fit, fast compilation matters most.
RUN_ONCE: Any = {"xla_backend_optimization_level": 0}
# Environment of a process that should use one core; it must be set before JAX's first
# use. NPROC is the size of XLA's thread pool: a pool with more threads than running
# programs splits small operations among them, which doubles the CPU time.
ONE_THREAD = {
    "NCAI_THREADS": "1",
    "NPROC": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
LARGEST_CACHE = 1_000_000_000  # bytes
SHORTEST_COMPILATION = 0.02  # seconds; the cache keeps programs that took longer

# A tag that programs for backups know, too (bford.info/cachedir).
MARKER = "CACHEDIR.TAG"
_MARK = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"
    b"# This folder is a cache of compiled programs made by ncai.\n"
)
# JAX names a program by its function and a SHA-256.
_PROGRAM = re.compile(r".*-[0-9a-f]{64}-(cache|atime)", re.DOTALL)

_jax_prepared = False
_forked_from_jax = False


def _note_fork() -> None:
    """Note in a forked child whether JAX had started in its parent."""
    global _forked_from_jax
    # The user may have called JAX before we did. The list of running backends is not
    # public, and without it we only know of our own calls.
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = _jax_prepared or bool(getattr(bridge, "_backends", None))
    _forked_from_jax = _forked_from_jax or started


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_note_fork)


def refuse_forked_jax() -> None:
    """Raise an error in a process that was forked after JAX had started."""
    if _forked_from_jax:
        raise RuntimeError(
            "this process was forked after JAX had started, and JAX would hang in it: "
            "start processes with multiprocessing.get_context('spawn') or joblib's "
            "backend 'loky', or use threads."
        )


def user_cache_folder() -> Path | None:
    """The folder for files that can be made again; None if it is switched off."""
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


def prepare_jax() -> Path | None:
    """Turn on JAX's compilation cache, once per process.

    This also creates XLA's thread pool, with no more threads than `NCAI_THREADS`, and
    raises an error where JAX would hang (see `refuse_forked_jax`).

    Returns:
        The folder of the cache, or None if we did not turn it on.
    """
    global _jax_prepared
    refuse_forked_jax()
    _jax_prepared = True
    return _prepare_once()


@functools.cache
def _prepare_once() -> Path | None:
    import jax

    if os.environ.get("NCAI_THREADS") and "NPROC" not in os.environ:
        # XLA reads it when its client is created; child processes must not see it.
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
    # JAX runs the programs in the cache, so nobody else may write there.
    if not (_is_private(folder) and _is_ours(folder)):
        return None
    _drop_oldest(folder, LARGEST_CACHE)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update(
        "jax_persistent_cache_min_compile_time_secs", SHORTEST_COMPILATION
    )
    return folder


def _is_private(folder: Path) -> bool:
    """Create the folder if needed; return whether only this user can write to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.is_symlink():  # it could lead to a folder with other files
            return False
        if os.name == "posix":
            info = folder.stat()
            others_may_write = info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if info.st_uid != os.getuid() or others_may_write:
                return False
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _is_ours(folder: Path) -> bool:
    """Whether the folder has our marker; a new or an older cache gets one.

    Versions before 0.2 left no marker, so a folder that contains nothing but programs
    counts as an older cache.
    """
    marker = folder / MARKER
    try:
        if marker.is_file() and not marker.is_symlink():
            return marker.read_bytes() == _MARK
        if not all(_PROGRAM.fullmatch(name) for name in os.listdir(folder)):
            return False
        with marker.open("xb") as file:
            file.write(_MARK)
    except FileExistsError:  # another process has just written it
        return not marker.is_symlink()
    except OSError:
        return False
    return True


def _drop_oldest(folder: Path, limit: int) -> None:
    """If the programs exceed the limit, delete the oldest down to half of it.

    Only regular files with the names that JAX gives its programs count: whatever else
    is in the folder belongs to somebody else.
    """
    found = []
    for path in folder.iterdir():
        try:
            info = path.lstat()
        except OSError:  # another process has deleted it
            continue
        if _PROGRAM.fullmatch(path.name) and stat.S_ISREG(info.st_mode):
            found.append((info.st_mtime, info.st_size, path))
    total = sum(size for _, size, _ in found)
    if total <= limit:
        return
    for _, size, path in sorted(found):
        try:
            path.unlink(missing_ok=True)
        except OSError:  # such as a program in use on Windows
            continue
        total -= size
        if total <= limit / 2:
            return


def num_threads() -> int:
    """Number of threads that run compiled programs: NCAI_THREADS, or all cores."""
    asked = os.environ.get("NCAI_THREADS", "")
    if not asked:
        return os.cpu_count() or 1
    if not asked.isdecimal() or not int(asked):
        raise ValueError(
            f"NCAI_THREADS={asked!r} must be a whole number of at least 1."
        )
    return int(asked)
