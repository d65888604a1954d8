"""Columns of numbers, as people write them: 1,234.5 or 0,53 or 12 %."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ncai.preprocessing.columns.column import (
    ColumnGroup,
    Learned,
    Limits,
    RawColumn,
    Surprise,
    counted,
    shown,
)
from ncai.preprocessing.columns.missing import (
    fill_in,
    filling_note,
    learn_filling,
    means_missing,
    new_missing,
)
from ncai.runtime.arguments import one_of

PLAIN, THOUSANDS, DECIMAL_COMMA = "plain", "thousands", "decimal comma"
PERCENT, COMMA_PERCENT = "percent", "decimal comma percent"
# How a note describes each form; the first form that fits most values is used.
FORM_WORDS = {
    PLAIN: "a number",
    THOUSANDS: "a number with ',' between thousands",
    DECIMAL_COMMA: "a number with a decimal comma",
    PERCENT: "a number in percent",
    COMMA_PERCENT: "a number in percent with a decimal comma",
}
# Larger numbers make sums of squares overflow, so that scaling fails.
LARGEST = 1e100
# A text column holds numbers if at least this share of its values are numbers. The rest
# then count as the table's own marks of a missing value, such as "?".
_NUMBER_SHARE = 0.9
# A single repeated word marks missing values if there are at least this many different
# numbers; among fewer it may be one more level, as in 1, 2, 3, K. A mere sign such as
# "-" is never a level.
_FEWEST_NUMBERS = 10
_FEWEST_BESIDE_SIGNS = 2

_SIGN = r"[+-]?"
_GROUPED = re.compile(rf"{_SIGN}(\d+|[1-9]\d{{0,2}}(,\d{{3}})+)(\.\d+)?")
_WITH_COMMA = re.compile(rf"{_SIGN}(\d+|[1-9]\d{{0,2}}(\.\d{{3}})+)(,\d+)?")
# No blank of any kind is a part of a number that we read.
_SPACED = re.compile(rf"{_SIGN}[1-9]\d{{0,2}}(\s\d{{3}})+([.,]\d+)?")
_BESIDE = re.compile(r"([^\w.,]*)([+-]?\d[\d.,]*)(\s*\D{0,4})")


def number_form(known: pd.Series) -> str | None:
    """Find the form in which nearly all of these texts are numbers.

    The exceptions may be a few values, or a single mark of any frequency.
    """
    rows = known.value_counts()  # each text is looked at once
    texts = pd.Series(rows.index, rows.index, dtype=object)
    signs = {sign for sign in ",%" if any(sign in text for text in texts)}
    found = {
        form: numbers_in(texts, form)
        for form in FORM_WORDS
        if form == PLAIN or ("%" if PERCENT in form else ",") in signs
    }
    shares = {name: rows[one.notna()].sum() / len(known) for name, one in found.items()}
    form = max(shares, key=lambda name: shares[name])
    values = found[form]
    if shares[form] >= _NUMBER_SHARE:
        return form
    marks = list(texts[values.isna()])
    if len(marks) > 1:
        return None
    mark, different = marks[0], values.nunique()
    fewest = _FEWEST_BESIDE_SIGNS if means_missing(mark) else _FEWEST_NUMBERS
    return form if different >= fewest else None


def numbers_in(text: pd.Series, form: str) -> Any:
    """The numbers in texts of this form; NaN where a text is not a number."""
    if form == PLAIN:
        return pd.to_numeric(text, errors="coerce")
    pattern = _WITH_COMMA if form in (DECIMAL_COMMA, COMMA_PERCENT) else _GROUPED

    def read(value) -> float:
        if not isinstance(value, str):
            return np.nan
        if form in (PERCENT, COMMA_PERCENT):
            if not value.endswith("%"):
                return np.nan
            value = value[:-1].rstrip()
        if not pattern.fullmatch(value):
            return np.nan
        if pattern is _WITH_COMMA:
            return float(value.replace(".", "").replace(",", "."))
        return float(value.replace(",", ""))

    return pd.Series([read(value) for value in text], text.index, dtype=np.float64)


def right_numbers(wrong: float) -> str:
    """Say what a column must contain instead of this value."""
    return f"numbers below {LARGEST:g}" if np.isfinite(wrong) else "finite numbers"


def sign_beside(known: pd.Series) -> str | None:
    """Return the sign next to nearly all of these numbers, such as a currency."""
    found = [_BESIDE.fullmatch(value) for value in known]
    beside = Counter((one[1] + one[3]).strip() for one in found if one)
    (sign, count), *_ = beside.most_common(1) or [("", 0)]
    return sign if sign and count >= _NUMBER_SHARE * len(found) else None


def has_blanks_between_thousands(text: pd.Series) -> bool:
    """Whether nearly all texts are numbers, and some of them are such as 1 234."""
    spaced = [bool(_SPACED.fullmatch(one)) for one in text]
    others = numbers_in(text.loc[~np.array(spaced, bool)], PLAIN)
    count = sum(spaced) + int(others.notna().sum())
    return any(spaced) and count >= _NUMBER_SHARE * len(text)


def warnings_of(column: RawColumn, values: np.ndarray) -> list[str]:
    """Say which meaning the numbers of a column lose, in parts of a sentence.

    Args:
        column: the values as given.
        values: the numbers, NaN where there is none.
    """
    found = []
    if _loses_digits(column, values):
        found.append(
            "has whole numbers beyond 2^53, whose last digits are lost; leave it out "
            "if they are ids"
        )
    lost = np.isnan(values) & column.values.notna().to_numpy()
    if column.is_text and has_blanks_between_thousands(column.words[lost]):
        found.append(
            "has numbers with blanks between thousands, which are taken as missing; "
            "without the blanks they would be used"
        )
    return found


def _loses_digits(column: RawColumn, values: np.ndarray) -> bool:
    """Whether a whole number differs from the 64-bit number that it becomes."""
    large = np.abs(values) > 2**53
    if not large.any():
        return False
    given = column.words[large] if column.is_text else column.values[large]
    if not column.is_text and not pd.api.types.is_integer_dtype(given):
        return False
    whole = [str(one) for one in given if re.fullmatch(r"[+-]?\d{1,400}", str(one))]
    return any(int(one) != int(float(one)) for one in whole)


_FAR = 0.25  # of the span of the training rows


@dataclass(frozen=True)
class NumberPlan:
    """A number as it is; missing values become the median, marked if not too few."""

    name: str
    fill: float
    had_missing: bool
    marked: bool
    junk_is_missing: bool
    span: tuple[float, float] | None = None
    form: str = PLAIN

    def __post_init__(self):
        one_of("form", self.form, FORM_WORDS)

    @classmethod
    def learn(cls, column: RawColumn, form: str, limits: Limits) -> Learned:
        """The plan for a column whose numbers are written in this form."""
        values, no_number = _read(column, form)
        junk = no_number & column.is_text  # marks of missing values, such as "?"
        _refuse(column, values, no_number & ~junk, form)
        span, filling = span_of(values), learn_filling(values, limits)
        plan = cls(column.name, *filling, bool(junk.any()), span, form)
        note = FORM_WORDS[form]
        if junk.any():
            example = shown(column.words[junk].iloc[0])
            others = f"{counted(int(junk.sum()), 'value')} such as {example}"
            note += f"; {others} taken as missing"
        elif form == PLAIN:
            note += ", used as it is"
        return Learned(plan, note + filling_note(values, plan), values)

    def parse(self, column: RawColumn) -> np.ndarray:
        """The numbers, NaN where missing."""
        values, no_number = _read(column, self.form)
        if self.junk_is_missing and column.is_text:
            no_number = np.zeros_like(no_number)
        _refuse(column, values, no_number, self.form)
        return values

    def values(self, parsed: np.ndarray) -> dict[str, np.ndarray]:
        """The number, and the mark of a missing one."""
        return fill_in(parsed, self)

    def surprises(self, parsed: np.ndarray) -> list[Surprise]:
        """Return missing values, if training rows had none, and far values."""
        far = far_outside(self, parsed)
        return [*new_missing(self.name, np.isnan(parsed), self.had_missing), *far]

    def groups(self, outputs: dict[str, str]) -> list[ColumnGroup]:
        """The number with its mark."""
        return [ColumnGroup(self.name, tuple(outputs.values()), self.name)]


def _read(column: RawColumn, form: str) -> tuple[np.ndarray, np.ndarray]:
    """The numbers (NaN where there is none), and which given values are not numbers."""
    given = column.values
    if pd.api.types.is_timedelta64_dtype(given):
        given = given.dt.total_seconds()
    # Stored numbers are read as they are. A column of percentages is read as text,
    # because otherwise nobody would notice a 0.12 that means 12 %.
    as_text = column.is_text or PERCENT in form
    if as_text:
        given = column.words
    values = np.asarray(numbers_in(given, form if as_text else PLAIN), np.float64)
    return values, np.isnan(values) & given.notna().to_numpy()


def _refuse(
    column: RawColumn, values: np.ndarray, no_number: np.ndarray, form: str
) -> None:
    """Reject values that are not numbers, and numbers too large to compute with."""
    wrong = no_number | (np.abs(values) > LARGEST)
    if wrong.any():
        right = right_numbers(values[wrong][0])
        column.refuse(wrong, "percentages such as 12%" if PERCENT in form else right)


def span_of(values: np.ndarray) -> tuple[float, float]:
    """The smallest and the largest known value."""
    return float(np.nanmin(values)), float(np.nanmax(values))


def far_outside(
    plan, values: np.ndarray, say: Callable[[float], str] = "{:g}".format
) -> list[Surprise]:
    """Values beyond the training rows by more than a quarter of their whole span."""
    if plan.span is None:
        return []
    low, high = plan.span
    margin = _FAR * (high - low)
    count = int(np.sum((values < low - margin) | (values > high + margin)))
    if not count:
        return []
    return [Surprise(plan.name, "far outside", count, (f"{say(low)} to {say(high)}",))]
