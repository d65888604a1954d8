"""Fetch a real set from UCI or OpenML and keep it as a clean file.

We compare what arrives with the known values before we write anything, so that no other
data can take the place of a set. The file appears whole or not at all.
"""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path

import pandas as pd

from ncai import __version__
from ncai.datasets.clean_files import (
    WrongContentError,
    check_table,
    download_folder,
    read_clean_file,
)
from ncai.datasets.registry import (
    BASE_URLS,
    OPENML_DESCRIPTION,
    UCI_ARCHIVE,
    DatasetError,
    RealSet,
    find_set,
)
from ncai.datasets.source_forms import (
    MOST_BYTES,
    data_address,
    read_arff,
    read_uci_archive,
)
from ncai.runtime.atomic_write import replacing

TIMEOUT = 30.0  # seconds

OnProgress = Callable[[int, int | None], None]
"""Called with the bytes received so far, and their total if the server sent it."""


class NoAnswerError(OSError):
    """An address that gave nothing usable; the message is part of a sentence."""


def download_dataset(
    name: str,
    to: str | Path | None = None,
    base_urls: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
    on_progress: OnProgress | None = None,
    force: bool = False,
) -> Path:
    """Download a real set, unless it is there already.

    Args:
        name: one of `real_dataset_names()`.
        to: folder for the file, created if it does not exist; None is the user cache.
        base_urls: other hosts to ask, under the keys "uci" and "openml".
        timeout: seconds that a server may be silent, and that one file may take.
        on_progress: called as bytes arrive.
        force: download even if the file exists, and replace it.

    Returns:
        The path of the clean file.

    Raises:
        DatasetError: no source has the set; the message says what each answered.
    """
    known = find_set(name)
    if not timeout > 0:
        raise ValueError(f"timeout={timeout!r} must be a number of seconds > 0.")
    path = _folder(to) / known.file
    if path.exists() and not force:
        _require_same(known, path)
        return path
    failures = []
    for address, read in _sources(known, {**BASE_URLS, **(base_urls or {})}):
        try:
            table = read(lambda url: fetch(url, timeout, on_progress))
            check_table(known, table)
        except (NoAnswerError, WrongContentError) as error:
            failures.append(f"{address}: {error}")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            table.to_csv(temporary, index=False, lineterminator="\n")
        return path
    answers = f" ({'; '.join(failures)})" if failures else ""
    raise DatasetError(
        f"The data set {name!r} cannot be downloaded{answers}; nothing was written. "
        f"{known.expectation}"
    )


def fetch(address: str, timeout: float, on_progress: OnProgress | None = None) -> bytes:
    """Everything that an address sends.

    Raises:
        NoAnswerError: nothing usable came; the message says why.
    """
    try:
        request = urllib.request.Request(
            address, headers={"User-Agent": f"ncai/{__version__}"}
        )
        end = time.monotonic() + timeout
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return _read(answer, end, on_progress)
    except NoAnswerError:
        raise
    except (OSError, HTTPException, ValueError) as error:
        raise NoAnswerError(_reason(error, timeout)) from None


def _read(answer, end: float, on_progress: OnProgress | None) -> bytes:
    """The whole answer, if it arrives before the time `end`."""
    length = answer.headers.get("Content-Length", "")
    total = int(length) if length.isdigit() else None
    parts, done = [], 0
    while part := answer.read1(65536):
        parts.append(part)
        done += len(part)
        if done > MOST_BYTES:
            raise NoAnswerError("it sent far more than the set has")
        if time.monotonic() > end:
            raise TimeoutError
        if on_progress is not None:
            on_progress(done, total)
    if total is not None and done != total:
        raise NoAnswerError(f"it sent {done} of {total} bytes")
    return b"".join(parts)


def _reason(error: Exception, timeout: float) -> str:
    """Why a request failed, as part of a sentence."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"it answered {error.code} {error.reason}"
    if isinstance(cause, TimeoutError):
        return f"it took longer than {timeout:g} s"
    if isinstance(error, urllib.error.URLError):
        return f"it cannot be reached ({error.reason})"
    return f"the connection failed ({str(error) or type(error).__name__})"


def _folder(to: str | Path | None) -> Path:
    folder = download_folder() if to is None else Path(to).expanduser()
    if folder is None:
        raise DatasetError(
            "There is no user cache to download to: name a folder with `to`."
        )
    return folder


def _require_same(known: RealSet, path: Path) -> None:
    try:
        read_clean_file(known, path)
    except DatasetError as error:
        raise DatasetError(
            f"There is a file already, which stays as it is unless forced: {error}"
        ) from None


def _sources(
    known: RealSet, bases: Mapping[str, str]
) -> Iterator[tuple[str, Callable[[Callable[[str], bytes]], pd.DataFrame]]]:
    """Address and reader of each source; UCI, which has the originals, comes first."""
    form = known.uci_file
    if form is not None:
        archive = UCI_ARCHIVE.format(
            base=bases["uci"], id=known.uci_id, archive=form.archive
        )
        yield (
            archive,
            lambda get: read_uci_archive(get(archive), form, known.columns),
        )
    if known.openml_id is not None:
        about = OPENML_DESCRIPTION.format(base=bases["openml"], id=known.openml_id)
        yield about, lambda get: read_arff(get(data_address(get(about))), known.columns)
