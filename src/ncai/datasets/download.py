"""Fetch a real set from UCI or OpenML and keep it as a clean file.

The downloaded values are compared with the known values before anything is written, so
that no other data can take the place of a set. Files are written completely or not at
all.
"""

import io
import json
import re
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path

import pandas as pd

from ncai import __version__
from ncai.datasets.real import (
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
    UciFile,
    find_set,
)
from ncai.runtime.atomic_write import replacing

TIMEOUT = 30.0  # seconds

OnProgress = Callable[[int, int | None], None]
"""Called with the bytes received so far, and their total if the server sent it."""


class NoAnswerError(OSError):
    """An address returned nothing usable; the message is part of a sentence."""


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
        on_progress: called when bytes arrive.
        force: download even if the file exists, and replace it.

    Returns:
        The path of the clean file.

    Raises:
        DatasetError: no source has the set; the message says what each source answered.
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
    """Return everything that an address sends.

    Raises:
        NoAnswerError: nothing usable arrived; the message says why.
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
    """Return the whole answer, if it arrives before the time `end`."""
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
    """Return why a request failed, as part of a sentence."""
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


MOST_BYTES = 20_000_000
"""All sets are smaller than this; anything larger is something else."""

_ATTRIBUTE = re.compile(r"@attribute\s+('[^']*'|\"[^\"]*\"|\S+)", re.IGNORECASE)


def read_uci_archive(
    content: bytes, form: UciFile, columns: tuple[str, ...]
) -> pd.DataFrame:
    """The rows of the file in a UCI archive, under our column names."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [
                info
                for info in archive.infolist()
                if info.filename.rsplit("/", 1)[-1] == form.member
            ]
            if not members:
                raise WrongContentError(f"its archive has no {form.member}")
            if members[0].file_size > MOST_BYTES:
                raise WrongContentError(f"{form.member} is too large")
            raw = archive.read(members[0])
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError):
        raise WrongContentError("it is not a zip archive, or it is damaged") from None
    lines = _text(raw).splitlines()[int(form.has_header) :]
    return _arranged(_cells(lines, form.separator, '"'), [], columns)


def data_address(content: bytes) -> str:
    """The address of the ARFF file, from OpenML's description of a set."""
    try:
        address = json.loads(_text(content))["data_set_description"]["url"]
    except (ValueError, KeyError, TypeError):
        raise WrongContentError("it is not an OpenML description") from None
    # urllib would also open local files, which a server must not be able to request.
    if not isinstance(address, str) or not re.match("https?://", address):
        raise WrongContentError(
            "the address that it gives for the data is not a web address"
        )
    return address


def read_arff(content: bytes, columns: tuple[str, ...]) -> pd.DataFrame:
    """The rows of an ARFF file under our column names; other columns are dropped."""
    lines = [
        line.strip()
        for line in _text(content).splitlines()
        if line.strip() and not line.lstrip().startswith("%")
    ]
    starts = [i for i, line in enumerate(lines) if line.lower().startswith("@data")]
    if not starts:
        raise WrongContentError("it is not an ARFF file")
    found = (_ATTRIBUTE.match(line) for line in lines[: starts[0]])
    names = [match[1].strip("'\"") for match in found if match]
    return _arranged(_cells(lines[starts[0] + 1 :], ",", "'"), names, columns)


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise WrongContentError("it is not plain text") from None


def _cells(lines: list[str], separator: str, quote: str) -> pd.DataFrame:
    text = "\n".join(line.strip() for line in lines)
    try:
        table = pd.read_csv(
            io.StringIO(text),
            sep=separator,
            quotechar=quote,
            header=None,
            dtype=str,
            keep_default_na=False,
            skipinitialspace=True,
        )
    except ValueError:  # empty, or rows of different length
        raise WrongContentError("its rows are not a table") from None
    return table.fillna("")


def _arranged(table: pd.DataFrame, names: list[str], columns) -> pd.DataFrame:
    """Return our columns: by name if all names exist, else the first ones in order."""
    plain = [re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") for name in names]
    if len(plain) == table.shape[1] and set(columns) <= set(plain):
        table = table.iloc[:, [plain.index(name) for name in columns]]
    if table.shape[1] < len(columns):
        raise WrongContentError(
            f"it has {table.shape[1]} columns, and we need {len(columns)}"
        )
    return table.iloc[:, : len(columns)].set_axis(list(columns), axis="columns")
