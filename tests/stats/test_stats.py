"""Henze-Zirkler, covariances, mutual information, entropy, divergences, scores."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import digamma
from sklearn.feature_selection import mutual_info_regression

from ncai.stats import divergence, knn
from ncai.stats import scores as metrics
from ncai.stats.characteristic_function import ecf_on_half_plane, ecf_on_line
from ncai.stats.correlation import (
    offdiagonal_norm,
    reference_offdiagonal_norm,
    reference_squared_correlation,
    reference_whiten,
    squared_correlation,
    whiten,
)
from ncai.stats.divergence import aggregated_posterior_divergences
from ncai.stats.henze_zirkler import (
    henze_zirkler_double_sum,
    henze_zirkler_statistic,
    henze_zirkler_test,
    hz_expected,
    hz_quantile,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pingouin


def gaussian(num_rows, dim, seed=0):
    return np.random.default_rng(seed).normal(size=(num_rows, dim))


# ----- Henze-Zirkler ------------------------------------------------------------------

FAST_HZ = jax.jit(henze_zirkler_statistic)
DOUBLE_SUM = jax.jit(henze_zirkler_double_sum)


def sample(law, num_rows, dims, seed=0):
    rng = np.random.default_rng(seed)
    if law == "gaussian":
        return rng.normal(size=(num_rows, dims))
    if law == "t3":
        return rng.standard_t(3, size=(num_rows, dims))
    return rng.uniform(-1, 1, size=(num_rows, dims))


# ----- The reference ------------------------------------------------------------------


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
    found = henze_zirkler_test(values, method=method).statistic
    assert found == pytest.approx(hz_by_loops(values), rel=1e-10)


@pytest.mark.parametrize("dim", [2, 3])
def test_hz_equals_pingouin(dim):
    points = np.exp(gaussian(150, dim) @ gaussian(dim, dim, seed=1) / 2)
    found = henze_zirkler_test(points)
    reference = pingouin.multivariate_normality(points)
    assert found.statistic == pytest.approx(reference.hz, rel=1e-10)
    assert found.p_value == pytest.approx(reference.pval, rel=1e-8)


def test_hz_p_value_of_gaussian_points_equals_pingouin():
    points = gaussian(150, 2)
    reference = pingouin.multivariate_normality(points)
    assert 0.05 < reference.pval < 0.95
    assert henze_zirkler_test(points).p_value == pytest.approx(
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
    exact = henze_zirkler_test(points, method="exact").statistic
    integral = henze_zirkler_test(points, method="characteristic").statistic
    assert integral == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("dim", [3, 5])
def test_quasi_random_hz_is_near_the_double_sum(dim):
    points = gaussian(300, dim)
    exact = henze_zirkler_test(points, method="exact").statistic
    integral = henze_zirkler_test(points, method="characteristic").statistic
    assert integral == pytest.approx(exact, rel=0.03)


def test_many_points_switch_to_the_integral_without_a_step():
    points = gaussian(5_001, 1)
    assert henze_zirkler_test(points).statistic == pytest.approx(
        henze_zirkler_test(points, method="exact").statistic, rel=1e-9
    )


@pytest.mark.parametrize("method", ["exact", "characteristic"])
@pytest.mark.parametrize("dim", [1, 2])
def test_hz_weights_count_rows(dim, method):
    rng = np.random.default_rng(0)
    points, counts = rng.normal(size=(60, dim)), rng.integers(0, 4, 60)
    weighted = henze_zirkler_test(points, weights=counts, method=method)
    repeated = henze_zirkler_test(np.repeat(points, counts, axis=0))
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
    found = henze_zirkler_test(points)
    assert found.singular
    assert found.statistic == 4 * len(points)
    assert found.p_value < 1e-6


def test_units_do_not_make_points_singular():
    points = gaussian(50, 2)
    tiny = points * [1e-12, 1e12]
    assert henze_zirkler_test(tiny) == pytest.approx(henze_zirkler_test(points))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_hz_is_affine_and_order_invariant(seed, dim):
    rng = np.random.default_rng(seed)
    points = rng.exponential(size=(30, dim))
    # Singular values between 1 and 2 keep the map away from a singular one.
    left, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    right, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    mapped = points @ (left * rng.uniform(1, 2, dim)) @ right + rng.normal(size=dim)
    found = henze_zirkler_test(points).statistic
    assert henze_zirkler_test(mapped).statistic == pytest.approx(found, abs=1e-8)
    shuffled = rng.permutation(points)
    assert henze_zirkler_test(shuffled).statistic == pytest.approx(found, abs=1e-8)


@pytest.mark.parametrize("dim", [1, 2])
def test_hz_null_law_is_calibrated(dim):
    rng = np.random.default_rng(0)
    results = [henze_zirkler_test(rng.normal(size=(200, dim))) for _ in range(200)]
    # The mean of 200 uniform p-values has deviation 1 / sqrt(12 * 200) = 0.020; four of
    # them, and 0.02 for the log-normal approximation.
    assert abs(np.mean([r.p_value for r in results]) - 0.5) < 0.1
    statistics = np.array([r.statistic for r in results])
    error = statistics.std() / np.sqrt(200)
    assert abs(statistics.mean() - results[0].expected) < 4 * error
    # Binomial: 10 of 200 expected above the 95 % point, deviation 3.1.
    above = np.sum(statistics > hz_quantile(0.95, 200, dim))
    assert abs(above - 10) <= 13


def test_hz_refuses_bad_arguments():
    with pytest.raises(ValueError, match="points"):
        henze_zirkler_test([[np.nan], [1.0]])
    with pytest.raises(ValueError, match="points"):
        henze_zirkler_test(np.zeros((0, 1)))
    with pytest.raises(ValueError, match="weights"):
        henze_zirkler_test(gaussian(5, 1), weights=np.ones(4))
    with pytest.raises(ValueError, match="method"):
        henze_zirkler_test(gaussian(5, 1), method="magic")


# ----- The fast form ------------------------------------------------------------------


@pytest.mark.parametrize(("dims", "tolerance"), [(1, 1e-4), (2, 3e-4), (3, 0.02)])
def test_the_fast_form_agrees_with_the_reference(dims, tolerance):
    """In float32, as in training, and with row weights; see below for tolerances."""
    points = np.exp(gaussian(300, dims) @ gaussian(dims, dims, seed=1) / 2)
    weights = np.random.default_rng(2).integers(0, 3, 300)
    fast = FAST_HZ(jnp.asarray(points, jnp.float32), jnp.asarray(weights, jnp.float32))
    reference = henze_zirkler_test(points, weights, method="exact").statistic
    assert float(fast) == pytest.approx(reference, rel=tolerance)


@pytest.mark.parametrize("law", ["gaussian", "t3", "uniform"])
@pytest.mark.parametrize("num_rows", [50, 200, 750, 1500])
def test_fast_hz_equals_its_definition_for_one_latent(num_rows, law, x64):
    # Trapezoid nodes miss only what lies beyond t = 5.5 beta, and the aliases of pairs
    # more than 20 deviations apart: 5 digits, or 2e-4 with a heavy tail.
    points = jnp.asarray(3 + 0.2 * sample(law, num_rows, 1, seed=num_rows))
    fast = float(FAST_HZ(points, jnp.ones(num_rows)))
    by_definition = float(DOUBLE_SUM(points))
    tolerance = 2e-4 if law == "t3" else 1e-5
    assert fast == pytest.approx(by_definition, rel=tolerance)
    reference = henze_zirkler_test(np.asarray(points), method="exact").statistic
    assert by_definition == pytest.approx(reference, rel=1e-8)


@pytest.mark.parametrize("law", ["gaussian", "t3"])
@pytest.mark.parametrize(("dims", "tolerance"), [(2, 3e-4), (3, 0.02)])
def test_fast_hz_equals_other_implementations_for_more_latents(
    dims, tolerance, law, x64
):
    # A grid for K = 2, where the ridge of 1e-5 is all that is left of the difference;
    # quasi-random nodes for K = 3, good to 2 %.
    points = sample(law, 300, dims, seed=1)
    fast = float(FAST_HZ(jnp.asarray(points), jnp.ones(300)))
    by_definition = float(DOUBLE_SUM(jnp.asarray(points)))
    assert fast == pytest.approx(by_definition, rel=1e-5 if dims == 2 else tolerance)
    reference = henze_zirkler_test(points, method="exact").statistic
    assert fast == pytest.approx(reference, rel=tolerance)
    other = pingouin.multivariate_normality(points).hz
    assert fast == pytest.approx(other, rel=tolerance)


def test_fast_hz_is_affine_invariant(x64):
    points = sample("t3", 200, 2)
    mixed = 5 + points @ np.array([[2.0, 0.3], [-1.0, 0.7]])
    ones = jnp.ones(200)
    # Up to the ridge, which is 1e-5 of the mean variance: 1e-4 of the smallest one.
    before, after = (float(FAST_HZ(jnp.asarray(p), ones)) for p in (points, mixed))
    assert after == pytest.approx(before, rel=1e-3)


@pytest.mark.parametrize(("num_rows", "dims"), [(50, 1), (200, 1), (100, 2)])
def test_expected_hz_is_its_mean_over_gaussian_samples(num_rows, dims, x64):
    points = jnp.asarray(np.random.default_rng(0).normal(size=(400, num_rows, dims)))
    ones = jnp.ones(num_rows)
    found = jax.jit(
        lambda p: jax.lax.map(lambda z: henze_zirkler_statistic(z, ones), p)
    )(points)
    # The formula is for a known mean and covariance to first order in 1/N: at N = 50
    # it is about 0.01 low. Beyond that, 4 standard errors.
    slack = 4 * float(found.std()) / 400**0.5 + 0.5 / num_rows
    mean = float(found.mean())
    assert hz_expected(num_rows, dims) == pytest.approx(mean, abs=slack)
    reference = henze_zirkler_test(np.asarray(points[0])).expected
    assert hz_expected(num_rows, dims) == pytest.approx(reference, rel=1e-12)


def spread_rows(dims, num_rows=37):
    rng = np.random.default_rng(dims)
    angles = jnp.asarray(rng.normal(size=(num_rows, dims)), jnp.float32)
    share = rng.uniform(size=num_rows)
    return angles, jnp.asarray(share / share.sum(), jnp.float32)


def by_definition(angles, share, frequencies):
    phase = angles @ frequencies.T
    return share @ jnp.cos(phase), share @ jnp.sin(phase)


def value_and_gradient(function, angles):
    """A smooth function of both parts, with different factors for each frequency."""

    def total(angles):
        real, imaginary = function(angles)
        factors = jnp.cos(jnp.arange(real.size, dtype=jnp.float32))
        return factors @ real**2 + factors[::-1] @ imaginary

    return jax.jit(jax.value_and_grad(total))(angles)


@pytest.mark.parametrize("count", [2, 33, 50, 90])
def test_on_a_line(count):
    angles, share = spread_rows(1)
    frequencies = jnp.arange(count, dtype=jnp.float32)[:, None]

    def quick(angles):
        parts = ecf_on_line(angles[:, 0], share, count)
        return tuple(part.ravel()[:count] for part in parts)

    found = value_and_gradient(quick, angles)
    expected = value_and_gradient(
        lambda a: by_definition(a, share, frequencies), angles
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-3, atol=1e-4)


def test_on_half_a_plane():
    reach = 6
    angles, share = spread_rows(2)
    first, second = np.meshgrid(
        np.arange(reach + 1), np.arange(-reach, reach + 1), indexing="ij"
    )
    frequencies = jnp.asarray(np.stack([first.ravel(), second.ravel()], axis=1))

    def quick(angles):
        parts = ecf_on_half_plane(angles, share, reach)
        return tuple(part.ravel() for part in parts)

    found = value_and_gradient(quick, angles)
    expected = value_and_gradient(
        lambda a: by_definition(a, share, frequencies.astype(jnp.float32)), angles
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-3, atol=1e-4)


# ----- Other statistics ---------------------------------------------------------------


def rows(num_rows, dims, seed=0):
    """Latents that depend on the inputs and the targets, and are skewed."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(num_rows, 2))
    targets = rng.normal(size=(num_rows, 1)) + inputs[:, :1]
    mixing = rng.normal(size=(dims, dims))
    latents = np.exp(0.4 * rng.normal(size=(num_rows, dims)) @ mixing)
    latents += 0.5 * inputs[:, :1] + 0.3 * targets
    return latents, inputs, targets


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_both_forms_of_whitening_give_mean_zero_and_identity_covariance(dims, x64):
    latents, *_ = rows(80, dims)
    weights = np.random.default_rng(4).integers(0, 3, 80).astype(float)
    for white in (
        np.asarray(whiten(jnp.asarray(latents), jnp.asarray(weights))),
        reference_whiten(latents, weights),
    ):
        assert white is not None
        np.testing.assert_allclose(weights @ white, 0, atol=1e-9)
        covariance = (white.T * weights) @ white / weights.sum()
        np.testing.assert_allclose(covariance, np.eye(dims), atol=1e-3)  # the ridge


def test_squared_correlation_is_the_mean_over_all_pairs_of_columns(x64):
    latents, inputs, _ = rows(80, 3)
    expected = np.mean(np.corrcoef(inputs.T, latents.T)[:2, 2:] ** 2)
    found = squared_correlation(
        jnp.asarray(inputs), jnp.asarray(latents), jnp.ones(len(inputs))
    )
    assert found == pytest.approx(expected, rel=1e-9)
    assert found == pytest.approx(
        reference_squared_correlation(inputs, latents), rel=1e-9
    )


def test_squared_correlation_of_a_line_is_one(x64):
    x = jnp.linspace(-1, 1, 9)[:, None]
    assert squared_correlation(x, 3 - 2 * x, jnp.ones(9)) == pytest.approx(1, rel=1e-9)


def test_offdiagonal_norm_is_frobenius(x64):
    latents, *_ = rows(80, 3)
    covariance = np.cov(latents.T, bias=True)
    # Each of the three pairs stands twice in the matrix.
    expected = np.sqrt(2 * np.sum(covariance[np.triu_indices(3, 1)] ** 2))
    found = offdiagonal_norm(jnp.asarray(latents), jnp.ones(80))
    assert found == pytest.approx(expected, rel=1e-5)
    assert found == pytest.approx(reference_offdiagonal_norm(latents), rel=1e-5)


def test_one_latent_has_no_offdiagonal(x64):
    latents, *_ = rows(80, 1)
    assert offdiagonal_norm(jnp.asarray(latents), jnp.ones(80)) == 0


def test_pearson_penalty_against_corrcoef():
    a, b = gaussian(50, 3), gaussian(50, 2, seed=1)
    b[:, 0] += a[:, 1]
    expected = np.mean(np.corrcoef(a.T, b.T)[:3, 3:] ** 2)
    assert reference_squared_correlation(a, b) == pytest.approx(expected, rel=1e-12)
    # A constant column counts as a pair of correlation 0.
    constant = np.c_[a, np.full(50, 0.1)]
    assert reference_squared_correlation(constant, b) == pytest.approx(expected * 3 / 4)
    assert reference_squared_correlation(np.full(50, 0.1), b) == 0.0


def test_offdiag_covariance_norm_by_hand():
    means = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [1.0, 1.0]])
    covariance = np.cov(means.T, ddof=0)[0, 1]
    found = reference_offdiagonal_norm(means)
    assert found == pytest.approx(np.sqrt(2) * abs(covariance))
    assert reference_offdiagonal_norm(means[:, 0]) == 0.0


# ----- Mutual information -------------------------------------------------------------


def correlated(num_rows, rho, seed=0):
    a, noise = gaussian(num_rows, 2, seed).T
    return a, rho * a + np.sqrt(1 - rho**2) * noise


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.95])
def test_mutual_information_of_gaussians(rho):
    # Over 30 seeds the bias was at most 0.010 and the deviation 0.023; three of them.
    found = knn.mutual_information(*correlated(2000, rho))
    assert found == pytest.approx(-0.5 * np.log(1 - rho**2), abs=0.08)


def test_mutual_information_of_gaussian_vectors():
    # x in R^3, z in R^2 with each z_j = (x_j + noise) / sqrt(2): 2 * log(2) / 2 nats.
    x, noise = gaussian(3000, 3), gaussian(3000, 2, seed=1)
    z = (x[:, :2] + noise) / np.sqrt(2)
    # Over 20 seeds the bias was at most 0.021 and the deviation 0.015; four of them.
    assert knn.mutual_information(x, z) == pytest.approx(np.log(2), abs=0.08)
    assert knn.mutual_information(x, z[:, 0]) == pytest.approx(np.log(2) / 2, abs=0.08)


def test_mutual_information_equals_scikit_learn_for_two_columns():
    a, b = correlated(400, 0.7)
    reference = mutual_info_regression(a[:, None], b, n_neighbors=5, random_state=0)[0]
    assert knn.mutual_information(a, b) == pytest.approx(reference, abs=1e-9)


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
    assert knn.mutual_information(a, b) == pytest.approx(expected, abs=1e-12)


def test_mutual_information_does_not_depend_on_units_and_survives_ties():
    a, b = correlated(300, 0.8)
    found = knn.mutual_information(a, b)
    assert knn.mutual_information(1e-8 * a + 5, 1e6 * b) == pytest.approx(
        found, abs=1e-6
    )
    rounded = knn.mutual_information(np.round(a), b)
    assert 0.1 < rounded < found


def test_mutual_information_with_constant_columns():
    a, b = correlated(300, 0.8)
    with_constant = np.c_[np.full(300, 0.1), a]
    # The noise that breaks ties differs, which may move a count or two.
    assert knn.mutual_information(with_constant, b) == pytest.approx(
        knn.mutual_information(a, b), abs=1e-3
    )
    assert knn.mutual_information(np.full(300, 0.1), b) == 0.0
    assert not knn.permuted_mutual_information(np.ones(300), b, 3).any()


def test_mutual_information_refuses_too_few_rows():
    with pytest.raises(ValueError, match="k=5"):
        knn.mutual_information(np.arange(5.0), np.arange(5.0))
    with pytest.raises(ValueError, match="rows"):
        knn.mutual_information(np.arange(9.0), np.arange(8.0))


@pytest.mark.parametrize("most_pairs", [0, 10**6])
@pytest.mark.parametrize("list_length", [8, 256])
@pytest.mark.parametrize(("dim_a", "dim_b"), [(1, 1), (7, 1), (1, 3)])
def test_permuted_information_is_that_of_permuted_rows(
    dim_a, dim_b, list_length, most_pairs, monkeypatch
):
    monkeypatch.setattr(knn, "_MOST_PAIRS", most_pairs)
    monkeypatch.setattr(knn, "_NEIGHBOUR_LIST", list_length)
    a, b = gaussian(200, dim_a), gaussian(200, dim_b, seed=1)
    found = knn.permuted_mutual_information(a, b, num_permutations=3, seed=4)
    rng = np.random.default_rng(4)
    for value in found:
        order = rng.permutation(200)
        if dim_b > dim_a:  # the other side is shuffled
            expected = knn.mutual_information(a[order], b)
        else:
            expected = knn.mutual_information(a, b[order])
        assert value == pytest.approx(expected, abs=1e-9)


# ----- Entropy ------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_entropy_of_gaussians(dim):
    mixing = gaussian(dim, dim, seed=1)
    samples = gaussian(4000, dim) @ mixing
    exact = dim / 2 * np.log(2 * np.pi * np.e) + np.linalg.slogdet(mixing)[1]
    # The log density has variance dim / 2, the neighbours add psi'(5) = 0.22: deviation
    # sqrt((dim / 2 + 0.22) / 4000) <= 0.021. Three of them, and the bias of 0.03 that
    # three dimensions have here (it was seen to fall with N).
    assert knn.knn_entropy(samples) == pytest.approx(exact, abs=0.093)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_entropy_of_a_uniform_law_is_right_for_any_k(k):
    samples = np.random.default_rng(0).random(20_000)
    # Deviation sqrt(psi'(k) / 20000) <= 0.009.
    assert knn.knn_entropy(samples, k=k) == pytest.approx(0, abs=0.03)


def test_entropy_of_scaled_and_of_equal_samples():
    samples = gaussian(200, 2)
    shifted = knn.knn_entropy(1e-6 * samples) - knn.knn_entropy(samples)
    assert shifted == pytest.approx(2 * np.log(1e-6), abs=1e-4)
    assert np.isfinite(knn.knn_entropy(np.repeat(samples, 10, axis=0)))
    assert knn.knn_entropy(np.full(20, 0.1)) == -np.inf


def test_the_sorted_entropy_of_numbers_equals_the_general_one():
    samples = np.random.default_rng(0).normal(size=(3, 200))
    expected = [knn.knn_entropy(group[:, None], k=5) for group in samples]
    np.testing.assert_allclose(knn.sorted_knn_entropy(samples, 5), expected)


def gaussian_kl(mean, std, other_mean, other_std):
    ratio = (std / other_std) ** 2
    shift = ((mean - other_mean) / other_std) ** 2
    return 0.5 * (ratio + shift - 1 - np.log(ratio))


@pytest.mark.parametrize(
    ("mean", "std", "prior_std"),
    [(0.0, 0.5, 1.0), (0.7, 0.2, 0.3), (-2.0, 3.0, 0.5), (0.3, 1e-3, 1.0)],
)
def test_divergences_of_equal_rows_are_gaussian(mean, std, prior_std):
    found = aggregated_posterior_divergences(
        np.full(20, mean), np.full(20, std), prior_std
    )
    assert found.kl_q_p == pytest.approx(gaussian_kl(mean, std, 0, prior_std), rel=1e-6)
    assert found.kl_p_q == pytest.approx(gaussian_kl(0, prior_std, mean, std), rel=1e-6)
    assert 0 < found.js < np.log(2)


def test_divergences_vanish_at_the_prior():
    found = aggregated_posterior_divergences(np.zeros(9), np.full(9, 0.4), 0.4)
    np.testing.assert_allclose(found, 0, atol=1e-12)
    found = aggregated_posterior_divergences(
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
    found = aggregated_posterior_divergences(means, stds, 1.0)
    assert found.js == pytest.approx(expected, rel=1e-6)


def test_separated_laws_reach_log_two():
    found = aggregated_posterior_divergences([50.0], [0.1], 1.0)
    assert found.js == pytest.approx(np.log(2), rel=1e-9)


def test_points_without_width():
    found = aggregated_posterior_divergences(np.zeros(4), np.zeros(4), 1.0)
    assert found == (np.log(2), np.inf, np.inf)
    # Half atoms, half prior: KL(p || q) = log 2, and JS in closed form.
    found = aggregated_posterior_divergences(np.zeros(4), [0.0, 0.0, 1.0, 1.0], 1.0)
    assert found.kl_q_p == np.inf
    assert found.kl_p_q == pytest.approx(np.log(2))
    js = np.log(2) / 4 + np.log(2 / 3) / 4 + np.log(4 / 3) / 2
    assert found.js == pytest.approx(js)


def test_monte_carlo_divergences_of_two_latents():
    # Independent latents: KL adds up. Over 20 seeds the deviations were 0.0033 and
    # 0.0046; four of them.
    means, stds = np.tile([0.3, 0.0], (10, 1)), np.tile([0.7, 1.2], (10, 1))
    found = aggregated_posterior_divergences(means, stds, 1.0, 20_000, seed=1)
    q_p = gaussian_kl(0.3, 0.7, 0, 1) + gaussian_kl(0, 1.2, 0, 1)
    p_q = gaussian_kl(0, 1, 0.3, 0.7) + gaussian_kl(0, 1, 0, 1.2)
    assert found.kl_q_p == pytest.approx(q_p, abs=0.014)
    assert found.kl_p_q == pytest.approx(p_q, abs=0.019)


def test_monte_carlo_and_quadrature_agree(monkeypatch):
    means, stds = gaussian(30, 1), np.full((30, 1), 0.1)
    exact = aggregated_posterior_divergences(means, stds, 1.0)
    monkeypatch.setattr(divergence, "_MOST_DENSITIES", 0)
    sampled = aggregated_posterior_divergences(means, stds, 1.0, 50_000)
    np.testing.assert_allclose(sampled[:2], exact[:2], atol=0.02)


def test_two_latents_of_which_one_matches_equal_one_latent():
    means, stds = gaussian(30, 1), np.full((30, 1), 0.3)
    one = aggregated_posterior_divergences(means, stds, 1.0)
    two = aggregated_posterior_divergences(
        np.c_[means, np.zeros(30)], np.c_[stds, np.full(30, 2.0)], [1.0, 2.0], 20_000
    )
    np.testing.assert_allclose(two, one, atol=0.03)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 2))
def test_divergences_stay_in_bounds_and_do_not_depend_on_units(seed, dim):
    rng = np.random.default_rng(seed)
    means, stds = rng.normal(size=(12, dim)), rng.exponential(size=(12, dim)) + 0.01
    found = aggregated_posterior_divergences(means, stds, 1.0, 200)
    assert 0 <= found.js <= np.log(2)
    assert min(found) >= 0
    scaled = aggregated_posterior_divergences(7 * means, 7 * stds, 7.0, 200)
    np.testing.assert_allclose(scaled, found, atol=1e-9)


def test_divergences_refuse_bad_arguments():
    with pytest.raises(ValueError, match="stds"):
        aggregated_posterior_divergences([0.0, 1.0], [1.0, -1.0], 1.0)
    with pytest.raises(ValueError, match="prior_std"):
        aggregated_posterior_divergences([0.0], [1.0], 0.0)


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
