"""What the columns of a table hold: numbers, booleans, dates or words, however stored.

Each parser gives a float64 array (or text) with NaN (or None) where a value is missing.
"""

import re
from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

_BOOLEAN_PAIRS = (("true", "false"), ("yes", "no"), ("t", "f"), ("y", "n"))
# A text column is one of numbers if at least this share of its values are some: the
# rest are then taken for the table's own marks of a missing value, such as "?".
_NUMBER_SHARE = 0.9
# ISO first; the others only where they can be told apart.
_DATE_FORMATS = ("ISO8601", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y")
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
    if _as_numbers(known).notna().mean() >= _NUMBER_SHARE:
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


def date_format(known: pd.Series) -> str | None:
    """The one format in which all these texts are dates; None if none or two are."""
    fitting = [form for form in _DATE_FORMATS if _as_dates(known, form).notna().all()]
    if fitting[:1] == ["ISO8601"]:
        # Pandas takes bare years and the like for dates.
        return "ISO8601" if known.str.contains("-").all() else None
    return fitting[0] if len(fitting) == 1 else None


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


def parse_numbers(column: pd.Series, junk_is_missing: bool) -> np.ndarray:
    """Finite numbers or NaN; refuses what is no number unless it means missing."""
    if pd.api.types.is_timedelta64_dtype(column):
        column = column.dt.total_seconds()
    plain = pd.api.types.is_numeric_dtype(column)
    given = column if plain else words(column)
    values = np.asarray(_as_numbers(given), np.float64)
    wrong = np.isinf(values)
    if not junk_is_missing:
        wrong |= np.isnan(values) & given.notna().to_numpy()
    if wrong.any():
        raise ColumnError(_refusal(column, wrong, "finite numbers"))
    return values


def count_junk(column: pd.Series) -> tuple[int, str]:
    """How many values of a column of numbers are none, and the first of them."""
    if pd.api.types.is_numeric_dtype(column):
        return 0, ""
    if pd.api.types.is_timedelta64_dtype(column):
        return 0, ""
    given = words(column)
    junk = given[given.notna() & _as_numbers(given).isna()]
    return len(junk), str(junk.iloc[0]) if len(junk) else ""


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


def _as_numbers(values: pd.Series) -> Any:
    return pd.to_numeric(values, errors="coerce")


def _as_dates(values: pd.Series, form: str) -> Any:
    return pd.to_datetime(values, format=form, errors="coerce", utc=True)


def _refusal(column: pd.Series, wrong: np.ndarray, right: str) -> str:
    place = int(np.flatnonzero(wrong)[0])
    row = column.index[place]
    row = int(row) + 1 if isinstance(row, int | np.integer) else row
    return (
        f"column {column.name!r} holds {str(column.iloc[place])!r} in row {row}; it "
        f"must hold {right} only, or be left out."
    )
