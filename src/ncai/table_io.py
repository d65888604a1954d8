"""Tables in and out: CSV and TSV files, plain or gzipped, with numeric columns."""

import gzip
import re
import sys
import warnings
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ncai.atomic import replacing, require_file

ENDINGS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}


class TableError(ValueError):
    """A table that cannot be used, in one sentence."""


def read_table(path: str | Path) -> pd.DataFrame:
    """All columns of a table with a header line; what is in them is not checked."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a table.")
    separator = _separator(path)
    require_file(path, "file")
    options = {"sep": separator, "encoding": "utf-8-sig", "skipinitialspace": True}
    try:
        _refuse_binary(path)
        names = pd.read_csv(path, header=None, nrows=1, dtype=str, **options)
        with warnings.catch_warnings():
            # Rows longer than the header lose values, about which pandas only warns.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                path,
                index_col=False,
                low_memory=False,
                **options,
            )
    except pd.errors.EmptyDataError:
        raise TableError(
            f"{path} is empty; it must start with a line of column names."
        ) from None
    except pd.errors.ParserWarning:
        raise TableError(
            f"{path} has rows with more values than the first line has names."
        ) from None
    except UnicodeDecodeError:
        raise TableError(_NO_TEXT.format(path)) from None
    except TableError:
        raise
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise TableError(_why_unreadable(path, str(error))) from None
    header = names.iloc[0].fillna("").str.strip().tolist()
    _check_header(header, path)
    if not len(frame):
        raise TableError(f"{path} has column names but no rows.")
    return frame.set_axis(header, axis="columns")


def numeric_columns(
    frame: pd.DataFrame,
    names: Sequence[str],
    path: str | Path,
    optional: Collection[str] = (),
) -> pd.DataFrame:
    """These columns in this order as numbers; refuses what is none.

    Of a column among `optional` the refusal says that it may be left out.
    """
    require_columns(frame, names, path)
    return pd.DataFrame(
        {
            name: _numbers(frame.loc[:, name], name, path, name in optional)
            for name in names
        },
        columns=list(names),
    )


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
            f"{path} has no {_listed('column', missing)}; it has "
            f"{_listed('column', list(frame.columns))}.{hint}"
        )


def write_table(frame: pd.DataFrame, path: str | Path | None) -> None:
    """Write as CSV (TSV, gzipped) by the file's ending; None is standard output.

    The file appears whole or not at all.
    """
    if path is None:
        frame.to_csv(sys.stdout, index=False, float_format="%.8g")
        return
    path = Path(path)
    with replacing(path) as temporary:
        frame.to_csv(
            temporary,
            index=False,
            float_format="%.8g",
            sep="\t" if path.name.endswith((".tsv", ".tsv.gz")) else ",",
            compression="gzip" if path.suffix == ".gz" else None,
        )


_NO_TEXT = "{} is not a text file: it must be a table in plain UTF-8 text."


def _refuse_binary(path: Path) -> None:
    """Pandas reads past zero bytes without a word."""
    opener = gzip.open if path.name.lower().endswith(".gz") else open
    with opener(path, "rb") as file:
        if b"\0" in file.read(4096):
            raise TableError(_NO_TEXT.format(path))


def _why_unreadable(path: Path, reason: str) -> str:
    """One sentence from the words of pandas or of the system."""
    ragged = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason)
    if ragged:
        expected, line, found = ragged.groups()
        return (
            f"line {line} of {path} has {found} values; it must have {expected}, one "
            "for each name in the first line."
        )
    reason = " ".join(reason.split()).removeprefix("Error tokenizing data. C error: ")
    return f"{path} cannot be read as a table: {reason.rstrip('.')}."


def _separator(path: Path) -> str:
    for ending, separator in ENDINGS.items():
        if path.name.lower().endswith(ending):
            return separator
    raise TableError(
        f"{path} does not say what kind of table it is: its name must end in "
        f"{', '.join(ENDINGS)}."
    )


def _check_header(header: list[str], path: Path) -> None:
    if "" in header:
        raise TableError(
            f"{path} has no name for column {header.index('') + 1}: the first line "
            "must name every column."
        )
    double = sorted({name for name in header if header.count(name) > 1})
    if double:
        raise TableError(f"{path} has two columns named {double[0]!r}.")


def _numbers(
    column: pd.Series, name: str, path: str | Path, optional: bool
) -> np.ndarray:
    if column.isna().any():
        rows = np.flatnonzero(column.isna())
        if len(rows) == 1:
            found = f"1 missing value, in row {rows[0] + 1}"
            ways = ["fill it in", "remove that row"]
        else:
            found = f"{len(rows)} missing values, the first in row {rows[0] + 1}"
            ways = ["fill them in", "remove those rows"]
        ways += ["leave the column out (--drop)"] if optional else []
        raise TableError(
            f"column {name!r} of {path} has {found}; {', '.join(ways[:-1])} or "
            f"{ways[-1]}."
        )
    as_text = column.dtype == bool or not pd.api.types.is_numeric_dtype(column)
    numbers = pd.to_numeric(column.astype(str) if as_text else column, errors="coerce")
    values = np.asarray(numbers, np.float64)
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise TableError(
            f"column {name!r} of {path} holds {str(column.iloc[wrong[0]])!r} in row "
            f"{wrong[0] + 1}; it must hold finite numbers only"
            f"{', or be left out (--drop)' if optional else ''}."
        )
    return values


def _listed(noun: str, names: list[str], most: int = 12) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{noun}{'s' if len(names) > 1 else ''} {shown}{more}"
