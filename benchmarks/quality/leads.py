"""The page of leads: each beside the default at the same number of steps.

Differences are paired by split, so that splits which are hard for all do not hide them.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.quality.methods import (
    ALL_LEADS,
    CHOSEN_BY_VALIDATION,
    CONFORMAL,
    QUARTER,
)
from benchmarks.quality.problems import INNER, SPLITS
from benchmarks.quality.report import markdown_table, mean_table, stale_note
from benchmarks.quality.results import Results, Store
from ncai.runtime.atomic_write import replacing

BASE, WHOLE_BASE = "quarter", "whole"
CHOSEN = "chosen on held-out rows among "


def write_leads(store: Store, splits: int, path: Path) -> str:
    """The page, of all leads that were run."""
    results = Results.load(store, INNER, list(ALL_LEADS), splits)
    page = leads_page(results, stale_note(store, results))
    with replacing(path) as temporary:
        Path(temporary).write_text(page)
    return page


def leads_page(results: Results, note: Sequence[str] = ()) -> str:
    """A row for each lead: what it changes, and what that does on each set."""
    results = with_choices(results)
    sets = [name for name in results.sets() if results.has(BASE, [name])]
    names = [name.removesuffix("_inner") for name in sets]
    parts = [
        "# Leads",
        "",
        f"Made by `ncai bench quality --methods leads --sets "
        f"{','.join(sets)} --splits {results.splits}`. Each lead is the default, with "
        f"z's layer given, at a quarter of its steps (`{BASE}`), or at all of them "
        f"(`{WHOLE_BASE}`), with one change; the splits know no test row (see "
        "[docs/measured/quality.md](../../docs/measured/quality.md)). Differences to "
        "that, paired by split, ± their standard error; below 0 is better; in "
        "bold what is by more than two standard errors, either way; (n) is the number "
        "of splits where some are missing.",
        "",
        *note,
    ]
    for title, metric in (("NLL", "nll"), ("CRPS", "crps")):
        rows = []
        for base in (BASE, WHOLE_BASE):
            if results.has(base, sets):
                rows.append(_base_row(results, sets, base, metric))
                rows += [
                    _row(results, sets, method, base, metric)
                    for method in results.methods()
                    if method != base and base_of(method) == base
                ]
        columns = ("lead", "change", *names, "better", "worse")
        parts += markdown_table(f"{title}: difference", columns, rows)
    for title, metric, form in (
        ("Coverage of 95 % intervals", "coverage", "{:.1%}"),
        ("CPU seconds a fit, median", "cpu_seconds", "{:.3g}"),
    ):
        parts += mean_table(results, title, sets, metric, form)
    return "\n".join(parts).rstrip() + "\n"


def with_choices(results: Results) -> Results:
    """Results with methods more: of several, what held-out rows choose on each split.

    A choice between fits that are there already needs no fit.
    """
    rows = results.rows
    if "held_out" not in rows:
        return results
    found = [rows]
    for name, among in CHOSEN_BY_VALIDATION.items():
        candidates = rows.loc[rows["method"].isin(among)].dropna(subset="held_out")
        for _, group in candidates.groupby(["dataset", "split"]):
            if len(group) == len(among):
                best = group.loc[[group["held_out"].idxmax()]]
                total = group["cpu_seconds"].sum()
                found.append(best.assign(method=name, cpu_seconds=total))
    return Results(pd.concat(found, ignore_index=True), results.splits)


def base_of(method: str) -> str:
    """What a lead is compared with."""
    return WHOLE_BASE if method.endswith(WHOLE_BASE) else BASE


def _base_row(results: Results, sets: list[str], base: str, metric: str) -> list[str]:
    cells = [str(results.entry(name, base, metric) or "") for name in sets]
    return [base, "(the values themselves)", *cells, "", ""]


def _row(
    results: Results, sets: list[str], method: str, base: str, metric: str
) -> list[str]:
    cells, better, worse = [], 0, 0
    for name in sets:
        count = len(results.values(name, method, metric))
        if not count:
            cells.append("")
            continue
        apart = results.difference(name, metric, method, base)
        clear = not math.isnan(apart.error) and abs(apart.mean) > 2 * apart.error
        better += clear and apart.mean < 0
        worse += clear and apart.mean > 0
        error = "" if math.isnan(apart.error) else f" ± {apart.error:.3f}"
        text = f"{apart.mean:+.3f}{error}"
        text = f"**{text}**" if clear else text
        whole = count == min(results.splits, SPLITS[name])
        cells.append(text if whole else f"{text} ({count})")
    return [method, _change(method), *cells, str(better), str(worse)]


def _change(method: str) -> str:
    if method in CHOSEN_BY_VALIDATION:
        return CHOSEN + ", ".join(CHOSEN_BY_VALIDATION[method])
    if method in CONFORMAL:
        return "`ConformalRegressor`: intervals alone are corrected"
    change = dict(ALL_LEADS[method])
    if change.get("inference") is None and "network" in change:
        usual: Any = QUARTER["network"]
        change["network"] = {
            name: value
            for name, value in change["network"].items()
            if usual[name] != value
        }
    return f"`{json.dumps(change)}`"
