"""`TableModel`: what `ncai fit` makes of a table, and the other commands read."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from ncai.estimators.model_file import ModelFileError, read_table_part
from ncai.preprocessing.columns.column import Surprise, surprise_sentences
from ncai.preprocessing.table_preparer import TablePreparer
from ncai.tables.read import TableError, numbers, require_columns, table_name

if TYPE_CHECKING:
    from ncai.estimators.bnn_lv import BNNLVRegressor
    from ncai.predictive.distribution import PredictiveDistribution

_A_TABLE = "the table"  # one that has no file name


@runtime_checkable
class Preparer(Protocol):
    """The way from a table to the inputs of an estimator."""

    @property
    def columns_used(self) -> Sequence[str] | None:
        """Names of the columns; None where all are used, in their order."""
        ...

    @property
    def text_columns(self) -> Sequence[str]:
        """Columns that a reader of text files should leave as text."""
        ...

    def prepare(self, X: Any) -> tuple[Any, list[Surprise]]:
        """The inputs, and what the training rows did not have."""
        ...


@dataclass(frozen=True)
class FitRecord:
    """What a fit was asked for and what came of it.

    Args:
        target: the column predicted; None if the model was fitted in Python.
        command: the command that repeats the fit.
        num_train: rows trained on.
        num_valid: rows that chose among restarts.
        num_test: rows that only the scores were computed on.
        scores: averages over the test rows, of the model and then of baselines.
        diagnosis: the verdict on z, as `LatentDiagnosis.to_dict` gives it.
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
        """A record from the table part of a model file, of an earlier version too."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: state[name] for name in state if name in known})


@dataclass(frozen=True)
class TableModel:
    """A fitted estimator that takes tables as people have them.

    `ncai fit` makes one and saves it; `TableModel.load(path)` reads it in Python:

        model = ncai.TableModel.load("houses.ncai")
        model.predict_dist(pd.read_csv("new.csv")).interval(0.9)

    Columns are found by name, in any order, and other columns are ignored.

    Args:
        preparer: turns a table into columns of numbers.
        estimator: predicts from these.
        record: what the fit was asked for and what came of it.
    """

    preparer: Preparer
    estimator: "BNNLVRegressor"
    record: FitRecord = field(default_factory=FitRecord)

    def prepare(
        self, table: pd.DataFrame, source: str | Path | None = None
    ) -> tuple[Any, list[Surprise]]:
        """The estimator's inputs, and what the training rows did not have.

        Args:
            table: rows as people have them.
            source: the file they come from, to be named where something is wrong.
        """
        name = _A_TABLE if source is None else table_name(source)
        if self.preparer.columns_used is not None:
            require_columns(table, self.preparer.columns_used, name)
        try:
            return self.preparer.prepare(table)
        except ValueError as error:
            raise TableError(f"{name}: {error}") from None

    def predict_dist(self, table: pd.DataFrame) -> "PredictiveDistribution":
        """The predictive distribution of each row of a table.

        Warns of missing values and levels that the training rows did not have.
        """
        inputs, surprises = self.prepare(table)
        for sentence in surprise_sentences(surprises):
            warnings.warn(sentence, stacklevel=2)
        return self.estimator.predict_dist(inputs)

    def predict(self, table: pd.DataFrame) -> np.ndarray:
        """The mean of the target for each row of a table."""
        return self.predict_dist(table).mean()

    def save(self, path: str | Path, include_training: bool = False) -> None:
        """Write all of it to one file (safetensors; reading it runs no code).

        Args:
            path: where; an existing file is replaced in one step.
            include_training: also the training rows and their latents, which
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

        A model that was fitted and saved in Python can be read too: the columns of its
        tables must hold numbers.
        """
        table = read_table_part(path)  # refuses other files before JAX is loaded
        from ncai.estimators.bnn_lv import BNNLVRegressor

        estimator = BNNLVRegressor.load(path)
        if table is None:
            return cls(NumberColumns.of(estimator), estimator)
        try:
            preparer = TablePreparer.from_dict(table["preparer"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ModelFileError(
                f"{path} lacks part of how to prepare a table ({error})."
            ) from None
        return cls(preparer, estimator, FitRecord.from_dict(table))


@dataclass(frozen=True)
class NumberColumns:
    """Inputs of a model fitted in Python: numbers already, by name or by order."""

    columns_used: Sequence[str] | None
    num_inputs: int
    text_columns: Sequence[str] = ()

    @classmethod
    def of(cls, estimator: "BNNLVRegressor") -> "NumberColumns":
        """The columns that a fitted estimator expects."""
        names = getattr(estimator, "feature_names_in_", None)
        known = None if names is None else [str(name) for name in names]
        return cls(known, estimator.n_features_in_)

    def prepare(self, X: pd.DataFrame) -> tuple[Any, list[Surprise]]:
        """The columns, which must hold numbers without gaps."""
        names = self.columns_used
        if names is None:
            names = list(X.columns)
            if len(names) != self.num_inputs:
                raise TableError(
                    "the model does not know its columns by name, so there must be "
                    f"its {self.num_inputs} columns in order, not {len(names)}."
                )
        columns = {name: numbers(X.loc[:, name], _A_TABLE) for name in names}
        inputs = pd.DataFrame(columns, columns=list(names))
        return (inputs if self.columns_used else inputs.to_numpy()), []
