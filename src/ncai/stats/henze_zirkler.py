"""The Henze-Zirkler (HZ) statistic: how far points are from a Gaussian.

HZ = N * integral |ecf(t) - exp(-t't / 2)|^2 N(t; 0, beta^2 I) dt, where ecf is the
empirical characteristic function of the whitened points. Solved in closed form, the
integral is the double sum over pairs of points that the paper prints (Appendix D.2).

This file has three ways to compute it:

- `henze_zirkler_test`: the reference in float64, with a p-value, for diagnostics.
- `henze_zirkler_statistic`: O(N), in JAX, differentiable; training penalises this one.
- `henze_zirkler_double_sum`: the double sum in JAX, O(N^2), to check the fast form.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike
from scipy import stats
from scipy.spatial.distance import cdist

from ncai.stats import BLOCK_SIZE, as_matrix, as_row_weights
from ncai.stats.characteristic_function import (
    ecf_on_half_plane,
    ecf_on_line,
    reference_ecf_at,
    reference_ecf_on_grid,
)
from ncai.stats.correlation import reference_whiten, whiten

# Quasi-random nodes of the integral in three and more dimensions: 2 to this power.
_SOBOL_LOG2 = 11
# The fast form integrates over this many standard deviations of N(0, beta^2).
HZ_REACH = 5.5


# ----- Bandwidth, and the law of HZ for Gaussian points -------------------------------


def hz_bandwidth(num_rows, dims: int):
    """Beta of Henze and Zirkler (1990); the exponent in the paper is a misprint."""
    return ((2 * dims + 1) * num_rows / 4) ** (1 / (dims + 4)) / 2**0.5


def hz_expected(num_rows, dims: int):
    """Mean of HZ for Gaussian points (Henze and Zirkler, 1990, Theorem 2.2)."""
    b2 = hz_bandwidth(num_rows, dims) ** 2
    a = 1 + 2 * b2
    return 1 - a ** (-dims / 2) * (
        1 + dims * b2 / a + dims * (dims + 2) * b2**2 / (2 * a**2)
    )


def hz_variance(num_rows, dims: int):
    """Variance of HZ for Gaussian points (Henze and Zirkler, 1990)."""
    b2 = hz_bandwidth(num_rows, dims) ** 2
    a, w = 1 + 2 * b2, (1 + b2) * (1 + 3 * b2)
    p, p2 = dims, dims * (dims + 2)
    return (
        2 * (1 + 4 * b2) ** (-p / 2)
        + 2 * a**-p * (1 + 2 * p * b2**2 / a**2 + 3 * p2 * b2**4 / (4 * a**4))
        - 4 * w ** (-p / 2) * (1 + 3 * p * b2**2 / (2 * w) + p2 * b2**4 / (2 * w**2))
    )


def hz_quantile(level: float, num_rows: float, dims: int) -> float:
    """The value that HZ of Gaussian points stays below with probability `level`."""
    return float(_null_law(num_rows, dims).ppf(level))


def _null_law(num_rows: float, dims: int):
    """The log-normal law with the mean and the variance of HZ for Gaussian points."""
    mean, variance = hz_expected(num_rows, dims), hz_variance(num_rows, dims)
    log_variance = np.log1p(variance / mean**2)
    return stats.lognorm(np.sqrt(log_variance), scale=mean * np.exp(-log_variance / 2))


# ----- The reference, in float64 ------------------------------------------------------


class HZResult(NamedTuple):
    """Outcome of the Henze-Zirkler test.

    Attributes:
        statistic: HZ, scaled so that it has a limit law as N grows (not HZ / N).
        p_value: probability of a larger HZ for Gaussian points, by a log-normal
            approximation.
        expected: mean of HZ for Gaussian points of this number and dimension.
        singular: whether the points lie in a subspace; HZ is then 4 N by definition.
    """

    statistic: float
    p_value: float
    expected: float
    singular: bool


def henze_zirkler_test(
    points: ArrayLike, weights: ArrayLike | None = None, method: str = "auto"
) -> HZResult:
    """Test points for multivariate normality, whatever their mean and covariance.

    Args:
        points: `[N, K]` points.
        weights: `[N]` non-negative numbers: how often each row counts. N is their sum.
        method: "exact" for the double sum, in O(N^2) time and O(N) memory;
            "characteristic" for the integral, which takes trapezoid nodes for K <= 2
            (as accurate as the sum) and 2048 quasi-random nodes for K >= 3 (accurate to
            about 2 %); "auto" for the sum until the integral is cheaper (from 5,000
            rows on, or 20,000 for K >= 3).

    Example:
        >>> round(henze_zirkler_test([[-1.0], [0.0], [1.0]]).statistic, 4)
        0.0197
    """
    points = as_matrix(points, "points")
    counts = as_row_weights(weights, len(points))
    points, counts = points[counts > 0], counts[counts > 0]
    num_rows, dims = counts.sum(), points.shape[1]

    whitened = reference_whiten(points, counts)
    if whitened is None:
        statistic = 4 * num_rows
    else:
        if method == "auto":
            limit = 5_000 if dims <= 2 else 20_000
            method = "exact" if len(points) <= limit else "characteristic"
        if method not in _METHODS:
            raise ValueError(f"method={method!r} must be one of {['auto', *_METHODS]}.")
        statistic = _METHODS[method](whitened, counts, hz_bandwidth(num_rows, dims))
    return HZResult(
        float(statistic),
        float(_null_law(num_rows, dims).sf(statistic)),
        float(hz_expected(num_rows, dims)),
        whitened is None,
    )


def _reference_double_sum(whitened, counts: np.ndarray, beta: float) -> float:
    pairs = 0.0
    block = max(1, min(512, BLOCK_SIZE // len(whitened)))
    for start in range(0, len(whitened), block):
        stop = start + block
        distances = cdist(whitened[start:stop], whitened[start:], "sqeuclidean")
        kernel = np.exp(-(beta**2) / 2 * distances)
        here = counts[start:stop]
        pairs += here @ kernel[:, :block] @ here
        # A pair from two different blocks comes up once but counts twice.
        pairs += 2 * (here @ kernel[:, block:] @ counts[stop:])
    singles = np.exp(-(beta**2) / (2 * (1 + beta**2)) * np.sum(whitened**2, axis=1))
    return _closed_form(
        pairs, counts @ singles, beta**2, counts.sum(), whitened.shape[1]
    )


def _closed_form(pairs, singles, beta2, num_rows, dims: int):
    """HZ from the sums of its kernels over pairs of points and over single points."""
    return (
        pairs / num_rows
        - 2 * (1 + beta2) ** (-dims / 2) * singles
        + num_rows * (1 + 2 * beta2) ** (-dims / 2)
    )


def _reference_integral(whitened, counts: np.ndarray, beta: float) -> float:
    if whitened.shape[1] <= 2:
        ecf, squared_norm, node_weights = reference_ecf_on_grid(whitened, counts, beta)
    else:
        sobol = stats.qmc.Sobol(whitened.shape[1], rng=np.random.default_rng(0))
        nodes = beta * stats.norm.ppf(sobol.random_base2(_SOBOL_LOG2))
        ecf = reference_ecf_at(whitened, counts, nodes)
        squared_norm, node_weights = np.sum(nodes**2, axis=1), 1 / len(nodes)
    gap = np.abs(ecf - np.exp(-squared_norm / 2)) ** 2
    return counts.sum() * np.sum(node_weights * gap)


_METHODS = {"exact": _reference_double_sum, "characteristic": _reference_integral}


# ----- The fast form, in JAX ----------------------------------------------------------


def henze_zirkler_statistic(
    points: Float[Array, "N K"], row_weights: Float[Array, "N"]
) -> Float[Array, ""]:
    """HZ in O(N), differentiable: the integral over characteristic functions.

    The integrand is even, so half the space is enough: the integral takes equispaced
    nodes for one and two dimensions, and a quasi-random sample beyond.
    """
    num_padded, dims = points.shape
    num_rows = jnp.sum(row_weights)
    beta = hz_bandwidth(num_rows, dims)
    share = row_weights / num_rows
    white = whiten(points, row_weights)
    steps = hz_steps(num_padded, dims)
    spacing = HZ_REACH / steps
    nodes, density = _quadrature(dims, steps, spacing)
    if dims == 1:
        parts: Any = ecf_on_line(beta * spacing * white[:, 0], share, steps + 1)
        # The last row of the matrices may go beyond the nodes.
        real, imaginary = (part.ravel()[: steps + 1] for part in parts)
    elif dims == 2:
        parts: Any = ecf_on_half_plane(beta * spacing * white, share, steps)
        real, imaginary = (part.ravel() for part in parts)
    else:
        angles = beta * white @ jnp.asarray(nodes.T, points.dtype)
        real, imaginary = share @ jnp.cos(angles), share @ jnp.sin(angles)
    node_weights = jnp.asarray(density / density.sum(), points.dtype)
    squares = jnp.asarray(np.sum(nodes**2, axis=1), points.dtype)
    gap = (real - jnp.exp(-0.5 * beta**2 * squares)) ** 2 + imaginary**2
    return num_rows * node_weights @ gap


def hz_steps(num_rows: int, dims: int) -> int:
    """Number of equispaced nodes on each side of 0 in the fast form's integral.

    The integral converges exponentially once the nodes resolve the largest frequency:
    the bandwidth times the range of the whitened points.
    """
    expected_range = 20.0  # generous, for heavy tails
    beta = hz_bandwidth(num_rows, dims)
    return max(32, int(np.ceil(HZ_REACH * beta * expected_range / (2 * np.pi))))


def _quadrature(dims: int, steps: int, spacing: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes `[M, K]` in units of beta and their weights `[M]`, not yet normalised."""
    if dims > 2:
        sobol = stats.qmc.Sobol(dims, scramble=True, rng=0).random(2**_SOBOL_LOG2)
        nodes = stats.norm.ppf(np.clip(sobol, 1e-7, 1 - 1e-7))
        return nodes, np.ones(len(nodes))
    if dims == 1:
        nodes = spacing * np.arange(steps + 1)[:, None]
    else:
        first, second = np.meshgrid(
            np.arange(steps + 1), np.arange(-steps, steps + 1), indexing="ij"
        )
        nodes = spacing * np.stack([first.ravel(), second.ravel()], axis=1)
    # Nodes off the axis count twice, for the half of the space that is left out.
    twice = np.where(nodes[:, 0] == 0, 1, 2)
    return nodes, np.prod(stats.norm.pdf(nodes), axis=1) * twice


def henze_zirkler_double_sum(points: Float[Array, "N K"]) -> Float[Array, ""]:
    """HZ by its double sum, O(N^2), to check `henze_zirkler_statistic` against."""
    num_rows, dims = points.shape
    beta2 = hz_bandwidth(num_rows, dims) ** 2
    white = whiten(points, jnp.ones(num_rows, points.dtype))
    squares = jnp.sum(white**2, axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * white @ white.T
    pairs = jnp.sum(jnp.exp(-beta2 / 2 * distances))
    singles = jnp.sum(jnp.exp(-beta2 / (2 * (1 + beta2)) * squares))
    return _closed_form(pairs, singles, beta2, num_rows, dims)
