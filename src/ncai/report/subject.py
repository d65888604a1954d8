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

    @property
    def is_truth(self) -> bool:
        """Whether this is the process that generated the data, and not a model."""
        return self.key == "truth"


class Predicted:
    """One method's predictions of some rows; each statistic is computed once.

    Attributes:
        predictive: the predictive distribution.
        target: the observed targets, [N].
    """

    def __init__(self, predictive: Any, target: np.ndarray):
        self.predictive = predictive
        self.target = target

    @cached_property
    def mean(self) -> np.ndarray:
        """Predicted means, [N]."""
        return np.asarray(self.predictive.mean()).reshape(-1)

    @cached_property
    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the central 95 % intervals, [N] each."""
        lower, upper = self.predictive.interval(0.95)
        return np.asarray(lower).reshape(-1), np.asarray(upper).reshape(-1)

    @cached_property
    def width(self) -> np.ndarray:
        """Widths of the 95 % intervals, [N]."""
        lower, upper = self.interval
        return upper - lower

    @cached_property
    def pit(self) -> np.ndarray:
        """PIT values of the targets, [N]."""
        return np.asarray(pit_of(self.predictive, self.target)).reshape(-1)

    @cached_property
    def log_likelihood(self) -> np.ndarray:
        """Log densities of the targets, [N]."""
        return np.asarray(self.predictive.log_prob(self.target))

    @cached_property
    def crps(self) -> float:
        """Average CRPS of the targets."""
        return float(np.mean(self.predictive.crps(self.target)))

    @cached_property
    def split(self) -> Decomposition:
        """Aleatoric and epistemic uncertainty by CRPS, [N] each."""
        return split_of(self.predictive)


def split_of(predictive: Any) -> Decomposition:
    """Decompose uncertainty by CRPS, in the same way as `ncai predict --decompose`."""
    found = predictive.decompose("crps")
    return found if np.ndim(found.total) == 1 else found.of_output(0)


class Subject:
    """Checked inputs, and the predictions that several sections need.

    Attributes:
        inputs: as given.
        methods: the model first, then the others, the baselines and the truth.
        names: names of the input columns.
        groups: groups of input columns; pictures are drawn over these.
        train: training inputs, [N, D].
        target: training targets, [N].
        shown: numbers of the training rows that pictures show.
        eval_inputs: inputs of the rows that scores are computed on.
        eval_target: targets of these rows.
        held_out: whether these rows are held out; if not, they are training rows.
        num_eval_available: number of rows that they were chosen from.
    """

    def __init__(self, inputs: ReportInputs):
        check_inputs(inputs)
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
        rows, target = inputs.train_inputs, inputs.train_target
        self.held_out = False
        if inputs.test_inputs is not None and len(inputs.test_inputs):
            rows, target = inputs.test_inputs, inputs.test_target
            self.held_out = True
        self._evaluated = _choose(len(rows), MOST_EVALUATED)
        self.eval_inputs: pd.DataFrame = rows.iloc[self._evaluated]
        self.eval_target = np.asarray(target, float).reshape(-1)[self._evaluated]
        self.num_eval_available = len(rows)
        self.results: dict[tuple, Any] = {}

    # ----- Methods and columns --------------------------------------------------------

    @property
    def main(self) -> Method:
        """The model that the report is about."""
        return self.methods[0]

    @property
    def models(self) -> list[Method]:
        """The model and the others, without baselines."""
        return [method for method in self.fitted if not method.is_baseline]

    @property
    def fitted(self) -> list[Method]:
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
        """Positions of a group's columns among the inputs."""
        return [self.names.index(name) for name in group.columns]

    def axis_of(self, group: ColumnGroup, num: int) -> FeatureAxis:
        """The horizontal axis of a group, with `num` places if it is continuous."""
        columns = self.columns(group)
        return feature_axis(group, self.train[:, columns], self.typical[columns], num)

    @cached_property
    def typical(self) -> np.ndarray:
        """A row in the middle of the training rows that could be one of them, [D].

        Numbers are at their median, categories and cycles at their most frequent value.
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

    # ----- Predictions ----------------------------------------------------------------

    def frame(self, rows: np.ndarray):
        """Rows in the form that the model was fitted to."""
        return as_inputs(self.model, rows)

    def predict(self, method: Method, rows) -> Any:
        """The predictive distribution of rows, by one of the models or baselines."""
        rows = np.asarray(rows, float)
        if method.is_baseline:
            return method.model.predict(rows)
        return method.model.predict_dist(as_inputs(method.model, rows))

    @cached_property
    def on_shown(self) -> Predicted:
        """The model's predictions of the training rows that pictures show."""
        return Predicted(self._of_train(self.shown), self.target[self.shown])

    @cached_property
    def on_eval(self) -> dict[str, Predicted]:
        """Each method's predictions of the rows that scores are computed on."""
        return {method.key: self._evaluate(method) for method in self.fitted}

    def _evaluate(self, method: Method) -> Predicted:
        if method is not self.main:
            return Predicted(self.predict(method, self.eval_inputs), self.eval_target)
        if self.held_out:
            given = self.inputs.test_predictions
            if given is None:
                given = self.predict(method, self.eval_inputs)
            else:
                given = _pick(given, self._evaluated)
            return Predicted(given, self.eval_target)
        if np.array_equal(self._evaluated, self.shown):
            return self.on_shown
        return Predicted(self._of_train(self._evaluated), self.eval_target)

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

    def row_name(self, position: int) -> str:
        """The name of a training row."""
        raw = self.inputs.raw_train
        return f"row {position + 1}" if raw is None else row_label(raw.index, position)

    @property
    def eval_words(self) -> str:
        """The rows that scores are computed on, in words."""
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


def row_label(index: pd.Index, position: int) -> str:
    """The name of a row: its number, counted from 1, or its own label."""
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
        methods.append(Method("truth", "Truth", inputs.truth, TRUTH_COLOUR))
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
