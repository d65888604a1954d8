"""Score a fitted `TableModel` and baselines on test rows."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ncai.comparison import default_baselines
from ncai.diagnostics.evaluation import average_scores, paired_difference, row_scores
from ncai.tables.fit import FitTables
from ncai.tables.model import TableModel

if TYPE_CHECKING:
    from ncai.diagnostics.latent_diagnosis import LatentDiagnosis
    from ncai.estimators.bnn_lv import BNNLVRegressor
    from ncai.fitting.settings import Settings
    from ncai.predictive.simple import Predictions

FEWEST_TO_DIAGNOSE = 10  # statistics of fewer z mean nothing
USUAL_LAYERS = (50,)  # of a baseline, if the model has a custom network


@dataclass(frozen=True, eq=False)
class ScoresOnTestRows:
    """Scores on the test rows; all fields are empty if there are none.

    Attributes:
        averages: the `name` and the scores of each method, the model first. The `gain`
            of a baseline is the model's log-likelihood minus that of the baseline, with
            the ends of the 95 % interval of this difference.
        log_likelihoods: the log density of each row, by method.
        predictions: the predictive distributions of the rows, by method.
        baselines: the fitted baselines, by name.
    """

    averages: list[dict[str, Any]] = field(default_factory=list)
    log_likelihoods: dict[str, np.ndarray] = field(default_factory=dict)
    predictions: "dict[str, Predictions]" = field(default_factory=dict)
    baselines: dict[str, Any] = field(default_factory=dict)

    @property
    def of_the_model(self) -> "Predictions | None":
        """The model's own predictive distributions."""
        return next(iter(self.predictions.values()), None)

    @property
    def of_the_baselines(self) -> "dict[str, Predictions]":
        """The predictive distributions of the baselines, by name."""
        return {name: self.predictions[name] for name in self.baselines}

    def verdict(self) -> str:
        """Say whether the model has a higher likelihood than the best baseline."""
        (ours, *others) = self.log_likelihoods
        best = max(others, key=lambda name: self.log_likelihoods[name].mean())
        gain, low, high = paired_difference(
            self.log_likelihoods[ours], self.log_likelihoods[best]
        )
        if low > 0:
            found = "better than"
        elif high < 0:
            found = "worse than"
        else:
            found = "not clearly different from"
        return (
            f"{found} the best baseline ({best}): {gain:+.3f} nats per row, "
            f"95% interval {low:+.3f} to {high:+.3f}"
        )


def score_test_rows(model: TableModel, tables: FitTables) -> ScoresOnTestRows:
    """Predict the test rows once with each method, and score the predictions."""
    test = tables.test
    if test is None:
        return ScoresOnTestRows()
    ours = method_name(model.estimator.settings_)
    baselines = _fit_baselines(model.estimator, tables)
    predictions: dict[str, Any] = {ours: model.estimator.predict_dist(test.inputs)}
    for name, baseline in baselines.items():
        predictions[name] = baseline.predict(test.inputs.to_numpy())
    rows = {
        name: row_scores(found, test.targets) for name, found in predictions.items()
    }
    log_likelihoods = {name: found["log_likelihood"] for name, found in rows.items()}
    averages = [{"name": name, **average_scores(found)} for name, found in rows.items()]
    for one in averages[1:]:
        theirs = log_likelihoods[one["name"]]
        one["gain"] = paired_difference(log_likelihoods[ours], theirs)
    return ScoresOnTestRows(averages, log_likelihoods, predictions, baselines)


def _fit_baselines(estimator: "BNNLVRegressor", tables: FitTables) -> dict[str, Any]:
    """Fit the baselines to all rows that the model was given.

    These include the rows that chose among its restarts.
    """
    known = [tables.train] + ([tables.valid] if tables.valid is not None else [])
    inputs = np.concatenate([rows.inputs.to_numpy() for rows in known])
    targets = np.concatenate([rows.targets for rows in known])
    hidden = getattr(estimator.settings_.network, "hidden", USUAL_LAYERS)
    fitted = default_baselines(hidden, int(estimator.seed_))
    return {baseline.name: baseline.fit(inputs, targets) for baseline in fitted}


def method_name(settings: "Settings") -> str:
    """Return the name of the model in a table of methods."""
    model = "BNN" if settings.latent_dim == 0 else "BNN+LV"
    return f"{model}, {settings.method.label}"


def diagnose_if_possible(estimator: "BNNLVRegressor") -> "LatentDiagnosis | None":
    """Diagnose z, if the model has one and there are enough rows to judge it."""
    latents = estimator.latent_posterior_
    if latents is None or len(latents.mean) < FEWEST_TO_DIAGNOSE:
        return None
    return estimator.diagnose()


def with_results(
    model: TableModel, scores: ScoresOnTestRows, diagnosis: "LatentDiagnosis | None"
) -> TableModel:
    """Return the model with its scores and the diagnosis of z in its record."""
    record = replace(
        model.record,
        scores=scores.averages,
        diagnosis=None if diagnosis is None else diagnosis.to_dict(),
    )
    return replace(model, record=record)
