"""What the results say of a claim, and the comparisons that claims are made of."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

HOLDS, FAILS, MISSING = "holds", "does not hold", "not yet run"
SO_FAR = "so far"


@dataclass(frozen=True)
class Finding:
    """A verdict with the numbers behind it."""

    verdict: str
    numbers: str

    @classmethod
    def of(cls, holds: bool, numbers: str, complete: bool = True) -> "Finding":
        """From a truth value; `complete` tells whether all that it needs has run."""
        verdict = HOLDS if holds else FAILS
        return cls(verdict if complete else f"{verdict} {SO_FAR}", numbers)


NOT_YET = Finding(MISSING, "")


class Difference(NamedTuple):
    """Mean of paired differences, its standard error, and their number."""

    mean: float
    error: float
    count: int

    def __str__(self) -> str:
        if math.isnan(self.error):
            return f"{self.mean:+.3f}"
        return f"{self.mean:+.3f} ± {self.error:.3f}"


def paired(a: Mapping, b: Mapping) -> Difference | None:
    """Of a less b over the keys (splits, draws) that both have; None without any."""
    shared = sorted(set(a) & set(b))
    if not shared:
        return None
    gaps = np.array([a[key] - b[key] for key in shared], float)
    error = gaps.std(ddof=1) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
    return Difference(float(gaps.mean()), float(error), len(gaps))
