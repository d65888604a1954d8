"""Columns of a table by name, and errors that say what is wrong in which row."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ncai.preprocessing.columns.numbers import (
    FORM_WORDS,
    LARGEST,
    PLAIN,
    number_form,
    right_numbers,
    sign_beside,
)
from ncai.tables.read import STANDARD_INPUT, TableError


def require_columns(
    frame: pd.DataFrame, names: Sequence[str], path: str | Path
) -> None:
    """Refuse names that the table does not have."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise TableError(
            f"{table_name(path)} has no {listed('column', missing)}; it has "
            f"{listed('column', list(frame.columns))}."
        )


def table_name(path: str | Path) -> str:
    """What to call a table in a sentence."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def numbers(column: pd.Series, path: str | Path) -> np.ndarray:
    """The numbers of a column that must hold nothing else, such as the target."""
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
            f"column {name!r} of {table_name(path)} holds {str(value)!r} in row "
            f"{rows[wrong[0]] + 1}; it must hold {right} only{_likeness(column)}."
        )
    return values


def _likeness(column: pd.Series) -> str:
    """How to write a column of numbers that are written in another way."""
    text = column.astype(str).str.strip()
    form = number_form(text) or PLAIN
    if form != PLAIN:
        found = FORM_WORDS[form].removeprefix("a number ")
        return f", and looks like numbers {found}: write them as 1234.5"
    sign = sign_beside(text)
    return f", and looks like numbers with {sign!r}: leave that out" if sign else ""


def listed(noun: str, names: Sequence[str], most: int = 12) -> str:
    """A noun followed by names, of which only the first few are listed."""
    shown = ", ".join(repr(name) for name in names[:most])
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{noun}{'s' if len(names) > 1 else ''} {shown}{more}"
