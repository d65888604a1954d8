"""How a category becomes columns of 0 and 1."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ncai.preprocessing.columns.column import (
    ColumnGroup,
    Learned,
    Limits,
    RawColumn,
    Surprise,
    counted,
    group_of_levels,
)
from ncai.preprocessing.columns.missing import (
    MISSING_LEVEL,
    level_note,
    new_missing,
    with_missing_level,
)

OTHER = "(other)"  # the level that rare ones share
_SHOWN = 3


@dataclass(frozen=True)
class CategoryPlan:
    """A column of 0 and 1 for each level, so that the prior treats all levels alike.

    Two levels need only one column. Rare levels share a column. A level that the
    training rows did not have counts as rare, or as the average of the known levels if
    no level was rare.
    """

    name: str
    levels: tuple[str, ...]
    shares: tuple[float, ...]
    pooled: tuple[str, ...]
    has_missing: bool

    def __post_init__(self):
        if len(self.shares) != len(self._parts):
            raise ValueError(
                f"there are {len(self.shares)} shares of {len(self._parts)} levels."
            )

    @classmethod
    def learn(cls, column: RawColumn, form: None, limits: Limits) -> Learned:
        """The plan for a column of words, which have no `form`."""
        del form
        text = column.words
        counts = text.value_counts()
        # By frequency, then by name, so that the order of rows does not matter.
        order = sorted(counts.index, key=lambda level: (-counts[level], level))
        common = [level for level in order if counts[level] >= limits.min_rows]
        kept = tuple(common[: limits.max_levels])
        pooled = tuple(level for level in order if level not in kept)
        missing = int(text.isna().sum())
        rows = [counts[level] for level in kept]
        rows += [sum(counts[level] for level in pooled)] if pooled else []
        rows += [missing] if missing else []
        shares = tuple(float(count / len(text)) for count in rows)
        plan = cls(column.name, kept, shares, pooled, missing > 0)
        note = f"{counted(len(order), 'level')}, as columns of 0 and 1"
        if pooled:
            pooled_rows = counted(sum(counts[level] for level in pooled), "row")
            note += f"; {counted(len(pooled), 'rare level')} ({pooled_rows}) pooled"
        return Learned(plan, note + level_note(missing), text)

    @property
    def _parts(self) -> list[str]:
        parts = [*self.levels]
        parts += [OTHER] if self.pooled else []
        return parts + ([MISSING_LEVEL] if self.has_missing else [])

    def parse(self, column: RawColumn) -> pd.Series:
        """The words, None where missing."""
        return column.words

    def values(self, parsed: pd.Series) -> dict[str, np.ndarray]:
        """A column for each level, for the rare ones and for missing values."""
        index = {level: place for place, level in enumerate(self.levels)}
        if self.pooled:
            index |= dict.fromkeys(self.pooled, len(self.levels))
        places = np.array(parsed.map(index), np.float64)
        missing = parsed.isna().to_numpy()
        if self.has_missing:
            places[missing] = len(self.shares) - 1
        if self.pooled:
            places[np.isnan(places) & ~missing] = len(self.levels)
        matrix = (places[:, None] == np.arange(len(self.shares))).astype(np.float64)
        matrix[np.isnan(places)] = self.shares
        parts = self._parts
        first = 1 if len(parts) == 2 else 0
        return {
            f"{self.name}={part}": matrix[:, place]
            for place, part in list(enumerate(parts))[first:]
        }

    def surprises(self, parsed: pd.Series) -> list[Surprise]:
        """Return unknown levels, and missing values if the training rows had none."""
        missing = parsed.isna().to_numpy()
        unseen = parsed[~missing & ~parsed.isin([*self.levels, *self.pooled])]
        found = []
        if len(unseen):
            examples = tuple(sorted(pd.unique(unseen))[:_SHOWN])
            found.append(Surprise(self.name, "unseen", len(unseen), examples))
        return [*found, *new_missing(self.name, missing, self.has_missing)]

    def groups(self, outputs: dict[str, str]) -> list[ColumnGroup]:
        """All levels, with an example of each."""
        examples: dict[str, str | None] = {level: level for level in self.levels}
        if self.pooled:
            examples[OTHER] = self.pooled[0]
        examples = with_missing_level(examples, self.has_missing)
        return [group_of_levels(self, examples, outputs)]
