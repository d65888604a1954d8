"""From a table to a fitted `TableModel`: choose columns, split rows, prepare, train.

The estimators (and JAX with them) are imported after the table has been read and
checked, so that a misspelt name is reported at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ncai.preprocessing.columns.column import counted, surprise_sentences
from ncai.preprocessing.table_preparer import TablePreparer
from ncai.tables.model import FitRecord, TableModel
from ncai.tables.read import (
    TableError,
    numbers,
    read_table,
    require_columns,
    table_name,
)

if TYPE_CHECKING:
    from ncai.estimators.bnn_lv import BNNLVRegressor

FEWEST_ROWS = 3
FEWEST_TO_LEARN_MUCH = 20  # fewer are accepted, with a warning
# Scores on fewer rows mean little; smaller tables hold out none.
FEWEST_TEST_ROWS = 10
FEWEST_TO_SPLIT = 50


@dataclass(frozen=True)
class TableSource:
    """A table, the column to predict, and the columns to predict from.

    Args:
        path: the file with the rows, or "-" for standard input.
        target: column to predict.
        features: columns to predict from; None for all others.
        drop: columns to leave out.
    """

    path: str | Path
    target: str
    features: Sequence[str] | None = None
    drop: Sequence[str] | None = None

    def read(self) -> tuple[pd.DataFrame, list[str], np.ndarray]:
        """Return all rows as given, the names of the inputs, and numeric targets."""
        frame = read_table(self.path)
        names = self._input_names(frame)
        targets = numbers(frame.loc[:, self.target], self.path)
        if len(frame) < FEWEST_ROWS:
            raise TableError(
                f"{table_name(self.path)} has {counted(len(frame), 'row')}; at least "
                f"{FEWEST_ROWS} are needed."
            )
        return frame, names, targets

    def _input_names(self, frame: pd.DataFrame) -> list[str]:
        features, drop, target = self.features, list(self.drop or []), self.target
        require_columns(frame, [target, *(features or []), *drop], self.path)
        if target in drop:
            raise ValueError(
                f"drop={drop!r} contains the target {target!r}, which is needed."
            )
        if features is not None and target in features:
            raise ValueError(
                f"features={list(features)!r} contains the target {target!r}; leave it "
                "out."
            )
        names = list(frame.columns if features is None else dict.fromkeys(features))
        names = [name for name in names if name not in (target, *drop)]
        if not names:
            raise TableError(
                f"{table_name(self.path)} has no column left to predict {target!r} "
                "from."
            )
        return names


@dataclass(frozen=True)
class TableRows:
    """Rows as given, the same rows as numbers, and their targets."""

    raw: pd.DataFrame
    inputs: pd.DataFrame
    targets: np.ndarray

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class FitTables:
    """All prepared rows of a fit; `valid` is None if the estimator holds out rows."""

    preparer: TablePreparer
    target: str
    train: TableRows
    valid: TableRows | None
    test: TableRows | None
    surprises: tuple[str, ...] = ()  # sentences on values new to the training rows


# ----- Rows ---------------------------------------------------------------------------


def load_tables(
    source: TableSource, valid: float | Path | None, test: float | Path, seed: int
) -> FitTables:
    """Read, split and prepare a table; only training rows decide how to prepare it.

    Args:
        source: the table.
        valid: share of the rows, or a file with the rows, that chooses among restarts;
            None leaves the choice to the estimator.
        test: share of the rows, or a file with the rows, that is held out for the
            scores.
        seed: seed of the split.
    """
    frame, names, targets = source.read()
    held = np.arange(0)
    if not isinstance(test, Path):
        held = choose_test_rows(len(frame), test, seed)
    kept = frame.drop(index=held)
    preparer = TablePreparer()
    try:
        inputs = preparer.fit_prepare(kept[names])
    except ValueError as error:
        raise TableError(f"{table_name(source.path)}: {error}") from None
    train = TableRows(kept, inputs, np.delete(targets, held))
    other_rows = _OtherRows(preparer, source)
    test_rows = None
    if isinstance(test, Path):
        test_rows = other_rows.from_file(test)
    elif len(held):
        test_rows = other_rows.held_out(frame.iloc[held], targets[held])
    valid_rows = other_rows.from_file(valid) if isinstance(valid, Path) else None
    if isinstance(valid, float):
        _require_valid_rows(len(train), valid)
    surprises = (*other_rows.surprises, *_few_rows(source, len(train)))
    return FitTables(preparer, source.target, train, valid_rows, test_rows, surprises)


class _OtherRows:
    """Prepares further rows like the training rows, and records unknown values."""

    def __init__(self, preparer: TablePreparer, source: TableSource):
        self.preparer, self.source = preparer, source
        self.surprises: list[str] = []

    def from_file(self, path: Path) -> TableRows:
        """Prepare the rows of another file with the same columns."""
        frame = read_table(path, self.preparer.text_columns)
        names = self.preparer.feature_names_in_
        require_columns(frame, [*names, self.source.target], path)
        targets = numbers(frame.loc[:, self.source.target], path)
        return self._prepared(frame, targets, table_name(path))

    def held_out(self, frame: pd.DataFrame, targets: np.ndarray) -> TableRows:
        """Prepare held-out rows of the table itself."""
        name = table_name(self.source.path)
        return self._prepared(frame, targets, name, ", held-out rows")

    def _prepared(
        self, frame: pd.DataFrame, targets: np.ndarray, name: str, part: str = ""
    ) -> TableRows:
        try:
            inputs, found = self.preparer.prepare(frame)
        except ValueError as error:
            raise TableError(f"{name}: {error}") from None
        self.surprises += [f"{name}{part}: {one}" for one in surprise_sentences(found)]
        return TableRows(frame, inputs, targets)


def choose_test_rows(num_rows: int, share: float, seed: int) -> np.ndarray:
    """Choose test rows, which are neither trained on nor used to choose a restart."""
    if share == 0 or num_rows < FEWEST_TO_SPLIT:
        return np.arange(0)
    count = max(FEWEST_TEST_ROWS, round(share * num_rows))
    if num_rows - count < FEWEST_ROWS:
        raise ValueError(
            f"test={share:g} leaves {num_rows - count} of {num_rows} rows to fit; at "
            f"least {FEWEST_ROWS} are needed."
        )
    # The estimator holds out rows with the same seed, so this needs another stream.
    rng = np.random.default_rng([seed, 1])
    return np.sort(rng.choice(num_rows, count, replace=False))


def _require_valid_rows(num_rows: int, share: float) -> None:
    """Reject a share that is too small: the estimator would then hold out no rows."""
    from ncai.fitting.holdout import FEWEST_HELD_OUT

    held = round(share * num_rows)
    if share and min(held, num_rows - held) < FEWEST_HELD_OUT:
        raise ValueError(
            f"valid={share:g} holds out {held} of {num_rows} rows and leaves "
            f"{num_rows - held} to train on; both must be at least {FEWEST_HELD_OUT} "
            "(0 holds out none)."
        )


def _few_rows(source: TableSource, num_rows: int) -> list[str]:
    if num_rows >= FEWEST_TO_LEARN_MUCH:
        return []
    return [
        f"{table_name(source.path)}: with only {num_rows} rows to train on, the model "
        "can learn little more than how y varies."
    ]


# ----- Training -----------------------------------------------------------------------


def check_settings(settings: Mapping[str, Any]) -> None:
    """Reject invalid settings before anything is printed or trained."""
    from ncai.estimators.bnn_lv import BNNLVRegressor

    BNNLVRegressor().set_params(**settings).resolved_settings()


def fit_table(
    tables: FitTables, settings: Mapping[str, Any], command: str | None = None
) -> TableModel:
    """Fit a model to the training rows; it can prepare other rows in the same way.

    Args:
        tables: the rows.
        settings: arguments of the estimator.
        command: the command line that repeats the fit, for the record.
    """
    from ncai.estimators.bnn_lv import BNNLVRegressor

    valid = {}
    if tables.valid is not None:
        valid = {"X_valid": tables.valid.inputs, "y_valid": tables.valid.targets}
    estimator = BNNLVRegressor().set_params(**settings)
    estimator.fit(tables.train.inputs, tables.train.targets, **valid)
    return TableModel(tables.preparer, estimator, _record(tables, estimator, command))


def _record(
    tables: FitTables, estimator: "BNNLVRegressor", command: str | None
) -> FitRecord:
    """Return the record of a fit before it is scored."""
    trained = estimator.train_index_
    num_train = 0 if trained is None else len(trained)
    num_valid = len(tables.train) - num_train
    if tables.valid is not None:
        num_valid = len(tables.valid)
    num_test = 0 if tables.test is None else len(tables.test)
    return FitRecord(tables.target, command, num_train, num_valid, num_test)
