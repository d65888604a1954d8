"""The targets of the default method, and whether it meets them."""

import math
from dataclasses import dataclass

from benchmarks.quality.methods import PEERS
from benchmarks.quality.problems import DEQUANTISED, LATTICE_STEPS, REAL, SYNTHETIC
from benchmarks.quality.results import Results

RIVALS = (*PEERS, "mfvi", "ncai")
GAPS = {
    "heavy_tail": 0.10,
    "depeweg": 0.05,
    "bimodal": 0.10,
    "goldberg": 0.07,
    "yuan": 0.12,
    "williams": 0.20,
}
NLL_SETS, CRPS_SETS = 5, 4
COVERAGE = (0.93, 0.97)
MOST_SECONDS = 60.0


@dataclass(frozen=True)
class Line:
    """A target, what was found, and whether it is met; None where rows are missing."""

    target: str
    found: str
    met: bool | None


def check_targets(results: Results, judged: str) -> list[Line]:
    """All targets, for one method against peers and the paper's own."""
    among = [judged, *(r for r in RIVALS if r != judged and r in results.methods())]
    dequantised = {
        name: f"{name}_dequantised" if name in LATTICE_STEPS else name for name in REAL
    }
    return [
        *(_gap(results, judged, name) for name in SYNTHETIC),
        _places(results, among, "nll", NLL_SETS, True, {name: name for name in REAL}),
        _places(results, among, "nll", NLL_SETS, True, dequantised),
        _places(results, among, "crps", CRPS_SETS, False, {n: n for n in REAL}),
        # An interval that ends at possible values of y contains them entirely, so it
        # covers more than its level; on dequantised sets the comparison is
        # fair.
        *(_coverage(results, judged, name) for name in (*REAL, *DEQUANTISED)),
        _seconds(results, judged),
    ]


def _gap(results: Results, judged: str, dataset: str) -> Line:
    target = f"{dataset}: gap to the oracle at most {GAPS[dataset]:.2f} nats"
    entry = results.entry(dataset, judged, "gap")
    if entry is None:
        return Line(target, "not run", None)
    found = f"{entry} ({entry.count} draws)"
    return Line(target, found, entry.mean <= GAPS[dataset] if entry.complete else None)


def _places(
    results: Results,
    among: list[str],
    metric: str,
    least: int,
    error_counts: bool,
    sets: dict[str, str],
) -> Line:
    """On how many sets the first of `among` leads."""
    judged = among[0]
    swapped = any(name != run for name, run in sets.items())
    target = (
        f"best {metric.upper()}{', or within one standard error,' * error_counts} on "
        f"at least {least} of {len(sets)} real sets"
        f"{' (lattice sets dequantised)' * swapped}"
    )
    good, told, missing = 0, [], False
    for name, run in sets.items():
        entry = results.entry(run, judged, metric)
        best = results.best(run, metric, among)
        rival = results.best(run, metric, among[1:])
        if entry is None or not entry.complete or best is None or rival is None:
            missing = True
            told.append(f"{name} not all run")
            continue
        apart = results.difference(run, metric, judged, rival)
        leads = best == judged or (
            error_counts and judged in results.leaders(run, metric, among)
        )
        good += leads
        told.append(
            f"{name} {'yes' if leads else 'no'} ({apart.mean:+.3f} ± "
            f"{apart.error:.3f} to {rival})"
        )
    met = True if good >= least else None if missing else False
    return Line(target, f"{good}: " + ", ".join(told), met)


def _coverage(results: Results, judged: str, dataset: str) -> Line:
    low, high = COVERAGE
    target = f"{dataset}: coverage of 95 % intervals from {low:.0%} to {high:.0%}"
    entry = results.entry(dataset, judged, "coverage")
    if entry is None:
        return Line(target, "not run", None)
    met = low <= entry.mean <= high if entry.complete else None
    return Line(target, f"{entry.mean:.1%} ({entry.count} splits)", met)


def _seconds(results: Results, judged: str) -> Line:
    # Lattice sets with noise on y are there for their densities: the same rows again.
    target = f"under {MOST_SECONDS:.0f} s a fit on every set (median)"
    medians = {
        name: values.median()
        for name in results.sets()
        if name not in DEQUANTISED
        and len(values := results.values(name, judged, "seconds").dropna())
    }
    if not medians:
        return Line(target, "not run", None)
    slowest = max(medians, key=medians.__getitem__)
    found = f"{medians[slowest]:.0f} s on {slowest}, the slowest"
    return Line(target, found, bool(medians[slowest] < MOST_SECONDS))


@dataclass(frozen=True)
class Published:
    """The NLL of a peer here and the published one."""

    method: str
    dataset: str
    here: str
    published: float
    verdict: str
    source: str


def check_published(results: Results, table) -> list[Published]:
    """Check whether both differ by at most two standard errors of the difference.

    If a paper states no spread, we use ours, because the rows are the same.
    """
    out = []
    for row in table.to_dict("records"):
        entry = results.entry(row["dataset"], row["method"], "nll")
        if entry is None or math.isnan(entry.error):
            continue
        theirs = row["standard_error"]
        theirs = entry.error if math.isnan(theirs) else theirs
        allowed = 2 * math.hypot(entry.error, theirs)
        apart = entry.mean - row["nll"]
        if abs(apart) <= allowed:
            verdict = "agrees"
        else:
            verdict = f"{'worse' if apart > 0 else 'better'} by {abs(apart):.2f}"
        out.append(
            Published(
                row["method"],
                row["dataset"],
                f"{entry.mean:.2f} ± {entry.error:.2f}",
                row["nll"],
                verdict,
                row["source"],
            )
        )
    return out
