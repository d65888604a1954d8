"""The guard for calibration: its guarantee, by simulation, and its refusals."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta, norm
from sklearn.base import BaseEstimator, RegressorMixin

from ncai import BNNRegressor, ConformalRegressor
from small_fits import tiny_plain


class WrongNormal(RegressorMixin, BaseEstimator):
    """Predicts N(x, 0.8), whatever the truth."""

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0]

    def predict_dist(self, X):
        return _Normal(np.asarray(X)[:, 0])

    def __sklearn_is_fitted__(self):
        return True


class _Normal:
    def __init__(self, mean):
        self.mean = mean

    def cdf(self, y):
        return norm.cdf(y, self.mean, 0.8)

    def quantile(self, q):
        return norm.ppf(np.asarray(q), self.mean[:, None], 0.8)


def draw(rng, size):
    x = rng.normal(size=(size, 1))
    return x, x[:, 0] + rng.standard_t(3, size=size) + 0.4


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_coverage_is_as_promised_whatever_the_model(level):
    rng = np.random.default_rng(0)
    found = []
    for _ in range(200):
        guarded = ConformalRegressor(WrongNormal()).calibrate(*draw(rng, 59))
        x, y = draw(rng, 200)
        lower, upper = guarded.predict_interval(x, level).T
        found.append(np.mean((lower <= y) & (y <= upper)))
    rank = np.ceil(60 * level)
    expected = rank / 60  # coverage is Beta(rank, n + 1 - rank)
    error = np.hypot(beta.std(rank, 60 - rank), np.sqrt(0.25 / 200)) / np.sqrt(200)
    assert expected >= level
    assert abs(np.mean(found) - expected) < 4 * error


def test_quantiles_and_cdf_are_corrected_too():
    rng = np.random.default_rng(1)
    guarded = ConformalRegressor(WrongNormal()).calibrate(*draw(rng, 2000))
    x, y = draw(rng, 4000)
    found = guarded.predict_quantiles(x, [0.1, 0.5, 0.9])
    np.testing.assert_allclose(
        (y[:, None] <= found).mean(0), [0.1, 0.5, 0.9], atol=0.03
    )
    corrected = np.sort(guarded.cdf(x, y))
    np.testing.assert_allclose(corrected, np.linspace(0, 1, 4000), atol=0.04)
    assert (
        np.abs(np.sort(norm.cdf(y, x[:, 0], 0.8)) - np.linspace(0, 1, 4000)).max() > 0.2
    )


def test_rows_outside_of_every_interval_make_them_infinite():
    x = np.zeros((9, 1))
    y = np.array([0, 0.1, 0.2, -0.1, -0.2, 0.05, 1e6, -1e6, 1e6])
    guarded = ConformalRegressor(WrongNormal()).calibrate(x, y)
    assert np.isinf(guarded.predict_interval(x[:2], 0.9)).all()
    assert np.isfinite(guarded.predict_interval(x[:2], 0.5)).all()


def test_several_outputs_are_refused_before_training():
    model = ConformalRegressor(BNNRegressor(max_steps=-1))  # never asked to fit
    with pytest.raises(ValueError, match="y has 2 columns"):
        model.fit(np.zeros((20, 1)), np.zeros((20, 2)))


def test_fit_keeps_rows_apart_and_takes_frames():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=50)})
    y = frame["a"] + rng.normal(0, 0.2, 50)
    model = tiny_plain()
    guarded = ConformalRegressor(model, random_state=1).fit(frame, y)
    assert len(guarded.pit_) == 10
    assert not hasattr(model, "posterior_")
    lower, upper = guarded.predict_interval(frame, 0.8).T
    assert (lower < upper).all()
    assert guarded.predict(frame).shape == (50,)


def test_refusals():
    x, y = draw(np.random.default_rng(0), 20)
    guarded = ConformalRegressor(WrongNormal()).calibrate(x, y)
    with pytest.raises(ValueError, match=r"level of 0\.99 needs at least 99 .* are 20"):
        guarded.predict_interval(x, 0.99)
    with pytest.raises(ValueError, match=r"quantile of 0\.96 needs at least 24"):
        guarded.predict_quantiles(x, [0.96])
    with pytest.raises(ValueError, match="level=2 must be between 0 and 1"):
        guarded.predict_interval(x, 2)
    with pytest.raises(ValueError, match="calibration_fraction=1 must be between"):
        ConformalRegressor(WrongNormal(), 1).fit(x, y)
    with pytest.raises(ValueError, match="leave fewer than 5"):
        ConformalRegressor(WrongNormal(), 0.1).fit(x, y)
