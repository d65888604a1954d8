"""Read tables, whole or in chunks: CSV, TSV, gzip, Parquet, standard input.

Text columns stay text; `ncai.preprocessing` decides what a column contains. Columns are
found by name, and errors say which row is wrong and why.
"""

import codecs
import csv
import gzip
import io
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ncai.preprocessing.columns.column import shown
from ncai.preprocessing.columns.numbers import (
    FORM_WORDS,
    LARGEST,
    PLAIN,
    has_blanks_between_thousands,
    number_form,
    right_numbers,
    sign_beside,
)
from ncai.runtime.atomic_write import require_file

STANDARD_INPUT = "-"
TEXT_ENDINGS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
PARQUET_ENDINGS = (".parquet", ".pq")
ENDINGS = (*TEXT_ENDINGS, *PARQUET_ENDINGS)
# A chunk of this many rows takes some tens of megabytes with a hundred columns.
CHUNK_ROWS = 10_000
_LOOK = 8192  # bytes at the start, from which the text format is detected
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
# Collects values beyond the last name, which pandas may drop silently.
_BEYOND = "\0"
_NO_TEXT = (
    "{} is not text in UTF-8 (or in UTF-16 with a byte-order mark), which a table must "
    "be: save it in that encoding."
)


class TableError(ValueError):
    """A table cannot be used; the message is one sentence."""


# ----- Reading ------------------------------------------------------------------------


def read_table(path: str | Path, text_columns: Collection[str] = ()) -> pd.DataFrame:
    """Read all columns of a table with a header line; their values are not checked."""
    (frame,) = read_chunks(path, None, text_columns)
    return frame


def read_chunks(
    path: str | Path,
    num_rows: int | None = CHUNK_ROWS,
    text_columns: Collection[str] = (),
) -> Iterator[pd.DataFrame]:
    """Yield the rows of a table in chunks, whose index counts the rows from 0.

    Args:
        path: a file, or "-" for standard input.
        num_rows: rows per chunk; None for the whole table as one chunk.
        text_columns: columns of a text file to read as text, so that all chunks treat
            them alike.
    """
    with _opened(path) as (stream, kind, name):
        if kind == "parquet":
            pieces = _parquet_pieces(stream, num_rows, name)
        else:
            pieces = _text_pieces(stream, kind, num_rows, text_columns, name)
        first_row = 0
        # Close it before the stream, even if the rest is never read.
        with closing(pieces):
            for piece in pieces:
                if len(piece):
                    piece.index = pd.RangeIndex(first_row, first_row + len(piece))
                    first_row += len(piece)
                    yield piece
        if not first_row:
            raise TableError(f"{name} has column names but no rows.")


@contextmanager
def _opened(path: str | Path) -> Iterator[tuple[Any, str, str]]:
    """Open a table: its stream, "parquet" or the usual separator, and its name."""
    if str(path) == STANDARD_INPUT:
        name = "standard input"
        stream: Any = getattr(sys.stdin, "buffer", sys.stdin)
        if not hasattr(stream, "peek"):
            stream = io.BufferedReader(stream)
        start = stream.peek(_LOOK)[:_LOOK]
        if start.startswith(_GZIP):
            stream = io.BufferedReader(gzip.open(stream))  # pyright: ignore
            start = stream.peek(_LOOK)[:_LOOK]
        if start.startswith(_PARQUET):
            # Parquet has its table of contents at the end.
            yield io.BytesIO(stream.read()), "parquet", name
        else:
            yield stream, ",", name
        return
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a table.")
    kind = _kind(path)
    require_file(path, "file")
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rb") as stream:
        yield stream, kind, str(path)


def _kind(path: Path) -> str:
    lower = path.name.lower()
    if lower.endswith(PARQUET_ENDINGS):
        return "parquet"
    for ending, separator in TEXT_ENDINGS.items():
        if lower.endswith(ending):
            return separator
    raise TableError(
        f"{path} has no ending that names a kind of table; it must end in "
        f"{', '.join(ENDINGS)}."
    )


def _text_pieces(
    stream: io.IOBase,
    separator: str,
    num_rows: int | None,
    text_columns: Collection[str],
    name: str,
) -> Generator[pd.DataFrame, None, None]:
    """Read a text table in chunks, with its header, as pandas renames duplicates."""
    try:
        buffered = stream if hasattr(stream, "peek") else io.BufferedReader(stream)  # pyright: ignore
        form = text_form(buffered.peek(_LOOK)[:_LOOK], separator)  # pyright: ignore
        if form is None:
            raise TableError(_NO_TEXT.format(name))
        if assumed := form.assumed(separator):
            warnings.warn(f"{name} is read {', '.join(assumed)}.", stacklevel=2)
        separator = form.separator
        with _as_text(buffered, form.encoding) as text:
            header = _header(text, separator, name)
            pieces = pd.read_csv(
                text,
                sep=separator,
                header=None,
                names=[*header, _BEYOND],
                index_col=False,
                skipinitialspace=True,
                low_memory=False,
                dtype={column: str for column in (*text_columns, _BEYOND)},
                chunksize=num_rows or sys.maxsize,
            )
            first_row = 0
            while (piece := _next_piece(pieces)) is not None:
                _refuse_long_lines(piece, len(header), first_row, name)
                first_row += len(piece)
                yield piece.drop(columns=_BEYOND)
    except pd.errors.EmptyDataError:
        raise TableError(f"{name} has column names but no rows.") from None
    except pd.errors.ParserWarning:
        raise TableError(
            f"{name} has rows with more values than the first line has names."
        ) from None
    except UnicodeDecodeError:
        raise TableError(_NO_TEXT.format(name)) from None
    except TableError:
        raise
    except (ValueError, OSError, EOFError, zlib.error, csv.Error) as error:
        raise TableError(_why_unreadable(name, str(error))) from None


def _refuse_long_lines(
    piece: pd.DataFrame, num_names: int, first_row: int, name: str
) -> None:
    long = np.flatnonzero(piece[_BEYOND].notna())
    if len(long):
        raise TableError(
            f"line {first_row + long[0] + 2} of {name} has more values than the first "
            f"line has names, which are {num_names}."
        )


def _next_piece(pieces: Iterator[pd.DataFrame]) -> pd.DataFrame | None:
    with warnings.catch_warnings():
        # If a row is longer than the header, pandas drops values and only warns.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return next(pieces, None)


@contextmanager
def _as_text(stream: Any, encoding: str) -> Iterator[io.TextIOWrapper]:
    """Wrap the stream as text. It stays open, because its opener closes it."""
    text = io.TextIOWrapper(stream, encoding=encoding, newline="")
    try:
        yield text
    finally:
        text.detach()


def _header(text: io.TextIOWrapper, separator: str, name: str) -> list[str]:
    lines = csv.reader(text, delimiter=separator, skipinitialspace=True)
    header = next((line for line in lines if line), None)
    if header is None:
        raise TableError(f"{name} is empty; it must start with a line of column names.")
    header = [column.strip() for column in header]
    if "" in header:
        raise TableError(
            f"{name} has no name for column {header.index('') + 1}: the first line "
            "must name every column."
        )
    _refuse_doubles(header, name)
    return header


def _parquet_pieces(
    stream: io.IOBase, num_rows: int | None, name: str
) -> Generator[pd.DataFrame, None, None]:
    pyarrow = require_pyarrow(name)
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(stream)
        _refuse_doubles(list(file.schema_arrow.names), name)
        if num_rows is None:
            yield file.read().to_pandas()
            return
        for batch in file.iter_batches(batch_size=num_rows):
            yield batch.to_pandas()
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split()).split(". ")[0].rstrip(".")
        raise TableError(f"{name} cannot be read as Parquet: {reason}.") from None


def require_pyarrow(name: str | Path):
    """Import pyarrow; if it is missing, raise one sentence on how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise TableError(
            f"{name} is a Parquet file, which needs pyarrow: pip install "
            "'ncai[parquet]'."
        ) from None
    return pyarrow


def _refuse_doubles(header: list[str], name: str) -> None:
    double = sorted({column for column in header if header.count(column) > 1})
    if double:
        raise TableError(f"{name} has two columns named {double[0]!r}.")


def _why_unreadable(name: str, reason: str) -> str:
    """Turn an error of pandas or of the system into one sentence."""
    ragged = re.search(r"Expected \d+ fields in line (\d+), saw \d+", reason)
    if ragged:
        return (
            f"line {int(ragged[1]) + 1} of {name} has more values than the first line "
            "has names."
        )
    reason = " ".join(reason.split()).removeprefix("Error tokenizing data. C error: ")
    return f"{name} cannot be read as a table: {reason.rstrip('.')}."


# ----- How a text table is written ----------------------------------------------------

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    # UTF-32 is not supported. It is tested first, because its mark begins like
    # UTF-16's.
    codecs.BOM_UTF32_LE: None,
    codecs.BOM_UTF32_BE: None,
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_WORDS = {",": "','", ";": "';'", "\t": "tabs"}


class TextForm(NamedTuple):
    """How to read a text table."""

    encoding: str
    separator: str

    def assumed(self, expected: str) -> list[str]:
        """How the table differs from the usual format, in words."""
        found = []
        if self.separator != expected:
            found.append(f"with values separated by {_WORDS[self.separator]}")
        if self.encoding == "utf-16":
            found.append("as UTF-16")
        return found


def text_form(start: bytes, separator: str) -> TextForm | None:
    """Detect the format of a text table from its start; None if it is not text.

    Args:
        start: the first bytes, some kilobytes.
        separator: the expected one; another is used only if it splits both of the first
            two lines into more columns.
    """
    encoding = next(
        (name for mark, name in _MARKS.items() if start.startswith(mark)), "utf-8"
    )
    if encoding is None or (encoding != "utf-16" and b"\0" in start):
        return None
    text = start.decode(encoding, errors="ignore")
    # The last line may be cut off, so it is used only if it is the only one.
    whole = text[: text.rfind("\n") + 1] or text
    candidates = dict.fromkeys((separator, *_WORDS))
    return TextForm(encoding, max(candidates, key=lambda one: _width(whole, one)))


def _width(text: str, separator: str) -> int:
    """Count the columns of the first two lines; 1 if the two lines differ."""
    lines = filter(None, csv.reader(io.StringIO(text), delimiter=separator))
    try:
        widths = {len(line) for line in islice(lines, 2)}
    except csv.Error:  # reported when the whole table is read
        return 1
    return widths.pop() if len(widths) == 1 else 1


def require_columns(
    frame: pd.DataFrame, names: Sequence[str], path: str | Path
) -> None:
    """Reject names that the table does not have."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise TableError(
            f"{table_name(path)} has no {listed('column', missing)}; it has "
            f"{listed('column', list(frame.columns))}."
        )


def table_name(path: str | Path) -> str:
    """Return the name of a table for messages."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def numbers(column: pd.Series, path: str | Path) -> np.ndarray:
    """Return a column as numbers; reject one with other values, such as text."""
    name, rows = column.name, list(column.index)
    missing = np.flatnonzero(column.isna())
    if len(missing):
        first = rows[missing[0]] + 1
        if len(missing) == 1:
            found = f"1 missing value, in row {first}"
            ways = "fill it in or remove that row"
        else:
            found = f"{len(missing)} missing values, the first in row {first}"
            ways = "fill them in or remove those rows"
        raise TableError(f"column {name!r} of {table_name(path)} has {found}; {ways}.")
    as_text = column.dtype == bool or not pd.api.types.is_numeric_dtype(column)
    values = np.asarray(
        pd.to_numeric(column.astype(str) if as_text else column, errors="coerce"),
        np.float64,
    )
    wrong = np.flatnonzero(~(np.abs(values) <= LARGEST))
    if len(wrong):
        value, right = column.iloc[wrong[0]], right_numbers(float(values[wrong[0]]))
        raise TableError(
            f"column {name!r} of {table_name(path)} holds {shown(value)} in row "
            f"{rows[wrong[0]] + 1}; it must hold {right} only{_likeness(column)}."
        )
    return values


def _likeness(column: pd.Series) -> str:
    """Suggest how to rewrite values that look like numbers in another notation."""
    text = column.astype(str).str.strip()
    form = number_form(text) or PLAIN
    if form != PLAIN:
        found = FORM_WORDS[form].removeprefix("a number ")
        return f"; it looks like numbers {found}: write them as 1234.5"
    if has_blanks_between_thousands(text):
        return "; it looks like numbers with blanks between thousands: leave them out"
    sign = sign_beside(text)
    return f"; it looks like numbers with {sign!r}: leave that out" if sign else ""


def listed(noun: str, names: Sequence[str], most: int = 12) -> str:
    """List a noun followed by the first few of the names."""
    shown = ", ".join(repr(name) for name in names[:most])
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{noun}{'s' if len(names) > 1 else ''} {shown}{more}"
