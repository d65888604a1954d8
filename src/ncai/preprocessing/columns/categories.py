"""How a category becomes columns of 0 and 1."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ncai.preprocessing.columns.groups import ColumnGroup, group_of_levels
from ncai.preprocessing.columns.kinds import words
from ncai.preprocessing.columns.notes import Limits, Surprise, counted

OTHER, MISSING = "(other)", "(missing)"
_SHOWN = 3


@dataclass(frozen=True)
class CategoryPlan:
    """A column of 0 and 1 for each level: none is singled out, as the prior is alike.

    Only of two levels one is enough. Rare levels share a column. A level never seen
    counts as a rare one, or where there is none as the average of the known ones.
    """

    name: str
    levels: tuple[str, ...]
    shares: tuple[float, ...]
    pooled: tuple[str, ...]
    has_missing: bool

    @classmethod
    def learn(cls, column: pd.Series, limits: Limits) -> tuple["CategoryPlan", str]:
        """The plan, and a sentence on it."""
        text = words(column)
        counts = text.value_counts()
        # By frequency, then by name: the same for the same rows in any order.
        order = sorted(counts.index, key=lambda level: (-counts[level], level))
        common = [level for level in order if counts[level] >= limits.min_rows]
        kept = tuple(common[: limits.max_levels])
        pooled = tuple(level for level in order if level not in kept)
        missing = int(text.isna().sum())
        rows = [counts[level] for level in kept]
        rows += [sum(counts[level] for level in pooled)] if pooled else []
        rows += [missing] if missing else []
        shares = tuple(float(count / len(text)) for count in rows)
        plan = cls(str(column.name), kept, shares, pooled, missing > 0)
        note = f"{counted(len(order), 'level')}, as columns of 0 and 1"
        if pooled:
            pooled_rows = counted(sum(counts[level] for level in pooled), "row")
            note += f"; {counted(len(pooled), 'rare level')} ({pooled_rows}) pooled"
        if missing:
            whose = "its" if missing == 1 else "their"
            note += f"; {counted(missing, 'missing value')} as a level of {whose} own"
        return plan, note

    @property
    def _parts(self) -> list[str]:
        parts = [*self.levels]
        parts += [OTHER] if self.pooled else []
        return parts + ([MISSING] if self.has_missing else [])

    def values(self, column: pd.Series) -> dict[str, np.ndarray]:
        """A column for each level, for the rare ones and for missing values."""
        text = words(column)
        index = {level: place for place, level in enumerate(self.levels)}
        if self.pooled:
            index |= dict.fromkeys(self.pooled, len(self.levels))
        places = np.array(text.map(index), np.float64)
        missing = text.isna().to_numpy()
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

    def surprises(self, column: pd.Series) -> list[Surprise]:
        """Levels never seen, and missing values where there were none."""
        text = words(column)
        unseen = text[text.notna() & ~text.isin([*self.levels, *self.pooled])]
        found = []
        if len(unseen):
            examples = tuple(sorted(unseen.unique())[:_SHOWN])
            found.append(Surprise(self.name, "unseen", len(unseen), examples))
        missing = int(text.isna().sum())
        if missing and not self.has_missing:
            found.append(Surprise(self.name, "missing", missing))
        return found

    def groups(self, outputs: dict[str, str]) -> list[ColumnGroup]:
        """All levels, with an example of each."""
        examples: dict[str, str | None] = {level: level for level in self.levels}
        if self.pooled:
            examples[OTHER] = self.pooled[0]
        if self.has_missing:
            examples[MISSING] = None
        return [group_of_levels(self, examples, outputs)]
