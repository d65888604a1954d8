"""`tighter-bounds`: what NCAI mends by penalties beside what a tighter bound does."""

from ncai.study.engine.scales import Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.benchmark import BENCHMARK, TIGHTER_BOUNDS
from ncai.study.output.tables.benchmark import LABELS
from ncai.study.output.tables.benchmark_frame import SELECTED, Numbers
from ncai.study.output.tables.write import Entry, Table

OURS = {"iwae": "importance-weighted, M = 8", "marginal": "z integrated out"}
# Metric, and whether larger is better (None: neither).
SHOWN: dict[str, bool | None] = {
    "avg_ll_test": True,
    "oracle_gap": False,
    "crps_test": False,
    "rmse_test": False,
    "picp95_test_percent": None,
    "mi_x_mu_z": None,
    "hz_mu_z": None,
}


def tables(scale: Scale, store: Store) -> list[Table]:
    """The paper's methods and ours on the same splits, networks, priors and noise."""
    ours = Numbers.of(TIGHTER_BOUNDS, scale, store)
    theirs = Numbers.of(BENCHMARK, scale, store)
    if ours.ours.empty:
        return []
    rows = []
    for dataset in TIGHTER_BOUNDS.sets(scale):
        for metric, larger in SHOWN.items():
            entries = [
                *(theirs.entry(dataset, m, metric) for m in ("mfvi", SELECTED)),
                *(ours.entry(dataset, m, metric) for m in OURS),
            ]
            if any(entry.count for entry in entries[2:]):
                rows.append((dataset, metric, *_with_best(entries, larger)))
    columns = ("data set", "metric", LABELS["mfvi"], LABELS[SELECTED], *OURS.values())
    note = (
        "All ours, mean ± std over the benchmark's splits; the best mean in bold. The "
        "networks, priors, grids of fixed noise and restarts are the paper's; only "
        "what is maximised differs. Of z, the latter two have p(z | x, y, W) averaged "
        "over W, whose means need not be Gaussian (HZ) where it is right."
    )
    return [Table("tighter_bounds", TIGHTER_BOUNDS.title, columns, tuple(rows), note)]


def _with_best(entries: list[Entry], larger: bool | None) -> list[str]:
    known = [entry.mean for entry in entries if entry.count]
    best = None if larger is None else (max if larger else min)(known)
    return [
        f"**{entry}**" if entry.count and entry.mean == best else str(entry)
        for entry in entries
    ]
