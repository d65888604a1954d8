"""Scales and ticks: from values to pixels, and round numbers along an axis."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scale:
    """Linear map from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value):
        """Pixels of a value, or of an array of them."""
        share = (np.asarray(value, float) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


@dataclass(frozen=True)
class Axis:
    """One axis of a chart: its ends, its name, and its ticks if they are not round.

    Args:
        low: value at the start.
        high: value at the end.
        label: name of the axis.
        ticks: pairs of value and text; round numbers if not given.
        percent: whether values are shares to be written as percentages.
        whole: whether values are counts, which have no fractions.
    """

    low: float
    high: float
    label: str = ""
    ticks: Sequence[tuple[float, str]] | None = None
    percent: bool = False
    whole: bool = False

    def marks(self, most: int) -> list[tuple[float, str]]:
        """Ticks, about `most` of them."""
        if self.ticks is not None:
            return list(self.ticks)
        values = round_ticks(self.low, self.high, most)
        if self.whole:
            values = [value for value in values if value == round(value)]
        if self.percent:
            return [(value, f"{100 * value:.3g}%") for value in values]
        return list(zip(values, number_texts(values), strict=True))


def axis_for(values, label: str, room: float = 0.04) -> Axis:
    """An axis that shows all (finite) values with a little room."""
    array = np.asarray(values, float)
    array = array[np.isfinite(array)]
    if not array.size:
        return Axis(0.0, 1.0, label)
    low, high = float(array.min()), float(array.max())
    span = high - low
    if span <= 1e-9 * max(abs(low), abs(high), 1e-300):
        span = max(abs(low), 1.0)
        low, high = low - span / 2, high + span / 2
    return Axis(low - room * span, high + room * span, label)


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two ends, at most `most`."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return []
    raw = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    for step in (power, 2 * power, 2.5 * power, 5 * power, 10 * power, 20 * power):
        first = math.ceil(low / step - 1e-9)
        last = math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [0.0 if i == 0 else i * step for i in range(first, last + 1)]
    return []


def number_texts(values: Sequence[float]) -> list[str]:
    """Numbers of one axis, all with as many digits as tell them apart."""
    if not values:
        return []
    largest = max(abs(value) for value in values)
    if largest >= 1e6 or (0 < largest < 1e-3):
        return [
            f"{value:.3g}".replace("e+0", "e").replace("e-0", "e-") for value in values
        ]
    step = min(np.diff(values), default=1.0) or 1.0
    digits = max(0, math.ceil(-math.log10(step) - 1e-9))
    # A step such as 2.5 needs one digit more than its power of ten.
    if abs(step * 10**digits - round(step * 10**digits)) > 1e-6:
        digits += 1
    return [f"{value:.{digits}f}".replace("-", "\u2212") for value in values]
