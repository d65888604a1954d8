"""The estimators as scikit-learn sees them, and the conformal guard for calibration."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import beta, norm
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers import tiny_plain
from ncai import MAP, MFVI, BNNLVRegressor, BNNRegressor, ConformalRegressor, Marginal

METHOD = MFVI(
    learning_rate=0.03, validation_fraction=0, n_weight_draws=16, n_latent_draws=4
)
TINY = {
    "inference": METHOD,
    "hidden": (8,),
    "max_steps": 500,
    "n_restarts": 1,
    "random_state": 0,
}
# Fixed noise saves a stage, and with it a compilation for every shape of data.
TINY_LATENT = TINY | {"noise_variance": 0.01}


def expected_failures(estimator):
    del estimator
    return {
        "check_sample_weight_equivalence_on_dense_data": (
            "a row of weight 2 and two equal rows are the same to the objective, but "
            "not to the random numbers of training and of the latents"
        )
    }


@parametrize_with_checks(
    [BNNLVRegressor(**TINY_LATENT), BNNRegressor(noise_variance=0.01, **TINY)],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# The default method: a compilation for every shape of data makes it slow.
MARGINAL = {"hidden": (8,), "max_steps": 200, "n_restarts": 2, "random_state": 0}
MARGINAL |= {"inference": Marginal(n_folds=2, n_weight_draws=16, n_latent_draws=4)}


@pytest.mark.slow
@parametrize_with_checks(
    [BNNLVRegressor(**MARGINAL)], expected_failed_checks=expected_failures
)
def test_scikit_learn_checks_of_the_default_method(estimator, check):
    check(estimator)


# ----- Use with the rest of scikit-learn, all on data of one shape: 40 x 2 ------------


def data(num_rows=40):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(num_rows, 2))
    return x, x[:, 0] - 0.5 * x[:, 1] + 0.1 * rng.normal(size=num_rows)


def test_clone_of_a_fitted_estimator_is_unfitted_and_fits_to_the_same():
    x, y = data()
    model = BNNLVRegressor(**TINY_LATENT).fit(x, y)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "posterior_")
    np.testing.assert_array_equal(copy.fit(x, y).predict(x), model.predict(x))


def test_clone_keeps_a_start_given_by_value():
    start = {"weights": np.zeros(33), "latents": np.zeros((40, 1))}
    copy = clone(BNNLVRegressor(inference=MFVI(start=start))).inference.start
    np.testing.assert_array_equal(copy["weights"], start["weights"])
    np.testing.assert_array_equal(copy["latents"], start["latents"])


def test_pipeline():
    x, y = data()
    pipeline = make_pipeline(StandardScaler(), BNNRegressor(**TINY)).fit(x, y)
    assert pipeline.score(x, y) > 0.8
    # Scaling twice is scaling once.
    alone = BNNRegressor(**TINY).fit(x, y)
    np.testing.assert_allclose(pipeline.predict(x), alone.predict(x), atol=1e-3)


def test_grid_search_picks_the_rate_that_learns():
    x, y = data(60)  # folds of 40 rows
    grid = {"inference__learning_rate": [1e-6, 0.03]}
    search = GridSearchCV(BNNRegressor(**TINY), grid, cv=3, n_jobs=1).fit(x, y)
    assert search.best_params_ == {"inference__learning_rate": 0.03}
    assert search.best_estimator_.inference.learning_rate == 0.03
    assert search.predict(x).shape == (60,)


@pytest.mark.parametrize("inference", ["ncai", "ncai0"])
def test_without_a_latent_ncai_is_mfvi(inference):
    # So that a search over latent_dim=[0, 1] works; the argument stays as it was.
    for model in (
        BNNLVRegressor(0, inference),
        BNNRegressor(inference),
        clone(BNNLVRegressor(0, inference)),
    ):
        assert model.resolved_settings().method.name == "mfvi"
        assert model.inference == inference
    settings = BNNLVRegressor(1, inference).resolved_settings()
    assert settings.method.name == inference


def test_cross_validation_with_the_log_score():
    x, y = data(60)

    def log_score(model, x, y):
        return model.log_score(x, y)

    scores = cross_val_score(BNNRegressor(**TINY), x, y, cv=3, scoring=log_score)
    # y has a spread of about 1.1: a Gaussian of that width scores -1.5.
    assert np.all(scores > -1.5)


# ----- Data frames --------------------------------------------------------------------


@pytest.fixture(scope="module")
def named():
    x, y = data()
    frame = pd.DataFrame(x, columns=["height", "width"])
    return BNNRegressor(**TINY).fit(frame, pd.Series(y)), frame


def test_a_data_frame_is_as_good_as_an_array(named):
    model, frame = named
    x, y = data()
    assert model.feature_names_in_.tolist() == ["height", "width"]
    bare = BNNRegressor(**TINY).fit(x, y)
    np.testing.assert_array_equal(model.predict(frame), bare.predict(x))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f[["width", "height"]], "same order"),
        (lambda f: f.rename(columns={"width": "depth"}), "depth"),
        (lambda f: f[["height"]], "missing"),
    ],
)
@pytest.mark.parametrize("method", ["predict", "predict_dist", "sample_y"])
def test_other_columns_are_refused(named, change, message, method):
    model, frame = named
    with pytest.raises(ValueError, match=message):
        getattr(model, method)(change(frame))


def test_validation_rows_must_have_the_same_columns(named):
    _, frame = named
    y = data()[1]
    with pytest.raises(ValueError, match="same order"):
        BNNRegressor(**TINY).fit(
            frame, y, X_valid=frame[["width", "height"]], y_valid=y
        )


# ----- Shapes of y --------------------------------------------------------------------


def test_a_column_vector_is_a_vector_with_an_axis_more():
    x, y = data()
    flat = BNNLVRegressor(**TINY_LATENT).fit(x, y)
    column = BNNLVRegressor(**TINY_LATENT).fit(x, y[:, None])
    np.testing.assert_array_equal(column.predict(x), flat.predict(x)[:, None])
    assert column.predict_interval(x).shape == (40, 1, 2)
    assert column.log_score(x, y[:, None]) == flat.log_score(x, y)


def test_two_outputs():
    x, y = data()
    both = np.stack([y, 100 - 50 * y], axis=1)
    model = BNNLVRegressor(**TINY_LATENT).fit(x, both)
    mean, std = model.predict(x, return_std=True)
    assert mean.shape == std.shape == (40, 2)
    assert model.score(x, both) > 0.8
    assert model.predict_interval(x).shape == (40, 2, 2)
    assert model.predict_quantiles(x, [0.1, 0.5, 0.9]).shape == (40, 2, 3)
    assert model.sample_y(x, 5).shape == (40, 2, 5)
    assert model.predict_dist(x).log_prob(both).shape == (40,)
    parts = model.decompose_uncertainty(x)
    whole = parts.aleatoric + parts.epistemic
    np.testing.assert_allclose(parts.total, whole, rtol=1e-6)
    assert parts.total.shape == (40, 2)
    with pytest.raises(ValueError, match="outputs"):
        model.latent_posterior(x, y)


# ----- Weights ------------------------------------------------------------------------


def test_rows_of_weight_zero_are_as_if_absent():
    x, y = data(48)
    dropped = np.arange(0, 48, 6)
    weights = np.ones(48)
    weights[dropped] = 0
    wild = y.copy()
    wild[dropped] = 1e3
    some = BNNLVRegressor(**TINY_LATENT).fit(x, wild, sample_weight=weights)
    kept = np.setdiff1d(np.arange(48), dropped)
    without = BNNLVRegressor(**TINY_LATENT).fit(x[kept], y[kept])
    np.testing.assert_array_equal(some.predict(x), without.predict(x))
    np.testing.assert_array_equal(some.train_index_, kept)
    assert some.latent_posterior_.mean.shape == (40, 1)


def test_rows_of_weight_zero_are_not_held_out():
    x, y = data(48)
    weights = np.ones(48)
    weights[40:] = 0
    model = BNNRegressor(**TINY | {"n_restarts": 2})
    model.set_params(inference__validation_fraction=0.2)
    model.fit(x, y, sample_weight=weights)
    assert len(model.train_index_) == 32
    assert model.train_index_.max() < 40
    assert np.isfinite(model.restart_scores_).all()


def test_a_row_of_weight_two_is_two_rows():
    # The objective of the samplers and of MAP has no random numbers: it is the same,
    # and with a rate that falls to 0 both come to rest in the same optimum.
    x, y = data()
    method = MAP(
        weight_variance=1.0,
        schedule="cosine",
        learning_rate=0.03,
        validation_fraction=0,
        n_weight_draws=16,
    )
    settings = TINY | {"inference": method, "max_steps": 2000}
    weights = np.ones(40)
    weights[:8] = 2
    weighted = BNNRegressor(**settings).fit(x, y, sample_weight=weights)
    twice = np.concatenate([np.arange(40), np.arange(8)])
    repeated = BNNRegressor(**settings).fit(x[twice], y[twice])
    np.testing.assert_allclose(weighted.predict(x), repeated.predict(x), atol=1e-3)
    plain = BNNRegressor(**settings).fit(x, y)
    assert np.abs(weighted.predict(x) - plain.predict(x)).max() > 1e-2


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.r_[-1.0, np.ones(39)], "[Nn]egative"),
        (np.zeros(40), "zero"),
        (np.eye(40)[0], "sample_weight is above zero for 1 row;"),
        (np.ones(39), "sample_weight"),
        (np.full(40, np.nan), "NaN"),
    ],
)
def test_weights_that_cannot_be_are_refused(weights, message):
    x, y = data()
    with pytest.raises(ValueError, match=message):
        BNNRegressor(**TINY).fit(x, y, sample_weight=weights)


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
