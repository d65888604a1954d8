"""Correlations: PC(x) and PC(y) of the paper, off-diagonal covariances, whitening.

Each statistic comes in two forms. The JAX form is fast, differentiable and takes row
weights; training penalises it. The `reference_` form is its definition, in NumPy and
float64; diagnostics report it, and tests compare the two.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ncai.stats import as_matrix, standardise

# Added to variances and squared norms, so that gradients stay finite at 0.
TINY = 1e-12
RELATIVE_RIDGE = 1e-5  # ten times what float32 loses in a covariance of many rows
# Correlation matrices with a smaller eigenvalue count as singular.
SMALLEST_EIGENVALUE = 1e-12


def weighted_moments(points, row_weights):
    """Mean and covariance (divided by N) of `[N, K]` rows, in NumPy or JAX."""
    share = row_weights / row_weights.sum()
    mean = share @ points
    centred = points - mean
    return mean, (share[:, None] * centred).T @ centred


# ----- PC: the mean squared correlation -----------------------------------------------


def squared_correlation(
    a: Float[Array, "N D"], b: Float[Array, "N K"], row_weights: Float[Array, "N"]
) -> Float[Array, ""]:
    """The paper's PC: the mean squared Pearson correlation over all pairs of columns.

    It is 0 where a column is constant.
    """
    share = row_weights / jnp.sum(row_weights)
    a = a - share @ a
    b = b - share @ b
    covariance = (share[:, None] * a).T @ b
    variances = jnp.outer(share @ a**2, share @ b**2)
    return jnp.mean(covariance**2 / (variances + TINY))


def reference_squared_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """The mean of the squared Pearson correlations over all D x K pairs of columns.

    We read the paper's PC as a mean of squares: all values that it reports are positive
    and close to 1/N, the chance level of squares. The correlation with a constant
    column counts as 0.

    Example:
        >>> round(reference_squared_correlation([0.0, 1.0, 2.0], [4.0, 2.0, 0.0]), 6)
        1.0
    """
    a, b = standardise(as_matrix(a, "a")), standardise(as_matrix(b, "b"))
    return float(np.mean((a.T @ b / len(a)) ** 2))


# ----- Covariances between columns ----------------------------------------------------


def offdiagonal_norm(
    points: Float[Array, "N K"], row_weights: Float[Array, "N"]
) -> Float[Array, ""]:
    """Frobenius norm of the off-diagonal part of the covariance; 0 for one column."""
    _, covariance = weighted_moments(points, row_weights)
    off = covariance - jnp.diag(jnp.diag(covariance))
    return jnp.sqrt(jnp.sum(off**2) + TINY) - TINY**0.5


def reference_offdiagonal_norm(points: ArrayLike) -> float:
    """Frobenius norm of the off-diagonal part of the covariance (divided by N)."""
    points = as_matrix(points, "points")
    _, covariance = weighted_moments(points, np.ones(len(points)))
    return float(np.linalg.norm(covariance - np.diag(np.diag(covariance))))


# ----- Whitening ----------------------------------------------------------------------


def whiten(
    points: Float[Array, "N K"], row_weights: Float[Array, "N"]
) -> Float[Array, "N K"]:
    """Points with mean 0 and identity covariance.

    A ridge keeps singular covariances invertible. The columns are scaled first, so that
    the ridge is small relative to each of them: one latent may be far narrower than
    another.
    """
    mean, covariance = weighted_moments(points, row_weights)
    dims = points.shape[1]
    widths = jnp.sqrt(jnp.diag(covariance) + TINY)
    scaled = (points - mean) / widths
    if dims == 1:
        return scaled
    correlation = covariance / jnp.outer(widths, widths)
    correlation = jnp.where(np.eye(dims, dtype=bool), 1 + RELATIVE_RIDGE, correlation)
    factor = jnp.linalg.cholesky(correlation)
    return jax.scipy.linalg.solve_triangular(factor, scaled.T, lower=True).T


def reference_whiten(points: np.ndarray, row_weights: np.ndarray) -> np.ndarray | None:
    """Points with mean 0 and identity covariance, or None if they are singular."""
    num_rows = row_weights.sum()
    centred = points - row_weights @ points / num_rows
    std = np.sqrt(row_weights @ centred**2 / num_rows)
    # Rounding may leave the std of equal numbers a little above 0.
    rounding = 8 * np.finfo(float).eps * np.abs(points).max(axis=0)
    if np.any(std <= rounding):
        return None
    # We use the correlation matrix, so that units do not decide what is singular.
    scaled = centred / std
    correlation = (scaled.T * row_weights) @ scaled / num_rows
    eigenvalues, vectors = np.linalg.eigh(correlation)
    if eigenvalues[0] <= SMALLEST_EIGENVALUE:
        return None
    return scaled @ (vectors / np.sqrt(eigenvalues))
