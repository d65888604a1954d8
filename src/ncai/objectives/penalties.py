"""The penalties of NCAI on the latent means (paper, Appendix D).

All take row weights, so that padding and sample weights need no special case: a row of
weight 2 counts as two rows. All are finite, with finite gradients, where the means are
all equal, as they are at the start of NCAI.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import norm, qmc

TINY = 1e-12
RELATIVE_RIDGE = 1e-5  # ten times what float32 loses in a covariance of many rows
LARGEST_EXPONENT = 8.0


def weighted_moments(points: Float[Array, "N K"], row_weights: Float[Array, "N"]):
    """Mean and covariance (divided by N) of the rows."""
    share = row_weights / jnp.sum(row_weights)
    mean = share @ points
    centred = points - mean
    return mean, (share[:, None] * centred).T @ centred


def whiten(points: Float[Array, "N K"], row_weights: Float[Array, "N"]):
    """Points with mean 0 and identity covariance; a ridge guards a singular one."""
    mean, covariance = weighted_moments(points, row_weights)
    dims = points.shape[1]
    centred = points - mean
    if dims == 1:
        return centred / jnp.sqrt(covariance[0, 0] + TINY)
    ridge = RELATIVE_RIDGE * jnp.trace(covariance) / dims + TINY
    factor = jnp.linalg.cholesky(covariance + ridge * jnp.eye(dims))
    return jax.scipy.linalg.solve_triangular(factor, centred.T, lower=True).T


def hz_bandwidth(num_rows, dims: int):
    """Beta of Henze & Zirkler (1990); the paper misprints its exponent."""
    return ((2 * dims + 1) * num_rows / 4) ** (1 / (dims + 4)) / 2**0.5


def hz_nodes(num_rows: int, dims: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes t / beta and weights for integrals against N(0, I), over half the space.

    The integrand is even, so one half with doubled weights is enough. For one and two
    dimensions equispaced nodes converge exponentially; the step follows from the
    largest frequency, beta times the range of the whitened points. Beyond that, a
    quasi-random sample of the normal.
    """
    reach = 5.5
    expected_range = 20.0  # of whitened points: generous for heavy tails
    beta = hz_bandwidth(num_rows, dims)
    steps = max(32, int(np.ceil(reach * beta * expected_range / (2 * np.pi))))
    if dims == 1:
        nodes = np.linspace(0, reach, steps + 1)
        weights = 2 * norm.pdf(nodes) * (nodes[1] - nodes[0])
        weights[0] /= 2
        nodes = nodes[:, None]
    elif dims == 2:
        axis = np.linspace(-reach, reach, 2 * steps + 1)
        first, second = np.meshgrid(axis[steps:], axis, indexing="ij")
        nodes = np.stack([first.ravel(), second.ravel()], axis=1)
        weights = np.prod(norm.pdf(nodes), axis=1) * (axis[1] - axis[0]) ** 2
        weights *= np.where(nodes[:, 0] == 0, 1.0, 2.0)
        keep = weights > 1e-9 * weights.max()
        nodes, weights = nodes[keep], weights[keep]
    else:
        sobol = qmc.Sobol(dims, scramble=True, rng=0).random(2048)
        nodes = norm.ppf(np.clip(sobol, 1e-7, 1 - 1e-7))
        weights = np.full(len(nodes), 1 / len(nodes))
    weights /= weights.sum()
    return nodes.astype(np.float64), weights.astype(np.float64)


def henze_zirkler(
    points: Float[Array, "N K"], row_weights: Float[Array, "N"]
) -> Float[Array, ""]:
    """The Henze-Zirkler statistic in O(N) (paper, Eq. in Appendix D.2).

    The double sum equals N times the integral over t ~ N(0, beta^2 I) of
    |ecf(t) - exp(-t't/2)|^2, with ecf the empirical characteristic function of the
    whitened points; the integral is a fixed quadrature.
    """
    num_padded, dims = points.shape
    nodes, node_weights = hz_nodes(num_padded, dims)
    num_rows = jnp.sum(row_weights)
    frequencies = hz_bandwidth(num_rows, dims) * jnp.asarray(nodes, points.dtype)
    angles = whiten(points, row_weights) @ frequencies.T
    share = row_weights / num_rows
    real = share @ jnp.cos(angles)
    imaginary = share @ jnp.sin(angles)
    gaussian = jnp.exp(-0.5 * jnp.sum(frequencies**2, axis=1))
    gap = (real - gaussian) ** 2 + imaginary**2
    return num_rows * jnp.asarray(node_weights, points.dtype) @ gap


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
    meta_fields=["on", "slack"],
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
        slack: "none" as in the paper, or "white_noise": only HZ above its expected
            value for a Gaussian sample of this size is penalised.
    """

    hz_weight: float | Float[Array, ""] = 1.0
    offdiagonal_weight: float | Float[Array, ""] = 10.0
    dependence_weight: float | Float[Array, ""] = 1.0
    hz_tolerance: float | Float[Array, ""] = 0.01
    input_tolerance: float | Float[Array, ""] = 0.5
    target_tolerance: float | Float[Array, ""] = 1.0
    on: str = "means"
    slack: str = "none"

    def values(
        self,
        latents: Float[Array, "N K"],
        inputs: Float[Array, "N D"],
        targets: Float[Array, "N L"],
        row_weights: Float[Array, "N"],
    ) -> dict[str, Float[Array, ""]]:
        """The unweighted statistics, by name."""
        return {
            "hz": henze_zirkler(latents, row_weights),
            "offdiagonal": offdiagonal_norm(latents, row_weights),
            "pc_inputs": squared_correlation(inputs, latents, row_weights),
            "pc_targets": squared_correlation(targets, latents, row_weights),
        }

    def total(
        self, values: dict[str, Float[Array, ""]], num_rows: Float[Array, ""], dims: int
    ) -> Float[Array, ""]:
        """The weighted penalty, in nats: everything in Eq. 16 but the ELBO."""
        hz = values["hz"]
        if self.slack == "white_noise":
            hz = jax.nn.relu(hz - hz_expected(num_rows, dims))
        gaussian = smooth_exponential(hz / (num_rows * self.hz_tolerance))
        dependence = smooth_exponential(
            values["pc_inputs"] / self.input_tolerance
            + values["pc_targets"] / self.target_tolerance
        )
        return num_rows * (
            self.hz_weight * gaussian
            + self.offdiagonal_weight * values["offdiagonal"]
            + self.dependence_weight * dependence
        )
