"""Write files completely or not at all, and explain why one cannot be written."""

import errno
import os
import re
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl: Any = None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`; move it there if the block succeeds.

    The temporary file exists and is empty. A file that is replaced keeps its
    permissions, and a link keeps leading to it. The new contents are on the disk before
    they get their name, so a power failure leaves the old file or the new one. Files
    that killed processes left behind are removed. An OSError keeps its class and gets a
    message that names `path`.

    We do not use `tempfile`, whose files ignore the umask: only their owner may read
    them.
    """
    _require_place(path)
    target = _target(path)
    temporary, mode, held = _beside(target), _mode_of(target), None
    try:
        _remove_leftovers(target)
        held = _create(temporary, mode)
        yield temporary
        if mode is not None:
            os.chmod(temporary, mode)
        _sync_file(temporary)
        if os.name != "posix":  # Windows moves no open file
            os.close(held)
            held = None
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _about(path, error) from error
        raise
    finally:
        if held is not None:
            os.close(held)


def check_writable(path: Path) -> None:
    """Raise an error if `replacing` could not write this path."""
    _require_place(path)
    temporary = _beside(_target(path))
    try:
        temporary.touch()
        temporary.unlink()
    except OSError as error:
        raise _about(path, error) from error


def _target(path: Path) -> Path:
    """The file to replace: where a link leads to, or the path itself."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _mode_of(target: Path) -> int | None:
    """The permissions of a file that is replaced; None if there is none yet."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except OSError:
        return None


def _create(temporary: Path, mode: int | None) -> int:
    """Create an empty file that is no more open to others than `mode`, and lock it.

    The lock shows other processes that somebody is writing; a killed process loses it.
    """
    start = 0o666 if mode is None else mode & 0o777 | stat.S_IWUSR
    held = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, start)
    if fcntl is not None:
        _lock(held)
    return held


def _lock(held: int) -> bool:
    """Return whether this process has the lock of an open file now."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # pyright: ignore
    except OSError:  # somebody else has it, or the file system knows no locks
        return False
    return True


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files of this target that no process is writing any more."""
    if fcntl is None:  # without locks we do not know
        return
    ours = re.compile(re.escape(f".{target.name}.") + "[0-9a-f]{32}")
    for name in filter(ours.fullmatch, os.listdir(target.parent)):
        path = target.with_name(name)
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                continue
            held = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        except OSError:  # it is gone, or belongs to somebody else
            continue
        try:
            if _lock(held):
                path.unlink(missing_ok=True)
        finally:
            os.close(held)


def _sync_file(path: Path) -> None:
    """Have the contents written to the disk; a full one may report it only now."""
    held = os.open(path, os.O_RDWR)
    try:
        os.fsync(held)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # it knows no fsync
            raise
    finally:
        os.close(held)


def _sync_folder(folder: Path) -> None:
    """Have a new name written to the disk, where the system can do that."""
    with suppress(OSError):
        held = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(held)
        finally:
            os.close(held)


def require_file(path: Path, kind: str) -> None:
    """Raise an error if there is no file to read at this path."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a {kind}.")
    if not path.is_file():
        raise FileNotFoundError(f"there is no {kind} at {path}.")


def _require_place(path: Path) -> None:
    folder = path.parent.absolute()
    if not folder.is_dir():
        wrong = "is a file, not a folder" if folder.exists() else "does not exist"
        what = "" if folder.exists() else "the folder "
        raise FileNotFoundError(f"cannot write {path}: {what}{folder} {wrong}.")
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder.")


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")


def _about(path: Path, error: OSError) -> OSError:
    """Return the same kind of error with a message about `path`."""
    folder = path.parent.absolute()
    if isinstance(error, PermissionError):
        reason = f"the folder {folder} is not yours to change"
    elif isinstance(error, FileNotFoundError):
        reason = f"the folder {folder} takes no new files"
    else:
        reason = error.strerror or str(error) or type(error).__name__
    named = type(error)(f"cannot write {path}: {reason}.")
    named.errno = error.errno
    return named
