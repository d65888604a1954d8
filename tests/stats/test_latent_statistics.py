"""Statistics of latents against brute force, closed forms and other packages."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import digamma
from sklearn.feature_selection import mutual_info_regression

from ncai.stats import henze_zirkler as normality
from ncai.stats import knn as neighbours
from ncai.stats import latent_statistics as ls

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pingouin


def gaussian(num_rows, dim, seed=0):
    return np.random.default_rng(seed).normal(size=(num_rows, dim))


# ----- Henze-Zirkler ------------------------------------------------------------------


def hz_by_loops(values):
    """The double sum of the paper for one column, term by term."""
    n = len(values)
    beta = (3 * n / 4) ** (1 / 5) / np.sqrt(2)
    mean = sum(values) / n
    variance = sum((a - mean) ** 2 for a in values) / n
    pairs = sum(
        np.exp(-(beta**2) / 2 * (a - b) ** 2 / variance) for a in values for b in values
    )
    single = sum(
        np.exp(-(beta**2) / (2 * (1 + beta**2)) * (a - mean) ** 2 / variance)
        for a in values
    )
    return pairs / n - 2 / np.sqrt(1 + beta**2) * single + n / np.sqrt(1 + 2 * beta**2)


@pytest.mark.parametrize("method", ["exact", "characteristic"])
def test_hz_of_one_column_equals_the_loops(method):
    values = 3 + 2 * gaussian(80, 1)[:, 0] ** 3
    found = normality.henze_zirkler(values, method=method).statistic
    assert found == pytest.approx(hz_by_loops(values), rel=1e-10)


@pytest.mark.parametrize("dim", [2, 3])
def test_hz_equals_pingouin(dim):
    points = np.exp(gaussian(150, dim) @ gaussian(dim, dim, seed=1) / 2)
    found = normality.henze_zirkler(points)
    reference = pingouin.multivariate_normality(points)
    assert found.statistic == pytest.approx(reference.hz, rel=1e-10)
    assert found.p_value == pytest.approx(reference.pval, rel=1e-8)


def test_hz_p_value_of_gaussian_points_equals_pingouin():
    points = gaussian(150, 2)
    reference = pingouin.multivariate_normality(points)
    assert 0.05 < reference.pval < 0.95
    assert normality.henze_zirkler(points).p_value == pytest.approx(
        reference.pval, rel=1e-10
    )


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("law", ["gaussian", "heavy", "clumps"])
def test_hz_integral_equals_double_sum(dim, law):
    points = gaussian(700, dim)
    if law == "heavy":
        points = np.random.default_rng(1).standard_t(1.5, size=(700, dim))
    if law == "clumps":
        points = np.sign(points) + 0.05 * gaussian(700, dim, seed=2)
    exact = normality.henze_zirkler(points, method="exact").statistic
    integral = normality.henze_zirkler(points, method="characteristic").statistic
    assert integral == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("dim", [3, 5])
def test_quasi_random_hz_is_near_the_double_sum(dim):
    points = gaussian(300, dim)
    exact = normality.henze_zirkler(points, method="exact").statistic
    integral = normality.henze_zirkler(points, method="characteristic").statistic
    assert integral == pytest.approx(exact, rel=0.03)


def test_many_points_switch_to_the_integral_without_a_step():
    points = gaussian(5_001, 1)
    assert normality.henze_zirkler(points).statistic == pytest.approx(
        normality.henze_zirkler(points, method="exact").statistic, rel=1e-9
    )


@pytest.mark.parametrize("method", ["exact", "characteristic"])
@pytest.mark.parametrize("dim", [1, 2])
def test_hz_weights_count_rows(dim, method):
    rng = np.random.default_rng(0)
    points, counts = rng.normal(size=(60, dim)), rng.integers(0, 4, 60)
    weighted = normality.henze_zirkler(points, weights=counts, method=method)
    repeated = normality.henze_zirkler(np.repeat(points, counts, axis=0))
    assert weighted == pytest.approx(repeated, rel=1e-10)


@pytest.mark.parametrize(
    "points",
    [
        np.full((10, 1), 0.1),  # whose mean is not 0.1 in floating point
        np.full((10, 2), 1e6 / 3),
        np.outer(np.arange(10.0), [1.0, -3.0]) + 1 / 7,
        np.c_[np.arange(10.0), np.ones(10)],
        gaussian(3, 3),  # too few to span three dimensions
        np.zeros((10, 1)),
    ],
)
def test_singular_points_have_four_n(points):
    found = normality.henze_zirkler(points)
    assert found.singular
    assert found.statistic == 4 * len(points)
    assert found.p_value < 1e-6


def test_units_do_not_make_points_singular():
    points = gaussian(50, 2)
    tiny = points * [1e-12, 1e12]
    assert normality.henze_zirkler(tiny) == pytest.approx(
        normality.henze_zirkler(points)
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_hz_is_affine_and_order_invariant(seed, dim):
    rng = np.random.default_rng(seed)
    points = rng.exponential(size=(30, dim))
    # Singular values between 1 and 2 keep the map away from a singular one.
    left, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    right, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    mapped = points @ (left * rng.uniform(1, 2, dim)) @ right + rng.normal(size=dim)
    found = normality.henze_zirkler(points).statistic
    assert normality.henze_zirkler(mapped).statistic == pytest.approx(found, abs=1e-8)
    shuffled = rng.permutation(points)
    assert normality.henze_zirkler(shuffled).statistic == pytest.approx(found, abs=1e-8)


@pytest.mark.parametrize("dim", [1, 2])
def test_hz_null_law_is_calibrated(dim):
    rng = np.random.default_rng(0)
    results = [normality.henze_zirkler(rng.normal(size=(200, dim))) for _ in range(200)]
    # The mean of 200 uniform p-values has deviation 1 / sqrt(12 * 200) = 0.020; four of
    # them, and 0.02 for the log-normal approximation.
    assert abs(np.mean([r.p_value for r in results]) - 0.5) < 0.1
    statistics = np.array([r.statistic for r in results])
    error = statistics.std() / np.sqrt(200)
    assert abs(statistics.mean() - results[0].expected) < 4 * error
    # Binomial: 10 of 200 expected above the 95 % point, deviation 3.1.
    above = np.sum(statistics > normality.henze_zirkler_quantile(0.95, 200, dim))
    assert abs(above - 10) <= 13


def test_hz_refuses_nonsense():
    with pytest.raises(ValueError, match="points"):
        normality.henze_zirkler([[np.nan], [1.0]])
    with pytest.raises(ValueError, match="points"):
        normality.henze_zirkler(np.zeros((0, 1)))
    with pytest.raises(ValueError, match="weights"):
        normality.henze_zirkler(gaussian(5, 1), weights=np.ones(4))
    with pytest.raises(ValueError, match="method"):
        normality.henze_zirkler(gaussian(5, 1), method="magic")


# ----- Dependence ---------------------------------------------------------------------


def correlated(num_rows, rho, seed=0):
    a, noise = gaussian(num_rows, 2, seed).T
    return a, rho * a + np.sqrt(1 - rho**2) * noise


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.95])
def test_mutual_information_of_gaussians(rho):
    # Over 30 seeds the bias was at most 0.010 and the deviation 0.023; three of them.
    found = neighbours.mutual_information(*correlated(2000, rho))
    assert found == pytest.approx(-0.5 * np.log(1 - rho**2), abs=0.08)


def test_mutual_information_of_gaussian_vectors():
    # x in R^3, z in R^2 with each z_j = (x_j + noise) / sqrt(2): 2 * log(2) / 2 nats.
    x, noise = gaussian(3000, 3), gaussian(3000, 2, seed=1)
    z = (x[:, :2] + noise) / np.sqrt(2)
    # Over 20 seeds the bias was at most 0.021 and the deviation 0.015; four of them.
    assert neighbours.mutual_information(x, z) == pytest.approx(np.log(2), abs=0.08)
    assert neighbours.mutual_information(x, z[:, 0]) == pytest.approx(
        np.log(2) / 2, abs=0.08
    )


def test_mutual_information_equals_scikit_learn_for_two_columns():
    a, b = correlated(400, 0.7)
    reference = mutual_info_regression(a[:, None], b, n_neighbors=5, random_state=0)[0]
    assert neighbours.mutual_information(a, b) == pytest.approx(reference, abs=1e-9)


def test_mutual_information_counts_by_brute_force():
    a, b = gaussian(60, 2), gaussian(60, 1, seed=1)
    a_scaled, b_scaled = stats.zscore(a), stats.zscore(b)
    total = 0.0
    for i in range(60):
        in_a = np.abs(a_scaled - a_scaled[i]).max(axis=1)
        in_b = np.abs(b_scaled - b_scaled[i]).max(axis=1)
        radius = np.sort(np.maximum(in_a, in_b))[5]
        total += digamma(np.sum(in_a < radius)) + digamma(np.sum(in_b < radius))
    expected = digamma(5) + digamma(60) - total / 60
    assert neighbours.mutual_information(a, b) == pytest.approx(expected, abs=1e-12)


def test_mutual_information_knows_no_units_and_survives_ties():
    a, b = correlated(300, 0.8)
    found = neighbours.mutual_information(a, b)
    assert neighbours.mutual_information(1e-8 * a + 5, 1e6 * b) == pytest.approx(
        found, abs=1e-6
    )
    rounded = neighbours.mutual_information(np.round(a), b)
    assert 0.1 < rounded < found


def test_mutual_information_with_constant_columns():
    a, b = correlated(300, 0.8)
    with_constant = np.c_[np.full(300, 0.1), a]
    # The noise that breaks ties differs, which may move a count or two.
    assert neighbours.mutual_information(with_constant, b) == pytest.approx(
        neighbours.mutual_information(a, b), abs=1e-3
    )
    assert neighbours.mutual_information(np.full(300, 0.1), b) == 0.0
    assert not neighbours.permuted_mutual_information(np.ones(300), b, 3).any()


def test_mutual_information_refuses_too_few_rows():
    with pytest.raises(ValueError, match="k=5"):
        neighbours.mutual_information(np.arange(5.0), np.arange(5.0))
    with pytest.raises(ValueError, match="rows"):
        neighbours.mutual_information(np.arange(9.0), np.arange(8.0))


@pytest.mark.parametrize("most_pairs", [0, 10**6])
@pytest.mark.parametrize("list_length", [8, 256])
@pytest.mark.parametrize(("dim_a", "dim_b"), [(1, 1), (7, 1), (1, 3)])
def test_permuted_information_is_that_of_permuted_rows(
    dim_a, dim_b, list_length, most_pairs, monkeypatch
):
    monkeypatch.setattr(neighbours, "_MOST_PAIRS", most_pairs)
    monkeypatch.setattr(neighbours, "_NEIGHBOUR_LIST", list_length)
    a, b = gaussian(200, dim_a), gaussian(200, dim_b, seed=1)
    found = neighbours.permuted_mutual_information(a, b, num_permutations=3, seed=4)
    rng = np.random.default_rng(4)
    for value in found:
        order = rng.permutation(200)
        if dim_b > dim_a:  # the other side is shuffled
            expected = neighbours.mutual_information(a[order], b)
        else:
            expected = neighbours.mutual_information(a, b[order])
        assert value == pytest.approx(expected, abs=1e-9)


def test_pearson_penalty_against_corrcoef():
    a, b = gaussian(50, 3), gaussian(50, 2, seed=1)
    b[:, 0] += a[:, 1]
    expected = np.mean(np.corrcoef(a.T, b.T)[:3, 3:] ** 2)
    assert ls.pearson_penalty_value(a, b) == pytest.approx(expected, rel=1e-12)
    # A constant column counts as a pair of correlation 0.
    constant = np.c_[a, np.full(50, 0.1)]
    assert ls.pearson_penalty_value(constant, b) == pytest.approx(expected * 3 / 4)
    assert ls.pearson_penalty_value(np.full(50, 0.1), b) == 0.0


def test_offdiag_covariance_norm_by_hand():
    means = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [1.0, 1.0]])
    covariance = np.cov(means.T, ddof=0)[0, 1]
    found = ls.offdiag_covariance_norm(means)
    assert found == pytest.approx(np.sqrt(2) * abs(covariance))
    assert ls.offdiag_covariance_norm(means[:, 0]) == 0.0


# ----- Aggregated posterior -----------------------------------------------------------


def gaussian_kl(mean, std, other_mean, other_std):
    ratio = (std / other_std) ** 2
    shift = ((mean - other_mean) / other_std) ** 2
    return 0.5 * (ratio + shift - 1 - np.log(ratio))


@pytest.mark.parametrize(
    ("mean", "std", "prior_std"),
    [(0.0, 0.5, 1.0), (0.7, 0.2, 0.3), (-2.0, 3.0, 0.5), (0.3, 1e-3, 1.0)],
)
def test_divergences_of_equal_rows_are_gaussian(mean, std, prior_std):
    found = ls.aggregated_posterior_divergences(
        np.full(20, mean), np.full(20, std), prior_std
    )
    assert found.kl_q_p == pytest.approx(gaussian_kl(mean, std, 0, prior_std), rel=1e-6)
    assert found.kl_p_q == pytest.approx(gaussian_kl(0, prior_std, mean, std), rel=1e-6)
    assert 0 < found.js < np.log(2)


def test_divergences_vanish_at_the_prior():
    found = ls.aggregated_posterior_divergences(np.zeros(9), np.full(9, 0.4), 0.4)
    np.testing.assert_allclose(found, 0, atol=1e-12)
    found = ls.aggregated_posterior_divergences(
        np.zeros((9, 2)), np.full((9, 2), 0.4), 0.4
    )
    np.testing.assert_allclose(found, 0, atol=1e-12)


def test_js_of_a_mixture_equals_the_integral_on_a_fine_grid():
    means, stds = np.array([-1.0, 0.2, 0.21, 3.0]), np.array([0.5, 0.01, 1.0, 0.1])
    z = np.linspace(-12, 12, 480_001)
    q = np.mean([stats.norm.pdf(z, m, s) for m, s in zip(means, stds, strict=True)], 0)
    p = stats.norm.pdf(z)
    middle = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.nan_to_num(q * np.log(q / middle)) + p * np.log(p / middle)
    expected = np.sum(terms) * (z[1] - z[0]) / 2
    found = ls.aggregated_posterior_divergences(means, stds, 1.0)
    assert found.js == pytest.approx(expected, rel=1e-6)


def test_separated_laws_reach_log_two():
    found = ls.aggregated_posterior_divergences([50.0], [0.1], 1.0)
    assert found.js == pytest.approx(np.log(2), rel=1e-9)


def test_points_without_width():
    found = ls.aggregated_posterior_divergences(np.zeros(4), np.zeros(4), 1.0)
    assert found == (np.log(2), np.inf, np.inf)
    # Half atoms, half prior: KL(p || q) = log 2, and JS in closed form.
    found = ls.aggregated_posterior_divergences(np.zeros(4), [0.0, 0.0, 1.0, 1.0], 1.0)
    assert found.kl_q_p == np.inf
    assert found.kl_p_q == pytest.approx(np.log(2))
    js = np.log(2) / 4 + np.log(2 / 3) / 4 + np.log(4 / 3) / 2
    assert found.js == pytest.approx(js)


def test_monte_carlo_divergences_of_two_latents():
    # Independent latents: KL adds up. Over 20 seeds the deviations were 0.0033 and
    # 0.0046; four of them.
    means, stds = np.tile([0.3, 0.0], (10, 1)), np.tile([0.7, 1.2], (10, 1))
    found = ls.aggregated_posterior_divergences(means, stds, 1.0, 20_000, seed=1)
    q_p = gaussian_kl(0.3, 0.7, 0, 1) + gaussian_kl(0, 1.2, 0, 1)
    p_q = gaussian_kl(0, 1, 0.3, 0.7) + gaussian_kl(0, 1, 0, 1.2)
    assert found.kl_q_p == pytest.approx(q_p, abs=0.014)
    assert found.kl_p_q == pytest.approx(p_q, abs=0.019)


def test_monte_carlo_and_quadrature_agree(monkeypatch):
    means, stds = gaussian(30, 1), np.full((30, 1), 0.1)
    exact = ls.aggregated_posterior_divergences(means, stds, 1.0)
    monkeypatch.setattr(ls, "_MOST_DENSITIES", 0)
    sampled = ls.aggregated_posterior_divergences(means, stds, 1.0, 50_000)
    np.testing.assert_allclose(sampled[:2], exact[:2], atol=0.02)


def test_two_latents_of_which_one_matches_equal_one_latent():
    means, stds = gaussian(30, 1), np.full((30, 1), 0.3)
    one = ls.aggregated_posterior_divergences(means, stds, 1.0)
    two = ls.aggregated_posterior_divergences(
        np.c_[means, np.zeros(30)], np.c_[stds, np.full(30, 2.0)], [1.0, 2.0], 20_000
    )
    np.testing.assert_allclose(two, one, atol=0.03)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 2))
def test_divergences_stay_in_bounds_and_know_no_units(seed, dim):
    rng = np.random.default_rng(seed)
    means, stds = rng.normal(size=(12, dim)), rng.exponential(size=(12, dim)) + 0.01
    found = ls.aggregated_posterior_divergences(means, stds, 1.0, 200)
    assert 0 <= found.js <= np.log(2)
    assert min(found) >= 0
    scaled = ls.aggregated_posterior_divergences(7 * means, 7 * stds, 7.0, 200)
    np.testing.assert_allclose(scaled, found, atol=1e-9)


def test_divergences_refuse_nonsense():
    with pytest.raises(ValueError, match="stds"):
        ls.aggregated_posterior_divergences([0.0, 1.0], [1.0, -1.0], 1.0)
    with pytest.raises(ValueError, match="prior_std"):
        ls.aggregated_posterior_divergences([0.0], [1.0], 0.0)


# ----- Entropy ------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_entropy_of_gaussians(dim):
    mixing = gaussian(dim, dim, seed=1)
    samples = gaussian(4000, dim) @ mixing
    exact = dim / 2 * np.log(2 * np.pi * np.e) + np.linalg.slogdet(mixing)[1]
    # The log density has variance dim / 2, the neighbours add psi'(5) = 0.22: deviation
    # sqrt((dim / 2 + 0.22) / 4000) <= 0.021. Three of them, and the bias of 0.03 that
    # three dimensions have here (it was seen to fall with N).
    assert neighbours.knn_entropy(samples) == pytest.approx(exact, abs=0.093)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_entropy_of_a_uniform_law_is_right_for_any_k(k):
    samples = np.random.default_rng(0).random(20_000)
    # Deviation sqrt(psi'(k) / 20000) <= 0.009.
    assert neighbours.knn_entropy(samples, k=k) == pytest.approx(0, abs=0.03)


def test_entropy_of_scaled_and_of_equal_samples():
    samples = gaussian(200, 2)
    shifted = neighbours.knn_entropy(1e-6 * samples) - neighbours.knn_entropy(samples)
    assert shifted == pytest.approx(2 * np.log(1e-6), abs=1e-4)
    assert np.isfinite(neighbours.knn_entropy(np.repeat(samples, 10, axis=0)))
    assert neighbours.knn_entropy(np.full(20, 0.1)) == -np.inf
