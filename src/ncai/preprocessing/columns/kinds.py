"""What the columns of a table hold: numbers, booleans, dates or words, however stored.

Each parser gives a float64 array (or text) with NaN (or None) where a value is missing.
"""

import re
from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from ncai.preprocessing.columns.number_text import (
    LARGEST,
    PERCENT,
    PLAIN,
    number_form,
    numbers_in,
    right_numbers,
    sign_beside,
)

_BOOLEAN_PAIRS = (("true", "false"), ("yes", "no"), ("t", "f"), ("y", "n"))
# ISO first; the others only where they can be told apart.
_DAY_FIRST, _MONTH_FIRST = "%d/%m/%Y", "%m/%d/%Y"
_DATE_FORMATS = ("ISO8601", "%d.%m.%Y", _DAY_FIRST, _MONTH_FIRST, "%Y/%m/%d")
_DATE_FORMATS = (*_DATE_FORMATS, "%b %d, %Y", "%B %d, %Y", "%d %b %Y", "%d %B %Y")
_SECONDS_A_DAY = 86_400

# Fewer rows than this say nothing about whether a column numbers them.
_FEWEST_FOR_IDS = 20
_ID_NAME = re.compile(r"(^|[_\s.-])(id|uuid|guid|index|key|rownum|row)$|^unnamed", re.I)
# Text with more levels than this share of the rows names rows, it does not group them.
_TEXT_SHARE = 0.5


class ColumnError(ValueError):
    """A column that cannot be used, in one sentence."""


def recognise(column: pd.Series) -> str | None:
    """The kind of a column; None if all its values are missing."""
    if column.isna().all():
        return None
    types = pd.api.types
    if types.is_bool_dtype(column):
        return "boolean"
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "category"
    if types.is_numeric_dtype(column) or types.is_timedelta64_dtype(column):
        return "number"
    if types.is_datetime64_any_dtype(column):
        return "date"
    given = words(column)
    known = given[~given.isna()]
    if not len(known):
        return None
    if boolean_pair(known.unique()) is not None:
        return "boolean"
    if number_form(known) is not None:
        return "number"
    return "category" if date_format(known) is None else "date"


def words(column: pd.Series) -> Any:
    """The values as text without outer blanks; missing where there is none."""
    text = column.astype(object).where(column.notna(), None)
    text = text.map(lambda value: value if value is None else str(value).strip())
    return text.where(~text.isin(("", None)), None)


def boolean_pair(values: Collection[str]) -> tuple[str, str] | None:
    """The words for true and false among which all values are."""
    found = {str(value).lower() for value in values}
    return next((pair for pair in _BOOLEAN_PAIRS if found <= set(pair)), None)


def form_of_numbers(column: pd.Series) -> str:
    """How a column of numbers writes them."""
    if not _is_text(column):
        return PLAIN
    return number_form(words(column).dropna()) or PLAIN


def date_format(known: pd.Series) -> str | None:
    """The one format in which all these texts are dates; None if none or two are."""
    fitting = _fitting_formats(known)
    if fitting[:1] == ["ISO8601"]:
        # Pandas takes bare years and the like for dates.
        if known.str.contains("-").all():
            return "ISO8601"
        fitting = fitting[1:]
    if not fitting or {_DAY_FIRST, _MONTH_FIRST} <= set(fitting):
        return None
    return fitting[0]


def likeness(column: pd.Series) -> str | None:
    """What a column of text looks like that it could not be taken for."""
    known = words(column).dropna().drop_duplicates()
    if {_DAY_FIRST, _MONTH_FIRST} <= set(_fitting_formats(known)):
        return (
            "it looks like dates that could be day/month or month/day: written as "
            "2024-01-31 they would be used"
        )
    if sign := sign_beside(known):
        return f"it looks like numbers with {sign!r}: without it they would be used"
    return None


def _fitting_formats(known: pd.Series) -> list[str]:
    # A few values first: most texts are no dates, and to find it out takes long.
    return [
        form
        for form in _DATE_FORMATS
        if _as_dates(known.iloc[:20], form).notna().all()
        and _as_dates(known, form).notna().all()
    ]


# ----- Columns that name rows ---------------------------------------------------------


def names_rows(column: pd.Series) -> bool:
    """Text that differs in most rows."""
    text = words(column).dropna()
    return len(text) >= _FEWEST_FOR_IDS and text.nunique() > _TEXT_SHARE * len(text)


def is_id_like(column: pd.Series, name: str) -> bool:
    """Whole numbers, each once, that are called an id or run through a range."""
    try:
        values = np.asarray(pd.to_numeric(column), np.float64)
    except (TypeError, ValueError):
        return False
    if len(values) < _FEWEST_FOR_IDS or np.isnan(values).any():
        return False
    if np.any(values % 1 != 0) or len(np.unique(values)) < len(values):
        return False
    return bool(_ID_NAME.search(name) or np.ptp(values) < 2 * len(values))


# ----- Parsers ------------------------------------------------------------------------


def parse_numbers(
    column: pd.Series, junk_is_missing: bool, form: str = PLAIN
) -> np.ndarray:
    """Finite numbers or NaN; refuses what is no number unless it means missing."""
    if pd.api.types.is_timedelta64_dtype(column):
        column = column.dt.total_seconds()
    # What is stored as numbers is read as it is, but 0.12 for 12 % would go unnoticed.
    as_text = _is_text(column) or PERCENT in form
    given = words(column) if as_text else column
    values = np.asarray(numbers_in(given, form if as_text else PLAIN), np.float64)
    wrong = np.abs(values) > LARGEST
    if not junk_is_missing or not _is_text(column):
        wrong |= np.isnan(values) & given.notna().to_numpy()
    if wrong.any():
        right = right_numbers(values[wrong][0])
        if PERCENT in form:
            right = "percentages such as 12%"
        raise ColumnError(_refusal(column, wrong, right))
    return values


def count_junk(column: pd.Series, form: str) -> tuple[int, str]:
    """How many values of a column of numbers are none, and the first of them."""
    if not _is_text(column):
        return 0, ""
    given = words(column)
    junk = given[given.notna() & numbers_in(given, form).isna()]
    return len(junk), str(junk.iloc[0]) if len(junk) else ""


def _is_text(column: pd.Series) -> bool:
    types = pd.api.types
    return not (types.is_numeric_dtype(column) or types.is_timedelta64_dtype(column))


def parse_booleans(column: pd.Series, pair: tuple[str, str]) -> np.ndarray:
    """1, 0 or NaN."""
    given = words(column).str.lower()
    values = np.full(len(column), np.nan)
    # A table written elsewhere may have other words for the same.
    for true, false in dict.fromkeys(
        (pair, *_BOOLEAN_PAIRS, ("1", "0"), ("1.0", "0.0"))
    ):
        values[(given == true).to_numpy()] = 1.0
        values[(given == false).to_numpy()] = 0.0
    wrong = np.isnan(values) & given.notna().to_numpy()
    if wrong.any():
        raise ColumnError(_refusal(column, wrong, f"{pair[0]} or {pair[1]}"))
    return values


def parse_dates(column: pd.Series, form: str | None) -> np.ndarray:
    """Days since 1970, in UTC, or NaN."""
    if pd.api.types.is_datetime64_any_dtype(column):
        dates, given = pd.to_datetime(column, utc=True), column
    else:
        given = words(column)
        dates = _as_dates(given, form or "ISO8601")
    wrong = (dates.isna() & given.notna()).to_numpy()
    if wrong.any():
        example = "2024-01-31" if form in (None, "ISO8601") else form
        raise ColumnError(_refusal(column, wrong, f"dates such as {example}"))
    seconds = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
    return seconds.to_numpy(np.float64) / _SECONDS_A_DAY


def _as_dates(values: pd.Series, form: str) -> Any:
    return pd.to_datetime(values, format=form, errors="coerce", utc=True)


def _refusal(column: pd.Series, wrong: np.ndarray, right: str) -> str:
    place = int(np.flatnonzero(wrong)[0])
    row = column.index[place]
    row = int(row) + 1 if isinstance(row, int | np.integer) else row
    return (
        f"column {column.name!r} holds {str(column.iloc[place])!r} in row {row}; it "
        f"must hold {right} only."
    )
