"""What `ncai bench quality` does."""

from collections.abc import Callable
from pathlib import Path

from ncai.bench.quality.methods import METHOD_GROUPS, METHODS, OURS
from ncai.bench.quality.problems import SET_GROUPS, SETS, chosen
from ncai.bench.quality.report import write_report
from ncai.bench.quality.run import run_missing
from ncai.bench.quality.store import Store
from ncai.bench.quality.summary import Results

EXIT_FAILED = 1


def bench_quality(
    sets: str,
    methods: str,
    splits: int,
    jobs: int,
    again: bool,
    only_table: bool,
    judged: str,
    out: Path,
    say: Callable[[str], None],
) -> int:
    """Run what is missing, then write the table of all there is; the exit code."""
    picked_sets = chosen(sets, SET_GROUPS, "--sets")
    picked_methods = chosen(methods, METHOD_GROUPS, "--methods")
    if judged not in METHODS:
        raise ValueError(f"--judged {judged!r} must be one of {[*OURS]}.")
    out.mkdir(parents=True, exist_ok=True)
    store = Store(out / "cells")
    failed = 0
    if not only_table:
        failed = run_missing(
            store, picked_sets, picked_methods, splits, jobs, again, say
        )
    # The page on disk has all there is, unless a part of it is asked for by name.
    if not only_table:
        sets = methods = "all"
    # To run, "all" is without the sets and methods for choosing; to show, with them.
    if sets == "all":
        picked_sets = list(SETS)
    if methods == "all":
        picked_methods = list(METHODS)
    results = Results.load(store, picked_sets, picked_methods, splits)
    asked = {"sets": sets, "methods": methods, "judged": judged}
    usual = {"sets": "all", "methods": "all", "judged": "default"}
    words = [f" --{k} {v}" for k, v in asked.items() if v != usual[k]]
    command = f"ncai bench quality --table --splits {splits}{''.join(words)}"
    page = write_report(store, results, judged, command, out)
    say(page if only_table else f"The table is in {out.with_suffix('.md')}.")
    return EXIT_FAILED if failed else 0
