"""Columns of numbers, stored as numbers or written as text."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ncai.preprocessing.columns.column import RawColumn
from ncai.preprocessing.columns.groups import ColumnGroup
from ncai.preprocessing.columns.missing import (
    fill_in,
    filling_note,
    learn_filling,
    new_missing,
)
from ncai.preprocessing.columns.notes import Learned, Limits, Surprise, counted
from ncai.preprocessing.columns.number_text import (
    FORM_WORDS,
    LARGEST,
    PERCENT,
    PLAIN,
    numbers_in,
    right_numbers,
)

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

    @classmethod
    def learn(cls, column: RawColumn, form: str, limits: Limits) -> Learned:
        """The plan for a column whose numbers are written in this form."""
        values, no_number = _read(column, form)
        junk = no_number & column.is_text  # marks of missing values, such as "?"
        _refuse(column, values, no_number & ~junk, form)
        filling = learn_filling(values, limits)
        plan = cls(column.name, *filling, bool(junk.any()), span_of(values), form)
        note = FORM_WORDS[form]
        if junk.any():
            example = str(column.words[junk].iloc[0])
            others = f"{counted(int(junk.sum()), 'value')} such as {example!r}"
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
        """Missing values where there were none, and values far from all there were."""
        missing = new_missing(self.name, np.isnan(parsed), self.had_missing)
        return [*missing, *far_outside(self, parsed)]

    def groups(self, outputs: dict[str, str]) -> list[ColumnGroup]:
        """The number with its mark."""
        return [ColumnGroup(self.name, tuple(outputs.values()), self.name)]


def _read(column: RawColumn, form: str) -> tuple[np.ndarray, np.ndarray]:
    """The numbers (NaN where there is none), and which given values are not numbers."""
    given = column.values
    if pd.api.types.is_timedelta64_dtype(given):
        given = given.dt.total_seconds()
    # What is stored as numbers is read as it is, but 0.12 for 12 % would go unnoticed.
    as_text = column.is_text or PERCENT in form
    if as_text:
        given = column.words
    values = np.asarray(numbers_in(given, form if as_text else PLAIN), np.float64)
    return values, np.isnan(values) & given.notna().to_numpy()


def _refuse(
    column: RawColumn, values: np.ndarray, no_number: np.ndarray, form: str
) -> None:
    """Refuse what is no number, and numbers too large to compute with."""
    wrong = no_number | (np.abs(values) > LARGEST)
    if wrong.any():
        right = right_numbers(values[wrong][0])
        column.refuse(wrong, "percentages such as 12%" if PERCENT in form else right)


def span_of(values: np.ndarray) -> tuple[float, float]:
    """The smallest and the largest value that is there."""
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
