"""`TablePreparer`, which turns a user's table into columns of numbers."""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from ncai.preprocessing.columns.column import (
    ColumnGroup,
    Limits,
    RawColumn,
    Surprise,
    counted,
    quoted,
    surprise_sentences,
)
from ncai.preprocessing.columns.kinds import (
    PLANS,
    Plan,
    is_id_like,
    is_plain_number,
    kind_of,
    names_rows,
    plan_from_dict,
    plan_to_dict,
    recognise,
)
from ncai.preprocessing.columns.missing import note_of_shared_mark
from ncai.preprocessing.columns.numbers import warnings_of


class TablePreparer(TransformerMixin, BaseEstimator):
    """Turn numbers, booleans, dates and categories into a numeric matrix.

    `fit` decides how to process each column and how to fill missing values, `describe`
    explains the decisions, and `transform` applies them to other rows. It finds columns
    by name, in any order, and ignores others. Constant and duplicate columns are
    dropped. This is a scikit-learn transformer, which can be used alone or before a
    regressor in a `Pipeline`.

    Args:
        max_levels: the largest number of levels of a category that get their own
            column; the rarest levels are pooled.
        min_level_rows: a level with fewer rows counts as rare, and missing values in
            fewer rows get no mark. None means a hundredth of the rows, but at least 3
            and at most 10.

    Attributes:
        notes_: for each column of the table, a few words on what was done to it.
        warnings_: sentences on what the user should check.
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
        """Decide how to process each column; `y` is not used."""
        del y
        self.fit_prepare(X)
        return self

    def fit_prepare(self, X) -> pd.DataFrame:
        """Decide how to process each column, and return the matrix of these rows."""
        frame = _frame(X)
        if not len(frame):
            raise ValueError("the table has 0 rows; at least 1 is needed.")
        limits = self._limits(len(frame))
        learned = _LearnedColumns()
        for name in frame.columns:
            learned.add(RawColumn(frame.loc[:, name]), limits)
        outputs = _distinct_outputs(frame, learned)
        if not outputs:
            raise ValueError(
                "no column is left to predict from: each is empty, constant, or text "
                "that differs in most rows."
            )
        self.plans_ = {name: learned.plans[name] for name in outputs}
        self.outputs_ = _unique_names(outputs)
        self.notes_ = learned.notes
        self.warnings_ = learned.warnings
        self.feature_names_in_ = np.asarray(list(frame.columns), object)
        self.n_features_in_ = len(frame.columns)
        return self._matrix(learned.values, frame.index)

    def fit_transform(self, X, y=None, **fit_params):
        """`fit`, then `transform` of the same rows, whose columns are read once."""
        del y, fit_params
        return self.fit_prepare(X).to_numpy()

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
        """Return the matrix; warn about missing values and levels that are new."""
        check_is_fitted(self)
        frame, surprises = self.prepare(X)
        for sentence in surprise_sentences(surprises):
            warnings.warn(sentence, stacklevel=2)
        return frame.to_numpy()

    def prepare(self, X) -> tuple[pd.DataFrame, list[Surprise]]:
        """Return the matrix with column names, and values that `fit` did not see."""
        check_is_fitted(self)
        frame = _frame(X, self.feature_names_in_)
        missing = [name for name in self.plans_ if name not in frame.columns]
        if missing:
            raise ValueError(
                f"the table has no column {', '.join(map(repr, missing))}, which the "
                "model was fitted with."
            )
        values, surprises = {}, []
        for name, plan in self.plans_.items():
            parsed = plan.parse(RawColumn(frame.loc[:, name]))
            values[name] = plan.values(parsed)
            surprises += plan.surprises(parsed)
        return self._matrix(values, frame.index), surprises

    def _matrix(
        self, values: Mapping[str, Mapping[str, np.ndarray]], index: pd.Index
    ) -> pd.DataFrame:
        """The kept columns of all plans, by their names in the matrix."""
        columns = {
            output: values[name][part]
            for name, parts in self.outputs_.items()
            for part, output in parts.items()
        }
        return pd.DataFrame(columns, index=index)

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
        """Return columns of the matrix that move together, such as all levels."""
        check_is_fitted(self)
        return [
            group
            for name, plan in self.plans_.items()
            for group in plan.groups(self.outputs_[name])
        ]

    def describe(self) -> list[str]:
        """Return a sentence on each column: its kind and how it was processed."""
        check_is_fitted(self)
        return [f"{name}: {note}." for name, note in self.notes_.items()]

    # ----- Plain data -----------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Convert a fitted preparer to values that JSON can hold."""
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
        """Create a fitted preparer from the result of `to_dict`.

        Raises:
            ValueError: plans and columns do not belong together.
        """
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
        preparer._check_parts()
        return preparer

    def _check_parts(self) -> None:
        """Check that each plan makes the parts that the matrix takes from it."""
        if list(self.outputs_) != list(self.plans_):
            raise ValueError("the plans are not those of the columns of the matrix.")
        if not set(self.plans_) <= set(self.feature_names_in_):
            raise ValueError("there is a plan for a column that the table lacks.")
        for name, plan in self.plans_.items():
            nothing = RawColumn(pd.Series([None], name=name, dtype=object))
            made = plan.values(plan.parse(nothing))
            if not self.outputs_[name] or not self.outputs_[name].keys() <= made.keys():
                raise ValueError(f"the plan of column {quoted(name)} lacks a part.")

    def __sklearn_tags__(self):
        """scikit-learn's description of this transformer."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _frame(X, names=None) -> pd.DataFrame:
    """Convert X to a table whose column names are text."""
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


class _LearnedColumns:
    """The decision on each column of a table, and the resulting values."""

    def __init__(self):
        self.plans: dict[str, Plan] = {}
        self.values: dict[str, dict[str, np.ndarray]] = {}
        self.notes: dict[str, str] = {}
        self.warnings: list[str] = []

    def add(self, column: RawColumn, limits: Limits) -> None:
        """Recognise a column and learn its plan."""
        name, kind = column.name, recognise(column)
        if kind is None:
            self.notes[name] = "dropped: all values are missing"
            return
        hint = f"; {kind.hint}" if kind.hint else ""
        if kind.name == "category" and names_rows(column):
            found = "text that differs in most rows" + hint
            self.notes[name] = f"dropped: {found}"
            self.warnings.append(f"column {quoted(name)} is {found}.")
            return
        plan, note, parsed = PLANS[kind.name].learn(column, kind.form, limits)
        self.plans[name], self.notes[name] = plan, note + hint
        self.values[name] = plan.values(parsed)
        if hint:
            self.warnings.append(f"column {quoted(name)} is used as a category{hint}.")
        if kind.name == "number":
            for sentence in warnings_of(column, parsed):
                self.warnings.append(f"column {quoted(name)} {sentence}.")
        if kind.name == "number" and is_id_like(column, parsed, kind.form):
            self.warnings.append(
                f"column {quoted(name)} looks like a row number or id, which says "
                "nothing about new rows; leave it out if it is one."
            )


def _distinct_outputs(
    frame: pd.DataFrame, learned: _LearnedColumns
) -> dict[str, list[str]]:
    """The output columns of each plan that vary and equal no earlier column."""
    seen: dict[bytes, str] = {}
    outputs: dict[str, list[str]] = {}
    for name, values in learned.values.items():
        kept, equals = _kept_parts(name, values, seen)
        if kept:
            outputs[name] = kept
            if equals:
                note = note_of_shared_mark(learned.notes[name], name, equals)
                learned.notes[name] = note
        else:
            learned.notes[name] = _why_dropped(frame, name, equals)
            if not equals and _rare_levels(frame.loc[:, name]):
                learned.warnings.append(
                    f"column {quoted(name)} is not used: "
                    f"{_rare_levels(frame.loc[:, name])}."
                )
    return outputs


def _kept_parts(
    name: str, values: Mapping[str, np.ndarray], seen: dict[bytes, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the parts of a column to keep, and the parts that equal earlier ones.

    Args:
        name: name of the column.
        values: its parts, by name.
        seen: for known values, the first column that has them; the values of this
            column are added.
    """
    kept, equals = [], {}
    for part, numbers in values.items():
        # In a table of one row nothing varies, so it is used as it is.
        if len(numbers) > 1 and np.ptp(numbers) == 0:
            continue
        # Adding 0.0 turns -0.0 into 0.0.
        code = (numbers + 0.0).tobytes()
        if code in seen:
            equals[part] = seen[code]
        else:
            seen[code] = name
            kept.append(part)
    return kept, equals


def _why_dropped(frame: pd.DataFrame, name: str, equals: Mapping[str, str]) -> str:
    if not equals:
        rare = _rare_levels(frame.loc[:, name])
        return f"dropped: {rare or 'it has the same value in every row'}"
    twin = next(iter(equals.values()))
    if frame.loc[:, name].equals(frame.loc[:, twin]):
        return f"dropped: the same as {quoted(twin)} in every row"
    return f"dropped: it carries the same information as {quoted(twin)}"


def _rare_levels(values: pd.Series) -> str | None:
    """Say that several levels were pooled, although their values differ."""
    words = RawColumn(values).known_words
    if words.nunique() < 2:
        return None
    most = counted(words.value_counts().iloc[0], "row")
    return f"all of its {words.nunique()} levels are rare, in at most {most} each"


def _unique_names(outputs: Mapping[str, list[str]]) -> dict[str, dict[str, str]]:
    """Give each part a name in the matrix: its own, unless another part has it."""
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
