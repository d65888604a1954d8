"""Columns of two words that mean true and false."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from ncai.preprocessing.columns.column import (
    ColumnGroup,
    Learned,
    Limits,
    RawColumn,
    Surprise,
    group_of_levels,
)
from ncai.preprocessing.columns.missing import (
    fill_in,
    filling_note,
    learn_filling,
    new_missing,
    with_missing_level,
)

_PAIRS = (("true", "false"), ("yes", "no"), ("t", "f"), ("y", "n"))
# A table from another source may use other words for true and false.
_OTHER_PAIRS = (("1", "0"), ("1.0", "0.0"))


def boolean_pair(values: Collection[str]) -> tuple[str, str] | None:
    """Return the words for true and false, if all values belong to one such pair."""
    found = {str(value).lower() for value in values}
    return next((pair for pair in _PAIRS if found <= set(pair)), None)


@dataclass(frozen=True)
class BooleanPlan:
    """True as 1, false as 0."""

    name: str
    fill: float
    had_missing: bool
    marked: bool
    pair: tuple[str, str]

    @classmethod
    def learn(cls, column: RawColumn, form, limits: Limits) -> Learned:
        """The plan for a column whose words are the pair `form`."""
        values = _parse(column, form)
        plan = cls(column.name, *learn_filling(values, limits), form)
        note = f"{form[0]} as 1, {form[1]} as 0{filling_note(values, plan)}"
        return Learned(plan, note, values)

    def parse(self, column: RawColumn) -> np.ndarray:
        """1 and 0, NaN where missing."""
        return _parse(column, (self.pair[0], self.pair[1]))

    def values(self, parsed: np.ndarray) -> dict[str, np.ndarray]:
        """Return 1 or 0, and the column that marks missing values."""
        return fill_in(parsed, self)

    def surprises(self, parsed: np.ndarray) -> list[Surprise]:
        """Return missing values, if the training rows had none."""
        return new_missing(self.name, np.isnan(parsed), self.had_missing)

    def groups(self, outputs: dict[str, str]) -> list[ColumnGroup]:
        """Both values, and the mark of a missing value."""
        yes, no = self.pair
        examples = with_missing_level({no: no, yes: yes}, self.marked)
        return [group_of_levels(self, examples, outputs)]


def _parse(column: RawColumn, pair: tuple[str, str]) -> np.ndarray:
    """Return 1, 0 or NaN; reject any other word."""
    given = column.words.str.lower()
    values = np.full(len(given), np.nan)
    for true, false in dict.fromkeys((pair, *_PAIRS, *_OTHER_PAIRS)):
        values[(given == true).to_numpy()] = 1.0
        values[(given == false).to_numpy()] = 0.0
    wrong = np.isnan(values) & given.notna().to_numpy()
    column.refuse(wrong, f"{pair[0]} or {pair[1]}")
    return values
