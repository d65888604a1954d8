"""`full-length`: the benchmark's numbers with its convergence stop and without."""

import numpy as np

from ncai.study.engine.scales import Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.benchmark import BENCHMARK, FULL_LENGTH
from ncai.study.output.tables.benchmark import LABELS
from ncai.study.output.tables.benchmark_frame import Numbers
from ncai.study.output.tables.write import Table

SHOWN = ("avg_ll_test", "rmse_test", "picp95_test_percent")


def tables(scale: Scale, store: Store) -> list[Table]:
    """A line for each set and method: steps, and what all of them change."""
    full = Numbers.of(FULL_LENGTH, scale, store)
    short = Numbers.of(BENCHMARK, scale, store)
    if full.ours.empty:
        return []
    rows = []
    for dataset in FULL_LENGTH.sets(scale):
        for method in FULL_LENGTH.methods:
            where = (dataset, method)
            steps = short.values(*where, "steps"), full.values(*where, "steps")
            if all(steps):
                shown = [_change(short, full, where, metric) for metric in SHOWN]
                mean_steps = [f"{np.mean(list(of.values())):.0f}" for of in steps]
                rows.append((dataset, LABELS[method], *mean_steps, *shown))
    columns = ("data set", "method", "steps", "all steps", *SHOWN)
    note = (
        "Steps are means, the warm start included. The other numbers are those of all "
        "steps less those with the convergence stop, split by split: mean ± standard "
        "error."
    )
    return [Table("full_length", FULL_LENGTH.title, columns, tuple(rows), note)]


def _change(short: Numbers, full: Numbers, where: tuple[str, str], metric: str) -> str:
    before, after = short.values(*where, metric), full.values(*where, metric)
    changes = [after[split] - before[split] for split in after if split in before]
    if not changes:
        return "-"
    if len(changes) == 1:
        return f"{changes[0]:+.3f}"
    error = np.std(changes, ddof=1) / np.sqrt(len(changes))
    return f"{np.mean(changes):+.3f} ± {error:.3f}"
