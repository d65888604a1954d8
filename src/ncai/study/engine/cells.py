"""A cell: the unit of work of a study, and what it leaves behind."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Cell:
    """One independent computation, told whole by its settings.

    Args:
        study: name of the study it belongs to.
        settings: names and plain values (numbers, strings, tuples of them), sorted.
    """

    study: str
    settings: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, study: str, **settings) -> "Cell":
        """From keyword arguments."""
        return cls(study, tuple(sorted(settings.items())))

    def __getitem__(self, name: str) -> Any:
        return dict(self.settings)[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A setting, or the default where there is none of this name."""
        return dict(self.settings).get(name, default)

    @property
    def id(self) -> str:
        """Readable, with a hash of all settings: the name of its file."""
        shown = [str(v) for k, v in self.settings if k in READABLE]
        text = json.dumps([self.study, self.settings], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        return "-".join([*shown, digest])

    @property
    def seed(self) -> int:
        """From the settings alone, so the order of work changes nothing."""
        text = json.dumps([self.study, self.settings], sort_keys=True)
        return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) % 2**31


READABLE = ("dataset", "method", "phase", "split", "draw", "start", "part")


@dataclass(frozen=True)
class Outcome:
    """What a cell found: a flat row of plain values, and arrays for pictures."""

    row: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]
