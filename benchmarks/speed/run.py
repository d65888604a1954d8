"""All benchmarks of speed, from one call: printed as they come, and kept as JSON."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.speed.command_time import fit_overhead
from benchmarks.speed.fits import compare_fits
from benchmarks.speed.machine import describe_machine
from benchmarks.speed.predictions import prediction_rates
from benchmarks.speed.profile import profile_step
from benchmarks.speed.quality_time import time_to_quality
from benchmarks.speed.report import markdown
from benchmarks.speed.statistics import compare_hz
from benchmarks.speed.steps import growth_with_rows, step_costs
from benchmarks.speed.study_rate import study_rates
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
    """Quick: our own step costs. Full: all parts.

    `only` these parts go into a file that may have the others already.
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
