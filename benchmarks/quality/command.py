"""What `ncai bench quality` does."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.quality.leads import write_leads
from benchmarks.quality.methods import ALL_LEADS, METHOD_GROUPS, METHODS, OURS
from benchmarks.quality.problems import SET_GROUPS, chosen
from benchmarks.quality.report import write_report
from benchmarks.quality.run import run_missing
from benchmarks.quality.store import Store
from benchmarks.quality.summary import Results

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
    if set(picked_methods) <= set(ALL_LEADS):  # they have a page of their own
        page = out.parent / "leads.md"
        text = write_leads(store, splits, page)
        say(text if only_table else f"The table is in {page}.")
        return EXIT_FAILED if failed else 0
    # The page on disk has all there is, unless a part of it is asked for by name.
    if not only_table:
        sets = methods = "all"
        picked_sets = list(SET_GROUPS["all"])
        picked_methods = list(METHOD_GROUPS["all"])
    results = Results.load(store, picked_sets, picked_methods, splits)
    asked = {"sets": sets, "methods": methods, "judged": judged}
    usual = {"sets": "all", "methods": "all", "judged": "default"}
    words = [f" --{k} {v}" for k, v in asked.items() if v != usual[k]]
    command = f"ncai bench quality --table --splits {splits}{''.join(words)}"
    page = write_report(store, results, judged, command, out)
    say(page if only_table else f"The table is in {out.with_suffix('.md')}.")
    return EXIT_FAILED if failed else 0
