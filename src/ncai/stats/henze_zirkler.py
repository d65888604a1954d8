"""Are points Gaussian? The statistic of Henze and Zirkler, by its reference formulas.

In float64; what training penalises is the faster form of `characteristic.py`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.spatial.distance import cdist

from ncai.stats.points import BLOCK_SIZE, GAUSSIAN_REACH, as_matrix, as_row_weights

# Quasi-random nodes for HZ in three and more dimensions: 2 to this power.
_SOBOL_LOG2 = 11


class HZResult(NamedTuple):
    """Outcome of the Henze-Zirkler test.

    Attributes:
        statistic: HZ, in the scaling that has a limit law as N grows (so not HZ / N).
        p_value: chance of a larger one for Gaussian points (log-normal approximation).
        expected: its mean for Gaussian points of this number and dimension.
        singular: the points do not span their space, where HZ is 4 N by definition.
    """

    statistic: float
    p_value: float
    expected: float
    singular: bool


def henze_zirkler(
    points: ArrayLike, weights: ArrayLike | None = None, method: str = "auto"
) -> HZResult:
    """Henze-Zirkler statistic for multivariate normality, whatever mean and covariance.

    HZ = N * integral |ecf(t) - exp(-t't / 2)|^2 N(t; 0, beta^2 I) dt, with ecf the
    empirical characteristic function of the whitened points. Carried out, the integral
    is the double sum that the paper prints (section on D[q(z) || p(z)]), here with the
    bandwidth of Henze and Zirkler (1990), beta = ((2K + 1) N / 4)^(1/(K + 4)) / sqrt(2)
    (the exponent in the paper is a misprint).

    Args:
        points: `[N, K]` points.
        weights: `[N]` non-negative numbers: how often each row counts. N is their sum.
        method: "exact" for the double sum, O(N^2) time and O(N) memory;
            "characteristic" for the integral: trapezoid nodes for K <= 2, as accurate
            as the sum, and 2048 quasi-random nodes for K >= 3, good to about 2 %;
            "auto" for the sum until the integral is cheaper (5,000 rows, 20,000 for
            K >= 3).

    Example:
        >>> round(henze_zirkler([[-1.0], [0.0], [1.0]]).statistic, 4)
        0.0197
    """
    points = as_matrix(points, "points")
    counts = as_row_weights(weights, len(points))
    points, counts = points[counts > 0], counts[counts > 0]
    num_points, dim = counts.sum(), points.shape[1]

    whitened = _whiten(points, counts)
    if whitened is None:
        statistic = 4 * num_points
    else:
        limit = 5_000 if dim <= 2 else 20_000
        if method == "auto":
            method = "exact" if len(points) <= limit else "characteristic"
        if method not in _HZ_METHODS:
            raise ValueError(
                f"method={method!r} is not known; choose one of "
                f"{['auto', *_HZ_METHODS]}."
            )
        beta = _hz_bandwidth(num_points, dim)
        statistic = _HZ_METHODS[method](whitened, counts, beta)
    return HZResult(
        float(statistic),
        float(_hz_null(num_points, dim).sf(statistic)),
        float(_hz_null_moments(num_points, dim)[0]),
        whitened is None,
    )


def henze_zirkler_quantile(level: float, num_points: float, dim: int) -> float:
    """The value that HZ of Gaussian noise stays below with probability `level`."""
    return float(_hz_null(num_points, dim).ppf(level))


def _whiten(points: np.ndarray, counts: np.ndarray) -> np.ndarray | None:
    """Points with mean 0 and covariance I (divided by N), or None if singular."""
    num_points = counts.sum()
    centred = points - counts @ points / num_points
    std = np.sqrt(counts @ centred**2 / num_points)
    # The mean of equal numbers can be off by rounding, so that std is not quite 0.
    rounding = 8 * np.finfo(float).eps * np.abs(points).max(axis=0)
    if np.any(std <= rounding):
        return None
    # Through the correlation matrix: units must not decide what counts as singular.
    scaled = centred / std
    eigenvalues, vectors = np.linalg.eigh((scaled.T * counts) @ scaled / num_points)
    if eigenvalues[0] <= 1e-12:
        return None
    return scaled @ (vectors / np.sqrt(eigenvalues))


def _hz_bandwidth(num_points: float, dim: int) -> float:
    return ((2 * dim + 1) * num_points / 4) ** (1 / (dim + 4)) / np.sqrt(2)


def _hz_double_sum(whitened: np.ndarray, counts: np.ndarray, beta: float) -> float:
    num_points, dim = counts.sum(), whitened.shape[1]
    pairs = 0.0
    block = max(1, min(512, BLOCK_SIZE // len(whitened)))
    for start in range(0, len(whitened), block):
        stop = start + block
        kernel = np.exp(
            -(beta**2)
            / 2
            * cdist(whitened[start:stop], whitened[start:], "sqeuclidean")
        )
        here = counts[start:stop]
        # A pair of two blocks is met once but counts twice.
        pairs += here @ kernel[:, :block] @ here
        pairs += 2 * (here @ kernel[:, block:] @ counts[stop:])
    from_mean = np.exp(-(beta**2) / (2 * (1 + beta**2)) * np.sum(whitened**2, axis=1))
    return (
        pairs / num_points
        - 2 * (1 + beta**2) ** (-dim / 2) * (counts @ from_mean)
        + num_points * (1 + 2 * beta**2) ** (-dim / 2)
    )


def _hz_characteristic(whitened: np.ndarray, counts: np.ndarray, beta: float) -> float:
    if whitened.shape[1] <= 2:
        ecf, squared_norm, node_weights = _ecf_on_grid(whitened, counts, beta)
    else:
        sobol = stats.qmc.Sobol(whitened.shape[1], rng=np.random.default_rng(0))
        nodes = beta * stats.norm.ppf(sobol.random_base2(_SOBOL_LOG2))
        ecf = _ecf_at(whitened, counts, nodes)
        squared_norm, node_weights = np.sum(nodes**2, axis=1), 1 / len(nodes)
    gap = np.abs(ecf - np.exp(-squared_norm / 2)) ** 2
    return counts.sum() * np.sum(node_weights * gap)


def _ecf_on_grid(whitened: np.ndarray, counts: np.ndarray, beta: float):
    """Empirical characteristic function on a grid, for one or two columns.

    exp(i(s a + t b)) is a product, so that a grid of two axes is one matrix product.
    The first axis has its half s >= 0 only: |ecf - ...| is the same at -s, -t.

    Returns:
        The function, the squared norms of the nodes and the weights of a mean over
        N(0, beta^2 I).
    """
    steps, sizes = zip(
        *(_trapezoid_grid(column, beta) for column in whitened.T), strict=True
    )
    first = steps[0] * np.arange(sizes[0])
    second = np.zeros(1)
    if len(steps) == 2:
        second = steps[1] * np.arange(1 - sizes[1], sizes[1])

    ecf = np.zeros((len(first), len(second)), complex)
    block = max(1, BLOCK_SIZE // (len(first) + len(second)))
    for start in range(0, len(whitened), block):
        part = slice(start, start + block)
        waves = [
            _waves(step * column[part], size)
            for step, column, size in zip(steps, whitened.T, sizes, strict=True)
        ]
        across = np.ones((len(waves[0]), 1))
        if len(waves) == 2:
            across = np.hstack([waves[1][:, :0:-1].conj(), waves[1]])
        ecf += (waves[0].T * counts[part]) @ across

    weights = 2 * steps[0] * stats.norm.pdf(first, scale=beta)
    weights[0] /= 2
    if len(steps) == 2:
        weights = np.outer(weights, steps[1] * stats.norm.pdf(second, scale=beta))
    else:
        weights = weights[:, None]
    return ecf / counts.sum(), np.add.outer(first**2, second**2), weights


def _trapezoid_grid(column: np.ndarray, beta: float) -> tuple[float, int]:
    """Step and number of nodes t = 0, h, 2h, ... for a mean over t ~ N(0, beta^2).

    On equispaced nodes of step h a Gaussian integral of exp(i t d) is wrong only by its
    copies at d + 2 pi m / h. The period 2 pi / h is taken so long that no copy reaches
    any distance d in use, in none of the three terms of the squared modulus.
    """
    period = max(
        np.ptp(column) + GAUSSIAN_REACH / beta,
        np.abs(column).max() + GAUSSIAN_REACH * np.sqrt(1 + beta**-2),
        GAUSSIAN_REACH * np.sqrt(2 + beta**-2),
    )
    step = 2 * np.pi / period
    return step, 1 + int(np.ceil(GAUSSIAN_REACH * beta / step))


def _waves(phases: np.ndarray, size: int) -> np.ndarray:
    """exp(i j phase) for j below `size`: doubling is far cheaper than `size` exps."""
    waves = np.ones((len(phases), 1), complex)
    while waves.shape[1] < size:
        shift = np.exp(1j * waves.shape[1] * phases)
        waves = np.hstack([waves, waves * shift[:, None]])
    return waves[:, :size]


def _ecf_at(whitened: np.ndarray, counts: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Empirical characteristic function at scattered nodes `[M, K]`."""
    ecf = np.zeros(len(nodes), complex)
    block = max(1, BLOCK_SIZE // len(nodes))
    for start in range(0, len(whitened), block):
        part = slice(start, start + block)
        angle = whitened[part] @ nodes.T
        ecf += counts[part] @ np.cos(angle) + 1j * (counts[part] @ np.sin(angle))
    return ecf / counts.sum()


_HZ_METHODS = {"exact": _hz_double_sum, "characteristic": _hz_characteristic}


def _hz_null_moments(num_points: float, dim: int) -> tuple[float, float]:
    """Mean and variance of HZ for Gaussian points (Henze and Zirkler, 1990)."""
    b2 = _hz_bandwidth(num_points, dim) ** 2
    a, w = 1 + 2 * b2, (1 + b2) * (1 + 3 * b2)
    p, p2 = dim, dim * (dim + 2)
    mean = 1 - a ** (-p / 2) * (1 + p * b2 / a + p2 * b2**2 / (2 * a**2))
    variance = (
        2 * (1 + 4 * b2) ** (-p / 2)
        + 2 * a**-p * (1 + 2 * p * b2**2 / a**2 + 3 * p2 * b2**4 / (4 * a**4))
        - 4 * w ** (-p / 2) * (1 + 3 * p * b2**2 / (2 * w) + p2 * b2**4 / (2 * w**2))
    )
    return mean, variance


def _hz_null(num_points: float, dim: int):
    """The log-normal law that has the mean and the variance of HZ."""
    mean, variance = _hz_null_moments(num_points, dim)
    log_variance = np.log1p(variance / mean**2)
    return stats.lognorm(np.sqrt(log_variance), scale=mean * np.exp(-log_variance / 2))
