"""Predictions of y where the network was trained on a transform of it."""

import numpy as np
import pytest
from scipy import stats

from ncai import BNNLVRegressor
from ncai.model.networks import MLP, FlatNetwork
from ncai.predictive.rounded import predictive_of
from ncai.predictive.transformed import TransformedPredictive
from ncai.preprocessing.rounding import Lattice
from ncai.preprocessing.target_transforms import TargetTransform, log_inverse_slope
from ncai.types import WeightDraws

NOISE, SHIFT, SCALE = 0.3, 0.4, 0.5


def linear_predictive(transform, num_draws=1, inputs=((-1.0,), (0.0,), (2.0,))):
    """t = shift + scale (x + noise): y is then known in closed form."""
    network = FlatNetwork(MLP(()), 1, 0, 1)
    weights = np.tile(network.flatten([_linear()]), (num_draws, 1))
    draws = WeightDraws(
        np.asarray(weights, np.float32),
        np.full((num_draws, 1), NOISE, np.float32),
        np.ones(num_draws, np.float32),
    )
    return predictive_of(
        transform,
        Lattice.none(1),
        network=network,
        inputs=np.asarray(inputs),
        draws=draws,
        num_latent_draws=1,
        target_shift=[SHIFT],
        target_scale=[SCALE],
        single_output=True,
    )


def _linear():
    return {
        "bias": np.zeros(1, np.float32),
        "input": np.ones((1, 1), np.float32),
        "latent": np.zeros((0, 1), np.float32),
    }


def lognormal():
    centre = SHIFT + SCALE * np.array([-1.0, 0.0, 2.0])
    return stats.lognorm(s=SCALE * NOISE, scale=np.exp(centre))


@pytest.fixture
def log_predictive():
    return linear_predictive(TargetTransform("log", np.ones(1)))


def test_a_log_transform_gives_the_lognormal_distribution(log_predictive):
    truth = lognormal()
    y = np.array([0.9, 1.4, 4.0])
    np.testing.assert_allclose(log_predictive.log_prob(y), truth.logpdf(y), atol=1e-4)
    np.testing.assert_allclose(log_predictive.cdf(y), truth.cdf(y), atol=1e-5)
    np.testing.assert_allclose(log_predictive.prob_above(y), truth.sf(y), atol=1e-5)
    np.testing.assert_allclose(log_predictive.mean(), truth.mean(), rtol=1e-4)
    np.testing.assert_allclose(log_predictive.std(), truth.std(), rtol=1e-3)
    levels = np.array([0.05, 0.5, 0.975])
    np.testing.assert_allclose(
        log_predictive.quantile(levels),
        truth.ppf(levels[:, None]).T,
        rtol=1e-4,
    )
    np.testing.assert_allclose(
        log_predictive.log_prob_grid([0.5, 2.0]),
        np.stack([truth.logpdf(0.5), truth.logpdf(2.0)], axis=1),
        atol=1e-4,
    )


def test_values_that_y_cannot_have_have_no_density(log_predictive):
    assert np.all(log_predictive.log_prob(np.array([-1.0, 0.0, -3.0])) == -np.inf)
    np.testing.assert_array_equal(log_predictive.cdf(-1.0), 0.0)
    np.testing.assert_array_equal(log_predictive.prob_above(-1.0), 1.0)
    assert np.isneginf(log_predictive.log_prob_grid([-1.0])).all()


def test_crps_is_that_of_the_lognormal():
    predictive = linear_predictive(
        TargetTransform("log", np.ones(1)), num_draws=1, inputs=((0.0,),)
    )
    truth = stats.lognorm(s=SCALE * NOISE, scale=np.exp(SHIFT))
    for y in (1.0, 1.5, 3.0):
        grid = np.linspace(0.3, 6, 200_001)
        step = (grid >= y).astype(float)
        exact = np.trapezoid((truth.cdf(grid) - step) ** 2, grid)
        assert predictive.crps(y)[0] == pytest.approx(exact, rel=2e-3)


def test_a_highest_density_set_holds_its_level_and_is_shorter(log_predictive):
    lower, upper = log_predictive.interval(0.9)
    for row, found in enumerate(log_predictive.interval(0.9, "highest_density")):
        assert len(found) == 1
        low, high = found[0]
        one = stats.lognorm(
            s=SCALE * NOISE, scale=np.exp(SHIFT + SCALE * [-1, 0, 2][row])
        )
        assert one.cdf(high) - one.cdf(low) == pytest.approx(0.9, abs=0.01)
        assert high - low < upper[row] - lower[row]


def test_variance_parts_add_up_and_entropy_moves_with_the_slope(log_predictive):
    parts = log_predictive.decompose("variance")
    np.testing.assert_allclose(parts.total, log_predictive.variance(), rtol=1e-5)
    np.testing.assert_allclose(parts.epistemic, 0, atol=1e-6)
    entropy = log_predictive.decompose("entropy")
    np.testing.assert_allclose(entropy.total, lognormal().entropy(), atol=2e-3)


def test_samples_and_rows_keep_the_units(log_predictive):
    samples = log_predictive.sample(4000, seed=1)
    np.testing.assert_allclose(np.median(samples, 0), lognormal().median(), rtol=0.02)
    np.testing.assert_array_equal(log_predictive[1].mean(), log_predictive.mean()[1:2])


@pytest.mark.parametrize("power", [-0.5, 0.0, 0.7, 1.0, 2.0, 2.6])
def test_yeo_johnson_agrees_with_scipy_and_inverts(power):
    y = np.array([-3.0, -0.2, 0.0, 0.4, 5.0])
    transform = TargetTransform("yeo_johnson", np.array([power]))
    t = transform.forward(y)
    np.testing.assert_allclose(t, stats.yeojohnson(y, power), rtol=1e-10)
    np.testing.assert_allclose(transform.inverse(t), y, rtol=1e-6, atol=1e-9)
    step = 1e-6
    slope = (transform.forward(y + step) - transform.forward(y - step)) / (2 * step)
    np.testing.assert_allclose(transform.log_slope(y), np.log(slope), atol=1e-5)
    np.testing.assert_allclose(
        log_inverse_slope("yeo_johnson", t, *transform.shape, np),
        -np.log(slope),
        atol=1e-5,
    )


@pytest.mark.parametrize("unit", [1e-90, 1e-16, 1e30, 1e90])
def test_units_in_which_no_power_is_best_leave_y_as_it_is(unit):
    # Joules of a photon, say: 1 + y is 1, so that all powers are alike.
    y = unit * np.random.default_rng(0).normal(2.0, 1.0, size=(50, 1))
    transform = TargetTransform.learn("yeo_johnson", y)
    t = transform.forward(y)
    assert np.isfinite(t).all()
    np.testing.assert_allclose(transform.inverse(t), y, rtol=1e-6)


def test_beyond_the_reach_of_yeo_johnson_values_are_finite():
    transform = TargetTransform("yeo_johnson", np.array([-0.5]))
    assert np.isfinite(transform.inverse(np.array([50.0]))).all()


def test_log_refuses_what_is_not_positive():
    with pytest.raises(ValueError, match="positive y; its smallest value is -1"):
        TargetTransform.learn("log", np.array([[1.0], [-1.0]]))


def test_auto_chooses_log_where_it_is_right_and_saves_it(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(120, 1))
    y = np.exp(2 * x[:, 0] + 0.3 * rng.normal(size=120))
    model = BNNLVRegressor(
        inference="marginal",
        target_transform="auto",
        hidden=(5,),
        latent_hidden=(),
        max_steps=300,
        n_restarts=2,
        validation_fraction=0.3,
        random_state=0,
    ).fit(x, y)
    assert model.settings_["target_transform"] == "log"
    model.save(tmp_path / "model.ncai")
    again = BNNLVRegressor.load(tmp_path / "model.ncai")
    np.testing.assert_array_equal(
        again.predict_dist(x[:5]).log_prob(y[:5]),
        model.predict_dist(x[:5]).log_prob(y[:5]),
    )
    assert (again.predict_interval(x[:5]) > 0).all()


def test_a_tail_too_thin_to_show_is_not_all_there_is_to_a_mean():
    # One of 200 draws of W predicts 12 standard deviations out.
    draws = WeightDraws(
        np.array([[0.0, 0.0, 0.0]] * 199 + [[12.0, 0.0, 0.0]], np.float32),
        np.full((200, 1), 0.1, np.float32),
        np.ones(200, np.float32),
    )

    def mean(upper):
        return TransformedPredictive(
            transform=TargetTransform("log", np.ones(1), upper=np.array([upper])),
            network=FlatNetwork(MLP(()), 1, 1, 1),
            inputs=np.zeros((1, 1)),
            draws=draws,
            num_latent_draws=4,
            target_shift=np.zeros(1),
            target_scale=np.ones(1),
            single_output=True,
        ).mean()

    rest = 0.995 * np.exp(0.005)
    assert mean(np.inf) == pytest.approx(rest + 0.005 * np.exp(12.005), rel=1e-3)
    # From e on, where the slope is e, t counts as it is.
    assert mean(np.e) == pytest.approx(rest + 0.005 * np.e * (1 + 11), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "power"), [("log", 1.0), ("yeo_johnson", -0.5), ("yeo_johnson", 2.5)]
)
def test_beyond_its_bounds_a_transform_is_a_line_and_still_its_own_inverse(name, power):
    low = -np.inf if name == "log" else -0.5
    transform = TargetTransform(
        name, np.array([power]), np.array([low]), np.array([2.0])
    )
    y = np.array([0.1, 0.5, 1.9, 2.0, 2.1, 3.0, 40.0])
    y = y if name == "log" else np.concatenate([[-30.0, -0.6, -0.4, 0.0], y])
    t = transform.forward(y)
    np.testing.assert_allclose(transform.inverse(t), y, rtol=1e-6, atol=1e-9)
    slope = np.exp(transform.log_slope(np.array([2.0])))
    at_two = transform.forward(np.array([2.0]))
    assert t[-1] == pytest.approx(float((at_two + slope * 38.0)[0]))
    # Slopes are those of differences, on both sides and at the joints.
    h = 1e-6
    differences = (transform.forward(y + h) - transform.forward(y - h)) / (2 * h)
    np.testing.assert_allclose(np.exp(transform.log_slope(y)), differences, rtol=1e-4)
    shape = transform.shape
    np.testing.assert_allclose(
        log_inverse_slope(name, t, *shape, np), -transform.log_slope(y), atol=1e-6
    )


def test_moments_densities_and_draws_beyond_the_bounds_agree():
    transform = TargetTransform("log", np.ones(1), upper=np.array([1.5]))
    predictive = linear_predictive(transform)
    y = np.linspace(1e-3, 12, 40_001)
    density = np.exp(predictive.log_prob_grid(y))
    np.testing.assert_allclose(np.trapezoid(density, y), 1, atol=1e-4)
    mean = np.trapezoid(y * density, y)
    np.testing.assert_allclose(predictive.mean(), mean, rtol=2e-3)
    variance = np.trapezoid((y - mean[:, None]) ** 2 * density, y)
    np.testing.assert_allclose(predictive.variance(), variance, rtol=2e-2)
    draws = predictive.sample(40_000, seed=0)
    np.testing.assert_allclose(draws.mean(axis=0), mean, rtol=0.01)
    np.testing.assert_allclose(draws.std(axis=0), np.sqrt(variance), rtol=0.03)


def test_far_from_the_data_moments_and_quantiles_tell_the_same_story():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(80, 1))
    y = np.exp(x[:, 0] + 0.3 * rng.normal(size=80))
    model = BNNLVRegressor(
        target_transform="log",
        latent_hidden=(20,),
        max_steps=200,
        n_restarts=4,
        n_folds=2,
        random_state=0,
    ).fit(x, y)
    far = model.predict_dist([[20.0]])
    draws = far.sample(20_000, seed=0)[:, 0]
    assert far.mean()[0] == pytest.approx(draws.mean(), rel=0.1)
    assert far.std()[0] == pytest.approx(draws.std(), rel=0.15)
    assert draws.max() < 300 * y.max()
