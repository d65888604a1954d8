"""`ncai fit`: from a table to a fitted model, its scores, and what baselines score.

The estimators (and JAX with them) are imported once the table is read and found good,
so that a misspelt name is told at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ncai.cli._options import in_options
from ncai.preprocessing.columns.notes import Surprise, tell_surprises
from ncai.preprocessing.table_preparer import TablePreparer
from ncai.tables.columns import numbers, require_columns, table_name
from ncai.tables.model import FitRecord, TableModel
from ncai.tables.read import TableError, read_table

if TYPE_CHECKING:
    from ncai.estimators.bnn_lv import BNNLVRegressor

FEWEST_ROWS = 3
USUAL_LAYERS = (50,)  # of a baseline, where the model has a network of one's own
FEWEST_TO_LEARN_MUCH = 20  # fewer are taken, with a warning
FEWEST_TO_DIAGNOSE = 10  # statistics of fewer z tell nothing
# Fewer held-out rows would say little; tables that cannot spare them hold out none.
FEWEST_TEST_ROWS = 10
FEWEST_TO_SPLIT = 50


@dataclass(frozen=True)
class TableRows:
    """Rows as given, as numbers, and what is to be predicted."""

    raw: pd.DataFrame
    inputs: pd.DataFrame
    targets: np.ndarray

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class FitTables:
    """All rows of a fit, prepared. `valid` is None if the estimator splits them off."""

    preparer: TablePreparer
    target: str
    train: TableRows
    valid: TableRows | None
    test: TableRows | None
    surprises: tuple[str, ...] = ()  # sentences on what other rows have that is new


def load_tables(
    path: str | Path,
    target: str,
    features: Sequence[str] | None,
    drop: Sequence[str] | None,
    valid: float | Path | None,
    test: float | Path,
    seed: int,
) -> FitTables:
    """Read, split and prepare; columns are judged by the rows trained on alone."""
    frame = read_table(path)
    names = choose_columns(frame, target, features, drop, path)
    wanted = [*names, target]
    targets = numbers(frame.loc[:, target], path)
    require_rows(frame, path)
    held = np.arange(0)
    if not isinstance(test, Path):
        held = choose_test_rows(len(frame), test, seed)
    train_frame = frame.drop(index=held)
    train_columns: Any = train_frame[names]
    preparer, train_inputs = _fit_preparer(train_columns, path)
    surprises: list[str] = []

    def prepared(rows: pd.DataFrame, source: str | Path, part: str = "") -> TableRows:
        inputs, found = prepare_inputs(preparer, rows, source)
        name = f"{table_name(source)}{part}"
        surprises.extend(f"{name}: {s}" for s in tell_surprises(found))
        return TableRows(rows, inputs, numbers(rows.loc[:, target], source))

    def other_file(source: Path) -> TableRows:
        rows = read_table(source, preparer.text_columns)
        require_columns(rows, wanted, source)
        return prepared(rows, source)

    train = TableRows(train_frame, train_inputs, np.delete(targets, held))
    test_rows = None
    if isinstance(test, Path):
        test_rows = other_file(test)
    elif len(held):
        test_rows = prepared(frame.iloc[held], path, ", rows kept apart to score")
    valid_rows = other_file(valid) if isinstance(valid, Path) else None
    if isinstance(valid, float):
        _require_valid_rows(len(train), valid)
    if len(train) < FEWEST_TO_LEARN_MUCH:
        surprises.append(
            f"{table_name(path)}: {len(train)} rows to learn from say little beyond "
            "how y scatters; expect no more of the model."
        )
    told = tuple(surprises)
    return FitTables(preparer, target, train, valid_rows, test_rows, told)


def require_rows(frame: pd.DataFrame, path: str | Path) -> None:
    """Refuse a table that has too few to learn anything."""
    if len(frame) < FEWEST_ROWS:
        count = f"{len(frame)} row{'s' if len(frame) > 1 else ''}"
        raise TableError(
            f"{table_name(path)} has {count}; at least {FEWEST_ROWS} are needed."
        )


def _require_valid_rows(num_rows: int, share: float) -> None:
    """Refuse a share that cannot be held out: the estimator would hold out none."""
    from ncai.fitting.holdout import FEWEST_HELD_OUT

    held = round(share * num_rows)
    if share and min(held, num_rows - held) < FEWEST_HELD_OUT:
        raise ValueError(
            f"--valid {share:g} holds out {held} of {num_rows} rows and leaves "
            f"{num_rows - held} to train on; both must be {FEWEST_HELD_OUT} at least "
            "(0 holds out none)."
        )


def choose_columns(
    frame: pd.DataFrame,
    target: str,
    features: Sequence[str] | None,
    drop: Sequence[str] | None,
    path: str | Path,
) -> list[str]:
    """The columns to predict from."""
    require_columns(frame, [target, *(features or []), *(drop or [])], path)
    if target in (drop or []):
        raise TableError(f"--drop holds the target {target!r}; it cannot be both.")
    if features is not None and target in features:
        raise TableError(f"--features holds the target {target!r}; leave it out.")
    unused = {target, *(drop or [])}
    names = list(frame.columns if features is None else dict.fromkeys(features))
    names = [name for name in names if name not in unused]
    if not names:
        raise TableError(
            f"{table_name(path)} has no column left to predict {target!r} from."
        )
    return names


def choose_test_rows(num_rows: int, share: float, seed: int) -> np.ndarray:
    """Rows for the summary alone: neither trained on nor used to choose a restart."""
    if share == 0 or num_rows < FEWEST_TO_SPLIT:
        return np.arange(0)
    count = max(FEWEST_TEST_ROWS, round(share * num_rows))
    if num_rows - count < FEWEST_ROWS:
        raise ValueError(
            f"--test {share:g} leaves {num_rows - count} of {num_rows} rows to fit; at "
            f"least {FEWEST_ROWS} are needed."
        )
    # Another stream than the estimator's, which holds out rows by the same seed.
    rng = np.random.default_rng([seed, 1])
    return np.sort(rng.choice(num_rows, count, replace=False))


def prepare_inputs(
    preparer: TablePreparer, rows: pd.DataFrame, path: str | Path
) -> tuple[pd.DataFrame, list[Surprise]]:
    """Columns of numbers, and what is new in them.

    What cannot be a number is said with the name of the file.
    """
    try:
        return preparer.prepare(rows)
    except ValueError as error:
        raise TableError(f"{table_name(path)}: {error}") from None


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse what the estimator would, before anything is said or trained."""
    from ncai.estimators.bnn_lv import BNNLVRegressor

    try:
        BNNLVRegressor().set_params(**settings).resolved_settings()
    except ValueError as error:
        raise ValueError(in_options(str(error))) from error


def fit_model(tables: FitTables, settings: Mapping[str, Any]) -> TableModel:
    """A model fitted to the training rows, which knows how to prepare others."""
    from ncai.estimators.bnn_lv import BNNLVRegressor

    valid = {}
    if tables.valid is not None:
        valid = {"X_valid": tables.valid.inputs, "y_valid": tables.valid.targets}
    try:
        model = BNNLVRegressor().set_params(**settings)
        model.fit(tables.train.inputs, tables.train.targets, **valid)
    except ValueError as error:
        raise ValueError(in_options(str(error))) from error
    return TableModel(tables.preparer, model, FitRecord(tables.target))


def fit_baselines(model: "BNNLVRegressor", tables: FitTables) -> dict[str, Any]:
    """What to compare the model with, by name; none without rows to compare on.

    Baselines learn from all rows that the model had, those that chose its restart too.
    """
    from ncai.comparison.baselines import default_baselines

    if tables.test is None:
        return {}
    known = [tables.train] + ([tables.valid] if tables.valid is not None else [])
    inputs = np.concatenate([rows.inputs.to_numpy() for rows in known])
    targets = np.concatenate([rows.targets for rows in known])
    hidden = getattr(model.settings_.network, "hidden", USUAL_LAYERS)
    fitted = default_baselines(hidden, int(model.seed_))
    return {baseline.name: baseline.fit(inputs, targets) for baseline in fitted}


def score_methods(
    model: "BNNLVRegressor",
    tables: FitTables,
    name: str,
    baselines: Mapping[str, Any],
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """Scores on the test rows of the model and of baselines, and their log densities.

    A baseline's `gain` is what the model has over it in log-likelihood, with the ends
    of its 95 % interval.
    """
    from ncai.diagnostics.evaluation import (
        average_scores,
        paired_difference,
        row_scores,
    )

    test = tables.test
    if test is None:
        return [], {}
    methods: dict[str, Any] = {name: model.predict_dist(test.inputs)}
    for its_name, baseline in baselines.items():
        methods[its_name] = baseline.predict(test.inputs.to_numpy())
    rows = {name: row_scores(found, test.targets) for name, found in methods.items()}
    scores = [{"name": name, **average_scores(found)} for name, found in rows.items()]
    log_likelihoods = {name: found["log_likelihood"] for name, found in rows.items()}
    for row in scores[1:]:
        ours, theirs = log_likelihoods[name], log_likelihoods[row["name"]]
        row["gain"] = paired_difference(ours, theirs)
    return scores, log_likelihoods


def diagnose_if_possible(model: "BNNLVRegressor"):
    """The verdict on z, where there is one and rows enough to judge it by."""
    latents = model.latent_posterior_
    if latents is None or len(latents.mean) < FEWEST_TO_DIAGNOSE:
        return None
    return model.diagnose()


def _fit_preparer(
    frame: pd.DataFrame, path: str | Path
) -> tuple[TablePreparer, pd.DataFrame]:
    preparer = TablePreparer()
    try:
        return preparer, preparer.fit_prepare(frame)
    except ValueError as error:
        raise TableError(f"{table_name(path)}: {error}") from None
