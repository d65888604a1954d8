"""The three fits of the demo, and how well each predicts the test rows."""

from dataclasses import dataclass, replace
from typing import Any

from ncai.datasets import make_dataset
from ncai.datasets.synthetic import SyntheticData
from ncai.diagnostics.latent_diagnosis import LatentDiagnosis
from ncai.estimators.bnn import BNNRegressor
from ncai.estimators.bnn_lv import BNNLVRegressor
from ncai.inference.base import Method
from ncai.inference.mean_field import MFVI
from ncai.inference.ncai import NCAI
from ncai.stats.scores import mpiw, picp

# The central interval whose coverage and width the demo shows.
LEVEL = 0.95
# The paper's settings for this set, with fewer steps: NCAI is far ahead by then, and
# the demo takes less than three minutes.
_COMMON: dict[str, Any] = {"preset": "paper", "standardize": False, "hidden": (50,)}
# Estimator, method and noise variance; those of z and of the noise are the true ones.
_RECIPES: dict[str, tuple[type[BNNLVRegressor], Method, float]] = {
    "BNN": (BNNRegressor, MFVI(), 0.5),
    "MFVI": (BNNLVRegressor, MFVI(latent_variance=0.01), 0.1),
    "NCAI": (
        BNNLVRegressor,
        NCAI(latent_variance=0.01, input_tolerance=0.1, target_tolerance=1.0),
        0.1,
    ),
}
_FULL = {"max_steps": 10_000, "n_restarts": 10}
_QUICK = {"max_steps": 100, "n_restarts": 2}
_QUICK_DRAWS = 16


@dataclass(frozen=True, eq=False)
class DemoFit:
    """One fit, and how well it predicts the test rows.

    Attributes:
        name: the model and its inference method.
        method: short name of the method, a key of `ncai.plot.COLOURS`.
        model: the fitted estimator.
        log_likelihood: average over the test rows.
        gap: how far that is below the average of the true density.
        coverage: share of test rows inside their 95% interval.
        width: mean width of these intervals.
        diagnosis: of the latents; None for a model without latents.
        seconds: duration of the fit.
    """

    name: str
    method: str
    model: BNNLVRegressor
    log_likelihood: float
    gap: float
    coverage: float
    width: float
    diagnosis: LatentDiagnosis | None
    seconds: float

    @property
    def true_log_likelihood(self) -> float:
        """Average log density of the test rows under the truth."""
        return self.log_likelihood + self.gap


def demo_data(seed: int) -> SyntheticData:
    """Heavy-Tail: 300 training rows, 300 test rows, and their true density."""
    return make_dataset("heavy_tail", seed)


def demo_models(seed: int, quick: bool, progress: bool) -> dict[str, BNNLVRegressor]:
    """The estimators by method, not yet fitted."""
    common = {
        **_COMMON,
        **(_QUICK if quick else _FULL),
        "progress": progress,
        "random_state": seed,
    }
    draws = {"n_weight_draws": _QUICK_DRAWS} if quick else {}
    return {
        name: kind(
            inference=replace(method, **draws), noise_variance=noise_variance, **common
        )
        for name, (kind, method, noise_variance) in _RECIPES.items()
    }


def demo_name(method: str) -> str:
    """The model and its inference method."""
    return method if method == "BNN" else f"BNN+LV, {method}"


def fit_and_score(method: str, model: BNNLVRegressor, data: SyntheticData) -> DemoFit:
    """Fit a model to the training rows and score it on the test rows."""
    train, valid, test = (
        (part.inputs, part.targets[:, 0])
        for part in (data.train, data.valid, data.test)
    )
    model.fit(*train, X_valid=valid[0], y_valid=valid[1])
    if model.interrupted_:  # Ctrl-C ends a fit early; here it ends the demo
        raise KeyboardInterrupt
    predictive = model.predict_dist(test[0])
    log_likelihood = float(predictive.log_prob(test[1]).mean())
    best = float(data.oracle.log_prob(data.test.inputs, data.test.targets).mean())
    lower, upper = predictive.interval(LEVEL)
    return DemoFit(
        name=demo_name(method),
        method=method,
        model=model,
        log_likelihood=log_likelihood,
        gap=best - log_likelihood,
        coverage=picp(test[1], lower, upper),
        width=mpiw(lower, upper),
        diagnosis=None if method == "BNN" else model.diagnose(),
        seconds=model.fit_seconds_,
    )


def white_noise_levels(fits: list[DemoFit]) -> tuple[float, float]:
    """HZ and MI that white noise of as many rows exceeds in 5% of cases."""
    found = [fit.diagnosis for fit in fits if fit.diagnosis is not None]
    return found[0].hz_reference, max(one.mi_reference for one in found)
