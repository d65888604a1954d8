"""From the rows of all splits to means, standard errors, and who is best."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.quality.problems import SPLITS
from benchmarks.quality.store import Store

METRICS = ("nll", "gap", "crps", "rmse", "coverage", "width", "seconds", "cpu_seconds")


@dataclass(frozen=True)
class Entry:
    """One metric of a method on a set.

    Args:
        mean: over splits.
        error: its standard error; NaN for one split.
        count: how many splits.
        complete: whether none of those asked for is missing.
    """

    mean: float
    error: float
    count: int
    complete: bool

    def __str__(self) -> str:
        error = "" if math.isnan(self.error) else f" ± {self.error:.3f}"
        return f"{self.mean:.3f}{error}"


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences over splits, with its standard error."""

    mean: float
    error: float

    @property
    def is_within_error(self) -> bool:
        """Whether what is not best is no more than one standard error off."""
        return self.mean <= (0.0 if math.isnan(self.error) else self.error)


class Results:
    """All rows there are, of the first so many splits."""

    def __init__(self, rows: pd.DataFrame, splits: int):
        self.rows = rows
        self.splits = splits
        self._cells: dict[Any, pd.DataFrame] = dict(
            iter(rows.set_index("split").groupby(["dataset", "method"]))
        )

    @classmethod
    def load(
        cls, store: Store, sets: Sequence[str], methods: Sequence[str], splits: int
    ) -> "Results":
        """From the folder of cells."""
        found = [
            store.rows(dataset, method).assign(dataset=dataset, method=method)
            for dataset in sets
            for method in methods
        ]
        found = [rows for rows in found if len(rows)]
        if not found:
            raise ValueError(f"there are no results in {store.folder} to make a table.")
        rows = pd.concat(found, ignore_index=True)
        return cls(rows.loc[rows["split"] < splits], splits)

    def methods(self) -> list[str]:
        """Those with results, in the order of loading."""
        return list(dict.fromkeys(self.rows["method"]))

    def sets(self) -> list[str]:
        """Those with results, in the order of loading."""
        return list(dict.fromkeys(self.rows["dataset"]))

    def has(self, method: str, sets: Sequence[str]) -> bool:
        """Whether a method has results on any of these sets."""
        return any((dataset, method) in self._cells for dataset in sets)

    def values(self, dataset: str, method: str, metric: str) -> pd.Series:
        """By split."""
        cell = self._cells.get((dataset, method))
        return pd.Series(cell[metric] if cell is not None else [], dtype=float)

    def entry(self, dataset: str, method: str, metric: str) -> Entry | None:
        """None where there is no row."""
        values = self.values(dataset, method, metric)
        if not len(values):
            return None
        complete = len(values) == min(self.splits, SPLITS[dataset])
        values = values.dropna()  # a split without a time; scores are never NaN
        mean, error = _mean_and_error(values.to_numpy())
        return Entry(mean, error, len(values), complete)

    def best(self, dataset: str, metric: str, among: Sequence[str]) -> str | None:
        """The method of the smallest mean, of those with all splits."""
        entries = {name: self.entry(dataset, name, metric) for name in among}
        means = {
            name: entry.mean
            for name, entry in entries.items()
            if entry is not None and entry.complete and math.isfinite(entry.mean)
        }
        return min(means, key=means.__getitem__) if means else None

    def difference(
        self, dataset: str, metric: str, method: str, other: str
    ) -> Difference:
        """Of method and other, over the splits that both have."""
        apart = self.values(dataset, method, metric) - self.values(
            dataset, other, metric
        )
        return Difference(*_mean_and_error(apart.dropna().to_numpy()))

    def leaders(self, dataset: str, metric: str, among: Sequence[str]) -> set[str]:
        """The best, and those within one standard error of the paired differences."""
        best = self.best(dataset, metric, among)
        if best is None:
            return set()
        complete = [
            name
            for name in among
            if (entry := self.entry(dataset, name, metric)) is not None
            and entry.complete
        ]
        return {
            name
            for name in complete
            if self.difference(dataset, metric, name, best).is_within_error
        }

    def tidy(self) -> pd.DataFrame:
        """One row for each set, method and metric."""
        methods = self.methods()
        out = []
        for dataset in self.sets():
            for metric in METRICS:
                leaders: set[str] = set()
                if metric in ("nll", "gap", "crps", "rmse"):
                    leaders = self.leaders(dataset, metric, methods)
                for method in methods:
                    entry = self.entry(dataset, method, metric)
                    if entry is None or math.isnan(entry.mean):
                        continue
                    out.append(
                        {
                            "set": dataset,
                            "method": method,
                            "metric": metric,
                            "mean": entry.mean,
                            "standard_error": entry.error,
                            "splits": entry.count,
                            "best_or_within_one_error": method in leaders,
                        }
                    )
        return pd.DataFrame(out)


def _mean_and_error(values: np.ndarray) -> tuple[float, float]:
    if not len(values):
        return math.nan, math.nan
    mean = float(np.mean(values))
    if len(values) < 2 or not np.isfinite(values).all():
        return mean, math.nan
    return mean, float(np.std(values, ddof=1) / math.sqrt(len(values)))
