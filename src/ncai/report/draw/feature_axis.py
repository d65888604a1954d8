"""An input on the horizontal axis: numbers, levels, or the place in a cycle."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import pandas as pd

from ncai.diagnostics.conditional import is_discrete
from ncai.preprocessing.columns.groups import CYCLES, ColumnGroup
from ncai.report.draw.axes import Axis, axis_for
from ncai.report.draw.svg import shorten
from ncai.report.inputs import Subject
from ncai.report.words import nice

# More levels than this cannot be told apart in one picture.
MOST_LEVELS = 8
# Letters below a picture, for all levels together.
_LETTERS = 40
# A year that is no leap year, to name its days.
_FIRST_DAY = date(2001, 1, 1)
# Dates along an axis: what is between two of them, and how they are written.
_DATE_STEPS = (
    *((f"{days}D", "%d %b") for days in (1, 2, 7, 14)),
    *((f"{months}MS", "%b %Y") for months in (1, 2, 3, 6)),
    *((f"{years}YS", "%Y") for years in (1, 2, 5, 10, 25, 50, 100)),
)
_MOST_DATES = 5
# Days are counted from 1 January 1970, a Thursday.
_WEEKDAYS = "Thu Fri Sat Sun Mon Tue Wed".split()


@dataclass(frozen=True, eq=False)
class FeatureAxis:
    """An input, or columns that move together, on the horizontal axis.

    Attributes:
        axis: the axis.
        places: where the density is computed, [G].
        settings: the columns at each of them, [G, C].
        labels: each of them in words.
        discrete: whether each is shown by itself.
        place: from rows of the columns, [N, C], to their places; NaN if they have none.
    """

    axis: Axis
    places: np.ndarray
    settings: np.ndarray
    labels: list[str]
    discrete: bool
    place: Callable[[np.ndarray], np.ndarray]


def feature_axis(subject: Subject, group: ColumnGroup, num: int) -> FeatureAxis:
    """The axis of a group of columns, with `num` places where it has no levels."""
    if group.cycle is not None:
        return _round_the_cycle(group.name, group.cycle, num)
    columns = subject.columns(group)
    if group.levels:
        return _side_by_side(
            group.name, list(group.levels), np.array(list(group.levels.values()))
        )
    first = subject.train[:, columns[0]]
    if is_discrete(first):
        values = np.unique(first)
        settings = np.tile(subject.typical[columns], (len(values), 1))
        settings[:, 0] = values
        labels = [value_text(group, float(value)) for value in values]
        return _side_by_side(group.name, labels, settings)
    axis = axis_for(first, group.name, 0.02)
    if group.origin is not None:
        axis = replace(axis, ticks=date_ticks(axis.low, axis.high, group.origin))
    step = (axis.high - axis.low) / num
    values = axis.low + step * (np.arange(num) + 0.5)
    settings = np.tile(subject.typical[columns], (num, 1))
    settings[:, 0] = values
    labels = [value_text(group, float(value)) for value in values]
    return FeatureAxis(axis, values, settings, labels, False, lambda rows: rows[:, 0])


def value_text(group: ColumnGroup, value: float) -> str:
    """A value of the first column of a group in words: a date, or a number."""
    if group.origin is None:
        return nice(value)
    return f"{_moment(value, group.origin):%Y-%m-%d}"


def date_ticks(low: float, high: float, origin: float) -> list[tuple[float, str]]:
    """Starts of years, months or days between two numbers of days, not too many."""
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
    """Levels, each with a place of its own."""
    most = min(len(labels), MOST_LEVELS)
    if most < len(labels):
        name = f"{name} (the {most} most frequent of {len(labels)} levels)"
    places = np.arange(most, dtype=float)
    length = max(3, _LETTERS // most - 1)
    ticks = [(float(p), shorten(labels[int(p)], length)) for p in places]

    def place(rows: np.ndarray) -> np.ndarray:
        far = np.abs(rows[:, None] - settings).sum(axis=2)
        nearest = far.argmin(axis=1).astype(float)
        # Equal ones are spread, to be seen.
        jitter = np.random.default_rng(0).uniform(-0.28, 0.28, len(rows))
        return np.where(nearest < most, nearest + jitter, np.nan)

    axis = Axis(-0.5, most - 0.5, name, ticks)
    return FeatureAxis(axis, places, settings[:most], labels[:most], True, place)


def _round_the_cycle(name: str, cycle: str, num: int) -> FeatureAxis:
    """The time of day, the day of the week or of the year."""
    length = CYCLES[cycle]
    places = length * (np.arange(num) + 0.5) / num
    turns = 2 * np.pi * places / length
    settings = np.stack([np.sin(turns), np.cos(turns)], axis=1)

    def place(rows: np.ndarray) -> np.ndarray:
        turn = np.arctan2(rows[:, 0], rows[:, 1]) / (2 * np.pi) % 1.0
        # A missing date is nowhere in the cycle: at its centre.
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
