"""Columns of dates, stored as dates or written as text."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ncai.preprocessing.columns.column import (
    CYCLES,
    ColumnGroup,
    Learned,
    Limits,
    RawColumn,
    Surprise,
)
from ncai.preprocessing.columns.missing import (
    fill_in,
    filling_note,
    learn_filling,
    new_missing,
)
from ncai.preprocessing.columns.numbers import far_outside, span_of
from ncai.runtime.arguments import one_of

# ISO comes first; day/month and month/day are used only if just one of them fits.
_ISO, _DAY_FIRST, _MONTH_FIRST = "ISO8601", "%d/%m/%Y", "%m/%d/%Y"
_FORMATS = (_ISO, "%d.%m.%Y", _DAY_FIRST, _MONTH_FIRST, "%Y/%m/%d")
_FORMATS = (*_FORMATS, "%b %d, %Y", "%B %d, %Y", "%d %b %Y", "%d %B %Y")
_SECONDS_A_DAY = 86_400
# Pandas counts nanoseconds in 64 bits, which hold the years in between. Dates such as
# 9999-12-31 usually stand for none, and as numbers they would dwarf all others.
_FIRST_YEAR, _LAST_YEAR = 1678, 2261
_MOST_DAYS = 106_700  # of these years from 1970
# A season can be learnt only from data that cover it twice.
_FEWEST_CYCLES = 2


def fitting_formats(known: pd.Series) -> list[str]:
    """Return the formats in which all of these texts are dates."""
    # Try a few values first: most texts are not dates, and parsing all is slow.
    return [
        form
        for form in _FORMATS
        if _as_dates(known.iloc[:20], form).notna().all()
        and _as_dates(known, form).notna().all()
    ]


def date_format(known: pd.Series, fitting: list[str]) -> str | None:
    """Return the format if exactly one fits these texts; else None."""
    if fitting[:1] == [_ISO]:
        # Pandas also reads bare years and the like as dates.
        if known.str.contains("-").all():
            return _ISO
        fitting = fitting[1:]
    return None if not fitting or is_ambiguous(fitting) else fitting[0]


def is_ambiguous(fitting: list[str]) -> bool:
    """Whether dates could be day/month as well as month/day."""
    return {_DAY_FIRST, _MONTH_FIRST} <= set(fitting)


@dataclass(frozen=True)
class DatePlan:
    """Elapsed days, and the position in the year, the week and the day.

    Elapsed time captures a trend; the position in a cycle captures what repeats.
    Positions are given as sine and cosine, so that December is next to January. A cycle
    that the training rows do not cover twice cannot be learnt and is left out.
    """

    name: str
    fill: float
    had_missing: bool
    marked: bool
    format: str | None
    origin: float
    cycles: tuple[str, ...]
    span: tuple[float, float] | None = None

    def __post_init__(self):
        if self.format is not None:
            one_of("format", self.format, _FORMATS)
        for cycle in self.cycles:
            one_of("cycle", cycle, CYCLES)
        for days in (0.0, self.fill, *(self.span or ())):
            if not abs(self.origin + days) < _MOST_DAYS:
                raise ValueError(
                    f"a date {self.origin + days!r} days from 1970 is far."
                )

    @classmethod
    def learn(cls, column: RawColumn, form: str | None, limits: Limits) -> Learned:
        """Plan a column of dates; `form` is None if it is stored as dates."""
        dates = _parse(column, form)
        known = dates[~np.isnan(dates)]
        origin = float(np.floor(known.min()))
        days, cycles = dates - origin, _cycles_in(known)
        filling = learn_filling(days, limits)
        plan = cls(column.name, *filling, form, origin, cycles, span_of(days))
        note = f"a date, as days since {_day(origin)}"
        if cycles:
            note += f" and its place in the {' and the '.join(reversed(cycles))}"
        return Learned(plan, note + filling_note(days, plan, unit=" days"), days)

    def parse(self, column: RawColumn) -> np.ndarray:
        """Days since the origin, NaN where missing."""
        return _parse(column, self.format) - self.origin

    def values(self, parsed: np.ndarray) -> dict[str, np.ndarray]:
        """Days, sines and cosines, and the mark of a missing date."""
        found = fill_in(parsed, self, f"{self.name} days")
        for cycle in self.cycles:
            # Take the remainder first, so that equal weekdays agree to the last digit.
            turn = 2 * np.pi * ((parsed + self.origin) % CYCLES[cycle]) / CYCLES[cycle]
            # A missing date is placed at the centre of the cycle.
            found[f"{self.name} {cycle} sin"] = np.nan_to_num(np.sin(turn))
            found[f"{self.name} {cycle} cos"] = np.nan_to_num(np.cos(turn))
        return found

    def surprises(self, parsed: np.ndarray) -> list[Surprise]:
        """Return missing dates, if training rows had none, and far dates."""
        missing = new_missing(self.name, np.isnan(parsed), self.had_missing)
        return [*missing, *far_outside(self, parsed, self._words)]

    def _words(self, days: float) -> str:
        return _day(self.origin + days)

    def groups(self, outputs: dict[str, str]) -> list[ColumnGroup]:
        """The days with their mark, and the position in each cycle."""
        rest, places = dict(outputs), []
        for cycle in self.cycles:
            parts = [f"{self.name} {cycle} {wave}" for wave in ("sin", "cos")]
            if all(part in outputs for part in parts):
                columns = tuple(rest.pop(part) for part in parts)
                name = f"{self.name}, time of {cycle}"
                places.append(ColumnGroup(name, columns, self.name, cycle=cycle))
        # The days may have been dropped, so that only the mark of missing days is left.
        origin = self.origin if f"{self.name} days" in outputs else None
        days = ColumnGroup(self.name, tuple(rest.values()), self.name, origin=origin)
        return [days, *places] if rest else places


def _parse(column: RawColumn, form: str | None) -> np.ndarray:
    """Return days since 1970 in UTC, or NaN; reject values that are not dates."""
    if column.is_stored_date:
        given, dates = column.values, pd.to_datetime(column.values, utc=True)
    else:
        given, dates = column.words, _as_dates(column.words, form or _ISO)
    example = "2024-01-31" if form in (None, _ISO) else form
    wrong = (dates.isna() & given.notna()).to_numpy()
    column.refuse(wrong, f"dates such as {example}")
    years = dates.dt.year
    far = ((years < _FIRST_YEAR) | (years > _LAST_YEAR)).to_numpy()
    column.refuse(far, f"dates of the years {_FIRST_YEAR} to {_LAST_YEAR}")
    seconds = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
    return seconds.to_numpy(np.float64) / _SECONDS_A_DAY


def _as_dates(values: pd.Series, form: str) -> Any:
    return pd.to_datetime(values, format=form, errors="coerce", utc=True)


def _cycles_in(days: np.ndarray) -> tuple[str, ...]:
    """The cycles that can be learnt from these dates."""
    has_times = bool(np.any(days % 1 != 0))
    return tuple(
        cycle
        for cycle, length in CYCLES.items()
        if np.ptp(days) >= _FEWEST_CYCLES * length
        and (cycle != "day" or has_times)
        and _moves_in(days, length)
    )


def _moves_in(days: np.ndarray, length: float) -> bool:
    """Whether the dates differ in their place in a cycle."""
    turn = 2 * np.pi * (days % length) / length
    # Times of day are known to about 1e-11 of a day.
    return bool(max(np.ptp(np.sin(turn)), np.ptp(np.cos(turn))) > 1e-8)


def _day(days: float) -> str:
    """The date of a number of days since 1970."""
    return f"{pd.Timestamp(0) + pd.Timedelta(days=days):%Y-%m-%d}"
