"""Columns of the matrix that belong together, such as the levels of a category.

Changing one of them alone would make a row that cannot exist, such as a day that is
nowhere in the year.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ncai.preprocessing.columns.column import RawColumn

# Lengths of the cycles of a date, in days.
CYCLES = {"day": 1.0, "week": 7.0, "year": 365.2425}


@dataclass(frozen=True)
class ColumnGroup:
    """Columns of the matrix that move together.

    Attributes:
        name: what they describe.
        columns: their names in the matrix. Of a number the first is the number itself.
        source: the column of the table that they are made of.
        levels: of a category, what each level is in `columns`; the most frequent first.
        cycle: of a place in a cycle (sine, then cosine), one of `CYCLES`.
        origin: of a date, the day that its number is 0 at, in days since 1970.
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
    """The group of a column with levels, each given by a value that belongs to it.

    Args:
        plan: makes the columns.
        examples: for each level, a value of the table.
        outputs: names in the matrix of those columns that it keeps.
    """
    column = RawColumn(pd.Series(list(examples.values()), dtype=object))
    values = plan.values(plan.parse(column))
    rows = np.stack([values[part] for part in outputs], axis=1)
    levels = {}
    for level, row in zip(examples, rows.tolist(), strict=True):
        # Two levels may be one in the matrix, where a column of it was dropped.
        if tuple(row) not in levels.values():
            levels[level] = tuple(row)
    return ColumnGroup(plan.name, tuple(outputs.values()), plan.name, levels)
