"""The pages and the tidy table of `ncai bench quality`.

The page of leads compares each lead with the default at the same number of steps.
Differences are paired by split, so that splits that are hard for all methods do not
hide them.
"""

import io
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
from benchmarks.quality.problems import DEQUANTISED, INNER, REAL, SPLITS, SYNTHETIC
from benchmarks.quality.results import Results, Store
from benchmarks.quality.targets import check_published, check_targets
from ncai.runtime.atomic_write import replacing

MET = {True: "yes", False: "**no**", None: "not yet known"}
# Means over the standard splits as others have published them.
PUBLISHED = """\
method,dataset,nll,standard_error,source
ngboost,boston,2.43,,WGBoost paper Table 1
ngboost,energy,0.60,0.101,WGBoost paper Table 1
ngboost,wine_red,0.91,,WGBoost paper Table 1 (1588 rows)
ngboost,yacht,0.20,0.058,WGBoost paper Table 1
deep_ensemble,boston,2.41,,deep-ensembles paper Table 1
deep_ensemble,energy,1.38,,deep-ensembles paper Table 1
deep_ensemble,wine_red,0.94,,deep-ensembles paper Table 1
deep_ensemble,yacht,1.18,,deep-ensembles paper Table 1
mc_dropout,boston,2.40,,DropoutUncertaintyExps readme (2018)
mc_dropout,energy,1.21,,DropoutUncertaintyExps readme (2018)
mc_dropout,wine_red,0.93,,DropoutUncertaintyExps readme (2018)
mc_dropout,yacht,1.25,,DropoutUncertaintyExps readme (2018)
"""


def write_report(
    store: Store, results: Results, judged: str, command: str, out: Path
) -> str:
    """Write OUT.md and OUT/summary.csv, and return the page."""
    page = markdown(store, results, judged, command)
    with replacing(out / "summary.csv") as temporary:
        results.tidy().to_csv(temporary, index=False, float_format="%.6g")
    with replacing(out.with_suffix(".md")) as temporary:
        Path(temporary).write_text(page)
    return page


def markdown(store: Store, results: Results, judged: str, command: str) -> str:
    """All tables."""
    here = results.sets()
    real = [name for name in REAL if name in here]
    lattice = [name for name in DEQUANTISED if name in here]
    synthetic = [name for name in SYNTHETIC if name in here]
    parts = [
        "# Quality beside peers",
        "",
        f"Made by `{command}`. Mean ± standard error over splits, raw units; the best "
        "of those with all splits, and those within one standard error of the paired "
        "differences, in bold; (n) is the number of splits where some are missing. "
        "[docs/measured/quality.md](../../docs/measured/quality.md) describes the "
        "protocol.",
        "",
        *stale_note(store, results),
    ]
    for title, sets, metric in (
        ("NLL", real, "nll"),
        ("NLL of y with uniform noise of one lattice step", lattice, "nll"),
        ("CRPS", real, "crps"),
        ("RMSE", real, "rmse"),
        ("Gap to the oracle, nats", synthetic, "gap"),
    ):
        parts += _scores(results, title, sets, metric)
    parts += mean_table(
        results, "Coverage of 95 % intervals", real, "coverage", "{:.1%}"
    )
    parts += mean_table(results, "Width of 95 % intervals", real, "width", "{:.3g}")
    parts += mean_table(
        results,
        "CPU seconds a fit, median",
        [*real, *synthetic],
        "cpu_seconds",
        "{:.3g}",
    )
    if judged in results.methods():
        parts += _targets(results, judged)
    parts += [
        *_published(results),
        *_settings(store, results),
        *_origin(store, results),
    ]
    return "\n".join(parts).rstrip() + "\n"


def stale_note(store: Store, results: Results) -> list[str]:
    """A paragraph on the results that the present code did not compute."""
    shown = [
        (dataset, method)
        for method in results.methods()
        for dataset in results.sets()
        if len(results.values(dataset, method, "nll"))
    ]
    marks = {key: mark for key in shown if (mark := store.about(*key).get("stale"))}
    if not marks:
        return []
    methods = ", ".join(dict.fromkeys(method for _, method in marks))
    reasons = dict.fromkeys(
        f"since {m['since']}: {m['reason']}" for m in marks.values()
    )
    return [
        f"**Stale: {len(marks)} of {len(shown)} sets and methods** ({methods}), "
        f"{'; '.join(reasons)} The present code may find other numbers until they are "
        "run again.",
        "",
    ]


def markdown_table(
    title: str, columns: Sequence[str], rows: list[list[str]]
) -> list[str]:
    """Lines of a table under a heading."""
    lines = [f"## {title}", "", "| " + " | ".join(columns) + " |"]
    lines.append("|" + "---|" * len(columns))
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def _scores(results: Results, title: str, sets: list[str], metric: str) -> list[str]:
    if not sets:
        return []
    methods = [m for m in results.methods() if results.has(m, sets)]
    leaders = {name: results.leaders(name, metric, methods) for name in sets}
    rows = []
    for method in methods:
        cells = []
        for name in sets:
            entry = results.entry(name, method, metric)
            if entry is None:
                cells.append("")
                continue
            text = str(entry)
            if method in leaders[name]:
                text = f"**{text}**"
            cells.append(text if entry.complete else f"{text} ({entry.count})")
        rows.append([method, *cells])
    return markdown_table(title, ("method", *sets), rows)


def mean_table(
    results: Results, title: str, sets: list[str], metric: str, form: str
) -> list[str]:
    """Return a table of a metric for every method: means, or medians of seconds."""
    if not sets:
        return []
    rows = []
    for method in results.methods():
        if not results.has(method, sets):
            continue
        cells = []
        for name in sets:
            values = results.values(name, method, metric)
            middle = values.median() if "seconds" in metric else values.mean()
            cells.append(form.format(middle) if len(values) else "")
        rows.append([method, *cells])
    return markdown_table(title, ("method", *sets), rows)


def _targets(results: Results, judged: str) -> list[str]:
    lines = check_targets(results, judged)
    rows = [[line.target, line.found, MET[line.met]] for line in lines]
    return markdown_table(f"Targets, for `{judged}`", ("target", "found", "met"), rows)


def published_table() -> pd.DataFrame:
    """Return a table of published numbers with their sources."""
    return pd.read_csv(io.StringIO(PUBLISHED))


def _published(results: Results) -> list[str]:
    found = check_published(results, published_table())
    if not found:
        return []
    rows = [
        [p.method, p.dataset, p.here, f"{p.published:.2f}", p.verdict, p.source]
        for p in found
    ]
    columns = ("method", "set", "NLL here", "published", "verdict", "source")
    return markdown_table("Peers beside their published NLL", columns, rows)


def _settings(store: Store, results: Results) -> list[str]:
    rows = []
    for method in results.methods():
        for name in results.sets():
            about = store.about(name, method)
            if "settings" in about and len(results.values(name, method, "nll")):
                rows.append(
                    [
                        method,
                        name,
                        str(about["points"]),
                        f"`{json.dumps(about['settings'])}`",
                        f"{about['tuning_seconds']:.0f}",
                    ]
                )
    if not rows:
        return []
    columns = ("method", "set", "points tried", "chosen", "CPU seconds")
    return markdown_table("Tuned on the first split", columns, rows)


def _origin(store: Store, results: Results) -> list[str]:
    """Machines, dates and versions of all rows."""
    told: dict[str, set[str]] = {"date": set(), "processor": set(), "versions": set()}
    for method in results.methods():
        for name in results.sets():
            about = store.about(name, method)
            machine = about.get("machine", {})
            if machine:
                told["date"].add(machine["date"])
                told["processor"].add(
                    f"{machine['processor']}, {machine['cores']} cores"
                )
            for package, number in about.get("versions", {}).items():
                told["versions"].add(f"{package} {number}")
    return [
        "## Origin",
        "",
        *(f"- {what}: {'; '.join(sorted(found))}" for what, found in told.items()),
    ]


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
    """Return a page with a row for each lead: its change and its effect on sets."""
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
    """Add methods that choose among several leads by held-out rows on each split.

    The fits already exist, so such a choice needs no further fit.
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
    """Return the method that a lead is compared with."""
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
