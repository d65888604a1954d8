"""What a report is made from, and checks of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from ncai.preprocessing.columns.column import ColumnGroup
from ncai.report.words import count

# The colours of the style sheet, for pictures that cannot take them from it.
METHOD_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


@dataclass
class ReportInputs:
    """What `write_report` needs.

    Args:
        model: the fitted `BNNLVRegressor` (or `BNNRegressor`) to report on.
        train_inputs: the prepared columns that it was fitted to, all numbers.
        train_target: the targets of these rows, [N].
        test_inputs: held-out rows, if there are any.
        test_target: the targets of the held-out rows.
        train_predictions: the model's `predict_dist` of `train_inputs`, if you have it
            already; otherwise the report predicts the rows that it needs.
        test_predictions: the same for `test_inputs`.
        baseline_predictions: the same for `test_inputs` by each of `baselines`.
        groups: columns that move together, such as the levels of a category, as
            `TablePreparer.groups` returns them; by default each column on its own.
        raw_train: the rows of `train_inputs` as the user gave them, for display. Its
            index names the rows; an unnamed index of whole numbers is shown from 1.
        target_name: name of the target.
        data_notes: how the data were processed, one sentence each.
        data_warnings: what to check in the data, one sentence each, as in
            `TablePreparer.warnings_`.
        scores: one row per method, this model first: `name`, `log_likelihood`, `crps`,
            `coverage_50`, `coverage_80` and `coverage_95`. Rows of other methods also
            have `gain`: the log-likelihood of this model minus theirs, and the ends of
            the interval of this difference.
        command: the command that repeats the fit.
        title: title of the report.
        method_name: short name of the model; by default the name of its method.
        others: other models fitted to the same rows, which the reader can switch on.
        baselines: fitted models of `ncai.comparison` by name, which the reader can
            switch on in pictures of densities and calibration.
        truth: the oracle of a synthetic set, whose true density is known.
        target_unit: unit of the target.
    """

    model: Any
    train_inputs: pd.DataFrame
    train_target: np.ndarray
    test_inputs: pd.DataFrame | None = None
    test_target: np.ndarray | None = None
    raw_train: pd.DataFrame | None = None
    groups: list[ColumnGroup] | None = None
    target_name: str = "y"
    data_notes: list[str] = field(default_factory=list)
    data_warnings: list[str] = field(default_factory=list)
    scores: list[dict] = field(default_factory=list)
    command: str = ""
    title: str = ""
    method_name: str = ""
    others: dict[str, Any] = field(default_factory=dict)
    baselines: Mapping[str, Any] = field(default_factory=dict)
    truth: Any = None
    target_unit: str | None = None
    train_predictions: Any = None
    test_predictions: Any = None
    baseline_predictions: Mapping[str, Any] = field(default_factory=dict)


def check_inputs(inputs: ReportInputs) -> None:
    """Raise a ValueError that names the argument that is wrong."""
    for model in (inputs.model, *inputs.others.values()):
        _check_model(model)
    compared = len(inputs.others) + len(inputs.baselines)
    if compared > len(METHOD_COLOURS) - 1:
        raise ValueError(
            f"others and baselines hold {compared} models; a report can compare at "
            f"most {len(METHOD_COLOURS) - 1} with its own."
        )
    if (inputs.test_inputs is None) != (inputs.test_target is None):
        raise ValueError("give test_inputs and test_target together, or neither.")
    if len(inputs.train_inputs) < 2:
        raise ValueError(
            f"train_inputs has {count(len(inputs.train_inputs), 'row')}; a report "
            "needs at least 2."
        )
    _check_lengths(inputs)
    _check_groups(inputs)


def _check_model(model) -> None:
    if not hasattr(model, "posterior_"):
        raise ValueError(
            f"the report needs a fitted model; this {type(model).__name__} is not "
            "fitted."
        )
    outputs = model.posterior_.model.network.output_dim
    if outputs > 1:
        raise ValueError(
            f"a report covers one target, and this model predicts {outputs}: fit one "
            "model for each target and write a report on each."
        )


def _check_lengths(inputs: ReportInputs) -> None:
    """Check that arguments for the same rows have equally many rows."""
    pairs = [
        ("train_inputs", "train_target"),
        ("train_inputs", "raw_train"),
        ("train_inputs", "train_predictions"),
        ("test_inputs", "test_target"),
        ("test_inputs", "test_predictions"),
    ]
    for name, other in pairs:
        rows, belonging = getattr(inputs, name), getattr(inputs, other)
        if belonging is None:
            continue
        _check_length(name, rows, other, belonging)
    for name, found in inputs.baseline_predictions.items():
        of_method = f"baseline_predictions[{name!r}]"
        if name not in inputs.baselines:
            raise ValueError(
                f"{of_method} belongs to no model in baselines, which holds "
                f"{list(inputs.baselines)}."
            )
        _check_length("test_inputs", inputs.test_inputs, of_method, found)


def _check_length(name: str, rows: Any, other: str, belonging: Any) -> None:
    size = 0 if rows is None else len(rows)
    if size != len(belonging):
        raise ValueError(
            f"{name} has {size} rows and {other} has {len(belonging)}; they must be "
            "the same rows."
        )


def _check_groups(inputs: ReportInputs) -> None:
    if not inputs.groups:
        return
    grouped = [name for group in inputs.groups for name in group.columns]
    columns = [str(name) for name in inputs.train_inputs.columns]
    if sorted(grouped) != sorted(columns):
        raise ValueError(
            f"groups holds the columns {grouped}; each of {columns} must be in exactly "
            "one group."
        )
