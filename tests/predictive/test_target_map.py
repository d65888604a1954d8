"""Predictions of a y that is transformed, rounded (as whole numbers are), or both."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from ncai import BNNLVRegressor, ConformalRegressor, Marginal
from ncai.diagnostics.evaluation import row_scores
from ncai.model.networks import MLP, FlatNetwork
from ncai.predictive.distribution import PredictiveDistribution
from ncai.predictive.intervals import rests_on_rare_draws
from ncai.predictive.target_map import TargetMap
from ncai.preprocessing.rounding import Lattice
from ncai.preprocessing.scaling import Scaling
from ncai.preprocessing.target_transforms import TargetTransform, log_inverse_slope
from ncai.stats.scores import pit_uniformity
from ncai.tables.inspect import learned_as
from ncai.types import RawRows, WeightDraws
from tests.conftest import compiling_well

# All fits have these settings and as many rows, so they share compiled programs. In the
# network z has a hidden layer of its own.
SETTINGS = {
    "inference": Marginal(n_folds=2, n_weight_draws=32, n_latent_draws=32),
    "network": MLP((10, 10), "silu", "last", (10,)),
    "max_steps": 300,
    "n_restarts": 4,
    "random_state": 0,
}
NUM_ROWS = 200


@pytest.fixture(scope="module", autouse=True)
def computing_for_long():
    """Fits of these sizes, and predictions of many rows, are worth good programs."""
    with compiling_well():
        yield


# ----- Transformed --------------------------------------------------------------------

LOG_NOISE, LOG_SHIFT, LOG_SCALE = 0.3, 0.4, 0.5


def linear_predictive(transform, num_draws=1, inputs=((-1.0,), (0.0,), (2.0,))):
    """t = shift + scale (x + noise): y is then known in closed form."""
    network = FlatNetwork(MLP(()), 1, 0, 1)
    weights = np.tile(network.flatten([_linear()]), (num_draws, 1))
    draws = WeightDraws.equal(
        np.asarray(weights, np.float32),
        np.full((num_draws, 1), LOG_NOISE, np.float32),
        np.ones(num_draws, np.float32),
    )
    return PredictiveDistribution(
        network=network,
        inputs=np.asarray(inputs),
        draws=draws,
        target_map=TargetMap(
            np.array([LOG_SHIFT]), np.array([LOG_SCALE]), transform, Lattice.none(1)
        ),
        num_latent_draws=1,
        single_output=True,
    )


def _linear():
    return {
        "bias": np.zeros(1, np.float32),
        "input": np.ones((1, 1), np.float32),
        "latent": np.zeros((0, 1), np.float32),
    }


def lognormal():
    centre = LOG_SHIFT + LOG_SCALE * np.array([-1.0, 0.0, 2.0])
    return stats.lognorm(s=LOG_SCALE * LOG_NOISE, scale=np.exp(centre))


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
    truth = stats.lognorm(s=LOG_SCALE * LOG_NOISE, scale=np.exp(LOG_SHIFT))
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
            s=LOG_SCALE * LOG_NOISE,
            scale=np.exp(LOG_SHIFT + LOG_SCALE * [-1, 0, 2][row]),
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
    x = rng.uniform(-2, 2, size=(NUM_ROWS, 1))
    y = np.exp(2 * x[:, 0] + 0.3 * rng.normal(size=NUM_ROWS))
    model = BNNLVRegressor(target_transform="auto", **SETTINGS).fit(x, y)
    assert model.settings_.target_transform == "log"
    model.save(tmp_path / "model.ncai")
    again = BNNLVRegressor.load(tmp_path / "model.ncai")
    np.testing.assert_array_equal(
        again.predict_dist(x[:5]).log_prob(y[:5]),
        model.predict_dist(x[:5]).log_prob(y[:5]),
    )
    assert (again.predict_interval(x[:5]) > 0).all()


def test_a_tail_too_thin_to_show_is_not_all_there_is_to_a_mean():
    # One of 200 draws of W predicts 12 standard deviations out.
    draws = WeightDraws.equal(
        np.array([[0.0, 0.0, 0.0]] * 199 + [[12.0, 0.0, 0.0]], np.float32),
        np.full((200, 1), 0.1, np.float32),
        np.ones(200, np.float32),
    )

    def mean(upper):
        transform = TargetTransform("log", np.ones(1), upper=np.array([upper]))
        return PredictiveDistribution(
            network=FlatNetwork(MLP(()), 1, 1, 1),
            inputs=np.zeros((1, 1)),
            draws=draws,
            target_map=TargetMap(np.zeros(1), np.ones(1), transform, Lattice.none(1)),
            num_latent_draws=4,
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
    x = rng.uniform(-2, 2, size=(NUM_ROWS, 1))
    y = np.exp(x[:, 0] + 0.3 * rng.normal(size=NUM_ROWS))
    model = BNNLVRegressor(target_transform="log", **SETTINGS).fit(x, y)
    far = model.predict_dist([[20.0]])
    draws = far.sample(20_000, seed=0)[:, 0]
    assert far.mean()[0] == pytest.approx(draws.mean(), rel=0.1)
    assert far.std()[0] == pytest.approx(draws.std(), rel=0.15)
    assert draws.max() < 300 * y.max()


# ----- Rounded -----------------------------------------------------------------------

RNG = np.random.default_rng(0)
NOISE, SHIFT, SCALE = 0.8, 10.3, 1.5
INPUTS = np.array([[-1.0], [0.0], [2.0]])
CENTRES = SHIFT + SCALE * INPUTS[:, 0]
STEP = 0.5


def gaussian(outputs=1, transform=None, step=STEP, inputs=INPUTS, noise=NOISE):
    """t = shift + scale (x + noise) for every output; y is t or its transform."""
    network = FlatNetwork(MLP(()), 1, 0, outputs)
    layer = {
        "bias": np.zeros(outputs, np.float32),
        "input": np.ones((1, outputs), np.float32),
        "latent": np.zeros((0, outputs), np.float32),
    }
    draws = WeightDraws.equal(
        np.asarray(network.flatten([layer]), np.float32)[None],
        np.full((1, outputs), noise, np.float32),
        np.ones(1, np.float32),
    )
    step = np.broadcast_to(step, outputs)
    target_map = TargetMap(
        np.full(outputs, SHIFT),
        np.full(outputs, SCALE),
        transform or TargetTransform("none", np.ones(outputs)),
        # An origin below 0: y may be negative.
        Lattice(np.where(step > 0, 0.25 - 1000 * step, 0.0), step),
    )
    return PredictiveDistribution(
        network=network,
        inputs=inputs,
        draws=draws,
        target_map=target_map,
        num_latent_draws=1,
        single_output=outputs == 1,
    )


def truth():
    """y before it was rounded."""
    return stats.norm(CENTRES, SCALE * NOISE)


VALUES = 0.25 + STEP * np.arange(-40, 120)


def masses(unrounded=None):
    """P(y = k) for every value of the lattice, [N, values]."""
    edges = np.append(VALUES - STEP / 2, VALUES[-1] + STEP / 2)
    unrounded = truth() if unrounded is None else unrounded
    return np.diff(unrounded.cdf(edges[:, None]), axis=0).T


def test_rounded_targets_are_told_by_their_lattice():
    whole = RNG.integers(3, 9, 100).astype(float)
    smooth = RNG.normal(size=100)
    classes = RNG.integers(0, 2, 100).astype(float)
    uneven = RNG.choice([0.0, 1.0, 2.5, 2.7], 100)
    columns = np.stack([whole, 0.1 * whole, smooth, classes, uneven], axis=1)
    found = Lattice.learn(columns)
    np.testing.assert_allclose(found.step, [1.0, 0.1, 0, 0, 0])
    np.testing.assert_allclose(found.nearest(columns), columns)
    assert not Lattice.learn(columns[:, 2:])


def test_unrounded_targets_round_to_what_was_given():
    rows = RawRows(np.zeros((60, 1)), RNG.integers(-3, 4, (60, 1)) * 1.0, np.ones(60))
    lattice = Lattice.learn(rows.targets)
    found = lattice.dequantise(rows, seed=1)
    assert np.array_equal(lattice.nearest(found.targets), rows.targets)
    assert len(np.unique(found.targets)) == 60
    unchanged = Lattice.none(1).dequantise(rows, seed=1)
    np.testing.assert_array_equal(unchanged.targets, rows.targets)


def test_probabilities_are_those_of_the_rounded_gaussian():
    predictive = gaussian()
    place = np.array([56, 62, 67])
    y = VALUES[place]
    at = masses()[np.arange(3), place]
    below = np.cumsum(masses(), axis=1)[np.arange(3), place]
    np.testing.assert_allclose(predictive.log_prob(y), np.log(at / STEP), atol=1e-4)
    np.testing.assert_allclose(predictive.cdf(y), below, atol=1e-5)
    np.testing.assert_allclose(predictive.prob_above(y), 1 - below, atol=1e-5)
    # Between two values nothing more comes, whatever binary digits do to a value.
    for off in (0.3 * STEP, 0.99 * STEP, -1e-12):
        np.testing.assert_allclose(predictive.cdf(y + off), below, atol=1e-5)
    np.testing.assert_allclose(
        np.exp(predictive.log_prob(y + 0.3 * STEP)), at / STEP, rtol=1e-4
    )


def test_probabilities_far_out_are_finite():
    predictive = gaussian()
    far = CENTRES + 30 * SCALE * NOISE
    mirrored = CENTRES - 30 * SCALE * NOISE
    assert np.isfinite(predictive.log_prob(far)).all()
    # log Phi's tail: -z^2 / 2 up to logarithms.
    np.testing.assert_allclose(predictive.log_prob(far), -450, rtol=0.05)
    np.testing.assert_allclose(predictive.log_prob(mirrored), -450, rtol=0.05)


def test_quantiles_and_intervals_are_values_of_the_lattice():
    predictive = gaussian()
    levels = np.array([0.02, 0.3, 0.5, 0.97])
    cumulated = np.cumsum(masses(), axis=1)
    expected = np.stack(
        [[VALUES[np.searchsorted(row, q)] for q in levels] for row in cumulated]
    )
    np.testing.assert_allclose(predictive.quantile(levels), expected)
    lower, upper = predictive.interval(0.9)
    inside = predictive.cdf(upper) - predictive.cdf(lower - STEP)
    assert (inside >= 0.9).all()
    for row in predictive.interval(0.9, "highest_density"):
        np.testing.assert_allclose(
            Lattice(np.array([0.25]), np.array([STEP])).nearest(row[..., None])[..., 0],
            row,
        )


def test_variance_and_crps_are_those_of_the_rounded_gaussian():
    predictive = gaussian()
    mass = masses()
    mean = mass @ VALUES
    variance = mass @ VALUES**2 - mean**2
    np.testing.assert_allclose(predictive.variance(), variance, rtol=5e-3)
    np.testing.assert_allclose(predictive.mean(), mean, atol=1e-3)
    y = VALUES[[56, 62, 67]]
    away = np.abs(VALUES - y[:, None])
    apart = np.abs(VALUES[:, None] - VALUES)
    exact = (mass * away).sum(1) - 0.5 * ((mass @ apart) * mass).sum(1)
    np.testing.assert_allclose(predictive.crps(y), exact, rtol=5e-3)
    part = predictive[1:]
    np.testing.assert_array_equal(part.variance(), predictive.variance()[1:])


def test_samples_are_values_with_their_probabilities():
    predictive = gaussian()
    samples = predictive.sample(4000, seed=1)
    np.testing.assert_allclose(
        (samples - 0.25) / STEP, np.round((samples - 0.25) / STEP), atol=1e-9
    )
    for row in range(3):
        found, counts = np.unique(samples[:, row], return_counts=True)
        expected = masses()[row][np.searchsorted(VALUES, found - 1e-9)]
        np.testing.assert_allclose(counts / 4000, expected, atol=0.035)
    functions = predictive.sample_functions(3)
    np.testing.assert_allclose(functions, np.tile(CENTRES, (3, 1)), rtol=1e-5)
    noisy = predictive.sample_functions(3, include_noise=True)
    np.testing.assert_allclose(
        noisy, Lattice(np.array([0.25]), np.array([STEP])).nearest(noisy)
    )


def test_the_split_is_of_y_before_rounding():
    parts = gaussian().decompose("variance")
    np.testing.assert_allclose(parts.total, truth().var(), rtol=2e-3)
    np.testing.assert_allclose(parts.aleatoric + parts.epistemic, parts.total)
    crps = gaussian().decompose("crps")
    np.testing.assert_allclose(crps.total, truth().std() / np.pi**0.5, rtol=2e-3)
    np.testing.assert_allclose(
        gaussian().decompose("entropy").total, truth().entropy(), atol=2e-3
    )


def test_pit_values_of_rounded_targets_are_uniform():
    x = np.zeros((2000, 1))
    predictive = gaussian(inputs=x)
    y = gaussian(inputs=x).sample(1, seed=3)[0]
    assert pit_uniformity(predictive.pit(y)).p_value > 0.01
    assert pit_uniformity(predictive.cdf(y)).p_value < 1e-6  # as the cdf is not
    assert pit_uniformity(row_scores(predictive, y)["pit"]).p_value > 0.01


def test_a_transform_rounds_after_it():
    transform = TargetTransform("log", np.ones(1))
    predictive = gaussian(transform=transform, step=1000.0, noise=0.1)
    unrounded = stats.lognorm(s=SCALE * 0.1, scale=np.exp(CENTRES))
    y = 0.25 + 1000.0 * np.array([7, 31, 590])
    mass = unrounded.cdf(y + 500) - unrounded.cdf(y - 500)
    np.testing.assert_allclose(
        predictive.log_prob(y), np.log(mass / 1000), atol=2e-3, rtol=1e-4
    )
    np.testing.assert_allclose(predictive.cdf(y), unrounded.cdf(y + 500), atol=1e-4)
    # A cell that begins below 0 holds all that is above.
    lowest = predictive.log_prob(0.25)
    np.testing.assert_allclose(
        lowest[0], unrounded.logcdf(500.25)[0] - np.log(1000), rtol=1e-3
    )
    values = np.arange(0, 20_000) * 1000.0 + 0.25
    edges = np.append(values - 500, values[-1] + 500)
    mass = np.diff(unrounded.cdf(edges[:, None]), axis=0).T
    mean = mass @ values
    np.testing.assert_allclose(
        predictive.std(), np.sqrt(mass @ values**2 - mean**2), rtol=0.02
    )


def test_an_output_that_is_not_rounded_keeps_its_density():
    predictive = gaussian(outputs=2, step=np.array([STEP, 0.0]))
    y = np.stack([VALUES[[56, 62, 67]], CENTRES + 0.1], axis=1)
    at = masses()[np.arange(3), [56, 62, 67]]
    np.testing.assert_allclose(
        predictive.log_prob(y), np.log(at / STEP) + truth().logpdf(y[:, 1]), atol=1e-4
    )
    np.testing.assert_allclose(predictive.cdf(y)[:, 1], truth().cdf(y[:, 1]), atol=1e-5)
    median = predictive.quantile([0.5, 0.9])
    assert median.shape == (3, 2, 2)
    np.testing.assert_allclose(median[:, 1, 0], CENTRES, atol=1e-3)
    assert np.allclose((median[:, 0] - 0.25) / STEP % 1, 0, atol=1e-9)
    np.testing.assert_allclose(
        predictive.variance()[:, 1], (SCALE * NOISE) ** 2, rtol=5e-3
    )


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, size=(NUM_ROWS, 1))
    return x, rng.poisson(np.exp(1 + x[:, 0])).astype(float)


@pytest.fixture(scope="module")
def fitted(counts):
    return BNNLVRegressor(**SETTINGS).fit(*counts)


def test_counts_are_predicted_as_counts(fitted, counts, tmp_path):
    x, _ = counts
    predictive = fitted.predict_dist(x[:20])
    assert np.array_equal(predictive.sample(50), np.round(predictive.sample(50)))
    ends = fitted.predict_interval(x[:20], level=0.8)
    assert np.array_equal(ends, np.round(ends))
    # P(y > 2) + P(y <= 2) = 1, and P(y > 2) = P(y > 2.5): nothing lies between.
    above = predictive.prob_above(2.0)
    np.testing.assert_allclose(above + predictive.cdf(2.0), 1, atol=1e-5)
    np.testing.assert_array_equal(above, predictive.prob_above(2.5))
    fitted.save(tmp_path / "m.ncai")
    again = BNNLVRegressor.load(tmp_path / "m.ncai").predict_dist(x[:20])
    np.testing.assert_array_equal(again.prob_above(2.0), above)
    np.testing.assert_array_equal(again.std(), predictive.std())


def test_a_model_says_that_it_rounds(fitted):
    assert fitted.settings_.to_dict()["rounding_steps"] == (1.0,)
    assert "it comes in steps of 1" in learned_as(fitted.settings_.to_dict())
    assert "steps" not in learned_as({"rounding_steps": (0.0,)})


def test_counts_are_never_negative(fitted):
    predictive = fitted.predict_dist(np.linspace(-1.5, 1, 20)[:, None])
    assert predictive.sample(200).min() >= 0
    assert predictive.quantile([0.001, 0.01]).min() >= 0
    np.testing.assert_array_equal(predictive.cdf(-1.0), 0.0)
    np.testing.assert_array_equal(predictive.prob_above(-0.5), 1.0)
    assert np.isneginf(predictive.log_prob(-1.0)).all()
    mass = sum(np.exp(predictive.log_prob(float(k))) for k in range(60))
    np.testing.assert_allclose(mass, 1, atol=1e-3)
    # E[y^2] = sum of (2 k + 1) P(y > k): tails are heavy, so samples would not do.
    counts = np.arange(400.0)
    above = np.stack([predictive.prob_above(k) for k in counts], axis=1)
    mean, square = above.sum(axis=1), above @ (2 * counts + 1)
    np.testing.assert_allclose(predictive.mean(), mean, rtol=0.01)
    np.testing.assert_allclose(predictive.variance(), square - mean**2, rtol=0.03)
    for row in (0, 19):
        drawn = predictive[row].sample(20_000)
        for count in (2, 5, 10):
            share = above[row, count]
            error = np.sqrt(share * (1 - share) / drawn.size)
            assert (drawn > count).mean() == pytest.approx(share, abs=4 * error + 1e-4)


def test_the_lowest_value_is_0_or_above_where_none_is_negative():
    found = Lattice(np.array([3.0, 0.25, -2.0, 0.0]), np.array([1.0, 0.5, 1.0, 0.0]))
    np.testing.assert_allclose(found.lowest, [0.0, 0.25, -np.inf, -np.inf])


def test_coverage_of_counts_is_that_of_their_level(fitted):
    x = np.zeros((1500, 1))
    predictive = fitted.predict_dist(x)
    scores = row_scores(predictive, predictive.sample(1, seed=5)[0])
    for level in (50, 80, 95):
        assert scores[f"coverage_{level}"].mean() == pytest.approx(
            level / 100, abs=0.03
        )


def test_smooth_predicts_what_was_rounded(counts):
    model = BNNLVRegressor(rounding="smooth", **SETTINGS).fit(*counts)
    samples = model.predict_dist(counts[0][:5]).sample(50)
    assert not np.array_equal(samples, np.round(samples))


def test_conformal_intervals_of_counts_cover(fitted):
    rng = np.random.default_rng(6)
    x = rng.uniform(-1, 1, size=(600, 1))
    y = rng.poisson(np.exp(1 + x[:, 0])).astype(float)
    guarded = ConformalRegressor(fitted).calibrate(x[:300], y[:300])
    lower, upper = guarded.predict_interval(x[300:], level=0.8).T
    covered = np.mean((lower <= y[300:]) & (y[300:] <= upper))
    assert covered > 0.8 - 3 * np.sqrt(0.8 * 0.2 / 300)


def test_far_out_the_mass_of_a_value_is_that_of_z_however_narrow_the_noise():
    # t = z + noise of 0.01, so y is a standard normal, rounded to tenths.
    network = FlatNetwork(MLP(()), 1, 1, 1)
    layer = {
        "bias": np.zeros(1, np.float32),
        "input": np.zeros((1, 1), np.float32),
        "latent": np.ones((1, 1), np.float32),
    }
    weights = np.asarray(network.flatten([layer]), np.float32)
    draws = WeightDraws.equal(
        np.tile(weights, (64, 1)),
        np.full((64, 1), 0.01, np.float32),
        np.ones(64, np.float32),
    )
    linear = TargetMap.linear(0.0, 1.0)
    lattice = Lattice(np.array([-100.0]), np.array([0.1]))
    predictive = PredictiveDistribution(
        network=network,
        inputs=np.zeros((4, 1)),
        draws=draws,
        target_map=replace(linear, lattice=lattice),
        num_latent_draws=16,
        single_output=True,
    )
    y = np.array([0.0, 3.4, -4.0, 4.8])
    exact = stats.norm.cdf(-np.abs(y) + 0.05) - stats.norm.cdf(-np.abs(y) - 0.05)
    np.testing.assert_allclose(predictive.log_prob(y), np.log(exact / 0.1), atol=0.06)


def test_an_interval_of_one_value_does_not_make_its_std_one_of_rare_draws():
    rounded = SimpleNamespace(rounding_step=np.ones(1))
    std, width = np.array([0.4, 0.6, 3.0]), np.array([0.0, 1.0, 1.0])
    found = rests_on_rare_draws(rounded, std, width)
    np.testing.assert_array_equal(found, [False, False, True])
    found = rests_on_rare_draws(SimpleNamespace(), std, width)
    np.testing.assert_array_equal(found, [True, True, True])


# ----- Rounded, against an enumeration of the values ----------------------------------

# Weight draws that disagree, some with noise far below a step of the lattice.
BIASES = np.array([-0.6, 0.0, 0.1, 1.1])
NOISES = np.array([0.02, 0.3, 0.5, 0.15])
ROWS = np.array([-1.0, 0.0, 2.0])
TRANSFORMS = {
    "none": TargetTransform("none", np.ones(1)),
    "log": TargetTransform("log", np.ones(1), upper=np.array([9.0])),
    "yeo_johnson": TargetTransform(
        "yeo_johnson", np.array([0.4]), np.array([-2.0]), np.array([9.0])
    ),
}
# Whole numbers: none below 0 is possible under log y, any are otherwise.
ORIGINS = {"none": -3.0, "log": 2.0, "yeo_johnson": -3.0}


def scattered(name, steps=(1.0,)):
    """u = x + bias + noise for every output, which follow from u in the same way."""
    outputs = len(steps)
    network = FlatNetwork(MLP(()), 1, 0, outputs)
    trees = [
        {
            "bias": np.full(outputs, bias, np.float32),
            "input": np.ones((1, outputs), np.float32),
            "latent": np.zeros((0, outputs), np.float32),
        }
        for bias in BIASES
    ]
    draws = WeightDraws.equal(
        np.stack([np.asarray(network.flatten([tree])) for tree in trees]),
        np.tile(NOISES[:, None], outputs).astype(np.float32),
        np.ones(len(BIASES), np.float32),
    )
    one, step = TRANSFORMS[name], np.array(steps)
    bounds = (np.broadcast_to(end, outputs) for end in (one.lower, one.upper))
    target_map = TargetMap(
        np.full(outputs, 0.7),
        np.full(outputs, 0.8),
        TargetTransform(name, np.repeat(one.powers, outputs), *bounds),
        Lattice(np.where(step > 0, ORIGINS[name], 0.0), step),
    )
    return PredictiveDistribution(
        network=network,
        inputs=ROWS[:, None],
        draws=draws,
        target_map=target_map,
        single_output=outputs == 1,
    )


def cdf_before_rounding(name, y):
    """[N, draws, values], in float64."""
    with np.errstate(all="ignore"):
        t = TRANSFORMS[name].forward(np.asarray(y, float))
    u = (np.where(np.isnan(t), -np.inf, t) - 0.7) / 0.8
    centres = ROWS[:, None, None] + BIASES[:, None]
    return stats.norm.cdf(u, centres, NOISES[:, None])


def enumerated(name):
    """All values that y may have, and their masses [N, values]."""
    values = np.arange(0.0 if name == "log" else -40.0, 400.0)
    edges = np.append(values - 0.5, np.inf)
    edges[0] = -np.inf
    return values, np.diff(cdf_before_rounding(name, edges).mean(axis=1), axis=1)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_moments_are_those_of_the_rounded_variable(name):
    predictive, (values, mass) = scattered(name), enumerated(name)
    mean = mass @ values
    variance = mass @ values**2 - mean**2
    np.testing.assert_allclose(predictive.mean(), mean, atol=2e-3)
    np.testing.assert_allclose(predictive.variance(), variance, rtol=5e-3)
    np.testing.assert_allclose(predictive.std(), np.sqrt(variance), rtol=2.5e-3)
    # Rounding matters here: the moments of y before rounding are others.
    smooth = replace(
        predictive.target_map, lattice=Lattice.none(1), shift=np.full(1, 0.7)
    )
    before = PredictiveDistribution(
        network=predictive.network,
        inputs=ROWS[:, None],
        draws=predictive.mixtures.draws,
        target_map=smooth,
        single_output=True,
    )
    assert np.abs(before.mean() - mean).max() > 0.02
    # The parts are those of the variable before rounding.
    for measure in ("variance", "crps"):
        parts, others = predictive.decompose(measure), before.decompose(measure)
        np.testing.assert_allclose(parts.total, others.total, rtol=1e-4)
        np.testing.assert_allclose(parts.epistemic, others.epistemic, rtol=1e-4)
        np.testing.assert_allclose(parts.aleatoric + parts.epistemic, parts.total)
    total = predictive.decompose("variance").total
    np.testing.assert_allclose(total, before.variance(), rtol=1e-4)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_masses_and_cdf_are_those_of_the_rounded_variable(name):
    predictive, (values, mass) = scattered(name), enumerated(name)
    shown = values <= 60
    found = np.stack([predictive.prob_mass(value) for value in values[shown]], axis=1)
    np.testing.assert_allclose(found, mass[:, shown], atol=2e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    below = np.cumsum(mass, axis=1)
    for value in (-1.0, 0.0, 1.0, 2.0, 5.0):
        place = np.searchsorted(values, value)
        expected = below[:, place] if values[place] == value else 0.0
        np.testing.assert_allclose(predictive.cdf(value), expected, atol=2e-6)
        np.testing.assert_allclose(
            predictive.prob_above(value), 1 - expected, atol=2e-6
        )
        # The density is that of y plus uniform noise of one step, here 1.
        np.testing.assert_allclose(
            predictive.log_prob(value), predictive.log_mass(value)
        )
        np.testing.assert_allclose(predictive.pdf(value), predictive.prob_mass(value))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_quantiles_scores_and_samples_are_those_of_the_rounded_variable(name):
    predictive, (values, mass) = scattered(name), enumerated(name)
    below = np.cumsum(mass, axis=1)
    levels = np.array([0.011, 0.13, 0.31, 0.57, 0.83, 0.973])
    # None of them is so near to a step of the cdf that rounding decides.
    assert np.abs(below[..., None] - levels).min() > 1e-4
    expected = [[values[np.searchsorted(row, q)] for q in levels] for row in below]
    np.testing.assert_array_equal(predictive.quantile(levels), expected)
    away = np.abs(values - 2.0)
    apart = np.abs(values[:, None] - values)
    crps = mass @ away - 0.5 * ((mass @ apart) * mass).sum(axis=1)
    np.testing.assert_allclose(predictive.crps(2.0), crps, atol=3e-3)
    samples = predictive.sample(20_000, seed=1)
    for value in (0.0, 1.0, 2.0, 5.0):
        share = (samples == value).mean(axis=0)
        place = np.searchsorted(values, value)
        np.testing.assert_allclose(share, mass[:, place], atol=0.015)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_one_of_two_outputs_is_rounded(name):
    both, (values, mass) = scattered(name, (1.0, 0.0)), enumerated(name)
    alone, smooth = scattered(name), scattered(name, (0.0,))
    np.testing.assert_allclose(both.mean()[:, 0], alone.mean(), atol=6e-3)
    np.testing.assert_allclose(both.mean()[:, 0], mass @ values, atol=6e-3)
    np.testing.assert_allclose(both.variance()[:, 0], alone.variance(), rtol=1e-2)
    # The other output has what it would have by itself.
    np.testing.assert_allclose(both.mean()[:, 1], smooth.mean(), rtol=1e-5)
    np.testing.assert_allclose(both.variance()[:, 1], smooth.variance(), rtol=1e-4)
    np.testing.assert_allclose(both.cdf(1.3)[:, 1], smooth.cdf(1.3), atol=1e-6)
    np.testing.assert_allclose(both.quantile(0.4)[:, 1], smooth.quantile(0.4))
    # Masses are those of the rounded output; the other has none.
    for value in (0.0, 1.0, 3.0):
        found = both.prob_mass(value, output=0)
        np.testing.assert_allclose(found, mass[:, values == value][:, 0], atol=2e-6)
        np.testing.assert_allclose(found, alone.prob_mass(value), rtol=1e-5)
    with pytest.raises(ValueError, match="output 1 is not rounded"):
        both.log_mass(np.ones((3, 2)))
    with pytest.raises(ValueError, match="output 1 is not rounded"):
        both.prob_mass(1.0, output=1)
    with pytest.raises(ValueError, match="output 0 is not rounded"):
        smooth.log_mass(1.0)
    # Jointly: the mass of one times the density of the other, under each component.
    edges = cdf_before_rounding(name, [0.5, 1.5])
    step = 1e-4
    around = cdf_before_rounding(name, [1.3 - step, 1.3 + step])
    joint = np.diff(edges)[..., 0] * np.diff(around)[..., 0] / (2 * step)
    found = both.pdf(np.tile([1.0, 1.3], (3, 1)))
    np.testing.assert_allclose(found, joint.mean(axis=1), rtol=1e-3, atol=1e-6)


def test_two_rounded_outputs_have_a_joint_mass():
    both = scattered("none", (1.0, 1.0))
    edges = cdf_before_rounding("none", [0.5, 1.5, 2.5])
    joint = (np.diff(edges)[..., 0] * np.diff(edges)[..., 1]).mean(axis=1)
    found = both.prob_mass(np.tile([1.0, 2.0], (3, 1)))
    np.testing.assert_allclose(found, joint, atol=2e-6)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_map_to_y_and_back_changes_nothing(name):
    target_map = replace(scattered(name).target_map, lattice=Lattice.none(1))
    u = np.linspace(-3, 4, 15)[:, None]
    y = target_map.from_training(u)
    np.testing.assert_allclose(target_map.to_training(y), u, rtol=1e-5, atol=1e-6)
    h = 1e-5
    slope = 2 * h / (target_map.from_training(u + h) - target_map.from_training(u - h))
    np.testing.assert_allclose(target_map.log_slope(y), np.log(slope), atol=1e-4)
    np.testing.assert_array_equal(target_map.nearest(y), y)


def test_a_map_is_that_of_a_scaling():
    transform = TargetTransform("log", np.ones(1))
    lattice = Lattice(np.zeros(1), np.ones(1))
    scaling = Scaling([0.0], [1.0], [0.5], [2.0], transform, lattice)
    found = TargetMap.of(scaling)
    np.testing.assert_allclose(found.from_training(np.array([1.0])), np.exp(2.5))
    np.testing.assert_array_equal(found.nearest(np.array([2.6])), [3.0])
    assert found.rounded.all()
    assert not found.is_linear
