"""Fetch a real set from UCI or OpenML and keep it as a clean file.

What arrives is compared with the known values before anything is written, so that no
other data can take the place of a set, and the file appears whole or not at all.
"""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path

import pandas as pd

from ncai import __version__
from ncai.datasets import registry
from ncai.datasets.clean_files import (
    WrongContentError,
    check_table,
    download_folder,
    read_clean_file,
)
from ncai.datasets.registry import DatasetError, RealSet
from ncai.datasets.source_forms import (
    MOST_BYTES,
    data_address,
    read_arff,
    read_uci_archive,
)
from ncai.runtime.atomic_write import replacing

TIMEOUT = 30.0  # seconds

OnProgress = Callable[[int, int | None], None]
"""Told the bytes so far, and their number if the server has said it."""


class NoAnswerError(OSError):
    """An address that gave nothing usable; says why, as part of a sentence."""


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
        to: folder that the file goes to, made if need be; None is the user cache.
        base_urls: hosts to ask instead, by "uci" and "openml".
        timeout: seconds that a server may be silent, and that one file may take.
        on_progress: called as bytes arrive.
        force: download also if there is a file, and replace it.

    Returns:
        The path of the clean file.

    Raises:
        DatasetError: the set cannot be had; says what each source answered.
    """
    known = registry.find_set(name)
    if not timeout > 0:
        raise ValueError(f"timeout={timeout!r} must be a number of seconds > 0.")
    path = _folder(to) / known.file
    if path.exists() and not force:
        _require_same(known, path)
        return path
    failures = []
    for address, read in _sources(known, {**registry.BASE_URLS, **(base_urls or {})}):
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
    told = f" ({'; '.join(failures)})" if failures else ""
    raise DatasetError(
        f"The data set {name!r} cannot be downloaded{told}, and nothing was written. "
        f"{known.expectation}"
    )


def fetch(address: str, timeout: float, on_progress: OnProgress | None = None) -> bytes:
    """All that an address sends, or a reason why not."""
    end = time.monotonic() + timeout
    parts, done = [], 0
    try:
        request = urllib.request.Request(
            address, headers={"User-Agent": f"ncai/{__version__}"}
        )
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            length = answer.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            while part := answer.read1(65536):
                parts.append(part)
                done += len(part)
                if done > MOST_BYTES:
                    raise NoAnswerError("it sent far more than the set has")
                if time.monotonic() > end:
                    raise TimeoutError
                if on_progress is not None:
                    on_progress(done, total)
    except urllib.error.HTTPError as error:
        error.close()
        raise NoAnswerError(f"it answered {error.code} {error.reason}") from None
    except TimeoutError:
        raise _too_slow(timeout) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise _too_slow(timeout) from None
        raise NoAnswerError(f"it cannot be reached ({error.reason})") from None
    except NoAnswerError:
        raise
    except (OSError, HTTPException, ValueError) as error:
        words = str(error) or type(error).__name__
        raise NoAnswerError(f"the connection failed ({words})") from None
    if total is not None and done != total:
        raise NoAnswerError(f"it sent {done} of {total} bytes")
    return b"".join(parts)


def _too_slow(timeout: float) -> NoAnswerError:
    return NoAnswerError(f"it took longer than {timeout:g} s")


def _folder(to: str | Path | None) -> Path:
    folder = download_folder() if to is None else Path(to).expanduser()
    if folder is None:
        raise DatasetError(
            "There is no user cache to download to: name a folder instead."
        )
    return folder


def _require_same(known: RealSet, path: Path) -> None:
    try:
        read_clean_file(known, path)
    except DatasetError as error:
        raise DatasetError(
            f"There is a file already, kept as it is unless forced: {error}"
        ) from None


def _sources(
    known: RealSet, bases: Mapping[str, str]
) -> Iterator[tuple[str, Callable[[Callable[[str], bytes]], pd.DataFrame]]]:
    """Address and reader of each source, UCI's originals first."""
    form = known.uci_file
    if form is not None:
        archive = registry.UCI_ARCHIVE.format(
            base=bases["uci"], id=known.uci_id, archive=form.archive
        )
        yield (
            archive,
            lambda get: read_uci_archive(get(archive), form, known.columns),
        )
    if known.openml_id is not None:
        about = registry.OPENML_DESCRIPTION.format(
            base=bases["openml"], id=known.openml_id
        )
        yield about, lambda get: read_arff(get(data_address(get(about))), known.columns)
