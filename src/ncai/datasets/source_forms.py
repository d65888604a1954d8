"""Turn what UCI and OpenML send into a table of text under our header."""

import io
import json
import re
import zipfile
import zlib

import pandas as pd

from ncai.datasets.clean_files import WrongContentError
from ncai.datasets.registry import UciFile

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
    # urllib would also open local files, which no server may ask for.
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
    """Our columns, by name if all names are there, else the first ones in order."""
    plain = [re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") for name in names]
    if len(plain) == table.shape[1] and set(columns) <= set(plain):
        table = table.iloc[:, [plain.index(name) for name in columns]]
    if table.shape[1] < len(columns):
        raise WrongContentError(
            f"it has {table.shape[1]} columns, and we need {len(columns)}"
        )
    return table.iloc[:, : len(columns)].set_axis(list(columns), axis="columns")
