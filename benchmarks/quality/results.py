"""Results on disk, and their means, standard errors and best methods."""

import fcntl
import json
import math
import os
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.quality.problems import SPLITS
from ncai.runtime.atomic_write import replacing

Key = tuple[str, str]  # a set and a method
NO_ROWS = pd.DataFrame({"split": pd.Series(dtype=int)})
METRICS = ("nll", "gap", "crps", "rmse", "coverage", "width", "seconds", "cpu_seconds")


class Store:
    """All cells: a cell has the rows of a set and a method, one for each split.

    Fresh cells are files in a working folder, OUT/cells/SET/METHOD: a CSV with the rows
    and a JSON that says how they came about (digest, settings, versions, machine). Rows
    whose digest is not that of the JSON are of an older method and are not read.
    `pack` moves them into two files that can be committed, OUT_cells.csv and
    OUT_cells.jsonl. A fresh cell takes precedence over a packed one.

    Args:
        out: the working folder, next to the pages and the packed files.
    """

    def __init__(self, out: Path):
        self.folder = Path(out) / "cells"
        self.packed_rows = self.folder.parent.with_name(f"{Path(out).name}_cells.csv")
        self.packed_about = self.packed_rows.with_suffix(".jsonl")
        self._pack: tuple[Any, dict[Key, pd.DataFrame], dict[Key, dict]]
        self._pack = (None, {}, {})

    def path(self, dataset: str, method: str, ending: str) -> Path:
        """Where a fresh file of a set and a method is."""
        return self.folder / dataset / f"{method}{ending}"

    def keys(self) -> list[Key]:
        """Sets and methods of all cells."""
        fresh = {(p.parent.name, p.stem) for p in self.folder.glob("*/*.json")}
        return sorted(fresh | set(self._packed()[1]))

    def about(self, dataset: str, method: str) -> dict[str, Any]:
        """Return the origin of the rows; empty if there are none."""
        try:
            return json.loads(self.path(dataset, method, ".json").read_text())
        except FileNotFoundError:
            return self._packed()[1].get((dataset, method), {})

    def rows(self, dataset: str, method: str) -> pd.DataFrame:
        """Return the rows that the present version of the method computed, by split."""
        digest = self.about(dataset, method).get("digest", "")
        try:
            path = self.path(dataset, method, ".csv")
            found = pd.read_csv(path, dtype={"digest": str})
        except FileNotFoundError:
            rows, about = self._packed()
            if about.get((dataset, method), {}).get("digest", "") == digest:
                return rows.get((dataset, method), NO_ROWS)
            return NO_ROWS
        return found.loc[found["digest"].fillna("") == digest].drop(columns="digest")

    def tell(self, dataset: str, method: str, **values: Any) -> None:
        """Add to the recorded origin of the rows."""
        with self._locked(dataset):
            self._write_about(dataset, method, self.about(dataset, method) | values)

    def add(self, dataset: str, method: str, row: dict[str, Any]) -> None:
        """Add the row of a split; it replaces an earlier row of this split."""
        with self._locked(dataset):
            about = self.about(dataset, method)
            before = self.rows(dataset, method)
            before = before.loc[before["split"] != row["split"]]
            table = pd.DataFrame([*before.to_dict("records"), row])
            table = table.sort_values("split").assign(digest=about.get("digest", ""))
            _write_csv(self.path(dataset, method, ".csv"), table)
            self._write_about(dataset, method, about)

    def clear(self, dataset: str, method: str) -> None:
        """Clear a cell: an empty fresh cell hides the packed one."""
        with self._locked(dataset):
            self._write_about(dataset, method, {})
            _write_csv(self.path(dataset, method, ".csv"), NO_ROWS.assign(digest=""))

    def pack(self) -> int:
        """Move the fresh cells that have rows into the pack; return their number.

        Both packed files are complete before a fresh one is removed, and one that
        another process has changed meanwhile stays for the next time.
        """
        with self._locked(""):
            fresh = sorted(self.folder.glob("*/*.csv"))
            before = {path: _stamps(path) for path in fresh}
            packed = self._packed()
            rows, about = dict(packed[0]), dict(packed[1])
            for path in fresh:
                key = path.parent.name, path.stem
                with self._locked(key[0]):
                    found = self.rows(*key)
                    if len(found):
                        rows[key], about[key] = found, self.about(*key)
                    else:
                        del before[path]
            if before:
                self._write_pack(rows, about)
            for path, stamp in before.items():
                with self._locked(path.parent.name):
                    if _stamps(path) == stamp:
                        path.unlink()
                        path.with_suffix(".json").unlink(missing_ok=True)
            return len(before)

    def mark(self, mark: Callable[[Key, dict], dict[str, str] | None]) -> int:
        """Mark each packed cell as stale or not; return how many are stale."""
        with self._locked(""):
            rows, about = self._packed()
            marked = {}
            for key, known in about.items():
                plain = {k: v for k, v in known.items() if k != "stale"}
                stale = mark(key, known)
                marked[key] = plain if stale is None else plain | {"stale": stale}
            if marked:
                self._write_pack(rows, marked)
            return sum("stale" in known for known in marked.values())

    def _packed(self) -> tuple[dict[Key, pd.DataFrame], dict[Key, dict]]:
        """Rows and origins; read again when another process has replaced them."""
        if not self.packed_about.exists():
            return {}, {}
        stamp = _stamp(self.packed_about), _stamp(self.packed_rows)
        if self._pack[0] != stamp:
            table = pd.read_csv(self.packed_rows)
            rows: dict[Any, pd.DataFrame] = {
                key: part.drop(columns=["dataset", "method"])
                for key, part in table.groupby(["dataset", "method"])
            }
            about = {}
            for line in self.packed_about.read_text().splitlines():
                known = json.loads(line)
                about[known.pop("dataset"), known.pop("method")] = known
            self._pack = stamp, rows, about
        return self._pack[1:]

    def _write_pack(self, rows: dict[Key, pd.DataFrame], about: dict[Key, dict]):
        keys = sorted(about)
        tables = [
            rows[dataset, method].assign(dataset=dataset, method=method)
            for dataset, method in keys
        ]
        columns = list(dict.fromkeys(name for t in tables for name in t.columns))
        first = ["dataset", "method", "split"]
        columns = [*first, *(name for name in columns if name not in first)]
        _write_csv(self.packed_rows, pd.concat(tables).reindex(columns=columns))
        lines = [
            json.dumps({"dataset": key[0], "method": key[1]} | about[key])
            for key in keys
        ]
        with replacing(self.packed_about) as temporary:
            Path(temporary).write_text("\n".join(lines) + "\n")

    def _write_about(self, dataset: str, method: str, known: dict[str, Any]) -> None:
        with replacing(self.path(dataset, method, ".json")) as temporary:
            Path(temporary).write_text(json.dumps(known, indent=1) + "\n")

    @contextmanager
    def _locked(self, dataset: str):
        """Lock a folder, as two runs may add to the same cell; this leaves no file."""
        (self.folder / dataset).mkdir(parents=True, exist_ok=True)
        folder = os.open(self.folder / dataset, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_ino


def _stamps(path: Path) -> tuple:
    """Of a fresh cell: both of its files."""
    return _stamp(path), _stamp(path.with_suffix(".json"))


def _write_csv(path: Path, table: pd.DataFrame) -> None:
    with replacing(path) as temporary:
        table.to_csv(temporary, index=False, float_format="%.6g")


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
        """Whether the difference is at most one standard error."""
        return self.mean <= (0.0 if math.isnan(self.error) else self.error)


class Results:
    """All rows of the first splits."""

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
