"""All benchmarks of speed, from one call: printed as they come, and kept as JSON."""

import json
from collections.abc import Callable
from pathlib import Path

from ncai.atomic import replacing
from ncai.bench.fits import compare_fits
from ncai.bench.machine import describe_machine
from ncai.bench.predictions import prediction_rates
from ncai.bench.quality_time import time_to_quality
from ncai.bench.statistics import compare_hz
from ncai.bench.steps import growth_with_rows, step_costs


def run_bench(full: bool, out: Path | None, say: Callable[[str], None]) -> dict:
    """Quick: our own step costs. Full: peers, HZ, growth with rows and prediction."""
    result = {
        "command": "ncai bench --full" if full else "ncai bench",
        "machine": describe_machine(),
    }
    parts: dict[str, Callable] = {"step_costs": step_costs}
    if full:
        parts |= {
            "hz": compare_hz,
            "growth_with_rows": growth_with_rows,
            "predictions": prediction_rates,
            "time_to_quality": time_to_quality,
            "fits": compare_fits,
        }
    for name, part in parts.items():
        say(f"-- {name.replace('_', ' ')}")
        result[name] = part(say)
        if out is not None:  # after each part: an interrupted run keeps what it has
            write_json(out, result)
    return result


def write_json(path: Path, result: dict) -> None:
    """Written whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        Path(temporary).write_text(json.dumps(result, indent=1) + "\n")
