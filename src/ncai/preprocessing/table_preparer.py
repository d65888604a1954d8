"""`TablePreparer`: from a table as people have it to columns of numbers."""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from ncai.preprocessing.columns.groups import ColumnGroup
from ncai.preprocessing.columns.kinds import is_id_like, likeness, names_rows, recognise
from ncai.preprocessing.columns.notes import Limits, Surprise, quoted, tell_surprises
from ncai.preprocessing.columns.plans import (
    PLANS,
    Plan,
    is_plain_number,
    kind_of,
    plan_from_dict,
    plan_to_dict,
)


class TablePreparer(TransformerMixin, BaseEstimator):
    """Numbers, booleans, dates and categories, with gaps, into a matrix of numbers.

    What is done to each column is decided on the rows of `fit`, told by `describe`, and
    done again by `transform`, which finds columns by name, in any order, and ignores
    others. Constant and duplicate columns are dropped. A transformer of scikit-learn:
    alone, or before a regressor in a `Pipeline`.

    Args:
        max_levels: of a category that get a column of their own; the rarest are pooled.
        min_level_rows: a level in fewer rows is rare, and missing values in fewer rows
            get no mark; None: a hundredth of the rows, but from 3 to 10.

    Attributes:
        notes_: for each column of the table, a few words on what was done to it.
        warnings_: sentences on what a person should look at.
        plans_: how each column used becomes numbers.

    Example:
        >>> import pandas as pd
        >>> sold = ["yes", "no", "no"]
        >>> table = pd.DataFrame({"size": [1.0, 2.5, None], "sold": sold})
        >>> preparer = TablePreparer().fit(table)
        >>> preparer.transform(table).tolist()
        [[1.0, 1.0], [2.5, 0.0], [1.75, 0.0]]
        >>> print(preparer.describe()[1])
        sold: yes as 1, no as 0.
    """

    def __init__(self, max_levels=20, min_level_rows=None):
        self.max_levels = max_levels
        self.min_level_rows = min_level_rows

    # ----- Learning -------------------------------------------------------------------

    def fit(self, X, y=None):
        """Decide what to do to each column; `y` is not looked at."""
        del y
        frame = _frame(X)
        if not len(frame):
            raise ValueError("the table has 0 rows; at least 1 is needed.")
        limits = self._limits(len(frame))
        notes: dict[str, str] = {}
        alarms: list[str] = []
        plans: dict[str, Plan] = {}
        for name in frame.columns:
            column = frame.loc[:, name]
            kind = recognise(column)
            if kind is None:
                notes[name] = "dropped: no value is there"
            elif kind == "category" and names_rows(column):
                told = "text that differs in most rows" + _hint(column)
                notes[name] = f"dropped: {told}"
                alarms.append(f"column {quoted(name)} is {told}.")
            else:
                plans[name], notes[name] = PLANS[kind].learn(column, limits)
                if kind == "category" and (hint := _hint(column)):
                    notes[name] += hint
                    alarms.append(f"column {quoted(name)} is used as a category{hint}.")
                if kind == "number" and is_id_like(column, name):
                    alarms.append(
                        f"column {quoted(name)} looks like a row number or id, which "
                        "says nothing about new rows; leave it out if it is one."
                    )
        outputs = _distinct_outputs(frame, plans, notes)
        if not outputs:
            raise ValueError(
                "no column is left to predict from: each is empty, constant, or text "
                "that differs in most rows."
            )
        self.plans_ = {name: plan for name, plan in plans.items() if name in outputs}
        self.outputs_ = _unique_names(outputs)
        self.notes_ = notes
        self.warnings_ = alarms
        self.feature_names_in_ = np.asarray(list(frame.columns), object)
        self.n_features_in_ = len(frame.columns)
        return self

    def _limits(self, num_rows: int) -> Limits:
        if self.min_level_rows is None:
            fewest = min(10, max(3, math.ceil(0.01 * num_rows)))
        else:
            fewest = self.min_level_rows
        for name, value in (
            ("max_levels", self.max_levels),
            ("min_level_rows", fewest),
        ):
            if not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name}={value!r} must be a whole number from 1 on.")
        return Limits(int(self.max_levels), int(fewest))

    # ----- Applying -------------------------------------------------------------------

    def transform(self, X):
        """The matrix; warns of missing values and levels that `fit` did not see."""
        check_is_fitted(self)
        frame, surprises = self.prepare(X)
        for sentence in tell_surprises(surprises):
            warnings.warn(sentence, stacklevel=2)
        return frame.to_numpy()

    def prepare(self, X) -> tuple[pd.DataFrame, list[Surprise]]:
        """The matrix with its column names, and what `fit` did not see."""
        check_is_fitted(self)
        frame = _frame(X, self.feature_names_in_)
        missing = [name for name in self.plans_ if name not in frame.columns]
        if missing:
            raise ValueError(
                f"the table has no column {', '.join(map(repr, missing))}, which the "
                "model was fitted with."
            )
        columns, surprises = {}, []
        for name, plan in self.plans_.items():
            values = plan.values(frame.loc[:, name])
            for part, output in self.outputs_[name].items():
                columns[output] = values[part]
            surprises += plan.surprises(frame.loc[:, name])
        return pd.DataFrame(columns, index=frame.index), surprises

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Names of the columns of the matrix."""
        del input_features
        check_is_fitted(self)
        names = [name for parts in self.outputs_.values() for name in parts.values()]
        return np.asarray(names, object)

    @property
    def columns_used(self) -> list[str]:
        """Columns of the table that the matrix is made of."""
        check_is_fitted(self)
        return list(self.plans_)

    @property
    def text_columns(self) -> list[str]:
        """Columns that a reader of text files should leave as they are."""
        check_is_fitted(self)
        return [name for name, plan in self.plans_.items() if not is_plain_number(plan)]

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each column used."""
        return {name: kind_of(plan) for name, plan in self.plans_.items()}

    def groups(self) -> list[ColumnGroup]:
        """Columns of the matrix that move together, such as those of a category."""
        check_is_fitted(self)
        return [
            group
            for name, plan in self.plans_.items()
            for group in plan.groups(self.outputs_[name])
        ]

    def describe(self) -> list[str]:
        """A sentence on each column: what it holds and what was done to it."""
        check_is_fitted(self)
        return [f"{name}: {note}." for name, note in self.notes_.items()]

    # ----- Plain data -----------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """All of a fitted preparer as JSON has it."""
        check_is_fitted(self)
        return {
            "max_levels": self.max_levels,
            "min_level_rows": self.min_level_rows,
            "columns": [str(name) for name in self.feature_names_in_],
            "plans": [plan_to_dict(plan) for plan in self.plans_.values()],
            "outputs": self.outputs_,
            "notes": self.notes_,
            "warnings": self.warnings_,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "TablePreparer":
        """A fitted preparer from what `to_dict` gave."""
        preparer = cls(state["max_levels"], state["min_level_rows"])
        plans = [plan_from_dict(plan) for plan in state["plans"]]
        preparer.plans_ = {plan.name: plan for plan in plans}
        preparer.outputs_ = {
            name: dict(parts) for name, parts in state["outputs"].items()
        }
        preparer.notes_ = dict(state["notes"])
        preparer.warnings_ = list(state["warnings"])
        preparer.feature_names_in_ = np.asarray(state["columns"], object)
        preparer.n_features_in_ = len(state["columns"])
        return preparer

    def __sklearn_tags__(self):
        """scikit-learn's description of this transformer."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _frame(X, names=None) -> pd.DataFrame:
    """A table whose columns are named by text."""
    if isinstance(X, pd.DataFrame):
        frame = X.set_axis([str(name) for name in X.columns], axis="columns")
    else:
        array = check_array(X, dtype=None, ensure_all_finite=False)  # pyright: ignore
        labels = [f"x{place}" for place in range(array.shape[1])]
        if names is not None:
            if len(names) != array.shape[1]:
                raise ValueError(
                    f"X has {array.shape[1]} features, but TablePreparer is expecting "
                    f"{len(names)} features as input."
                )
            labels = list(names)
        frame = pd.DataFrame(array, columns=labels)
    double = frame.columns[frame.columns.duplicated()]
    if len(double):
        raise ValueError(f"the table has two columns named {double[0]!r}.")
    return frame


def _hint(column: pd.Series) -> str:
    hint = likeness(column)
    return f"; {hint}" if hint else ""


def _distinct_outputs(
    frame: pd.DataFrame, plans: Mapping[str, Plan], notes: dict[str, str]
) -> dict[str, list[str]]:
    """The output columns of each plan that vary and that no earlier one equals."""
    seen: dict[bytes, str] = {}
    outputs: dict[str, list[str]] = {}
    for name, plan in plans.items():
        kept, twin, parts_gone = [], None, {}
        for part, values in plan.values(frame.loc[:, name]).items():
            # A table of one row has nothing that varies, and is used as it is.
            if len(values) > 1 and np.ptp(values) == 0:
                continue
            # Adding 0.0 makes one zero of two.
            code = (values + 0.0).tobytes()
            if code in seen:
                twin = twin or seen[code]
                parts_gone[part] = seen[code]
            else:
                seen[code] = name
                kept.append(part)
        if kept:
            outputs[name] = kept
            mark = f"{name} missing"
            if mark in parts_gone:
                notes[name] = notes[name].replace(
                    f"marked in '{mark}'",
                    f"in the same rows as {quoted(parts_gone[mark])}",
                )
        elif twin is not None and frame.loc[:, name].equals(frame.loc[:, twin]):
            notes[name] = f"dropped: the same as {quoted(twin)} in every row"
        elif twin is not None:
            notes[name] = f"dropped: it tells nothing that {quoted(twin)} does not"
        else:
            notes[name] = "dropped: it has the same value in every row"
    return outputs


def _unique_names(outputs: Mapping[str, list[str]]) -> dict[str, dict[str, str]]:
    """A name in the matrix for each part, its own unless that is taken."""
    taken: set[str] = set()
    named: dict[str, dict[str, str]] = {}
    for column, parts in outputs.items():
        named[column] = {}
        for part in parts:
            name = part
            while name in taken:
                name += "_"
            taken.add(name)
            named[column][part] = name
    return named
