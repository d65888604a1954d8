"""The subject of a report: checked inputs, and results that the sections share.

Each part of the rows is predicted once, and each statistic of these predictions is
computed once, when a section first asks for it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import pandas as pd

from ncai.diagnostics.curves import as_inputs
from ncai.diagnostics.evaluation import pit_of
from ncai.predictive.decomposition import Decomposition
from ncai.preprocessing.columns.column import ColumnGroup
from ncai.report.axes import FeatureAxis, feature_axis
from ncai.report.inputs import METHOD_COLOURS, ReportInputs, check_inputs
from ncai.report.words import count

# Most training rows in pictures; a reader can look at each of them.
MOST_SHOWN = 800
# Most rows for scores and calibration; more rows would hardly change them.
MOST_EVALUATED = 2000
TRUTH_COLOUR = "#808080"
_More = ParamSpec("_More")
_Result = TypeVar("_Result")


@dataclass(frozen=True, eq=False)
class Method:
    """A model in the report, with its name and its key in style sheet and script."""

    key: str
    name: str
    model: Any
    colour: str
    is_baseline: bool = False
    is_truth: bool = False  # the process that generated the data, and not a model


class Predicted:
    """One method's predictions of some rows; each statistic is computed once.

    Attributes:
        predictive: the predictive distribution.
        target: the observed targets, [N].
        pit: PIT values of the targets, [N].
    """

    def __init__(self, predictive: Any, target: np.ndarray):
        self.predictive = predictive
        self.target = target
        self.pit = np.asarray(pit_of(predictive, target)).reshape(-1)

    @cached_property
    def log_likelihood(self) -> np.ndarray:
        """Log densities of the targets, [N]."""
        return np.asarray(self.predictive.log_prob(self.target))

    @cached_property
    def crps(self) -> float:
        """Average CRPS of the targets."""
        return float(np.mean(self.predictive.crps(self.target)))


class PredictedByModel(Predicted):
    """The predictions of the model itself, with all that sections show of them.

    Attributes:
        mean: predicted means, [N].
        lower: lower ends of the central 95 % intervals, [N].
        upper: their upper ends, [N].
        split: aleatoric and epistemic uncertainty by CRPS, [N] each.
    """

    def __init__(self, predictive: Any, target: np.ndarray):
        super().__init__(predictive, target)
        self.mean = np.asarray(predictive.mean()).reshape(-1)
        lower, upper = predictive.interval(0.95)
        self.lower = np.asarray(lower).reshape(-1)
        self.upper = np.asarray(upper).reshape(-1)
        self.split = split_of(predictive)


def split_of(predictive: Any) -> Decomposition:
    """Decompose uncertainty by CRPS, in the same way as `ncai predict --decompose`."""
    found = predictive.decompose("crps")
    return found if np.ndim(found.total) == 1 else found.of_output(0)


class Subject:
    """Checked inputs, and the predictions that several sections need.

    Attributes:
        inputs: as given.
        methods: the model first, then the others, the baselines and the truth.
        main: the model that the report is about.
        fitted: all methods but the truth.
        models: the model and the others, without baselines.
        names: names of the input columns.
        groups: groups of input columns; pictures are drawn over these.
        num_sources: columns of the user's table that the inputs are made of.
        has_levels: whether an input is a category.
        train: training inputs, [N, D].
        one_input: whether the density can be drawn over all of x.
        target: training targets, [N].
        y_label: the target with its unit.
        typical: a row in the middle of the training rows that could be one of them, [D]
            (numbers are at their median, categories and cycles at their most frequent
            value).
        shown: numbers of the training rows that pictures show.
        row_names: the names of these rows.
        eval_inputs: inputs of the rows that scores are computed on.
        eval_target: targets of these rows.
        held_out: whether these rows are held out; if not, they are training rows.
        num_eval_available: number of rows that they were chosen from.
        eval_words: the rows that scores are computed on, in words.
    """

    def __init__(self, inputs: ReportInputs):
        check_inputs(inputs)
        self.inputs = inputs
        self.names = [str(name) for name in inputs.train_inputs.columns]
        self.groups = inputs.groups or [
            ColumnGroup(name, (name,), name) for name in self.names
        ]
        self.num_sources = len({group.source for group in self.groups})
        self.has_levels = any(group.levels for group in self.groups)
        self.train = inputs.train_inputs.to_numpy(float)
        self.one_input = self.train.shape[1] == 1
        self.target = np.asarray(inputs.train_target, float).reshape(-1)
        self.model = inputs.model
        self.target_name = str(inputs.target_name)
        unit = inputs.target_unit
        self.y_label = f"{self.target_name} ({unit})" if unit else self.target_name
        self.typical = self._typical()
        self.methods = _methods(inputs)
        self.main = self.methods[0]
        self.fitted = [method for method in self.methods if not method.is_truth]
        self.models = [method for method in self.fitted if not method.is_baseline]
        self.shown = _choose(len(self.train), MOST_SHOWN)
        index = None if inputs.raw_train is None else inputs.raw_train.index
        self.row_names = [row_label(index, int(position)) for position in self.shown]
        rows, target = inputs.train_inputs, inputs.train_target
        self.held_out = False
        if inputs.test_inputs is not None and len(inputs.test_inputs):
            rows, target = inputs.test_inputs, inputs.test_target
            self.held_out = True
        self._evaluated = _choose(len(rows), MOST_EVALUATED)
        self.eval_inputs: pd.DataFrame = rows.iloc[self._evaluated]
        self.eval_target = np.asarray(target, float).reshape(-1)[self._evaluated]
        self.num_eval_available = len(rows)
        self.eval_words = self._eval_words()
        self.results: dict[tuple, Any] = {}

    # ----- Columns --------------------------------------------------------------------

    def columns(self, group: ColumnGroup) -> list[int]:
        """Positions of a group's columns among the inputs."""
        return [self.names.index(name) for name in group.columns]

    def axis_of(self, group: ColumnGroup, num: int) -> FeatureAxis:
        """The horizontal axis of a group, with `num` places if it is continuous."""
        columns = self.columns(group)
        return feature_axis(group, self.train[:, columns], self.typical[columns], num)

    def _typical(self) -> np.ndarray:
        row = np.median(self.train, axis=0)
        for group in self.groups:
            columns = self.columns(group)
            if group.levels or group.cycle:
                found, counts = np.unique(
                    self.train[:, columns], axis=0, return_counts=True
                )
                row[columns] = found[counts.argmax()]
        return row

    # ----- Predictions ----------------------------------------------------------------

    def predict(self, method: Method, rows) -> Any:
        """The predictive distribution of rows, by one of the models or baselines."""
        rows = np.asarray(rows, float)
        if method.is_baseline:
            return method.model.predict(rows)
        return method.model.predict_dist(as_inputs(method.model, rows))

    @cached_property
    def on_shown(self) -> PredictedByModel:
        """The model's predictions of the training rows that pictures show."""
        return PredictedByModel(self._of_train(self.shown), self.target[self.shown])

    @cached_property
    def on_eval(self) -> dict[str, Predicted]:
        """Each method's predictions of the rows that scores are computed on."""
        found: dict[str, Predicted] = {self.main.key: self.main_on_eval}
        for method in self.fitted[1:]:
            given = self.inputs.baseline_predictions.get(method.name)
            if given is None:
                given = self.predict(method, self.eval_inputs)
            else:
                given = _pick(given, self._evaluated)
            found[method.key] = Predicted(given, self.eval_target)
        return found

    @cached_property
    def main_on_eval(self) -> PredictedByModel:
        """The model's predictions of the rows that scores are computed on."""
        if not self.held_out:
            if np.array_equal(self._evaluated, self.shown):
                return self.on_shown
            return PredictedByModel(self._of_train(self._evaluated), self.eval_target)
        given = self.inputs.test_predictions
        if given is None:
            given = self.predict(self.main, self.eval_inputs)
        else:
            given = _pick(given, self._evaluated)
        return PredictedByModel(given, self.eval_target)

    def _of_train(self, rows: np.ndarray) -> Any:
        needed, predictive = self._train_predictive
        return _pick(predictive, np.searchsorted(needed, rows))

    @cached_property
    def _train_predictive(self) -> tuple[np.ndarray, Any]:
        """All training rows that a section needs, predicted at once."""
        needed = self.shown
        if not self.held_out:
            needed = np.union1d(self.shown, self._evaluated)
        given = self.inputs.train_predictions
        if given is not None:
            return needed, _pick(given, needed)
        return needed, self.predict(self.main, self.train[needed])

    # ----- Words ----------------------------------------------------------------------

    def _eval_words(self) -> str:
        kind = "held-out row" if self.held_out else "training row"
        used, available = len(self.eval_inputs), self.num_eval_available
        size = f"{used:,} of " if available > used else ""
        its = "" if self.held_out else "its "
        return f"{size}{its}{count(available, kind)}"


def shared(
    compute: Callable[Concatenate[Subject, _More], _Result],
) -> Callable[Concatenate[Subject, _More], _Result]:
    """Make a function of a subject compute its result once, for all sections."""

    @wraps(compute)
    def once(subject: Subject, *args: _More.args, **kwargs: _More.kwargs) -> _Result:
        key = (compute, *args, *kwargs.items())
        if key not in subject.results:
            subject.results[key] = compute(subject, *args, **kwargs)
        return subject.results[key]

    return once


def row_label(index: pd.Index | None, position: int) -> str:
    """The name of a row: its number, counted from 1, or its own label."""
    if index is None:
        return f"row {position + 1}"
    label = index[position]
    if index.name is None and pd.api.types.is_integer_dtype(index):
        label += 1
    return f"row {label}"


def method_name(model) -> str:
    """The name of a model that has not been given one."""
    if not has_latents(model):
        return "BNN"
    return model.settings_.method.label


def has_latents(model) -> bool:
    """Whether a fitted model has a latent variable."""
    return model.posterior_.model.network.latent_dim > 0


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
        methods.append(
            Method("truth", "Truth", inputs.truth, TRUTH_COLOUR, is_truth=True)
        )
    return methods


def _pick(predictive, rows: np.ndarray):
    """Some rows of predictions; the same object if these are all, in order."""
    everything = np.array_equal(rows, np.arange(len(predictive)))
    return predictive if everything else predictive[rows]


def _choose(num_rows: int, most: int) -> np.ndarray:
    """All rows, or a random choice that is the same each time."""
    if num_rows <= most:
        return np.arange(num_rows)
    return np.sort(np.random.default_rng(0).choice(num_rows, most, replace=False))
