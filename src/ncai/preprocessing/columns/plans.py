"""The kinds of column there are, and the plan that turns each into numbers.

A plan is plain data. It is learnt from the training rows and turns any later rows into
the same columns. `parse` reads a column once; `values` and `surprises` take what it
found.
"""

from dataclasses import asdict, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ncai.preprocessing.columns.booleans import BooleanPlan
from ncai.preprocessing.columns.categories import CategoryPlan
from ncai.preprocessing.columns.column import RawColumn
from ncai.preprocessing.columns.dates import DatePlan
from ncai.preprocessing.columns.groups import ColumnGroup
from ncai.preprocessing.columns.notes import Surprise
from ncai.preprocessing.columns.number_text import PLAIN
from ncai.preprocessing.columns.numbers import NumberPlan


@runtime_checkable
class Plan(Protocol):
    """A column's way to numbers."""

    name: str

    def parse(self, column: RawColumn) -> Any:
        """What the column holds; NaN or None where a value is missing."""
        ...

    def values(self, parsed: Any) -> dict[str, np.ndarray]:
        """The columns made of it, by name."""
        ...

    def surprises(self, parsed: Any) -> list[Surprise]:
        """What the training rows did not have."""
        ...

    def groups(self, outputs: dict[str, str]) -> list[ColumnGroup]:
        """Which of the columns kept, by their names in the matrix, move together."""
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
