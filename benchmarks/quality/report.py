"""The page and the tidy table of `ncai bench quality`."""

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmarks.quality.problems import DEQUANTISED, REAL, SYNTHETIC
from benchmarks.quality.results import Results, Store
from benchmarks.quality.targets import check_published, check_targets
from ncai.runtime.atomic_write import replacing

MET = {True: "yes", False: "**no**", None: "not yet known"}


def write_report(
    store: Store, results: Results, judged: str, command: str, out: Path
) -> str:
    """OUT.md and OUT/summary.csv, whole or not at all; returns the page."""
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
    """A metric of every method: means over splits, medians of seconds."""
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
    """Numbers in print, with where they are from."""
    return pd.read_csv(Path(__file__).parent / "published.csv")


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
