"""A raw column of a table, and what is learnt from its training rows.

This file also has the sentences on columns, the limits on levels, and groups of columns
of the matrix that belong together, such as the levels of a category. Changing one
column of a group alone would make an impossible row, such as a day without a place in
the year.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd


class ColumnError(ValueError):
    """A column cannot be used; the message is one sentence."""


class RawColumn:
    """A column of a table before processing; its text form is computed once.

    Attributes:
        values: the column.
        name: its name.
        is_text: whether it is stored neither as numbers nor as durations.
    """

    def __init__(self, values: pd.Series):
        self.values = values
        self.name = str(values.name)
        types = pd.api.types
        is_number = types.is_numeric_dtype(values)
        self.is_text = not (is_number or types.is_timedelta64_dtype(values))

    @property
    def is_stored_date(self) -> bool:
        """Whether it is stored as dates."""
        return pd.api.types.is_datetime64_any_dtype(self.values)

    @cached_property
    def words(self) -> Any:
        """The values as text without outer blanks; None where there is no value."""
        text = self.values.astype(object).where(self.values.notna(), None)
        text = text.map(lambda value: value if value is None else str(value).strip())
        return text.where(~text.isin(("", None)), None)

    @cached_property
    def known_words(self) -> Any:
        """The values as text, without missing ones."""
        return self.words[~self.words.isna()]

    def refuse(self, wrong: np.ndarray, right: str) -> None:
        """Raise an error if a value is wrong, and name the first and its row.

        Args:
            wrong: for each row, whether its value is wrong.
            right: what the column must hold.
        """
        if not wrong.any():
            return
        place = int(np.flatnonzero(wrong)[0])
        row = self.values.index[place]
        row = int(row) + 1 if isinstance(row, int | np.integer) else row
        raise ColumnError(
            f"column {self.values.name!r} holds {shown(self.values.iloc[place])} in "
            f"row {row}; it must hold {right} only."
        )


class Surprise(NamedTuple):
    """Values of a column that the training rows did not have."""

    column: str
    what: str
    count: int
    examples: tuple[str, ...] = ()


class Learned(NamedTuple):
    """The plan that was learnt from the training rows of a column.

    Attributes:
        plan: turns later rows into numbers.
        note: a few words on what was done.
        parsed: the training rows, read; what `plan.values` takes.
    """

    plan: Any
    note: str
    parsed: Any


class Limits(NamedTuple):
    """Limits on the number of levels, and on the rows that a level or mark needs."""

    max_levels: int
    min_rows: int


def surprise_sentences(surprises: Iterable[Surprise]) -> list[str]:
    """Return a sentence for each column and kind of surprise in a whole table."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    examples: dict[tuple[str, str], set[str]] = defaultdict(set)
    for found in surprises:
        counts[found.column, found.what] += found.count
        examples[found.column, found.what].update(found.examples)
    sentences = []
    for (column, what), count in counts.items():
        name = quoted(column)
        rows = f"{count} row{'s' if count != 1 else ''}"
        if what == "missing":
            sentences.append(
                f"column {name} has no value in {rows}, although none was missing in "
                "training; its typical training value is used instead."
            )
        elif what == "far outside":
            (span,) = examples[column, what]
            sentences.append(
                f"column {name} lies far outside its training values ({span}) in "
                f"{rows}: predictions there are guesses."
            )
        else:
            levels = ", ".join(map(shown, sorted(examples[column, what])[:3]))
            sentences.append(
                f"column {name} has levels not seen in training in {rows} (such as "
                f"{levels}); they are treated as a rare or an average level."
            )
    return sentences


_MOST_SHOWN = 60  # signs of a value: a cell may hold a whole document


def shown(value: object) -> str:
    """Quote a value of the table for a message, cut if it is long."""
    text = str(value)
    cut = len(text) > _MOST_SHOWN
    return repr(f"{text[: _MOST_SHOWN - 3]}..." if cut else text)


def quoted(name: object) -> str:
    """Quote a name that the user gave, without escapes if it is printable."""
    plain = isinstance(name, str) and name.isprintable()
    return f"'{name}'" if plain else repr(name)


def counted(number: int | np.integer, noun: str) -> str:
    """Return a number with its noun in the singular or plural."""
    return f"{number} {noun}{'s' if number != 1 else ''}"


# Lengths of the cycles of a date, in days.
CYCLES = {"day": 1.0, "week": 7.0, "year": 365.2425}


@dataclass(frozen=True)
class ColumnGroup:
    """Columns of the matrix that move together.

    Attributes:
        name: what the columns describe.
        columns: their names in the matrix. For a number, the first is the number
            itself.
        source: the column of the table that they are made of.
        levels: for a category, the values in `columns` of each level; the most frequent
            level comes first.
        cycle: for a position in a cycle (sine, then cosine), one of `CYCLES`.
        origin: for a date, the day on which its number is 0, in days since 1970.
    """

    name: str
    columns: tuple[str, ...]
    source: str
    levels: dict[str, tuple[float, ...]] = field(default_factory=dict)
    cycle: str | None = None
    origin: float | None = None


def group_of_levels(
    plan, examples: Mapping[str, str | None], outputs: Mapping[str, str]
) -> ColumnGroup:
    """Return the group of a column with levels, from an example of each level.

    Args:
        plan: makes the columns.
        examples: for each level, a value of the table.
        outputs: names in the matrix of the columns that are kept.
    """
    column = RawColumn(pd.Series(list(examples.values()), dtype=object))
    values = plan.values(plan.parse(column))
    rows = np.stack([values[part] for part in outputs], axis=1)
    levels = {}
    for level, row in zip(examples, rows.tolist(), strict=True):
        # Two levels may be equal in the matrix, if a column was dropped from it.
        if tuple(row) not in levels.values():
            levels[level] = tuple(row)
    return ColumnGroup(plan.name, tuple(outputs.values()), plan.name, levels)
