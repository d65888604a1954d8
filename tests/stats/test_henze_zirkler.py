"""Henze-Zirkler: the float64 reference, the fast JAX form, characteristic functions."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncai.stats.characteristic_function import ecf_on_half_plane, ecf_on_line
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

FAST_HZ = jax.jit(henze_zirkler_statistic)
DOUBLE_SUM = jax.jit(henze_zirkler_double_sum)


def gaussian(num_rows, dim, seed=0):
    return np.random.default_rng(seed).normal(size=(num_rows, dim))


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


def rows(dims, num_rows=37):
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
    angles, share = rows(1)
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
    angles, share = rows(2)
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
