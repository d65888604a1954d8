"""Tables in and out, whole or piece by piece: CSV, TSV, gzip, Parquet, standard input.

Text columns stay text, and nothing here judges what is in a column.
"""

import csv
import gzip
import io
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from ncai.atomic import replacing, require_file

STANDARD_INPUT = "-"
TEXT_ENDINGS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
PARQUET_ENDINGS = (".parquet", ".pq")
ENDINGS = (*TEXT_ENDINGS, PARQUET_ENDINGS[0])
# A piece of this many rows takes some tens of megabytes with a hundred columns.
CHUNK_ROWS = 10_000
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_NO_TEXT = "{} is not a text file: it must be a table in plain UTF-8 text."


class TableError(ValueError):
    """A table that cannot be used, in one sentence."""


# ----- Reading ------------------------------------------------------------------------


def read_table(path: str | Path) -> pd.DataFrame:
    """All columns of a table with a header line; what is in them is not checked."""
    (frame,) = read_chunks(path, num_rows=None)
    return frame


def read_chunks(
    path: str | Path,
    num_rows: int | None = CHUNK_ROWS,
    text_columns: Collection[str] = (),
) -> Iterator[pd.DataFrame]:
    """The rows of a table in pieces, whose index counts rows from 0 on.

    Args:
        path: a file, or "-" for standard input.
        num_rows: of a piece; None gives the whole table as one.
        text_columns: columns of a text file to read as they are written, so that no
            piece takes them for something else than another piece did.
    """
    with _opened(path) as (stream, kind, name):
        if kind == "parquet":
            pieces = _parquet_pieces(stream, num_rows, name)
        else:
            pieces = _text_pieces(stream, kind, num_rows, text_columns, name)
        first_row = 0
        for piece in pieces:
            if len(piece):
                piece.index = pd.RangeIndex(first_row, first_row + len(piece))
                first_row += len(piece)
                yield piece
        if not first_row:
            raise TableError(f"{name} has column names but no rows.")


@contextmanager
def _opened(path: str | Path) -> Iterator[tuple[Any, str, str]]:
    """A binary stream, "parquet" or the separator, and what to call it."""
    if str(path) == STANDARD_INPUT:
        name = "standard input"
        stream: Any = getattr(sys.stdin, "buffer", sys.stdin)
        if not hasattr(stream, "peek"):
            stream = io.BufferedReader(stream)
        start = stream.peek(4096)[:4096]
        if start.startswith(_GZIP):
            stream = io.BufferedReader(gzip.open(stream))  # pyright: ignore
            start = stream.peek(4096)[:4096]
        if start.startswith(_PARQUET):
            # Its table of contents stands at the end.
            yield io.BytesIO(stream.read()), "parquet", name
        else:
            line = start.split(b"\n", 1)[0]
            yield stream, "\t" if b"\t" in line and b"," not in line else ",", name
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
        f"{path} does not say what kind of table it is: its name must end in "
        f"{', '.join(ENDINGS)}."
    )


def _text_pieces(
    stream: BinaryIO,
    separator: str,
    num_rows: int | None,
    text_columns: Collection[str],
    name: str,
) -> Iterator[pd.DataFrame]:
    """Pieces of a text table, its header read apart: pandas would rename doubles."""
    try:
        buffered = stream if hasattr(stream, "peek") else io.BufferedReader(stream)  # pyright: ignore
        if b"\0" in buffered.peek(4096)[:4096]:  # pyright: ignore
            raise TableError(_NO_TEXT.format(name))
        text = io.TextIOWrapper(buffered, encoding="utf-8-sig", newline="")
        header = _header(text, separator, name)
        with warnings.catch_warnings():
            # Rows longer than the header lose values, about which pandas only warns.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            pieces = pd.read_csv(
                text,
                sep=separator,
                header=None,
                names=header,
                index_col=False,
                skipinitialspace=True,
                low_memory=False,
                dtype={column: str for column in text_columns if column in header},
                chunksize=num_rows or sys.maxsize,
            )
            yield from pieces
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
    stream: BinaryIO, num_rows: int | None, name: str
) -> Iterator[pd.DataFrame]:
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
        reason = " ".join(str(error).split()).rstrip(".")
        raise TableError(f"{name} cannot be read as Parquet: {reason}.") from None


def require_pyarrow(name: str | Path):
    """The module, or one sentence on how to get it."""
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
    """One sentence from the words of pandas or of the system."""
    ragged = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason)
    if ragged:
        expected, line, found = ragged.groups()
        return (
            f"line {int(line) + 1} of {name} has {found} values; it must have "
            f"{expected}, one for each name in the first line."
        )
    reason = " ".join(reason.split()).removeprefix("Error tokenizing data. C error: ")
    return f"{name} cannot be read as a table: {reason.rstrip('.')}."


# ----- Columns ------------------------------------------------------------------------


def require_columns(
    frame: pd.DataFrame, names: Sequence[str], path: str | Path
) -> None:
    """Refuse names that the table does not have."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        hint = ""
        if len(frame.columns) == 1 and ";" in frame.columns[0]:
            hint = " Are its values separated by ';'? They must be by ','."
        raise TableError(
            f"{table_name(path)} has no {listed('column', missing)}; it has "
            f"{listed('column', list(frame.columns))}.{hint}"
        )


def table_name(path: str | Path) -> str:
    """What to call a table in a sentence."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def numbers(column: pd.Series, path: str | Path) -> np.ndarray:
    """A column that must hold finite numbers only, such as the target."""
    name, rows = column.name, column.index
    missing = np.flatnonzero(column.isna())
    if len(missing):
        first = rows[missing[0]] + 1
        if len(missing) == 1:
            found, ways = f"1 missing value, in row {first}", "fill it in or remove it"
        else:
            found = f"{len(missing)} missing values, the first in row {first}"
            ways = "fill them in or remove those rows"
        raise TableError(f"column {name!r} of {table_name(path)} has {found}; {ways}.")
    as_text = column.dtype == bool or not pd.api.types.is_numeric_dtype(column)
    values = np.asarray(
        pd.to_numeric(column.astype(str) if as_text else column, errors="coerce"),
        np.float64,
    )
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise TableError(
            f"column {name!r} of {table_name(path)} holds "
            f"{str(column.iloc[wrong[0]])!r} in row {rows[wrong[0]] + 1}; it must hold "
            "finite numbers only."
        )
    return values


def listed(noun: str, names: Sequence[str], most: int = 12) -> str:
    """A noun and names after it, not too many."""
    shown = ", ".join(repr(name) for name in names[:most])
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{noun}{'s' if len(names) > 1 else ''} {shown}{more}"


# ----- Writing ------------------------------------------------------------------------


def write_table(frame: pd.DataFrame, path: str | Path | None) -> None:
    """Write a table whole; see `table_writer`."""
    with table_writer(path) as write:
        write(frame)


@contextmanager
def table_writer(path: str | Path | None) -> Iterator[Callable[[pd.DataFrame], None]]:
    """A function that takes one piece of a table after another.

    The file's ending says what is written: CSV, TSV, gzipped or not, or Parquet; None
    is standard output. A file appears whole, when the context ends well, or not at all.
    """
    if path is None:
        yield _text_writer(sys.stdout, ",")
        return
    path = Path(path)
    lower = path.name.lower()
    with replacing(path) as temporary:
        if lower.endswith(PARQUET_ENDINGS):
            with _parquet_writer(temporary, path) as write:
                yield write
            return
        opener: Callable[..., Any] = gzip.open if lower.endswith(".gz") else open
        with opener(temporary, "wt", encoding="utf-8", newline="") as file:
            tabs = lower.endswith((".tsv", ".tsv.gz"))
            yield _text_writer(file, "\t" if tabs else ",")


def _text_writer(file, separator: str) -> Callable[[pd.DataFrame], None]:
    started = False

    def write(frame: pd.DataFrame) -> None:
        nonlocal started
        frame.to_csv(
            file, index=False, header=not started, float_format="%.8g", sep=separator
        )
        started = True

    return write


@contextmanager
def _parquet_writer(temporary: Path, path: Path):
    pyarrow = require_pyarrow(path)
    from pyarrow.parquet import ParquetWriter

    writer: Any = None

    def write(frame: pd.DataFrame) -> None:
        nonlocal writer
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
        if writer is None:
            writer = ParquetWriter(temporary, table.schema)
        writer.write_table(table)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
