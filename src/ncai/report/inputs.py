"""What a report is made from, checked, and what its sections share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ncai.predictive.distribution import PredictiveDistribution
from ncai.preprocessing.columns.groups import ColumnGroup
from ncai.report.words import count

# Points in a picture, and rows that can be looked at.
MOST_SHOWN = 800
# Rows that the model is judged on; more would tell the same, later.
MOST_JUDGED = 2000
# The colours of the style sheet, for pictures that cannot take them from it.
METHOD_COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
TRUTH_COLOUR = "#808080"
_FULL_NAMES = {
    "ncai": "NCAI",
    "ncai0": "NCAI0",
    "mfvi": "MFVI",
    "marginal": "Marginal inference",
    "iwae": "IWAE",
    "map": "MAP",
    "hmc": "HMC",
    "hmc_marginal": "HMC, z integrated out",
}


@dataclass
class ReportInputs:
    """What `write_report` needs.

    Args:
        model: the fitted `BNNLVRegressor` (or `BNNRegressor`) that the report is about.
        train_inputs: the prepared columns it was fitted to, all numbers.
        train_target: their targets, [N].
        test_inputs: rows that it was not fitted to, if there are any.
        test_target: their targets.
        groups: columns of those that move together, such as the levels of a category,
            as `TablePreparer.groups` gives them; each by itself if not given.
        raw_train: the rows of `train_inputs` as the user gave them, to be looked at.
            Its index names them; whole numbers without a name are counted from 0 by
            pandas, and shown counted from 1.
        target_name: name of the target.
        data_notes: what was done to the data, a sentence each.
        data_warnings: what a person should look at in the data, a sentence each, as
            `TablePreparer.warnings_` has them.
        scores: one for each method, this model first: `name`, `log_likelihood`,
            `crps`, `coverage_50`, `coverage_80` and `coverage_95`, and of the others
            `gain`: what this model has over it in log-likelihood, and its interval.
        command: what to type to repeat it.
        title: of the report.
        method_name: short name of the model; by its inference if not given.
        others: other fitted models of the same rows, to be switched on and off.
        baselines: fitted ones of `ncai.comparison.baselines` by name, to be switched on
            and off in pictures of densities and calibration.
        truth: the oracle of a synthetic set, where the truth is known.
        target_unit: unit of the target, if it is known.
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


@dataclass(frozen=True, eq=False)
class Method:
    """A model in the report: what it is called, and its key in style and script."""

    key: str
    name: str
    model: Any
    colour: str
    is_baseline: bool = False

    @property
    def is_truth(self) -> bool:
        """Whether this is no model, but the process that made the data."""
        return self.key == "truth"


class Subject:
    """Checked inputs, and predictions that several sections need.

    Attributes:
        inputs: as given.
        methods: the model first, then the others, the baselines and the truth.
        names: of the inputs.
        groups: of inputs that move together; pictures are drawn over these.
        train: training inputs, [N, D].
        target: training targets, [N].
        shown: numbers of the training rows that pictures show.
        judged: inputs of the rows that scores are computed on.
        judged_target: their targets.
        judged_are_new: whether the model was not fitted to those.
        num_judged_from: rows that they were chosen from, if there were too many.
    """

    def __init__(self, inputs: ReportInputs):
        _check(inputs)
        self.inputs = inputs
        self.names = [str(name) for name in inputs.train_inputs.columns]
        self.groups = inputs.groups or [
            ColumnGroup(name, (name,), name) for name in self.names
        ]
        self.train = inputs.train_inputs.to_numpy(float)
        self.target = np.asarray(inputs.train_target, float).reshape(-1)
        self.model = inputs.model
        self.target_name = str(inputs.target_name)
        self.methods = _methods(inputs)
        self.shown = _choose(len(self.train), MOST_SHOWN)
        given = inputs.train_inputs, inputs.train_target
        self.judged_are_new = False
        if inputs.test_inputs is not None and len(inputs.test_inputs):
            given = inputs.test_inputs, inputs.test_target
            self.judged_are_new = True
        judged = _choose(len(given[0]), MOST_JUDGED)
        self.judged: pd.DataFrame = given[0].iloc[judged]
        self.judged_target = np.asarray(given[1], float).reshape(-1)[judged]
        self.num_judged_from = len(given[0])

    @property
    def main(self) -> Method:
        """The model that the report is about."""
        return self.methods[0]

    @property
    def models(self) -> list[Method]:
        """The model and the others."""
        return [method for method in self.fallible if not method.is_baseline]

    @property
    def fallible(self) -> list[Method]:
        """All methods but the truth."""
        return [method for method in self.methods if not method.is_truth]

    @property
    def one_input(self) -> bool:
        """Whether the density can be drawn over all of x."""
        return self.train.shape[1] == 1

    @property
    def num_sources(self) -> int:
        """Columns of the user's table that the inputs are made of."""
        return len({group.source for group in self.groups})

    @property
    def has_levels(self) -> bool:
        """Whether an input is a category."""
        return any(group.levels for group in self.groups)

    def columns(self, group: ColumnGroup) -> list[int]:
        """Where the columns of a group are among the inputs."""
        return [self.names.index(name) for name in group.columns]

    @cached_property
    def typical(self) -> np.ndarray:
        """A row in the middle of the training rows that could be one of them, [D].

        Numbers at their median, and what has levels at the most frequent one.
        """
        row = np.median(self.train, axis=0)
        for group in self.groups:
            if group.levels or group.cycle:
                columns = self.columns(group)
                found, counts = np.unique(
                    self.train[:, columns], axis=0, return_counts=True
                )
                row[columns] = found[counts.argmax()]
        return row

    @property
    def y_label(self) -> str:
        """The target with its unit."""
        unit = self.inputs.target_unit
        return f"{self.target_name} ({unit})" if unit else self.target_name

    def frame(self, rows: np.ndarray):
        """Rows as the models want them."""
        if getattr(self.model, "feature_names_in_", None) is None:
            return rows
        return pd.DataFrame(rows, columns=self.model.feature_names_in_)

    def predict(self, method: Method, rows) -> Any:
        """The predictive distribution of rows, by one of the models or baselines."""
        if method.is_baseline:
            return method.model.predict(np.asarray(rows, float))
        if getattr(method.model, "feature_names_in_", None) is None:
            return method.model.predict_dist(np.asarray(rows, float))
        columns = method.model.feature_names_in_
        return method.model.predict_dist(
            pd.DataFrame(np.asarray(rows, float), columns=columns)
        )

    @cached_property
    def shown_predictive(self) -> PredictiveDistribution:
        """The model's predictions of the rows that pictures show."""
        return self.predict(self.main, self.train[self.shown])

    @cached_property
    def judged_predictive(self) -> dict[str, Any]:
        """Each method's predictions of the rows that scores are computed on."""
        return {
            method.key: self.predict(method, self.judged) for method in self.fallible
        }

    def row_name(self, position: int) -> str:
        """What a training row is called."""
        raw = self.inputs.raw_train
        return f"row {position + 1}" if raw is None else row_label(raw.index, position)

    @property
    def judged_words(self) -> str:
        """The rows that scores are computed on, in words."""
        size = count(len(self.judged), "row")
        if self.num_judged_from > len(self.judged):
            size = f"{len(self.judged):,} of {count(self.num_judged_from, 'row')}"
        if self.judged_are_new:
            return f"{size} that the model had not seen"
        return f"the {size} it was fitted to"


def row_label(index: pd.Index, position: int) -> str:
    """What a row is called: its number from 1 on, or its own label."""
    label = index[position]
    if index.name is None and pd.api.types.is_integer_dtype(index):
        label += 1
    return f"row {label}"


def _methods(inputs: ReportInputs) -> list[Method]:
    named = {inputs.method_name or method_name(inputs.model): inputs.model}
    named |= {**inputs.others, **inputs.baselines}
    methods = [
        Method(
            f"m{place}",
            str(name),
            model,
            METHOD_COLOURS[place],
            is_baseline=name in inputs.baselines,
        )
        for place, (name, model) in enumerate(named.items())
    ]
    if inputs.truth is not None:
        methods.append(Method("truth", "Truth", inputs.truth, TRUTH_COLOUR))
    return methods


def method_name(model) -> str:
    """What a model is called if nobody named it."""
    if not has_latents(model):
        return "BNN"
    # As the preset filled it in: the argument itself may be None.
    inference = str(model.settings_["inference"])
    return _FULL_NAMES.get(inference, inference)


def has_latents(model) -> bool:
    """Whether a fitted model has a latent variable."""
    return model.posterior_.model.network.latent_dim > 0


def _choose(num_rows: int, most: int) -> np.ndarray:
    """All rows, or a random choice that is the same each time."""
    if num_rows <= most:
        return np.arange(num_rows)
    return np.sort(np.random.default_rng(0).choice(num_rows, most, replace=False))


def _check(inputs: ReportInputs) -> None:
    models = [inputs.model, *inputs.others.values()]
    for model in models:
        if not hasattr(model, "posterior_"):
            raise ValueError(
                f"the report needs a fitted model; this {type(model).__name__} is not."
            )
        outputs = model.posterior_.model.network.output_dim
        if outputs > 1:
            raise ValueError(
                f"the report is about one target, and this model predicts {outputs}: "
                "fit one model for each and write a report on each."
            )
    compared = len(inputs.others) + len(inputs.baselines)
    if compared > len(METHOD_COLOURS) - 1:
        raise ValueError(
            f"others and baselines hold {compared} models; a report can compare "
            f"{len(METHOD_COLOURS) - 1} with its own."
        )
    pairs: list[tuple[str, Any, Any]] = [
        ("train", inputs.train_inputs, inputs.train_target)
    ]
    if (inputs.test_inputs is None) != (inputs.test_target is None):
        raise ValueError("give test_inputs and test_target together, or neither.")
    if inputs.test_inputs is not None:
        pairs.append(("test", inputs.test_inputs, inputs.test_target))
    for name, rows, target in pairs:
        if len(rows) != np.size(target):
            raise ValueError(
                f"{name}_inputs has {len(rows)} rows and {name}_target "
                f"{np.size(target)}; they must agree."
            )
    grouped = [name for group in inputs.groups or [] for name in group.columns]
    columns = [str(name) for name in inputs.train_inputs.columns]
    if inputs.groups and sorted(grouped) != sorted(columns):
        raise ValueError(
            f"groups holds the columns {grouped}; each of {columns} must be in one "
            "group, and no other."
        )
    if len(inputs.train_inputs) < 2:
        raise ValueError(
            f"train_inputs has {count(len(inputs.train_inputs), 'row')}; a report "
            "needs at least 2."
        )
    if inputs.raw_train is not None and len(inputs.raw_train) != len(
        inputs.train_inputs
    ):
        raise ValueError(
            f"raw_train has {len(inputs.raw_train)} rows and train_inputs "
            f"{len(inputs.train_inputs)}; they must be the same rows."
        )
