"""The kinds of column, how each is recognised, and the plan that turns it into numbers.

A plan is plain data. It is learnt from the training rows and turns any later rows into
the same columns. `parse` reads a column once, and `values` and `surprises` take its
result.
"""

import re
from dataclasses import asdict, fields
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from ncai.preprocessing.columns.booleans import BooleanPlan, boolean_pair
from ncai.preprocessing.columns.categories import CategoryPlan
from ncai.preprocessing.columns.column import ColumnGroup, RawColumn, Surprise
from ncai.preprocessing.columns.dates import (
    DatePlan,
    date_format,
    fitting_formats,
    is_ambiguous,
)
from ncai.preprocessing.columns.numbers import (
    PLAIN,
    NumberPlan,
    has_blanks_between_thousands,
    number_form,
    sign_beside,
)

# With fewer rows we cannot recognise a column that numbers the rows.
_FEWEST_FOR_IDS = 20
_ID_NAME = re.compile(r"(^|[_\s.-])(id|uuid|guid|index|key|rownum|row)$|^unnamed", re.I)
# Text with more different values than this share of the rows names the rows.
_TEXT_SHARE = 0.5


class Kind(NamedTuple):
    """What was recognised in a column.

    Attributes:
        name: one of `PLANS`.
        form: how its values are written; its meaning depends on the kind.
        hint: for a category, another kind that it looks like but cannot be read as.
    """

    name: str
    form: Any = None
    hint: str | None = None


def recognise(column: RawColumn) -> Kind | None:
    """The kind of a column; None if all its values are missing."""
    values, types = column.values, pd.api.types
    if values.isna().all():
        return None
    if types.is_bool_dtype(values):
        return Kind("boolean", boolean_pair(("true", "false")))
    if isinstance(values.dtype, pd.CategoricalDtype):
        known = column.known_words.drop_duplicates()
        return Kind("category", hint=_likeness(known, fitting_formats(known)))
    if not column.is_text:
        return Kind("number", PLAIN)
    if column.is_stored_date:
        return Kind("date")
    return _recognise_text(column)


def _recognise_text(column: RawColumn) -> Kind | None:
    known = column.known_words.drop_duplicates()
    if not len(known):
        return None
    if pair := boolean_pair(known):
        return Kind("boolean", pair)
    if form := number_form(column.known_words):
        return Kind("number", form)
    fitting = fitting_formats(known)
    if form := date_format(known, fitting):
        return Kind("date", form)
    return Kind("category", hint=_likeness(known, fitting))


def _likeness(known: pd.Series, fitting: list[str]) -> str | None:
    """Another kind that a column of text looks like but cannot be read as."""
    if is_ambiguous(fitting):
        return (
            "it looks like dates that could be day/month or month/day: written as "
            "2024-01-31 they would be used"
        )
    if has_blanks_between_thousands(known):
        return (
            "it looks like numbers with blanks between thousands: without the blanks "
            "they would be used"
        )
    if sign := sign_beside(known):
        return f"it looks like numbers with {sign!r}: without it they would be used"
    return None


# ----- Columns that name rows ---------------------------------------------------------


def names_rows(column: RawColumn) -> bool:
    """Whether a column is text that differs in most rows."""
    text = column.known_words
    return len(text) >= _FEWEST_FOR_IDS and text.nunique() > _TEXT_SHARE * len(text)


def is_id_like(column: RawColumn, values: np.ndarray, form: str) -> bool:
    """Whether all numbers are whole and distinct, and named like an id or gapless.

    Args:
        column: its name may reveal an id; a duration is never one.
        values: its numbers, NaN where missing.
        form: how they are written.
    """
    if form != PLAIN or pd.api.types.is_timedelta64_dtype(column.values):
        return False
    if len(values) < _FEWEST_FOR_IDS or np.isnan(values).any():
        return False
    if np.any(values % 1 != 0) or len(np.unique(values)) < len(values):
        return False
    return bool(_ID_NAME.search(column.name) or np.ptp(values) < 2 * len(values))


@runtime_checkable
class Plan(Protocol):
    """The rule that turns a column into numbers."""

    name: str

    def parse(self, column: RawColumn) -> Any:
        """Read the column; the result is NaN or None where a value is missing."""
        ...

    def values(self, parsed: Any) -> dict[str, np.ndarray]:
        """Return the columns that it becomes, by name."""
        ...

    def surprises(self, parsed: Any) -> list[Surprise]:
        """Return values that the training rows did not have."""
        ...

    def groups(self, outputs: dict[str, str]) -> list[ColumnGroup]:
        """Return groups of kept columns that move together, by their matrix names."""
        ...


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
    """Convert a plan to values that JSON can hold."""
    return {"kind": kind_of(plan), **asdict(plan)}  # pyright: ignore


def plan_from_dict(state: dict[str, Any]) -> Plan:
    """Create a plan from the result of `plan_to_dict`."""
    cls = PLANS[state["kind"]]
    names = [field.name for field in fields(cls)]
    return cls(
        **{
            name: tuple(state[name]) if isinstance(state[name], list) else state[name]
            for name in names
            if name in state  # a file of an earlier version may lack the latest
        }
    )
