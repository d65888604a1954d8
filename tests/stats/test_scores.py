"""Scores against naive formulas, closed forms and scipy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from ncai.stats import scores as metrics

RNG = np.random.default_rng(0)
TARGETS = RNG.normal(size=(40, 2))
PREDICTED = TARGETS + RNG.normal(size=(40, 2))


def test_average_log_likelihood_is_a_weighted_mean_over_rows():
    log_prob = np.array([-1.0, -2.0, -6.0])
    assert metrics.average_log_likelihood(log_prob) == pytest.approx(-3.0)
    assert metrics.average_log_likelihood(log_prob, [1, 1, 0]) == pytest.approx(-1.5)


def test_padding_rows_never_spread():
    assert metrics.average_log_likelihood([-1.0, -np.inf], [1.0, 0.0]) == -1.0


def test_log_densities_per_output_are_refused():
    with pytest.raises(ValueError, match="one joint log density"):
        metrics.average_log_likelihood(np.zeros((3, 2)))


def test_rmse_takes_one_root_over_rows_and_outputs():
    errors = np.array([[3.0, 4.0], [0.0, 0.0]])
    assert metrics.mse(np.zeros((2, 2)), errors) == pytest.approx(25 / 4)
    assert metrics.rmse(np.zeros((2, 2)), errors) == pytest.approx(2.5)
    weighted = metrics.rmse(np.zeros((2, 2)), errors, sample_weight=[1.0, 3.0])
    assert weighted == pytest.approx(np.sqrt(25 / 8))


def test_shapes_do_not_broadcast_silently():
    with pytest.raises(ValueError, match=r"shape.*\[N\]"):
        metrics.rmse(np.zeros(5), np.zeros((5, 1)))


@pytest.mark.parametrize("weight", [[1.0], [-1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
def test_bad_sample_weights_are_refused(weight):
    with pytest.raises(ValueError, match="sample_weight"):
        metrics.mse(np.zeros(3), np.zeros(3), weight)


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match="no rows"):
        metrics.mse([], [])


def test_interval_scores_by_hand():
    y = np.array([0.0, 1.0, 5.0, -2.0])
    lower, upper = np.full(4, -1.0), np.full(4, 1.0)  # the bounds themselves count
    assert metrics.picp(y, lower, upper) == pytest.approx(0.5)
    assert metrics.picp(y, lower, upper, [2, 1, 1, 0]) == pytest.approx(0.75)
    assert metrics.mpiw(lower, upper) == pytest.approx(2.0)
    # Misses of 4 and 1 at level 0.9 cost 20 times their size.
    score = metrics.interval_score(y, lower, upper, level=0.9)
    assert score == pytest.approx(2 + 20 * (4 + 1) / 4)


def test_interval_score_is_least_at_the_true_interval():
    y = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)

    def score(half):
        return metrics.interval_score(y, np.full(4000, -half), np.full(4000, half))

    assert min(score(1.5), score(2.5)) > score(stats.norm.ppf(0.975))


def naive_crps(samples, y):
    to_target = np.abs(samples - y).mean(axis=0)
    spread = np.abs(samples[:, None] - samples[None]).mean(axis=(0, 1))
    return np.mean(to_target - spread / 2)


@pytest.mark.parametrize("num_samples", [1, 2, 17, 100])
def test_crps_of_samples_equals_all_pairs(num_samples):
    samples = RNG.standard_t(3, size=(num_samples, 40, 2))
    expected = naive_crps(samples, TARGETS)
    assert metrics.crps_from_samples(samples, TARGETS) == pytest.approx(expected)


def test_crps_of_one_sample_is_the_absolute_error():
    assert metrics.crps_from_samples(PREDICTED[None], TARGETS) == pytest.approx(
        np.abs(PREDICTED - TARGETS).mean()
    )


def gaussian_crps(y, mean, std):
    u = (y - mean) / std
    return std * (u * (2 * stats.norm.cdf(u) - 1) + 2 * stats.norm.pdf(u) - np.pi**-0.5)


def test_crps_of_one_component_is_the_gaussian_closed_form():
    std = 0.1 + RNG.random(40)
    expected = gaussian_crps(TARGETS[:, 0], PREDICTED[:, 0], std).mean()
    found = metrics.crps_gaussian_mixture(
        PREDICTED[:, :1], std[:, None], None, TARGETS[:, 0]
    )
    assert found == pytest.approx(expected, rel=1e-12)


def test_crps_of_a_mixture_equals_the_integral_of_squared_cdf_errors():
    means, stds = np.array([-1.0, 0.5, 2.0]), np.array([0.3, 1.0, 0.1])
    weights = np.array([0.2, 0.5, 0.3])

    def cdf(t):
        return weights @ stats.norm.cdf((t - means) / stds)

    for y in (-3.0, 0.4, 2.1):
        below, _ = integrate.quad(lambda t: cdf(t) ** 2, -12, y, points=[-1, 0])
        above, _ = integrate.quad(
            lambda t: (1 - cdf(t)) ** 2, y, 12, points=[1.8, 2.2], limit=200
        )
        found = metrics.crps_gaussian_mixture(means[None], stds, weights, [y])
        assert found == pytest.approx(below + above, abs=1e-7)


def test_crps_of_a_mixture_without_width_is_that_of_samples():
    samples = RNG.normal(size=(9, 40))
    found = metrics.crps_gaussian_mixture(samples.T, 0.0, None, TARGETS[:, 0])
    assert found == pytest.approx(metrics.crps_from_samples(samples, TARGETS[:, 0]))


def test_crps_of_a_mixture_does_not_depend_on_the_block(monkeypatch):
    means = RNG.normal(size=(40, 2, 5))
    whole = metrics.crps_gaussian_mixture(means, 0.5, None, TARGETS)
    monkeypatch.setattr(metrics, "_BLOCK_SIZE", 75)
    assert metrics.crps_gaussian_mixture(means, 0.5, None, TARGETS) == pytest.approx(
        whole, rel=1e-13
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: metrics.crps_from_samples(np.zeros((5, 3)), np.zeros(4)),
        lambda: metrics.crps_gaussian_mixture(np.zeros((5, 3)), 1, None, np.zeros(3)),
        lambda: metrics.interval_score([0.0], [0.0], [0.0], level=95),
        lambda: metrics.pit_uniformity([0.5, 1.5]),
        lambda: metrics.ks_statistic([0.5], prior_std=0.0),
    ],
)
def test_wrong_arguments_are_named(call):
    with pytest.raises(ValueError, match=r"samples|means|level|pit|prior_std"):
        call()


def test_pit_uniformity_tells_right_from_overconfident():
    y = np.random.default_rng(1).normal(size=500)
    right = metrics.pit_uniformity(stats.norm.cdf(y))
    overconfident = metrics.pit_uniformity(stats.norm.cdf(y / 0.5))
    assert right.p_value > 0.001  # a right one fails for one seed in a thousand
    assert overconfident.p_value < 1e-6
    assert right.statistic == pytest.approx(stats.kstest(y, "norm").statistic)


def test_pit_of_several_outputs_reports_the_worst_one():
    good, bad = (np.arange(50) + 0.5) / 50, np.linspace(0, 0.5, 50)
    both = metrics.pit_uniformity(np.stack([good, bad], axis=1))
    alone = metrics.pit_uniformity(bad)
    assert both.statistic == alone.statistic == pytest.approx(0.5)
    assert both.p_value == pytest.approx(2 * alone.p_value)


def test_ks_statistic_against_scipy():
    means = np.random.default_rng(2).normal(size=300) * 0.6
    exact = metrics.ks_statistic(means[:, None], prior_std=0.5)
    reference = stats.kstest(means, stats.norm(scale=0.5).cdf)
    assert exact == pytest.approx((reference.statistic, reference.pvalue))

    sampled = metrics.ks_statistic(means, 0.5, num_prior_samples=1000, seed=3)
    prior = 0.5 * np.random.default_rng(3).standard_normal(1000)
    reference = stats.ks_2samp(means, prior)
    assert sampled == pytest.approx((reference.statistic, reference.pvalue))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_scores_do_not_depend_on_the_order_of_draws_or_rows(seed):
    rng = np.random.default_rng(seed)
    y, samples = rng.normal(size=6), rng.normal(size=(7, 6))
    draws, rows = rng.permutation(7), rng.permutation(6)
    crps = metrics.crps_from_samples(samples, y)
    assert metrics.crps_from_samples(samples[draws], y) == pytest.approx(crps)
    assert metrics.crps_from_samples(samples[:, rows], y[rows]) == pytest.approx(crps)
    mixture = metrics.crps_gaussian_mixture(samples.T, 0.3, None, y)
    assert metrics.crps_gaussian_mixture(
        samples[draws].T, 0.3, None, y
    ) == pytest.approx(mixture)
    # Both are distances of distributions: never negative, and in units of y.
    assert 0 <= crps
    assert metrics.crps_from_samples(-3 * samples, -3 * y) == pytest.approx(3 * crps)
