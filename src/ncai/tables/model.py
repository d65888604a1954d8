"""`TableModel`: the model that `ncai fit` saves and the other commands read."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from ncai.estimators._schema import HeaderError, brief, check, form_of
from ncai.estimators.model_file import ModelFileError, read_table_part
from ncai.preprocessing.columns.column import Surprise, surprise_sentences
from ncai.preprocessing.columns.kinds import PLANS
from ncai.preprocessing.table_preparer import TablePreparer
from ncai.tables.read import TableError, numbers, require_columns, table_name

if TYPE_CHECKING:
    from ncai.estimators.bnn_lv import BNNLVRegressor
    from ncai.predictive.distribution import PredictiveDistribution

_A_TABLE = "the table"  # the name of a table without a file


@runtime_checkable
class Preparer(Protocol):
    """Turns a table into the inputs of an estimator."""

    @property
    def columns_used(self) -> Sequence[str] | None:
        """The names of the columns; None if all columns are used, in their order."""
        ...

    @property
    def text_columns(self) -> Sequence[str]:
        """The columns that a reader of text files must not convert to numbers."""
        ...

    def prepare(self, X: Any) -> tuple[Any, list[Surprise]]:
        """Return the inputs, and values that the training rows did not have."""
        ...


@dataclass(frozen=True)
class FitRecord:
    """The request and the results of a fit.

    Args:
        target: the target column; None if the model was fitted in Python.
        command: the command that repeats the fit.
        num_train: number of training rows.
        num_valid: number of rows that chose among restarts.
        num_test: number of rows held out for the scores.
        scores: average scores over the test rows, first of the model, then of
            baselines.
        diagnosis: the diagnosis of z, as `LatentDiagnosis.to_dict` returns it.
    """

    target: str | None = None
    command: str | None = None
    num_train: int | None = None
    num_valid: int | None = None
    num_test: int | None = None
    scores: Sequence[Mapping[str, Any]] = field(default_factory=list)
    diagnosis: Mapping[str, Any] | None = None

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "FitRecord":
        """Create a record from the table part of a model file of any version."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: state[name] for name in state if name in known})


@dataclass(frozen=True)
class TableModel:
    """A fitted estimator that accepts the user's tables as they are.

    `ncai fit` makes one and saves it; `TableModel.load(path)` reads it in Python:

        model = ncai.TableModel.load("houses.ncai")
        model.predict_dist(pd.read_csv("new.csv")).interval(0.9)

    Columns are found by name, in any order, and other columns are ignored.

    Args:
        preparer: turns a table into columns of numbers.
        estimator: predicts from these columns.
        record: the request and the results of the fit.
    """

    preparer: Preparer
    estimator: "BNNLVRegressor"
    record: FitRecord = field(default_factory=FitRecord)

    def prepare(
        self, table: pd.DataFrame, source: str | Path | None = None
    ) -> tuple[Any, list[Surprise]]:
        """Return the estimator's inputs, and values that the training rows lack.

        Args:
            table: the rows as the user has them.
            source: the file of the rows, for error messages.
        """
        if not isinstance(table, pd.DataFrame):
            raise TableError(
                f"table is a {type(table).__name__}; it must be a DataFrame with the "
                "columns of the table that the model was fitted to."
            )
        name = _A_TABLE if source is None else table_name(source)
        if self.preparer.columns_used is not None:
            require_columns(table, self.preparer.columns_used, name)
        try:
            return self.preparer.prepare(table)
        except ValueError as error:
            raise TableError(f"{name}: {error}") from None

    def predict_dist(self, table: pd.DataFrame) -> "PredictiveDistribution":
        """Return the predictive distribution of each row of a table.

        Warns about missing values and levels that the training rows did not have.
        """
        inputs, surprises = self.prepare(table)
        for sentence in surprise_sentences(surprises):
            warnings.warn(sentence, stacklevel=2)
        return self.estimator.predict_dist(inputs)

    def predict(self, table: pd.DataFrame) -> np.ndarray:
        """Return the predicted mean of the target for each row of a table."""
        return self.predict_dist(table).mean()

    def save(self, path: str | Path, include_training: bool = False) -> None:
        """Write the model to one file (safetensors; reading it runs no code).

        Args:
            path: the file; an existing file is replaced in one step.
            include_training: also save the training rows and their latents, which
                `estimator.diagnose` needs and predictions do not.
        """
        from ncai.estimators.persistence import save_model

        table = None
        if isinstance(self.preparer, TablePreparer):
            table = {"preparer": self.preparer.to_dict(), **asdict(self.record)}
        save_model(self.estimator, path, include_training, table)

    @classmethod
    def load(cls, path: str | Path) -> "TableModel":
        """Read a model that `ncai fit` wrote.

        It can also read a model that was fitted and saved in Python; the columns of its
        tables must then contain numbers.
        """
        table = read_table_part(path)  # rejects other files before JAX is loaded
        from ncai.estimators.bnn_lv import BNNLVRegressor

        estimator = BNNLVRegressor.load(path)
        if table is None:
            return cls(NumberColumns.of(estimator), estimator)
        try:
            preparer = _preparer(table["preparer"])
        except HeaderError as error:
            raise ModelFileError(f"{path} {error}.") from None
        names = getattr(estimator, "feature_names_in_", ())
        if list(names) != list(preparer.get_feature_names_out()):
            raise ModelFileError(
                f"{path} is damaged: its columns are not the inputs of its network."
            )
        return cls(preparer, estimator, FitRecord.from_dict(table))


def _preparer(state: Mapping[str, Any]) -> TablePreparer:
    """Return the preparer that a file describes; reject plans that cannot be right."""
    for number, plan in enumerate(state["plans"]):
        place = f"table.preparer.plans.{number}"
        if plan["kind"] not in PLANS:
            raise HeaderError(f"holds {brief(repr(plan['kind']))} as {place}.kind")
        check(plan, form_of(PLANS[plan["kind"]]), place)
    try:
        return TablePreparer.from_dict(state)
    except ValueError as error:
        raise HeaderError(f"cannot prepare a table: {brief(str(error))}") from None


@dataclass(frozen=True)
class NumberColumns:
    """Prepares numeric tables, found by name or order, for a model fitted in Python."""

    columns_used: Sequence[str] | None
    num_inputs: int
    text_columns: Sequence[str] = ()

    @classmethod
    def of(cls, estimator: "BNNLVRegressor") -> "NumberColumns":
        """Return a preparer for the columns that a fitted estimator expects."""
        names = getattr(estimator, "feature_names_in_", None)
        known = None if names is None else [str(name) for name in names]
        return cls(known, estimator.n_features_in_)

    def prepare(self, X: pd.DataFrame) -> tuple[Any, list[Surprise]]:
        """Return the columns, which must contain numbers without missing values."""
        names = self.columns_used
        if names is None:
            names = list(X.columns)
            if len(names) != self.num_inputs:
                raise TableError(
                    "the model was fitted without column names, so the table must have "
                    f"its {self.num_inputs} columns in order, not {len(names)}."
                )
        columns = {name: numbers(X.loc[:, name], _A_TABLE) for name in names}
        inputs = pd.DataFrame(columns, columns=list(names))
        return (inputs if self.columns_used else inputs.to_numpy()), []
