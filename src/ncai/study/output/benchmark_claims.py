"""The claims that the benchmark decides. All differences are paired over splits."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ncai.study.experiments.problems import DATASETS, REAL, SYNTHETIC, expected_oracle
from ncai.study.output.tables import SELECTED, Numbers

HOLDS, FAILS, UNCLEAR = "holds", "does not hold", "cannot tell"
MISSING, SO_FAR = "not yet run", "so far"
ERRORS = 2.0  # a difference is clear if it exceeds so many standard errors


@dataclass(frozen=True)
class Finding:
    """A verdict with the numbers behind it."""

    verdict: str
    numbers: str

    @classmethod
    def of(cls, holds: bool, numbers: str, complete: bool = True) -> "Finding":
        """Create a finding; `complete`: whether all cells that it needs have run."""
        return cls.with_verdict(HOLDS if holds else FAILS, numbers, complete)

    @classmethod
    def with_verdict(cls, verdict: str, numbers: str, complete: bool) -> "Finding":
        """Create a finding from a verdict, preliminary until all cells have run."""
        return cls(verdict if complete else f"{verdict} {SO_FAR}", numbers)


NOT_YET = Finding(MISSING, "")


class Difference(NamedTuple):
    """The mean of paired differences, its standard error, and their number."""

    mean: float
    error: float
    count: int

    @property
    def is_positive(self) -> str:
        """Whether the true difference is above 0, at two standard errors."""
        if not abs(self.mean) > ERRORS * self.error:  # also for an unknown error
            return UNCLEAR
        return HOLDS if self.mean > 0 else FAILS

    def __str__(self) -> str:
        if math.isnan(self.error):
            return f"{self.mean:+.3f}"
        return f"{self.mean:+.3f} ± {self.error:.3f}"


def paired(a: Mapping, b: Mapping) -> Difference | None:
    """Return a minus b over the keys (splits, draws) that both have; None if none."""
    shared = sorted(set(a) & set(b))
    if not shared:
        return None
    gaps = np.array([a[key] - b[key] for key in shared], float)
    error = gaps.std(ddof=1) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
    return Difference(float(gaps.mean()), float(error), len(gaps))


HZ_FACTOR = 10.0
LEAST_REAL_SETS = 4
WITHIN = 0.1  # nats from the published test log-likelihood
ALIKE = 0.05  # nats; a smaller difference counts as none
NEAR_95 = 5.0  # percentage points
LOW_COVERAGE = (60.0, 80.0)
ENERGY_COVERAGE = (75.0, 85.0)
SYMMETRIC = ("depeweg", "goldberg", "yuan", "williams")


def _difference(
    numbers: Numbers, dataset: str, metric: str, a: str, b: str
) -> Difference | None:
    return paired(
        numbers.values(dataset, a, metric), numbers.values(dataset, b, metric)
    )


def _by_set(numbers: Numbers, datasets, metric: str, a: str, b: str):
    found = {d: _difference(numbers, d, metric, a, b) for d in datasets}
    return {d: gap for d, gap in found.items() if gap is not None}


def _listed(found: dict) -> str:
    return "; ".join(f"{name} {value}" for name, value in found.items())


def better_than_mfvi(dataset: str):
    """NCAI's test log-likelihood above MFVI's on one set.

    The verdict is that of the method which validation selected, as in the paper; the
    numbers also show NCAI0 and NCAI, whichever was selected.
    """

    def claim(numbers: Numbers) -> Finding:
        gaps = {
            method: _difference(numbers, dataset, "avg_ll_test", method, "mfvi")
            for method in (SELECTED, "ncai0", "ncai")
        }
        selected = gaps[SELECTED]
        if selected is None:
            return NOT_YET
        which = numbers.choice.get(dataset, SELECTED)
        labels = {SELECTED: f"selected ({which})", "ncai0": "NCAI0", "ncai": "NCAI"}
        shown = _listed({labels[m]: gap for m, gap in gaps.items() if gap is not None})
        return Finding(selected.is_positive, f"{shown}; splits: {selected.count}")

    return claim


def better_on_real_sets(numbers: Numbers) -> Finding:
    """NCAI's test log-likelihood above MFVI's on at least four of six real sets."""
    gaps = _by_set(numbers, REAL, "avg_ll_test", SELECTED, "mfvi")
    return _on_enough(gaps, len(REAL), LEAST_REAL_SETS)


def _on_enough(gaps: dict[str, Difference], sets: int, least: int) -> Finding:
    """Whether differences are positive on at least so many of the sets."""
    if not gaps:
        return NOT_YET
    verdicts = [gap.is_positive for gap in gaps.values()]
    counts = {v: verdicts.count(v) for v in (HOLDS, UNCLEAR, FAILS)}
    verdict = UNCLEAR
    if counts[HOLDS] >= least:
        verdict = HOLDS
    elif counts[FAILS] > sets - least:
        verdict = FAILS
    told = ", ".join(f"{verdict} on {count}" for verdict, count in counts.items())
    complete = len(gaps) == sets
    return Finding.with_verdict(verdict, f"{told}: {_listed(gaps)}", complete)


def hz_far_lower(numbers: Numbers) -> Finding:
    """HZ of MFVI at least ten times that of NCAI, whose penalties are on."""
    factors = {}
    for dataset in DATASETS:
        ours, other = (
            numbers.entry(dataset, method, "hz_mu_z") for method in ("ncai", "mfvi")
        )
        if ours.count and other.count:
            factors[dataset] = other.mean / ours.mean
    if not factors:
        return NOT_YET
    enough = sum(factor >= HZ_FACTOR for factor in factors.values())
    shown = {name: f"{factor:.3g}x" for name, factor in factors.items()}
    return Finding.of(
        enough == len(factors),
        f"{enough} of {len(factors)} sets: {_listed(shown)}",
        len(factors) == len(DATASETS),
    )


def mi_lower_on_most(numbers: Numbers) -> Finding:
    """Mutual information of x and the means lower than MFVI's on most sets."""
    gaps = _by_set(numbers, DATASETS, "mi_x_mu_z", "mfvi", SELECTED)
    return _on_enough(gaps, len(DATASETS), len(DATASETS) // 2 + 1)


def covers_where_bnn_does_not(numbers: Numbers) -> Finding:
    """Coverage of NCAI near 95 % on the sets where BNN's is 60 to 80 %."""
    shown, near, seen = {}, 0, 0
    for dataset in DATASETS:
        bnn, ncai = (
            numbers.entry(dataset, method, "picp95_test_percent")
            for method in ("bnn", SELECTED)
        )
        if not (bnn.count and ncai.count):
            continue
        seen += 1
        if LOW_COVERAGE[0] <= bnn.mean <= LOW_COVERAGE[1]:
            shown[dataset] = f"{ncai.mean:.1f} % (BNN {bnn.mean:.1f} %)"
            near += abs(ncai.mean - 95) <= NEAR_95
    if not seen:
        return NOT_YET
    complete = seen == len(DATASETS)
    if not shown:
        said = f"BNN covers 60 to 80 % on none of {seen} sets"
        return Finding.of(False, said, complete)
    return Finding.of(
        near == len(shown),
        f"{near} of {len(shown)} such sets: {_listed(shown)}",
        complete,
    )


def alike_where_symmetric(numbers: Numbers) -> Finding:
    """NCAI and NCAI0 alike where the noise is symmetric."""
    gaps = _by_set(numbers, SYMMETRIC, "avg_ll_test", "ncai", "ncai0")
    if not gaps:
        return NOT_YET
    alike = all(
        abs(g.mean) <= max(ALIKE, 0 if g.error != g.error else 2 * g.error)
        for g in gaps.values()
    )
    complete = len(gaps) == len(SYMMETRIC)
    return Finding.of(alike, f"NCAI less NCAI0: {_listed(gaps)}", complete)


def ahead_where_skewed(numbers: Numbers) -> Finding:
    """NCAI above NCAI0 where the noise is skewed."""
    gap = _difference(numbers, "heavy_tail", "avg_ll_test", "ncai", "ncai0")
    if gap is None:
        return NOT_YET
    return Finding(gap.is_positive, f"NCAI less NCAI0: {gap} (splits: {gap.count})")


def energy(numbers: Numbers) -> Finding:
    """On Energy BNN has the best log-likelihood but covers only about 80 %."""
    levels = {
        method: numbers.entry("energy", method, "avg_ll_test")
        for method in ("bnn", "mfvi", SELECTED)
    }
    coverage = numbers.entry("energy", "bnn", "picp95_test_percent")
    if not all(entry.count for entry in levels.values()):
        return NOT_YET
    wins = levels["bnn"].mean > max(levels["mfvi"].mean, levels[SELECTED].mean)
    covers = ENERGY_COVERAGE[0] <= coverage.mean <= ENERGY_COVERAGE[1]
    listed = _listed({m: f"{e.mean:.3f}" for m, e in levels.items()})
    return Finding.of(
        wins and covers, f"test LL: {listed}; BNN covers {coverage.mean:.1f} %"
    )


def near_published(numbers: Numbers) -> Finding:
    """Test log-likelihood within 0.1 nats of the published, or better, on each set.

    On synthetic sets, gaps to the oracle are compared, because the draws differ.
    """
    shown, good, notes = {}, 0, []
    for dataset in DATASETS:
        synthetic = dataset in SYNTHETIC
        metric = "oracle_gap" if synthetic else "avg_ll_test"
        ours = numbers.entry(dataset, SELECTED, metric)
        if not ours.count:
            continue
        theirs = numbers.published_entry(dataset, SELECTED, metric)
        better_by = (ours.mean - theirs.mean) * (-1 if synthetic else 1)
        shown[dataset] = f"{better_by:+.3f}"
        good += better_by >= -WITHIN
        if synthetic and theirs.mean < 0:
            notes.append(
                f"published exceeds the oracle ({expected_oracle(dataset):.3f}) on "
                f"{dataset}"
            )
    if not shown:
        return NOT_YET
    said = f"{good} of {len(shown)} sets; ours less published: {_listed(shown)}"
    return Finding.of(
        good == len(shown), "; ".join([said, *notes]), len(shown) == len(DATASETS)
    )
