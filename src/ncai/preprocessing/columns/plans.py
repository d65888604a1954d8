"""How a column of each kind becomes columns of numbers. Plans are plain data.

A plan is learnt from the training rows, turns any later rows into the same columns, and
tells what it met that the training rows did not have.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

import numpy as np
import pandas as pd

from ncai.preprocessing.columns import kinds as parsing
from ncai.preprocessing.columns.categories import MISSING, CategoryPlan
from ncai.preprocessing.columns.groups import CYCLES, ColumnGroup, group_of_levels
from ncai.preprocessing.columns.notes import Limits, Surprise, counted
from ncai.preprocessing.columns.number_text import FORM_WORDS, PLAIN

# A season is learnt from data that show it twice.
_FEWEST_CYCLES = 2
_FAR = 0.25  # of the span of the training rows


class Plan(Protocol):
    """A column's way to numbers."""

    name: str

    def values(self, column: pd.Series) -> dict[str, np.ndarray]:
        """The columns made of it, by name."""
        ...

    def surprises(self, column: pd.Series) -> list[Surprise]:
        """What the training rows did not have."""
        ...

    def groups(self, outputs: dict[str, str]) -> list[ColumnGroup]:
        """Which of the columns kept, by their names in the matrix, move together."""
        ...


@dataclass(frozen=True)
class NumberPlan:
    """A number as it is; missing values become the median, marked if not too few."""

    name: str
    fill: float
    had_missing: bool
    marked: bool
    junk_is_missing: bool
    span: tuple[float, float] | None = None
    form: str = PLAIN

    @classmethod
    def learn(cls, column: pd.Series, limits: Limits) -> tuple["NumberPlan", str]:
        """The plan, and a sentence on it."""
        form = parsing.form_of_numbers(column)
        junk, example = parsing.count_junk(column, form)
        values = parsing.parse_numbers(column, junk > 0, form)
        name, filling = str(column.name), _filling(values, limits)
        plan = cls(name, *filling, junk > 0, _span(values), form)
        note = FORM_WORDS[form]
        if junk:
            others = f"{counted(junk, 'value')} such as {example!r}"
            note += f"; {others} taken as missing"
        elif form == PLAIN:
            note += ", used as it is"
        return plan, note + _told_filling(values, plan)

    def parse(self, column: pd.Series) -> np.ndarray:
        """The numbers, NaN where missing."""
        return parsing.parse_numbers(column, self.junk_is_missing, self.form)

    def values(self, column: pd.Series) -> dict[str, np.ndarray]:
        """The number, and the mark of a missing one."""
        return _filled(self.name, self.parse(column), self.fill, self.marked)

    def surprises(self, column: pd.Series) -> list[Surprise]:
        """Missing values where there were none, and values far from all there were."""
        values = self.parse(column)
        return [*_new_missing(self, values), *_far_outside(self, values)]

    def groups(self, outputs: dict[str, str]) -> list[ColumnGroup]:
        """The number with its mark."""
        return [ColumnGroup(self.name, tuple(outputs.values()), self.name)]


@dataclass(frozen=True)
class BooleanPlan:
    """True as 1, false as 0."""

    name: str
    fill: float
    had_missing: bool
    marked: bool
    pair: tuple[str, str]

    @classmethod
    def learn(cls, column: pd.Series, limits: Limits) -> tuple["BooleanPlan", str]:
        """The plan, and a sentence on it."""
        known = parsing.words(column).dropna().unique()
        pair = parsing.boolean_pair(known) or ("true", "false")
        values = parsing.parse_booleans(column, pair)
        plan = cls(str(column.name), *_filling(values, limits), pair)
        return plan, f"{pair[0]} as 1, {pair[1]} as 0{_told_filling(values, plan)}"

    def parse(self, column: pd.Series) -> np.ndarray:
        """1 and 0, NaN where missing."""
        return parsing.parse_booleans(column, tuple(self.pair))  # pyright: ignore

    def values(self, column: pd.Series) -> dict[str, np.ndarray]:
        """1 or 0, and the mark of a missing value."""
        return _filled(self.name, self.parse(column), self.fill, self.marked)

    def surprises(self, column: pd.Series) -> list[Surprise]:
        """Missing values where there were none."""
        return _new_missing(self, self.parse(column))

    def groups(self, outputs: dict[str, str]) -> list[ColumnGroup]:
        """Both values, and the mark of a missing one."""
        yes, no = self.pair
        examples = {no: no, yes: yes} | ({MISSING: None} if self.marked else {})
        return [group_of_levels(self, examples, outputs)]


@dataclass(frozen=True)
class DatePlan:
    """Elapsed days, and the place in the year, the week and the day.

    Both, since they say different things: elapsed time carries a trend, the place in a
    cycle what comes again. As sine and cosine, so that December is beside January. A
    cycle that the training rows do not show twice cannot be learnt, and is left out.
    """

    name: str
    fill: float
    had_missing: bool
    marked: bool
    format: str | None
    origin: float
    cycles: tuple[str, ...]
    span: tuple[float, float] | None = None

    @classmethod
    def learn(cls, column: pd.Series, limits: Limits) -> tuple["DatePlan", str]:
        """The plan, and a sentence on it."""
        stored = pd.api.types.is_datetime64_any_dtype(column)
        text = None if stored else parsing.words(column)
        form = None if text is None else parsing.date_format(text[~text.isna()])
        days = parsing.parse_dates(column, form)
        known = days[~np.isnan(days)]
        origin = float(np.floor(known.min()))
        has_times = bool(np.any(known % 1 != 0))
        cycles = tuple(
            cycle
            for cycle, length in CYCLES.items()
            if np.ptp(known) >= _FEWEST_CYCLES * length
            and (cycle != "day" or has_times)
            and _moves_in(known, length)
        )
        filling = _filling(days - origin, limits)
        span = _span(days - origin)
        plan = cls(str(column.name), *filling, form, origin, cycles, span)
        note = f"a date, as days since {_day(origin)}"
        if cycles:
            note += f" and its place in the {' and the '.join(reversed(cycles))}"
        return plan, note + _told_filling(days - origin, plan, unit=" days")

    def parse(self, column: pd.Series) -> np.ndarray:
        """Days since the origin, NaN where missing."""
        return parsing.parse_dates(column, self.format) - self.origin

    def values(self, column: pd.Series) -> dict[str, np.ndarray]:
        """Days, sines and cosines, and the mark of a missing date."""
        days = self.parse(column)
        found = _filled(f"{self.name} days", days, self.fill, self.marked, self.name)
        for cycle in self.cycles:
            # The rest first, so that the same weekday is the same to the last digit.
            turn = 2 * np.pi * ((days + self.origin) % CYCLES[cycle]) / CYCLES[cycle]
            # A missing date is nowhere in the cycle: its centre.
            found[f"{self.name} {cycle} sin"] = np.nan_to_num(np.sin(turn))
            found[f"{self.name} {cycle} cos"] = np.nan_to_num(np.cos(turn))
        return found

    def surprises(self, column: pd.Series) -> list[Surprise]:
        """Missing dates where there were none, and dates far from all there were."""
        days = self.parse(column)
        return [*_new_missing(self, days), *_far_outside(self, days, self._words)]

    def _words(self, days: float) -> str:
        return _day(self.origin + days)

    def groups(self, outputs: dict[str, str]) -> list[ColumnGroup]:
        """The days with their mark, and the place in each cycle."""
        rest, places = dict(outputs), []
        for cycle in self.cycles:
            parts = [f"{self.name} {cycle} {wave}" for wave in ("sin", "cos")]
            if all(part in outputs for part in parts):
                columns = tuple(rest.pop(part) for part in parts)
                name = f"{self.name}, time of {cycle}"
                places.append(ColumnGroup(name, columns, self.name, cycle=cycle))
        # The days may have been dropped, and only the mark of missing ones be left.
        origin = self.origin if f"{self.name} days" in outputs else None
        days = ColumnGroup(self.name, tuple(rest.values()), self.name, origin=origin)
        return [days, *places] if rest else places


PLANS: dict[str, Any] = {
    "number": NumberPlan,
    "boolean": BooleanPlan,
    "date": DatePlan,
    "category": CategoryPlan,
}


def kind_of(plan: Plan) -> str:
    """The kind of column that a plan is for."""
    return next(kind for kind, cls in PLANS.items() if isinstance(plan, cls))


def is_plain_number(plan: Plan) -> bool:
    """Whether any reader of text files finds the same numbers."""
    return isinstance(plan, NumberPlan) and plan.form == PLAIN


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """A plan as JSON has it."""
    return {"kind": kind_of(plan), **asdict(plan)}  # pyright: ignore


def plan_from_dict(state: dict[str, Any]) -> Plan:
    """A plan from what `plan_to_dict` gave."""
    cls = PLANS[state["kind"]]
    names = [field.name for field in fields(cls)]
    return cls(
        **{
            name: tuple(state[name]) if isinstance(state[name], list) else state[name]
            for name in names
            if name in state  # a file of an earlier version may lack the latest
        }
    )


# ----- Missing values -----------------------------------------------------------------


def _filling(values: np.ndarray, limits: Limits) -> tuple[float, bool, bool]:
    """Median, whether any is missing, and whether enough for a mark."""
    missing = int(np.isnan(values).sum())
    fill = float(np.nanmedian(values))
    return fill, missing > 0, missing >= limits.min_rows


def _span(values: np.ndarray) -> tuple[float, float]:
    return float(np.nanmin(values)), float(np.nanmax(values))


def _far_outside(
    plan, values: np.ndarray, say: Callable[[float], str] = "{:g}".format
) -> list[Surprise]:
    """Values beyond the training rows by more than a quarter of their whole span."""
    if plan.span is None:
        return []
    low, high = plan.span
    margin = _FAR * (high - low)
    count = int(np.sum((values < low - margin) | (values > high + margin)))
    if not count:
        return []
    return [Surprise(plan.name, "far outside", count, (f"{say(low)} to {say(high)}",))]


def _filled(
    name: str, values: np.ndarray, fill: float, marked: bool, marks: str | None = None
) -> dict[str, np.ndarray]:
    missing = np.isnan(values)
    found = {name: np.where(missing, fill, values)}
    if marked:
        found[f"{marks or name} missing"] = missing.astype(np.float64)
    return found


def _told_filling(values: np.ndarray, plan, unit: str = "") -> str:
    missing = int(np.isnan(values).sum())
    if not missing:
        return ""
    median = f"{plan.fill:.6g}{unit}"
    told = f"; {counted(missing, 'missing value')} became the median, {median}"
    return told + (f", marked in '{plan.name} missing'" if plan.marked else "")


def _new_missing(plan, values: np.ndarray) -> list[Surprise]:
    missing = int(np.isnan(values).sum())
    if not missing or plan.had_missing:
        return []
    return [Surprise(plan.name, "missing", missing)]


# ----- Dates --------------------------------------------------------------------------


def _day(days: float) -> str:
    """The date of a number of days since 1970."""
    return f"{pd.Timestamp(0) + pd.Timedelta(days=days):%Y-%m-%d}"


def _moves_in(days: np.ndarray, length: float) -> bool:
    """Whether the dates differ in their place in a cycle."""
    turn = 2 * np.pi * (days % length) / length
    # Times of day are known to about 1e-11 of a day.
    return bool(max(np.ptp(np.sin(turn)), np.ptp(np.cos(turn))) > 1e-8)
