"""The diagnosis of latents; scores, coverage, densities and importance."""

import json

import numpy as np
import pytest
from scipy import integrate, stats

from helpers import one_input, three_inputs
from ncai import MFVI, BNNLVRegressor
from ncai.comparison import (
    PEERS,
    ConstantNoiseLinear,
    ConstantNoiseNetwork,
    MarginalDensity,
    default_baselines,
    installed_peers,
    missing_sentence,
)
from ncai.datasets import make_dataset
from ncai.diagnostics.curves import (
    QUANTILES,
    as_inputs,
    conditional_density,
    find_feature,
    partial_dependence,
    row_densities,
    rows_along,
)
from ncai.diagnostics.evaluation import (
    binomial_band,
    bootstrap_intervals,
    coverage_by_bin,
    coverage_curve,
    evaluate_rows,
    paired_difference,
    row_scores,
    wilson_interval,
)
from ncai.diagnostics.latent_diagnosis import SMALLEST_EFFECT, with_enough_digits
from ncai.diagnostics.latents import diagnose_latents
from ncai.diagnostics.permutation_importance import Importance, permutation_importance
from ncai.predictive.simple import GaussianPredictions, QuantilePredictions
from ncai.report.sections.noise import importance_rows

NUM_ROWS = 300


def rng_of(seed=0):
    return np.random.default_rng(seed)


def diagnose(inputs, means, stds=0.5, prior_std=1.0, **kwargs):
    means = np.asarray(means, float).reshape(len(means), -1)
    stds = np.broadcast_to(stds, means.shape)
    targets = rng_of(99).normal(size=(len(means), 1))
    kwargs = {"num_permutations": 99} | kwargs
    return diagnose_latents(inputs, targets, means, stds, prior_std, **kwargs)


@pytest.fixture(scope="module")
def inputs():
    return rng_of(1).normal(size=(NUM_ROWS, 1))


def test_white_noise_passes(inputs):
    found = diagnose(inputs, rng_of(2).normal(size=NUM_ROWS), stds=0.1)
    assert not found.depends_on_inputs
    assert not found.differs_from_prior
    assert found.samples_match_prior
    assert "independent of x: MI" in found.independence_verdict
    assert "looks Gaussian" in found.prior_verdict
    assert found.std_ratio == pytest.approx(1, abs=0.15)
    assert found.pc_x <= found.pc_x_reference


def test_verdicts_may_be_on_samples(inputs):
    # Means that copy x, of a posterior so wide that its draws are white noise.
    white = rng_of(3).normal(size=(NUM_ROWS, 1))
    on_means = diagnose(inputs, 0.01 * inputs, stds=1.0, latent_samples=white)
    assert on_means.depends_on_inputs
    found = diagnose(
        inputs, 0.01 * inputs, stds=1.0, latent_samples=white, judged="samples"
    )
    assert not found.depends_on_inputs
    assert not found.differs_from_prior
    assert found.mi_x_mean == on_means.mi_x_mean
    assert found.mi_judged == found.mi_x_sample
    skewed = rng_of(3).exponential(size=(NUM_ROWS, 1)) - 1
    found = diagnose(inputs, white, stds=0.1, latent_samples=skewed, judged="samples")
    assert found.differs_from_prior
    assert found.prior_verdict.startswith("z differs from its prior: HZ ")


def test_verdicts_show_as_many_digits_as_tell_numberswith_enough_digits():
    assert with_enough_digits(0.01444, 0.01203) == ("0.014", "0.012")
    assert with_enough_digits(164.44, 1.1) == ("164.44", "1.10")
    assert with_enough_digits(0.5, 0.5) == ("0.50000", "0.50000")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"judged": "draws"}, "judged='draws' must be one of"),
        ({"latent_samples": np.zeros((3, 1))}, "latent_samples has shape"),
    ],
)
def test_impossible_options_are_refused(inputs, options, words):
    with pytest.raises(ValueError, match=words):
        diagnose(inputs, inputs, **options)


def test_latents_that_copy_the_inputs_fail_the_first_assumption_only(inputs):
    found = diagnose(inputs, inputs, stds=0.1)
    assert found.depends_on_inputs
    assert not found.differs_from_prior
    assert found.mi_p_value == pytest.approx(1 / 100)
    assert found.mi_x_sample < found.mi_x_mean
    assert found.pc_x == pytest.approx(1)
    assert found.independence_verdict.startswith("z depends on x: MI ")


def test_dependence_too_weak_to_change_predictions_is_no_alarm():
    """A correlation of 0.2 has 0.02 nats, which 2,000 rows detect."""
    rng = rng_of(7)
    x = rng.normal(size=(2000, 1))
    means = 0.2 * x + 0.96**0.5 * rng.normal(size=(2000, 1))
    found = diagnose(x, means, stds=0.1)
    assert found.detects_inputs
    assert not found.depends_on_inputs
    assert not found.hints_at_dependence
    assert f"{SMALLEST_EFFECT:g} nats" in found.independence_verdict
    strong = 0.5 * x + 0.75**0.5 * rng.normal(size=(2000, 1))
    assert diagnose(x, strong, stds=0.1).depends_on_inputs


def test_the_smallest_effect_is_a_correlation_of_nearly_a_third():
    """I(x; z) = -log(1 - r^2) / 2 for Gaussians."""
    correlation = np.sqrt(1 - np.exp(-2 * SMALLEST_EFFECT))
    assert correlation == pytest.approx(0.31, abs=0.005)


def test_dependence_without_correlation_is_seen(inputs):
    found = diagnose(
        inputs, np.abs(inputs) + 0.3 * rng_of(2).normal(size=(NUM_ROWS, 1))
    )
    assert found.depends_on_inputs
    assert found.pc_x < 0.05


def test_skewed_latents_fail_the_second_assumption_only(inputs):
    found = diagnose(inputs, rng_of(2).exponential(size=NUM_ROWS) - 1, stds=0.05)
    assert not found.depends_on_inputs
    assert found.differs_from_prior
    assert not found.samples_match_prior
    assert found.hz > 10 * found.hz_reference > 10 * found.hz_expected
    assert found.prior_verdict.startswith("z differs from its prior: HZ ")


def test_two_clumps_whose_samples_match_are_told_apart_from_a_real_mismatch(inputs):
    # An exact posterior that knows the sign of z and little more.
    sign = np.sign(rng_of(3).normal(size=NUM_ROWS))
    found = diagnose(inputs, 0.6 * sign, stds=0.8)
    assert found.differs_from_prior
    assert found.samples_match_prior
    assert "samples of q(z) do match the prior" in found.prior_verdict


@pytest.mark.parametrize(
    ("width", "word"), [(0.3, "narrow"), (0.49, "narrow"), (2, "wide")]
)
def test_a_gaussian_of_another_width_is_not_like_its_prior(inputs, width, word):
    found = diagnose(inputs, width * rng_of(2).normal(size=NUM_ROWS), stds=0.01)
    assert found.means_are_gaussian
    assert not found.width_matches_prior
    assert found.differs_from_prior
    assert not found.samples_match_prior
    assert found.std_ratio == pytest.approx(width, rel=0.1)
    assert found.ks_p_value < 0.01
    assert "differs from its prior: Gaussian in shape" in found.prior_verdict
    assert f"too {word}; q(z) is" in found.prior_verdict


def test_one_narrow_dimension_is_not_made_up_for_by_a_wide_one(inputs):
    means = rng_of(2).normal(size=(NUM_ROWS, 2)) * [0.6, 1.28]
    found = diagnose(inputs, means, stds=0.01)
    assert found.std_ratio == pytest.approx(0.6, abs=0.06)
    assert found.differs_from_prior


def test_a_gaussian_in_another_place_is_not_like_its_prior(inputs):
    found = diagnose(inputs, 0.5 + rng_of(2).normal(size=NUM_ROWS), stds=0.01)
    assert found.means_are_gaussian
    assert found.width_matches_prior
    assert found.differs_from_prior
    assert "samples of q(z) lie elsewhere; KS 0." in found.prior_verdict


def test_the_limits_hold_for_noise_and_for_many_rows():
    few = diagnose(rng_of(1).normal(size=(20, 1)), rng_of(2).normal(size=20), stds=0.0)
    assert few.std_ratio_limits[1] == pytest.approx(1.2 + 1.96 / 40**0.5, abs=1e-3)
    # A tenth too narrow is within the tolerance, however sure we are of it.
    x, z = rng_of(1).normal(size=(5000, 1)), 0.9 * rng_of(2).normal(size=5000)
    many = diagnose(x, z, stds=0.0, max_rows=100, num_permutations=19)
    assert many.ks_sample_p_value < 0.01
    assert not many.differs_from_prior


@pytest.mark.parametrize("value", [0.0, 0.1])
@pytest.mark.parametrize("latent_dim", [1, 2])
@pytest.mark.parametrize("std", [0.0, 1.0])
def test_collapsed_latents_have_no_nan(inputs, value, latent_dim, std):
    found = diagnose(inputs, np.full((NUM_ROWS, latent_dim), value), stds=std)
    assert found.collapsed
    assert not found.depends_on_inputs
    for verdict in (found.independence_verdict, found.prior_verdict):
        assert verdict.startswith("z carries no information: all its means are equal")
    numbers = [v for v in found.to_dict().values() if isinstance(v, float)]
    assert not np.isnan(numbers).any()
    assert found.hz == 4 * NUM_ROWS
    assert "nan" not in str(found)


def test_one_dead_latent_of_two_is_named(inputs):
    means = np.c_[rng_of(2).normal(size=NUM_ROWS), np.zeros(NUM_ROWS)]
    found = diagnose(inputs, means)
    assert found.hz_singular
    assert not found.collapsed
    assert "do not span all 2 dimensions" in found.prior_verdict


def test_constant_inputs_change_nothing(inputs):
    means = rng_of(2).normal(size=NUM_ROWS)
    with_constant = np.c_[inputs, np.full(NUM_ROWS, 0.1)]
    plain, wide = diagnose(inputs, means), diagnose(with_constant, means)
    assert wide.mi_x_mean == pytest.approx(plain.mi_x_mean, abs=1e-3)
    assert wide.pc_x == pytest.approx(plain.pc_x / 2)
    only_constant = diagnose(np.full((NUM_ROWS, 1), 0.1), means)
    assert not only_constant.depends_on_inputs
    assert only_constant.mi_x_mean == 0


def test_many_rows_are_subsampled_and_it_is_said():
    x = rng_of(4).normal(size=(500, 2))
    means = rng_of(5).normal(size=(500, 2))
    found = diagnose(x, means, max_rows=100, num_permutations=19)
    assert (found.num_rows, found.num_rows_used) == (500, 100)
    assert "100 of them" in str(found)
    again = diagnose(x, means, max_rows=100, num_permutations=19)
    assert found == again
    other = diagnose(x, means, max_rows=100, num_permutations=19, seed=1)
    assert found.mi_x_mean != other.mi_x_mean
    assert found.hz == other.hz


@pytest.mark.parametrize(("level", "num_permutations"), [(0.9, 9), (0.95, 39)])
def test_references_and_p_values_agree(inputs, level, num_permutations):
    for seed in range(20):
        means = rng_of(seed).normal(size=40) + 0.4 * inputs[:40, 0]
        found = diagnose(
            inputs[:40], means, level=level, num_permutations=num_permutations
        )
        above = found.mi_x_mean > found.mi_reference
        assert above == found.detects_inputs
        assert found.depends_on_inputs == (above and found.mi_x_mean >= SMALLEST_EFFECT)
        assert (found.hz_p_value >= 1 - level) == found.means_are_gaussian


def test_the_level_is_kept_under_noise():
    # 60 trials at 10 %: 6 expected, deviation 2.3; four of them.
    hits = 0
    for seed in range(60):
        rng = rng_of(seed)
        found = diagnose(
            rng.normal(size=(40, 2)),
            rng.normal(size=40),
            num_permutations=19,
            level=0.9,
            seed=seed,
        )
        hits += found.detects_inputs
    assert hits <= 15


def test_output_as_dict_and_text(inputs):
    found = diagnose(inputs, rng_of(2).normal(size=NUM_ROWS))
    values = json.loads(json.dumps(found.to_dict()))
    assert values["depends_on_inputs"] is False
    assert values["independence_verdict"] == found.independence_verdict
    text = str(found)
    assert text.endswith(found.prior_verdict)
    assert f"{found.hz:.4g}" in text
    assert "noise, 95%" in text


@pytest.mark.parametrize("judged", ["means", "samples"])
def test_the_text_says_what_is_judged(judged, inputs):
    found = diagnose(inputs, rng_of(2).normal(size=NUM_ROWS), judged=judged)
    lines = str(found).splitlines()
    assert f"Judged by {'draws' if judged == 'samples' else 'means'} of z" in lines[-3]
    # Beside what is not judged there is no level to compare it with.
    (hz,) = [line for line in lines if line.startswith("HZ(mean z)")]
    assert (f"{found.hz_reference:.4g}" in hz) == (judged == "means")
    for name, shown in (("mean", "means"), ("sampled", "samples")):
        (mi,) = [line for line in lines if line.startswith(f"MI(x; {name} z)")]
        assert (f"{found.mi_reference:.4g}" in mi) == (judged == shown)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"num_permutations": 10}, "num_permutations"),
        ({"level": 1.0}, "level"),
        ({"max_rows": 2}, "max_rows"),
    ],
)
def test_settings_that_cannot_work_are_refused(inputs, change, match):
    with pytest.raises(ValueError, match=match):
        diagnose(inputs, inputs, **change)


def test_arrays_that_do_not_match_are_refused(inputs):
    with pytest.raises(ValueError, match="same rows"):
        diagnose(inputs[:-1], inputs)
    with pytest.raises(ValueError, match="latent_means"):
        diagnose(inputs, np.full((NUM_ROWS, 1), np.nan))


def crps_by_integration(cdf, y, low, high):
    below, above = np.linspace(low, y, 5001), np.linspace(y, high, 5001)
    left = integrate.trapezoid(cdf(below) ** 2, below)
    return left + integrate.trapezoid((1 - cdf(above)) ** 2, above)


def test_gaussian_predictions():
    found = GaussianPredictions([1.0, -2.0], [0.5, 3.0])
    y = np.array([1.7, -6.0])
    laws = stats.norm([1.0, -2.0], [0.5, 3.0])
    np.testing.assert_allclose(found.log_prob(y), laws.logpdf(y))
    np.testing.assert_allclose(found.quantile([0.1, 0.9]).T[1], laws.ppf(0.9))
    for row, (mean, std) in enumerate([(1.0, 0.5), (-2.0, 3.0)]):
        law = stats.norm(mean, std)
        wanted = crps_by_integration(law.cdf, y[row], -40, 40)
        assert found.crps(y)[row] == pytest.approx(wanted, abs=1e-3)


def test_quantile_predictions_of_a_gaussian_come_near_it():
    levels = (np.arange(400) + 0.5) / 400
    law = stats.norm(2.0, 1.5)
    found = QuantilePredictions(np.tile(law.ppf(levels), (3, 1)), 1e-3)
    y = np.array([0.0, 2.0, 4.5])
    np.testing.assert_allclose(found.log_prob(y), law.logpdf(y), atol=0.08)
    np.testing.assert_allclose(found.cdf(y), law.cdf(y), atol=0.02)
    np.testing.assert_allclose(found.quantile([0.1, 0.5])[0], law.ppf([0.1, 0.5]), 1e-3)
    exact = GaussianPredictions(np.full(3, 2.0), 1.5).crps(y)
    np.testing.assert_allclose(found.crps(y), exact, rtol=0.01)
    assert len(found[1:]) == 2
    assert found[1:].crps(y[1:]).tolist() == found.crps(y)[1:].tolist()
    # Quantiles that are all the same still have a density.
    assert np.isfinite(QuantilePredictions(np.ones((1, 50)), 1e-3).log_prob([1.0]))


def test_marginal_density_integrates_to_one_and_has_its_own_quantiles():
    y = np.random.default_rng(0).exponential(size=5000)
    found = MarginalDensity().fit(np.zeros((5000, 1)), y).predict(np.zeros((7, 1)))
    grid = np.linspace(-30, 60, 6001)
    assert integrate.trapezoid(np.exp(found.log_prob(grid)), grid) == pytest.approx(1)
    quantiles = found.quantile([0.1, 0.5, 0.95])
    assert quantiles.shape == (7, 3)
    np.testing.assert_allclose(found.cdf(quantiles[0]), [0.1, 0.5, 0.95], atol=1e-9)
    np.testing.assert_allclose(quantiles[0], np.quantile(y, [0.1, 0.5, 0.95]), atol=0.1)
    wanted = crps_by_integration(found.cdf, 2.0, -30, 60)
    assert found.crps([2.0])[0] == pytest.approx(wanted, abs=1e-3)
    assert np.isfinite(found.log_prob([100.0]))


@pytest.mark.parametrize("baseline", [ConstantNoiseLinear(), ConstantNoiseNetwork()])
def test_constant_noise_is_found(baseline):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    y = 5 + x @ [3.0, -1.0] + rng.normal(scale=0.7, size=600)
    found = baseline.fit(x[:500], y[:500]).predict(x[500:])
    rows = row_scores(found, y[500:])
    best = stats.norm.logpdf(rng.normal(size=10_000)).mean() - np.log(0.7)
    assert rows["log_likelihood"].mean() == pytest.approx(best, abs=0.25)
    assert 0.65 < rows["coverage_80"].mean() < 0.92


def test_scores_are_what_they_are_called():
    rng = np.random.default_rng(0)
    y = rng.normal(size=4000)
    rows = row_scores(GaussianPredictions(np.zeros(4000), 1.0), y)
    found = evaluate_rows(rows, num_resamples=200)
    metrics = found["metrics"]
    assert metrics["rmse"]["value"] == pytest.approx(np.sqrt(np.mean(y**2)))
    assert metrics["mae"]["value"] == pytest.approx(np.mean(np.abs(y)))
    for level in (50, 80, 95):
        one = metrics[f"coverage_{level}"]
        assert one["lower_95"] <= one["value"] <= one["upper_95"]
        assert one["value"] == pytest.approx(level / 100, abs=0.03)
        width = 2 * stats.norm.ppf(0.5 + level / 200)
        assert metrics[f"width_{level}"]["value"] == pytest.approx(width)
    assert found["calibration"]["p_value"] > 0.01
    narrow = row_scores(GaussianPredictions(np.zeros(4000), 0.5), y)
    assert evaluate_rows(narrow, 20)["calibration"]["p_value"] < 1e-6


def test_bootstrap_intervals_have_the_width_of_theory():
    values = np.random.default_rng(0).normal(size=900)
    rows = {"crps": values, "squared_error": values**2, "pit": values}
    low, high = bootstrap_intervals(rows, 2000)["crps"]
    error = values.std() / 30
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.1)
    assert "pit" not in bootstrap_intervals(rows, 20)
    gain, low, high = paired_difference(values + 0.5, values)
    assert (gain, low, high) == pytest.approx((0.5, 0.5, 0.5))


def test_peers_that_are_missing_are_named(monkeypatch):
    monkeypatch.setattr("ncai.comparison.find_spec", lambda name: None)
    peers, missing = installed_peers()
    assert (peers, missing) == ([], ["NGBoost", "CatBoost", "Quantile forest"])
    assert "ncai[compare]" in missing_sentence(missing)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_peers_find_a_noise_that_grows(peer):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, size=(400, 1))
    y = 10 + 5 * x[:, 0] + (0.1 + x[:, 0]) * rng.normal(size=400)
    found = peer(num_trees=100).fit(x, y).predict(np.array([[0.05], [0.95]]))
    low, high = found.quantile([0.1, 0.9]).T
    assert (high - low)[1] > 2 * (high - low)[0]
    assert np.isfinite(found.log_prob([10.2, 14.9])).all()


def test_there_are_three_baselines():
    assert len({type(one) for one in default_baselines((5,), 0)}) == 3


def test_coverage_is_what_one_counts():
    pit = [0.5, 0.3, 0.05, 0.99]
    # Distances from one half: 0, 0.2, 0.45, 0.49.
    np.testing.assert_allclose(
        coverage_curve(pit, [0.0, 0.4, 0.5, 0.9, 0.98, 1.0]),
        [0.25, 0.5, 0.5, 0.75, 1.0, 1.0],
    )


def test_band_holds_right_models_as_often_as_it_says():
    rng = np.random.default_rng(0)
    low, high = binomial_band([0.8], 200)
    inside = [
        low[0] <= coverage_curve(rng.uniform(size=200), [0.8])[0] <= high[0]
        for _ in range(400)
    ]
    # Discreteness makes it a little more than 95 %; 3 standard errors are 3.3 %.
    assert 0.92 < np.mean(inside) < 1.0


def test_wilson_interval_solves_its_equation():
    low, high = wilson_interval(0.9, 50)
    for end in (low, high):
        deviation = abs(0.9 - end) / np.sqrt(end * (1 - end) / 50)
        assert deviation == pytest.approx(stats.norm.ppf(0.975))
    assert wilson_interval(1.0, 10)[1] == pytest.approx(1.0)


def test_bins_split_by_value_and_keep_equal_values_together():
    by = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2.0])
    pit = np.array([0.5] * 4 + [0.999] * 4 + [0.5, 0.5, 0.999, 0.001])
    bins = coverage_by_bin(pit, by, 0.95, 3)
    assert [part.num_rows for part in bins] == [4, 4, 4]
    assert [part.coverage for part in bins] == [1.0, 0.0, 0.5]
    assert [(part.low, part.high) for part in bins] == [(0, 0), (1, 1), (2, 2)]
    assert [part.num_rows for part in coverage_by_bin(pit, by, 0.95, 6)] == [4, 4, 4]
    assert [b.num_rows for b in coverage_by_bin(pit, np.arange(12), 0.95, 3)] == 3 * [4]
    (one,) = coverage_by_bin(pit, np.ones(12), 0.95, 3)
    assert one.num_rows == 12


def test_refusals():
    with pytest.raises(ValueError, match="between 0 and 1"):
        coverage_curve([0.2, 1.2], [0.5])
    with pytest.raises(ValueError, match=r"by has shape \(2,\)"):
        coverage_by_bin([0.5], [1.0, 2.0], 0.95)


def test_rows_along_keep_the_others_at_their_median():
    inputs = np.array([[0.0, 5.0], [1.0, 7.0], [9.0, 100.0]])
    rows = rows_along(inputs, 0, [3.0, 4.0])
    np.testing.assert_array_equal(rows, [[3.0, 7.0], [4.0, 7.0]])


@pytest.mark.parametrize("transform", ["none", "log", "yeo_johnson"])
def test_row_densities_are_the_densities(transform):
    _, X, y = one_input()
    model = BNNLVRegressor(
        inference=MFVI(n_weight_draws=8),
        max_steps=5,
        n_restarts=1,
        random_state=0,
        target_transform=transform,
    ).fit(X, y - y.min() + 0.5)
    predictive = model.predict_dist(X[:3])
    values = np.array([[-1.0, 0.5, 1.0], [0.1, 2.0, 3.0], [1.0, 1.5, 9.0]])
    found = row_densities(predictive, values)
    for column in range(3):
        expected = predictive.pdf(values[:, column])
        np.testing.assert_allclose(found[:, column], expected, rtol=1e-4, atol=1e-12)


def test_conditional_density_of_an_oracle_has_its_quantiles():
    oracle = make_dataset("goldberg", seed=0, num_train=20).oracle
    x = np.array([[0.2], [0.7]])
    y = np.linspace(-8, 8, 400)
    shown = conditional_density(oracle, x, x[:, 0], y)
    np.testing.assert_allclose(shown.quantiles[:, 3], oracle.mean(x)[:, 0], atol=0.02)
    width = shown.quantiles[:, QUANTILES.index(0.975)] - shown.quantiles[:, 0]
    np.testing.assert_allclose(width, 2 * 1.96 * oracle.noise_std(x)[:, 0], atol=0.05)


def test_partial_dependence_averages_over_rows():
    model, X, _ = three_inputs()
    rows, x = X.to_numpy()[:3], np.array([-1.0, 1.0])
    y = np.linspace(-6, 6, 50)
    found = partial_dependence(model, rows, 0, x, y)
    by_hand = np.zeros((2, 50))
    for row in rows:
        moved = np.stack([row, row])
        moved[:, 0] = x
        predictive = model.predict_dist(as_inputs(model, moved))
        by_hand += np.exp(predictive.log_prob_grid(y)) / 3
    np.testing.assert_allclose(found.density, by_hand, rtol=1e-4)


def test_features_by_name_or_number():
    model, _, _ = three_inputs()
    assert find_feature(model, "idle", 3) == find_feature(model, 2, 3) == 2
    for wrong, words in (
        ("x", "must be one of"),
        (3, "from 0 to 2"),
        (None, "feature="),
    ):
        with pytest.raises(ValueError, match=words):
            find_feature(model, wrong, 3)


class Known:
    """Mean is 2 a, spread is exp(b); c is not looked at."""

    n_features_in_ = 3

    def predict(self, X, return_std=False):
        assert return_std
        X = np.asarray(X)
        return 2 * X[:, 0], np.exp(X[:, 1])


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 3)) * [1.0, 0.5, 1.0]
    return X, 2 * X[:, 0] + np.exp(X[:, 1]) * rng.standard_normal(4000)


def test_mean_and_spread_need_what_they_are_made_of(rows):
    found = permutation_importance(Known(), *rows, max_rows=4000)
    # Shuffling a adds 4 Var(a - a') = 8 to the error E exp(2 b) = exp(0.5).
    before = np.exp(0.5)
    assert found.mean[0] == pytest.approx(
        np.sqrt(before + 8) - np.sqrt(before), rel=0.08
    )
    np.testing.assert_allclose(found.mean[1:], 0, atol=1e-12)
    # E exp(2 (b - b')) / 2 - 1/2, with b - b' of variance 0.5: (e - 1) / 2.
    assert found.spread[1] == pytest.approx((np.e - 1) / 2, rel=0.3)
    np.testing.assert_allclose(found.spread[[0, 2]], 0, atol=1e-12)
    assert found.order().tolist()[2] == 2
    assert list(found.to_frame().index) == ["x0", "x1", "x2"]


def test_what_matters_is_clear_and_named(rows):
    found = permutation_importance(Known(), *rows)
    mean_clear, spread_clear = found.is_clear()
    assert mean_clear.tolist() == [True, False, False]
    assert spread_clear.tolist() == [False, True, False]
    assert found.first() == "x0"
    assert found.order().tolist() == [0, 1, 2]


class Overfitted(Known):
    """Mean and spread follow columns that have nothing to do with y."""

    def predict(self, X, return_std=False):
        X = np.asarray(X)
        return 0.3 * X[:, 0] - 0.2 * X[:, 1], np.exp(0.15 * X[:, 2])


def test_noise_on_few_rows_is_not_named():
    named = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((18, 3)), rng.standard_normal(18)
        found = permutation_importance(Overfitted(), X, y, n_repeats=3)
        named += found.first() is not None
    assert named <= 15


def test_an_error_is_what_the_importance_scatters_by():
    rng = np.random.default_rng(0)
    found = []
    for seed in range(100):
        X = rng.standard_normal((200, 3)) * [1.0, 0.5, 1.0]
        y = 2 * X[:, 0] + np.exp(X[:, 1]) * rng.standard_normal(200)
        found.append(permutation_importance(Known(), X, y, random_state=seed))
    scatter = np.std([one.mean[0] for one in found])
    assert np.median([one.mean_error[0] for one in found]) == pytest.approx(
        scatter, rel=0.3
    )
    scatter = np.std([one.spread[1] for one in found])
    assert np.median([one.spread_error[1] for one in found]) == pytest.approx(
        scatter, rel=0.5
    )


def test_a_lone_small_spread_neither_leads_nor_fills_a_bar():
    found = Importance(
        ["size", "noise"],
        mean=np.array([20.0, -4.1]),
        mean_std=np.zeros(2),
        spread=np.array([-0.2, 0.024]),
        spread_std=np.zeros(2),
        mean_error=np.array([4.0, 3.0]),
        spread_error=np.array([0.1, 0.002]),
        rmse=25.0,
    )
    assert found.first() == "size"
    assert found.order().tolist() == [0, 1]
    rows = importance_rows(found)
    assert [row["name"] for row in rows] == ["size", "noise"]
    assert [row["mean"]["share"] for row in rows] == [100, 0]
    assert [row["spread"]["share"] for row in rows] == [0, 48]
    assert [row["spread"]["counts"] for row in rows] == [False, True]
    doubtful = found._replace(spread_error=np.array([0.1, 0.02]))
    assert [row["spread"]["share"] for row in importance_rows(doubtful)] == [0, 0]
    assert found._replace(mean=np.array([0.1, -4.1])).first() is None


def test_repeats_with_its_seed(rows):
    X, y = rows
    first, again, other = (
        permutation_importance(Known(), X, y, max_rows=100, random_state=seed).mean
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert first[0] != other[0]


def test_columns_of_a_group_are_shuffled_together(rows):
    X, y = rows
    twice = np.concatenate([X, X[:, :1]], axis=1)

    class Doubled(Known):
        n_features_in_ = 4

        def predict(self, X, return_std=False):
            # Only rows whose two copies of a agree make sense.
            assert np.array_equal(X[:, 0], X[:, 3])
            return super().predict(X, return_std)

    groups = {"a": [0, "x3"], "b": ["x1"], "c": [2]}
    found = permutation_importance(Doubled(), twice, y, max_rows=4000, groups=groups)
    alone = permutation_importance(Known(), X, y, max_rows=4000)
    assert found.names == ["a", "b", "c"]
    np.testing.assert_array_equal(found.mean, alone.mean)
    np.testing.assert_array_equal(found.spread, alone.spread)


def test_refusals_of_importance(rows):
    X, y = rows
    with pytest.raises(ValueError, match="feature='x9'"):
        permutation_importance(Known(), X, y, groups={"a": ["x9"]})
    with pytest.raises(ValueError, match=r"\[N, D\] and \[N\]"):
        permutation_importance(Known(), X, y[:5])
    with pytest.raises(ValueError, match="n_repeats=0"):
        permutation_importance(Known(), X, y, n_repeats=0)


class TwinInputs:
    """y = 10 a, by a model that wildly extrapolates where b and c are not equal."""

    n_features_in_ = 3

    def predict(self, X, return_std=False):
        a, b, c = np.asarray(X).T
        mean = 10 * a + 1000 * (b - c)
        return (mean, np.ones(len(mean))) if return_std else mean


def test_guesses_far_outside_of_all_targets_do_not_make_an_input_important():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, size=(2, 200))
    found = permutation_importance(TwinInputs(), np.stack([a, b, b], axis=1), 10 * a)
    assert found.mean.max() < 20  # the range of y
    assert (found.mean > 5).all()
