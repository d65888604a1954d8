"""Write files completely or not at all, and explain why one cannot be written."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`; move it there if the block succeeds.

    We do not use `tempfile`, whose files ignore the umask: only their owner may read
    them. An OSError keeps its class and gets a message that names `path`.
    """
    _require_place(path)
    temporary = _beside(path)
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _about(path, error) from error
        raise


def check_writable(path: Path) -> None:
    """Raise an error if `replacing` could not write this path."""
    _require_place(path)
    temporary = _beside(path)
    try:
        temporary.touch()
        temporary.unlink()
    except OSError as error:
        raise _about(path, error) from error


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
