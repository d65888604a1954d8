"""Predictions of a y that lies on a lattice, as whole numbers do."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from ncai import BNNLVRegressor, ConformalRegressor
from ncai.diagnostics.evaluation import row_scores
from ncai.model.networks import MLP, FlatNetwork
from ncai.predictive.rare_draws import rests_on_rare_draws
from ncai.predictive.rounded import RoundedPredictive, RoundedTransformed, predictive_of
from ncai.preprocessing.rounding import Lattice
from ncai.preprocessing.target_transforms import TargetTransform
from ncai.stats.scores import pit_uniformity
from ncai.tables.inspect import learned_as
from ncai.types import Rows, WeightDraws

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
    draws = WeightDraws(
        np.asarray(network.flatten([layer]), np.float32)[None],
        np.full((1, outputs), noise, np.float32),
        np.ones(1, np.float32),
    )
    step = np.broadcast_to(step, outputs)
    return predictive_of(
        transform or TargetTransform("none", np.ones(outputs)),
        # An origin below 0: y may be negative.
        Lattice(np.where(step > 0, 0.25 - 1000 * step, 0.0), step),
        network=network,
        inputs=inputs,
        draws=draws,
        num_latent_draws=1,
        target_shift=np.full(outputs, SHIFT),
        target_scale=np.full(outputs, SCALE),
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
    rows = Rows(np.zeros((60, 1)), RNG.integers(-3, 4, (60, 1)) * 1.0, np.ones(60))
    lattice = Lattice.learn(rows.targets)
    found = lattice.unround(rows, seed=1)
    assert np.array_equal(lattice.nearest(found.targets), rows.targets)
    assert len(np.unique(found.targets)) == 60
    assert Lattice.none(1).unround(rows, seed=1) is rows


def test_probabilities_are_those_of_the_rounded_gaussian():
    predictive = gaussian()
    assert isinstance(predictive, RoundedPredictive)
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


def test_the_split_adds_up_to_the_variance():
    parts = gaussian().decompose()
    np.testing.assert_allclose(parts.total, gaussian().variance())
    np.testing.assert_allclose(parts.aleatoric + parts.epistemic, parts.total)
    # Entropies are those of y before it was rounded.
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
    assert isinstance(predictive, RoundedTransformed)
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
    x = rng.uniform(-1, 1, size=(200, 1))
    return x, rng.poisson(np.exp(1 + x[:, 0])).astype(float)


@pytest.fixture(scope="module")
def fitted(counts):
    model = BNNLVRegressor(
        max_steps=300,
        n_restarts=4,
        n_folds=2,
        latent_hidden=(20,),
        n_weight_draws=32,
        n_latent_draws=32,
        random_state=0,
    )
    return model.fit(*counts)


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
    assert fitted.settings_["rounding_steps"] == (1.0,)
    assert "it comes in steps of 1" in learned_as(fitted.settings_)
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
    drawn = predictive.sample(4000)
    np.testing.assert_allclose(predictive.variance(), drawn.var(axis=0), rtol=0.25)


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
    model = BNNLVRegressor(
        max_steps=50,
        n_restarts=2,
        n_folds=2,
        latent_hidden=(20,),
        rounding="smooth",
        random_state=0,
    ).fit(*counts)
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
    draws = WeightDraws(
        np.tile(weights, (64, 1)),
        np.full((64, 1), 0.01, np.float32),
        np.ones(64, np.float32),
    )
    predictive = RoundedPredictive(
        lattice=Lattice(np.array([-100.0]), np.array([0.1])),
        network=network,
        inputs=np.zeros((4, 1)),
        draws=draws,
        num_latent_draws=8,
        target_shift=[0.0],
        target_scale=[1.0],
        single_output=True,
    )
    y = np.array([0.0, 3.4, -4.0, 4.8])
    exact = stats.norm.cdf(-np.abs(y) + 0.05) - stats.norm.cdf(-np.abs(y) - 0.05)
    np.testing.assert_allclose(predictive.log_prob(y), np.log(exact / 0.1), atol=0.06)


def test_an_interval_of_one_value_does_not_make_its_std_one_of_rare_draws():
    rounded = SimpleNamespace(lattice=Lattice(np.zeros(1), np.ones(1)))
    std, width = np.array([0.4, 0.6, 3.0]), np.array([0.0, 1.0, 1.0])
    found = rests_on_rare_draws(rounded, std, width)
    np.testing.assert_array_equal(found, [False, False, True])
    found = rests_on_rare_draws(SimpleNamespace(), std, width)
    np.testing.assert_array_equal(found, [True, True, True])
