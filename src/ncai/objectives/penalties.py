"""The penalties of NCAI on the latent means (paper, Appendix D).

All take row weights, so that padding and sample weights need no special case: a row of
weight 2 counts as two rows. All are finite, with finite gradients, where the means are
all equal, as they are at the start of NCAI.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import norm, qmc

from ncai.stats.characteristic_function import ecf_on_half_plane, ecf_on_line

TINY = 1e-12
RELATIVE_RIDGE = 1e-5  # ten times what float32 loses in a covariance of many rows
LARGEST_EXPONENT = 8.0
HZ_REACH = 5.5  # standard deviations of the normal that HZ integrates against


def weighted_moments(points: Float[Array, "N K"], row_weights: Float[Array, "N"]):
    """Mean and covariance (divided by N) of the rows."""
    share = row_weights / jnp.sum(row_weights)
    mean = share @ points
    centred = points - mean
    return mean, (share[:, None] * centred).T @ centred


def whiten(points: Float[Array, "N K"], row_weights: Float[Array, "N"]):
    """Points with mean 0 and identity covariance; a ridge guards a singular one.

    Columns are scaled first, so that the ridge is small beside each of them: one latent
    may be far narrower than another.
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


def hz_bandwidth(num_rows, dims: int):
    """Beta of Henze & Zirkler (1990); the paper misprints its exponent."""
    return ((2 * dims + 1) * num_rows / 4) ** (1 / (dims + 4)) / 2**0.5


def hz_steps(num_rows: int, dims: int) -> int:
    """Equispaced nodes on each side of 0 that the integral of `henze_zirkler` takes.

    They converge exponentially once the step resolves the largest frequency: the
    bandwidth times the range of the whitened points.
    """
    expected_range = 20.0  # generous, for heavy tails
    beta = hz_bandwidth(num_rows, dims)
    return max(32, int(np.ceil(HZ_REACH * beta * expected_range / (2 * np.pi))))


def henze_zirkler(
    points: Float[Array, "N K"], row_weights: Float[Array, "N"]
) -> Float[Array, ""]:
    """The Henze-Zirkler statistic in O(N) (paper, Eq. in Appendix D.2).

    The double sum equals N times the integral over t ~ N(0, beta^2 I) of
    |ecf(t) - exp(-t't/2)|^2, with ecf the empirical characteristic function of the
    whitened points. The integrand is even, so half the space is enough: equispaced
    nodes for one and two dimensions, a quasi-random sample beyond.
    """
    num_padded, dims = points.shape
    num_rows = jnp.sum(row_weights)
    beta = hz_bandwidth(num_rows, dims)
    share = row_weights / num_rows
    white = whiten(points, row_weights)
    steps = hz_steps(num_padded, dims)
    spacing = HZ_REACH / steps
    if dims == 1:
        nodes = spacing * np.arange(steps + 1)[:, None]
        parts: Any = ecf_on_line(beta * spacing * white[:, 0], share, steps + 1)
        # The last row of the matrices may go beyond the nodes.
        real, imaginary = (part.ravel()[: steps + 1] for part in parts)
    elif dims == 2:
        first, second = np.meshgrid(
            np.arange(steps + 1), np.arange(-steps, steps + 1), indexing="ij"
        )
        nodes = spacing * np.stack([first.ravel(), second.ravel()], axis=1)
        parts: Any = ecf_on_half_plane(beta * spacing * white, share, steps)
        real, imaginary = (part.ravel() for part in parts)
    else:
        sobol = qmc.Sobol(dims, scramble=True, rng=0).random(2048)
        nodes = norm.ppf(np.clip(sobol, 1e-7, 1 - 1e-7))
        angles = beta * white @ jnp.asarray(nodes.T, points.dtype)
        real, imaginary = share @ jnp.cos(angles), share @ jnp.sin(angles)
    if dims <= 2:
        # What is left out, the other half, is counted twice.
        density = np.prod(norm.pdf(nodes), axis=1) * np.where(nodes[:, 0] == 0, 1, 2)
    else:
        density = np.ones(len(nodes))
    node_weights = jnp.asarray(density / density.sum(), points.dtype)
    squares = jnp.asarray(np.sum(nodes**2, axis=1), points.dtype)
    gap = (real - jnp.exp(-0.5 * beta**2 * squares)) ** 2 + imaginary**2
    return num_rows * node_weights @ gap


def henze_zirkler_double_sum(points: Float[Array, "N K"]) -> Float[Array, ""]:
    """The statistic by its definition, O(N^2): the reference for `henze_zirkler`."""
    num_rows, dims = points.shape
    beta2 = hz_bandwidth(num_rows, dims) ** 2
    white = whiten(points, jnp.ones(num_rows, points.dtype))
    squares = jnp.sum(white**2, axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * white @ white.T
    pairs = jnp.sum(jnp.exp(-beta2 / 2 * distances)) / num_rows
    singles = jnp.sum(jnp.exp(-beta2 / (2 * (1 + beta2)) * squares))
    return (
        pairs
        - 2 * (1 + beta2) ** (-dims / 2) * singles
        + num_rows * (1 + 2 * beta2) ** (-dims / 2)
    )


def hz_expected(num_rows, dims: int):
    """Mean of the statistic for a Gaussian sample (Henze & Zirkler 1990, Thm 2.2)."""
    beta2 = hz_bandwidth(num_rows, dims) ** 2
    a = 1 + 2 * beta2
    return 1 - a ** (-dims / 2) * (
        1 + dims * beta2 / a + dims * (dims + 2) * beta2**2 / (2 * a**2)
    )


def squared_correlation(
    a: Float[Array, "N D"], b: Float[Array, "N K"], row_weights: Float[Array, "N"]
) -> Float[Array, ""]:
    """PC: the mean squared Pearson correlation over all pairs of columns.

    Zero where a column is constant.
    """
    share = row_weights / jnp.sum(row_weights)
    a = a - share @ a
    b = b - share @ b
    covariance = (share[:, None] * a).T @ b
    variances = jnp.outer(share @ a**2, share @ b**2)
    return jnp.mean(covariance**2 / (variances + TINY))


def offdiagonal_norm(
    points: Float[Array, "N K"], row_weights: Float[Array, "N"]
) -> Float[Array, ""]:
    """l2 norm of the off-diagonal part of the covariance; 0 for one dimension."""
    _, covariance = weighted_moments(points, row_weights)
    off = covariance - jnp.diag(jnp.diag(covariance))
    return jnp.sqrt(jnp.sum(off**2) + TINY) - TINY**0.5


def smooth_exponential(value: Float[Array, ""]) -> Float[Array, ""]:
    """exp(value), continued by its tangent past a cap: never inf, slope never lost."""
    capped = jnp.minimum(value, LARGEST_EXPONENT)
    return jnp.exp(capped) * (1.0 + value - capped)


def statistics_of(
    latents: Float[Array, "N K"],
    inputs: Float[Array, "N D"],
    targets: Float[Array, "N L"],
    row_weights: Float[Array, "N"],
) -> dict[str, Float[Array, ""]]:
    """What is penalised or constrained, by name."""
    return {
        "hz": henze_zirkler(latents, row_weights),
        "offdiagonal": offdiagonal_norm(latents, row_weights),
        "pc_inputs": squared_correlation(inputs, latents, row_weights),
        "pc_targets": squared_correlation(targets, latents, row_weights),
    }


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "hz_weight",
        "offdiagonal_weight",
        "dependence_weight",
        "hz_tolerance",
        "input_tolerance",
        "target_tolerance",
    ],
    meta_fields=["on"],
)
@dataclass(frozen=True)
class Penalties:
    """Weights and tolerances of the NCAI objective (paper, Eq. 16).

    Args:
        hz_weight: lambda_1, on the distance of z from a Gaussian. 0 switches it off.
        offdiagonal_weight: lambda_2, on correlations between dimensions of z.
        dependence_weight: lambda_3, on the dependence of z on x and y.
        hz_tolerance: eps_T. The exponent is HZ / (N eps_T).
        input_tolerance: eps_x; `inf` switches the factor of x off.
        target_tolerance: eps_y; `inf` switches the factor of y off.
        on: "means" as in the paper, or "samples" of the aggregated posterior, whose
            distribution (unlike the means') is Gaussian under exact inference.
    """

    hz_weight: float | Float[Array, ""] = 1.0
    offdiagonal_weight: float | Float[Array, ""] = 10.0
    dependence_weight: float | Float[Array, ""] = 1.0
    hz_tolerance: float | Float[Array, ""] = 0.01
    input_tolerance: float | Float[Array, ""] = 0.5
    target_tolerance: float | Float[Array, ""] = 1.0
    on: str = "means"

    def values(
        self,
        latents: Float[Array, "N K"],
        inputs: Float[Array, "N D"],
        targets: Float[Array, "N L"],
        row_weights: Float[Array, "N"],
    ) -> dict[str, Float[Array, ""]]:
        """The unweighted statistics, by name."""
        return statistics_of(latents, inputs, targets, row_weights)

    def total(
        self, values: dict[str, Float[Array, ""]], num_rows: Float[Array, ""]
    ) -> Float[Array, ""]:
        """The weighted penalty, in nats: everything in Eq. 16 but the ELBO."""
        gaussian = smooth_exponential(values["hz"] / (num_rows * self.hz_tolerance))
        dependence = smooth_exponential(
            values["pc_inputs"] / self.input_tolerance
            + values["pc_targets"] / self.target_tolerance
        )
        return num_rows * (
            self.hz_weight * gaussian
            + self.offdiagonal_weight * values["offdiagonal"]
            + self.dependence_weight * dependence
        )
