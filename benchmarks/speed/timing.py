"""Times of functions, taken in turn."""

import time
from collections.abc import Callable, Mapping
from statistics import median

import jax


def seconds_in_turn(
    functions: Mapping[str, Callable[[], object]], repeats: int = 5
) -> dict[str, list[float]]:
    """Seconds of each call: all once, then all again; the first round is dropped."""
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for round_number in range(repeats + 1):
        for name, function in functions.items():
            started = time.perf_counter()
            jax.block_until_ready(function())
            if round_number:
                seconds[name].append(time.perf_counter() - started)
    return seconds


def ratios(numerator: list[float], denominator: list[float]) -> dict[str, float]:
    """Median, least and most of the ratios of calls made in the same round."""
    return spread([a / b for a, b in zip(numerator, denominator, strict=True)])


def spread(values: list[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": median(values), "least": min(values), "most": max(values)}
