"""The unit of work of a study (a cell), the sizes of studies, and what a study is."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

READABLE = ("dataset", "method", "phase", "split", "draw", "start", "part")


@dataclass(frozen=True)
class Cell:
    """One independent computation, completely defined by its settings.

    Args:
        study: name of the study it belongs to.
        settings: names and plain values (numbers, strings, tuples of them), sorted.
    """

    study: str
    settings: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, study: str, **settings) -> "Cell":
        """Create a cell from keyword arguments."""
        return cls(study, tuple(sorted(settings.items())))

    def __getitem__(self, name: str) -> Any:
        return dict(self.settings)[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a setting, or the default if the cell has no setting of this name."""
        return dict(self.settings).get(name, default)

    @property
    def id(self) -> str:
        """The readable name of the cell's file, with a hash of all settings."""
        shown = [str(v) for k, v in self.settings if k in READABLE]
        text = json.dumps([self.study, self.settings], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        return "-".join([*shown, digest])

    @property
    def seed(self) -> int:
        """The seed, which depends only on the settings, not on the order of work."""
        text = json.dumps([self.study, self.settings], sort_keys=True)
        return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) % 2**31


@dataclass(frozen=True)
class Outcome:
    """The result of a cell: a flat row of plain values, and arrays for figures."""

    row: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Scale:
    """Sizes of every study.

    Args:
        name: its name on the command line.
        max_steps: number of training steps, without the warm start.
        warm_start_steps: steps of NCAI's warm start.
        restarts: number of restarts of every fit.
        splits: number of splits of a data set, with the one that selects
            hyper-parameters.
        draws: number of draws of a synthetic set in studies that repeat draws.
        datasets: the data sets of the benchmark; None for all.
        ground_truth_sets: the data sets with a known truth; None for all.
    """

    name: str
    max_steps: int
    warm_start_steps: int
    restarts: int
    splits: int
    draws: int
    datasets: tuple[str, ...] | None = None
    ground_truth_sets: tuple[str, ...] | None = None


SCALES = {
    "smoke": Scale("smoke", 60, 30, 2, 2, 1, ("goldberg",), ("bimodal",)),
    "small": Scale("small", 3_000, 1_000, 3, 3, 2),
    "paper": Scale("paper", 30_000, 5_000, 10, 6, 5),
}


@runtime_checkable
class Study(Protocol):
    """An experiment of the paper."""

    @property
    def name(self) -> str:
        """What the command line calls it."""
        ...

    @property
    def title(self) -> str:
        """What it is, with the paper's labels."""
        ...

    def cells(self, scale: Scale, store: Any) -> list[Cell]:
        """All cells known so far; more may follow from what these find.

        Some may be cells of another study, whose outcome this one builds on.
        """
        ...

    def run(self, cell: Cell) -> Outcome:
        """Compute one cell; the result may depend only on its settings."""
        ...


@runtime_checkable
class DerivedStudy(Protocol):
    """An experiment whose cells are computed from outcomes of another study.

    If only its own code changes, the other study need not run again. Its `cells` has a
    cell only once the outcome that it needs is stored.
    """

    @property
    def name(self) -> str:
        """What the command line calls it."""
        ...

    @property
    def title(self) -> str:
        """What it is, with the paper's labels."""
        ...

    @property
    def fits(self) -> Study:
        """The study that it is computed from."""
        ...

    def cells(self, scale: Scale, store: Any) -> list[Cell]:
        """All cells known so far, those of the other study included."""
        ...

    def source(self, cell: Cell) -> Cell:
        """The cell of the other study that this one needs."""
        ...

    def derive(self, cell: Cell, fit: Outcome) -> Outcome:
        """Compute one cell from the outcome of its source."""
        ...


AnyStudy = Study | DerivedStudy
