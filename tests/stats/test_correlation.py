"""PC and off-diagonal covariances: the float64 reference and the JAX form."""

import jax.numpy as jnp
import numpy as np
import pytest

from ncai.stats.correlation import (
    offdiagonal_norm,
    reference_offdiagonal_norm,
    reference_squared_correlation,
    reference_whiten,
    squared_correlation,
    whiten,
)


def gaussian(num_rows, dim, seed=0):
    return np.random.default_rng(seed).normal(size=(num_rows, dim))


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
