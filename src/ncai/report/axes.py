"""Axes: round ticks, and an input on the horizontal axis."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas as pd

from ncai.diagnostics.curves import is_discrete
from ncai.preprocessing.columns.column import CYCLES, ColumnGroup
from ncai.report.words import nice, shorten

# More levels than this are too many for one picture.
MOST_LEVELS = 8
# Characters below a picture, for all levels together.
_LETTERS = 40
# The days of a year that is not a leap year have these names.
_FIRST_DAY = date(2001, 1, 1)
# Dates along an axis: the step between two of them, and their format.
_DATE_STEPS = (
    *((f"{days}D", "%d %b") for days in (1, 2, 7, 14)),
    *((f"{months}MS", "%b %Y") for months in (1, 2, 3, 6)),
    *((f"{years}YS", "%Y") for years in (1, 2, 5, 10, 25, 50, 100)),
)
_MOST_DATES = 5
# Days are counted from 1 January 1970, a Thursday.
_WEEKDAYS = "Thu Fri Sat Sun Mon Tue Wed".split()


@dataclass(frozen=True)
class Axis:
    """One axis of a chart: its ends, its label and its ticks.

    Args:
        low: value at the start.
        high: value at the end.
        label: text next to the axis.
        ticks: pairs of value and text; round numbers if not given.
        percent: write values, which are shares, as percentages.
        whole: values are counts, so only whole numbers get a tick.
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


def cell_middles(axis: Axis, num: int) -> np.ndarray:
    """Middles of equal cells: a picture of them fills the axis to its ends."""
    return axis.low + (axis.high - axis.low) / num * (np.arange(num) + 0.5)


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
    """Texts of the numbers on an axis, with enough decimals to distinguish them."""
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


# ----- An input on the horizontal axis ------------------------------------------------


@dataclass(frozen=True, eq=False)
class FeatureAxis:
    """An input, or columns that move together, on the horizontal axis.

    Attributes:
        axis: the axis.
        places: positions along the axis where densities are computed, [G].
        settings: values of the columns at each position, [G, C].
        labels: each position in words.
        discrete: whether each position is a level of its own.
        place: maps rows of the columns, [N, C], to positions; NaN where there is none.
    """

    axis: Axis
    places: np.ndarray
    settings: np.ndarray
    labels: list[str]
    discrete: bool
    place: Callable[[np.ndarray], np.ndarray]


def feature_axis(
    group: ColumnGroup, rows: np.ndarray, typical: np.ndarray, num: int
) -> FeatureAxis:
    """The axis of a group of columns.

    Args:
        group: the columns, which move together.
        rows: their values in the training rows, [N, C].
        typical: their values in a typical row, [C].
        num: number of places along a continuous axis; levels have one place each.
    """
    if group.cycle is not None:
        return _round_the_cycle(group.name, group.cycle, num)
    if group.levels:
        return _side_by_side(
            group.name, list(group.levels), np.array(list(group.levels.values()))
        )
    first = rows[:, 0]
    if is_discrete(first):
        values = np.unique(first)
        return _side_by_side(group.name, *_along(group, values, typical))
    axis = axis_for(first, group.name, 0.02)
    if group.origin is not None:
        axis = replace(axis, ticks=date_ticks(axis.low, axis.high, group.origin))
    values = cell_middles(axis, num)
    labels, settings = _along(group, values, typical)
    return FeatureAxis(axis, values, settings, labels, False, lambda rows: rows[:, 0])


def _along(group: ColumnGroup, values: np.ndarray, typical: np.ndarray):
    """Labels of values of the first column, and the columns at each of them."""
    settings = np.tile(typical, (len(values), 1))
    settings[:, 0] = values
    return [value_text(group, float(value)) for value in values], settings


def value_text(group: ColumnGroup, value: float) -> str:
    """A value of the first column of a group: a date, or a number."""
    if group.origin is None:
        return nice(value)
    return f"{_moment(value, group.origin):%Y-%m-%d}"


def date_ticks(low: float, high: float, origin: float) -> list[tuple[float, str]]:
    """A few starts of years, months or days between two numbers of days."""
    start, end = _moment(low, origin), _moment(high, origin)
    for every, form in _DATE_STEPS:
        days = pd.date_range(start.normalize(), end, freq=every)
        days = days[days >= start]
        if len(days) <= _MOST_DATES:
            numbers = (days - _moment(0.0, origin)) / pd.Timedelta(days=1)
            texts = [f"{day:{form}}" for day in days]
            return list(zip(numbers.tolist(), texts, strict=True))
    return []


def _moment(days: float, origin: float) -> Any:
    return pd.Timestamp(0) + pd.Timedelta(days=origin + days)


def _side_by_side(name: str, labels: list[str], settings: np.ndarray) -> FeatureAxis:
    """Levels, each with a position of its own."""
    most = min(len(labels), MOST_LEVELS)
    if most < len(labels):
        name = f"{name} (the {most} most frequent of {len(labels)} levels)"
    places = np.arange(most, dtype=float)
    length = max(3, _LETTERS // most - 1)
    ticks = [(float(p), shorten(labels[int(p)], length)) for p in places]

    def place(rows: np.ndarray) -> np.ndarray:
        far = np.abs(rows[:, None] - settings).sum(axis=2)
        nearest = far.argmin(axis=1).astype(float)
        # Rows of one level are spread, so that each is visible.
        jitter = np.random.default_rng(0).uniform(-0.28, 0.28, len(rows))
        return np.where(nearest < most, nearest + jitter, np.nan)

    axis = Axis(-0.5, most - 0.5, name, ticks)
    return FeatureAxis(axis, places, settings[:most], labels[:most], True, place)


def _round_the_cycle(name: str, cycle: str, num: int) -> FeatureAxis:
    """The axis of a cycle: time of day, day of the week or day of the year."""
    length = CYCLES[cycle]
    places = length * (np.arange(num) + 0.5) / num
    turns = 2 * np.pi * places / length
    settings = np.stack([np.sin(turns), np.cos(turns)], axis=1)

    def place(rows: np.ndarray) -> np.ndarray:
        turn = np.arctan2(rows[:, 0], rows[:, 1]) / (2 * np.pi) % 1.0
        # The preparer puts a missing date at the centre of the cycle.
        missing = np.hypot(rows[:, 0], rows[:, 1]) < 0.5
        return np.where(missing, np.nan, length * turn)

    if cycle == "day":
        ticks = [(hour / 24, f"{hour}:00") for hour in range(0, 25, 6)]
        labels = [f"{int(24 * p)}:{int(1440 * p) % 60:02d}" for p in places]
    elif cycle == "week":
        # A date without a time lies at the beginning of its day.
        ticks = [(float(day), name_) for day, name_ in enumerate(_WEEKDAYS)]
        labels = [_WEEKDAYS[int(p)] for p in places]
    else:
        labels = [f"{day.day} {day:%b}" for day in map(_day_of_year, places)]
        starts = [date(2001, month, 1) for month in range(1, 13, 2)]
        ticks = [(float((day - _FIRST_DAY).days), f"{day:%b}") for day in starts]
    axis = Axis(-0.5 if cycle == "week" else 0.0, length, name, ticks)
    return FeatureAxis(axis, places, settings, labels, False, place)


def _day_of_year(place: float) -> date:
    return _FIRST_DAY + timedelta(days=min(364, int(place)))
