"""A column as the table has it, and the refusal of one that cannot be used."""

from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd


class ColumnError(ValueError):
    """A column that cannot be used, in one sentence."""


class RawColumn:
    """A column of a table before anything is done to it. Its text is made once."""

    def __init__(self, values: pd.Series):
        self.values = values
        self.name = str(values.name)

    @property
    def is_text(self) -> bool:
        """Whether it is stored neither as numbers nor as durations."""
        types = pd.api.types
        is_number = types.is_numeric_dtype(self.values)
        return not (is_number or types.is_timedelta64_dtype(self.values))

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
        """The texts that are there."""
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
            f"column {self.values.name!r} holds {str(self.values.iloc[place])!r} in "
            f"row {row}; it must hold {right} only."
        )
