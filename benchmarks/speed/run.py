"""Run all speed benchmarks: print results as they come, then write JSON and a page."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.speed.fits import compare_fits
from benchmarks.speed.measuring import describe_machine
from benchmarks.speed.steps import (
    compare_hz,
    growth_with_rows,
    profile_step,
    step_costs,
)
from benchmarks.speed.whole_runs import (
    fit_overhead,
    prediction_rates,
    study_rates,
    time_to_quality,
)
from ncai.runtime.atomic_write import replacing

QUICK = {"step_costs": partial(step_costs, num_steps=300, repeats=3)}
ALL = {
    "step_costs": step_costs,
    "profile": profile_step,
    "hz": compare_hz,
    "growth_with_rows": growth_with_rows,
    "predictions": prediction_rates,
    "time_to_quality": time_to_quality,
    "fit_overhead": fit_overhead,
    "study": study_rates,
    "fits": compare_fits,
}


def run_bench(
    full: bool,
    out: Path | None,
    say: Callable[[str], None],
    only: tuple[str, ...] = (),
) -> dict:
    """Measure our own step costs or, with `full`, all parts.

    `only` measures these parts and adds them to a file that may contain the others.
    """
    for name in only:
        if name not in ALL:
            raise ValueError(f"--only {name} is no part; choose among {[*ALL]}.")
    parts: dict[str, Callable] = ALL if full else QUICK
    if only:
        parts = {name: ALL[name] for name in only}
    result = {}
    if only and out is not None and out.exists():
        result = json.loads(out.read_text())
    result |= {
        "command": f"ncai bench{' --full' if full or only else ''}",
        "machine": describe_machine(),
    }
    for name, part in parts.items():
        say(f"-- {name.replace('_', ' ')}")
        result[name] = part(say)
        if out is not None:  # after each part: an interrupted run keeps what it has
            write_json(out, result)
    return result


def write_json(path: Path, result: dict) -> None:
    """The numbers, and a page of tables beside them; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        Path(temporary).write_text(json.dumps(result, indent=1) + "\n")
    with replacing(path.with_suffix(".md")) as temporary:
        Path(temporary).write_text(markdown(result))


def markdown(result: dict) -> str:
    """Everything that the result has, shortest first."""
    machine = result["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    parts = [
        "# Speed",
        f"`{result['command']}` on {machine['date']}: {machine['processor']}, "
        f"{machine['cores']} cores, Python {machine['python']}, {versions}. "
        "Ratios are medians of calls made in turn, with least and most.",
    ]
    for name, section in SECTIONS.items():
        if name in result:
            parts += section(result[name])
    return "\n\n".join(parts) + "\n"


def _table(columns, rows) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]
    return "\n".join(lines)


def _spread(found: dict, digits: int = 1) -> str:
    return (
        f"{found['median']:.{digits}f}x ({found['least']:.{digits}f} to "
        f"{found['most']:.{digits}f})"
    )


def _fits(entries) -> list[str]:
    rows, elbos = [], []
    for entry in entries:
        ours = entry["sides"]["ncai"]
        title = f"{entry['case']}, {entry['method']}"
        for peer, ratio in entry["ratios"].items():
            rows.append(
                (
                    title,
                    peer,
                    f"{sorted(ours['seconds'])[len(ours['seconds']) // 2]:.2f}",
                    _spread(ratio["seconds"], 0),
                    _spread(ratio["first_seconds"], 0),
                )
            )
        for name, values in entry.get("elbo", {}).items():
            low, high = min(values), max(values)
            elbos.append((title, name, f"{low:.0f} to {high:.0f}", len(values)))
    return [
        "## A fit of the paper: 10 restarts x 10,000 steps",
        _table(
            ("case", "peer", "our seconds", "peer / ours", "with compilation"), rows
        ),
        "The PyTorch loop is timed on 1000 (MFVI) or 400 (NCAI) steps of one restart, "
        "NumPyro in turn on two restarts, and scaled. NumPyro in turn compiles for "
        "each restart, as its tutorials do. NCAI's penalties act in the second half of "
        "the steps on both sides.",
        "ELBO at the end (average over the last tenth of the steps), by restart:",
        _table(("case", "side", "ELBO", "restarts"), elbos),
    ]


def _steps(entries) -> list[str]:
    rows = []
    for entry in entries:
        cost = entry["milliseconds_a_step"]
        rows.append(
            (
                f"{entry['case']} ({entry['rows']} rows, {entry['hidden']} hidden)",
                f"{cost['mfvi']:.3f}",
                f"{cost['ncai']:.3f}",
                _spread(entry["gain_of_restarts_together"]),
                _spread(entry["gain_of_hz_in_linear_time"]),
            )
        )
    columns = (
        "case, 10 restarts",
        "MFVI, ms a step",
        "NCAI, ms a step",
        "restarts in turn",
        "HZ by double sum",
    )
    return ["## A step", _table(columns, rows)]


def _profile(found) -> list[str]:
    rows = [(name, f"{value:.0f}") for name, value in found["microseconds"].items()]
    line = found["roofline"]
    return [
        f"## Where a step goes ({found['case']}, {found['restarts']} restarts, one "
        "thread)",
        _table(("part, timed alone", "microseconds"), rows),
        f"Roofline of the network's two passes: {line['microseconds']:.0f} "
        f"microseconds, from {line['gigaflops']:.0f} GFLOP/s of a large product and "
        f"{line['gigabytes']:.0f} GB/s of a large copy on one core. A whole step of "
        f"MFVI takes {line['whole_step_over_roofline']:.1f} times that.",
    ]


def _hz(entries) -> list[str]:
    rows = [
        (
            e["rows"],
            f"{e['milliseconds']:.2f}",
            e["reference"],
            _spread(e["times_slower_reference"]),
            f"{e['relative_error']:.0e}",
            f"{e['relative_error_of_gradient']:.0e}",
        )
        for e in entries
    ]
    columns = ("rows", "ms", "reference", "it takes", "error", "error of gradient")
    return ["## HZ with its gradient", _table(columns, rows)]


def _growth(entries) -> list[str]:
    rows = [
        (
            e["rows"],
            f"{e['milliseconds_a_step']:.3f}",
            f"{1e6 * e['milliseconds_a_step'] / e['rows']:.0f}",
        )
        for e in entries
    ]
    return [
        "## Growth with rows (NCAI with penalties, 1 restart, 50 hidden)",
        _table(("rows", "ms a step", "ns a row"), rows),
    ]


def _predictions(entries) -> list[str]:
    rows = [
        (
            e["kind"],
            e["rows"],
            f"{e['rows_a_second']:.0f}",
            "" if e["peak_megabytes"] is None else f"{e['peak_megabytes']:.0f}",
        )
        for e in entries
    ]
    return [
        "## Prediction (the default: 1,024 draws of W with 8 of z)",
        _table(("what", "rows", "rows a second", "peak MB"), rows),
    ]


def _quality(entries) -> list[str]:
    rows = []
    for e in entries:
        last = e["marginal"][-1]
        rows.append(
            (
                e["set"],
                f"{e['ncai']['validation']:.3f} in {e['ncai']['seconds']:.1f} s",
                f"{last['validation']:.3f} in {last['seconds']:.1f} s "
                f"({last['steps']} steps)",
                f"{e['times_shorter']:.1f}x",
            )
        )
    columns = ("set", "NCAI, 30,000 steps", "marginal", "shorter")
    return [
        "## Time to the validation log-likelihood of the paper's 30,000 steps",
        _table(columns, rows),
    ]


def _overhead(entries) -> list[str]:
    rows = [
        (
            f"`{e['command']}`",
            f"{min(e['overhead_seconds']):.1f} to {max(e['overhead_seconds']):.1f}",
            f"{e['first_overhead_seconds']:.1f}",
        )
        for e in entries
    ]
    return [
        f"## Beyond training: `ncai fit` on a table of {entries[0]['rows']} rows",
        _table(("command", "seconds", "first call"), rows),
    ]


def _study(entries) -> list[str]:
    rows = [
        (e["workers"], e["cells"], f"{3600 * e['cells'] / e['seconds']:.0f}")
        for e in entries
    ]
    return [
        "## Study: report cells of Goldberg at paper scale, MFVI and NCAI",
        _table(("workers", "cells timed", "cells an hour"), rows),
    ]


SECTIONS = {
    "fits": _fits,
    "time_to_quality": _quality,
    "step_costs": _steps,
    "profile": _profile,
    "hz": _hz,
    "growth_with_rows": _growth,
    "predictions": _predictions,
    "fit_overhead": _overhead,
    "study": _study,
}
