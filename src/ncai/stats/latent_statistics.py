"""Statistics of latents: correlations, and how like their prior they are in all.

The reference versions, in float64: what training penalises is a faster approximation of
some of these. `points`, `means` and the like are `[N, K]`; `[N]` is read as one column.
Normality is in `normality.py`, mutual information in `neighbours.py`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ncai.stats.points import BLOCK_SIZE, GAUSSIAN_REACH, as_matrix, standardise

# Quadrature of more than this many densities is slower than Monte Carlo is inaccurate.
_MOST_DENSITIES = 100_000_000


def pearson_penalty_value(a: ArrayLike, b: ArrayLike) -> float:
    """Mean of the squared Pearson correlations over all D x K pairs of columns.

    The paper's PC, read as a mean of squares (all values it reports are positive and at
    the chance level 1/N of squares). A constant column correlates with nothing.

    Example:
        >>> round(pearson_penalty_value([0.0, 1.0, 2.0], [4.0, 2.0, 0.0]), 6)
        1.0
    """
    a, b = standardise(as_matrix(a, "a")), standardise(as_matrix(b, "b"))
    return float(np.mean((a.T @ b / len(a)) ** 2))


def offdiag_covariance_norm(means: ArrayLike) -> float:
    """Frobenius norm of the off-diagonal part of the covariance (divided by N)."""
    means = as_matrix(means, "means")
    centred = means - means.mean(axis=0)
    covariance = centred.T @ centred / len(means)
    return float(np.linalg.norm(covariance - np.diag(np.diag(covariance))))


class Divergences(NamedTuple):
    """Divergences of the aggregated posterior q and the prior p, in nats.

    Attributes:
        js: Jensen-Shannon divergence, at most log 2.
        kl_q_p: KL(q || p).
        kl_p_q: KL(p || q).
    """

    js: float
    kl_q_p: float
    kl_p_q: float


def aggregated_posterior_divergences(
    means: ArrayLike,
    stds: ArrayLike,
    prior_std: ArrayLike,
    num_samples: int = 4096,
    seed: int = 0,
) -> Divergences:
    """Divergences between the aggregated posterior and the prior.

    q(z) = 1/N sum_n N(z; mu_n, sigma_n^2) against p(z) = N(z; 0, prior_std^2 I).

    By quadrature for K = 1, and by Monte Carlo over samples of q and of p for K > 1 or
    where thousands of very narrow components would make quadrature slow. An estimate
    below 0 is raised to 0. Rows with sigma_n = 0 (point estimates; less than 1e-9
    prior_std counts as 0) are atoms that no density can match: KL(q || p) is then
    infinite, and the Jensen-Shannon divergence takes log 2 for half their share.

    Args:
        means: `[N, K]` means mu_n.
        stds: `[N, K]` deviations sigma_n.
        prior_std: deviation of the prior, a number or `[K]`.
        num_samples: Monte Carlo samples from each of q and p.
        seed: of these samples.
    """
    means, stds = as_matrix(means, "means"), as_matrix(stds, "stds")
    if means.shape != stds.shape or stds.min() < 0:
        raise ValueError(
            f"stds of shape {stds.shape} must be non-negative and of the shape "
            f"{means.shape} of means."
        )
    prior_std = np.broadcast_to(np.asarray(prior_std, float), means.shape[1])
    if not np.all(prior_std > 0):
        raise ValueError(f"prior_std={prior_std} must be positive.")
    means, stds = means / prior_std, stds / prior_std  # divergences know no scale

    smooth = np.all(stds > 1e-9, axis=1)
    share = float(smooth.mean())
    if share == 0:
        return Divergences(float(np.log(2)), float("inf"), float("inf"))
    means, stds = means[smooth], stds[smooth]

    quadrature = means.shape[1] == 1
    if quadrature:
        nodes, spacing = _quadrature_nodes(means[:, 0], stds[:, 0])
        quadrature = len(nodes) * len(means) <= _MOST_DENSITIES
    if quadrature:
        ratio_q = ratio_p = _log_ratio(nodes[:, None], means, stds)
        weight_p = spacing * stats.norm.pdf(nodes)
        weight_q = spacing * np.exp(ratio_q + stats.norm.logpdf(nodes))
    else:
        rng = np.random.default_rng(seed)
        shape = (num_samples, means.shape[1])
        # Every row in turn: the choice of the component adds almost no scatter.
        rows = np.resize(rng.permutation(len(means)), num_samples)
        from_q = means[rows] + stds[rows] * rng.standard_normal(shape)
        ratio_q = _log_ratio(from_q, means, stds)
        ratio_p = _log_ratio(rng.standard_normal(shape), means, stds)
        weight_q = weight_p = np.full(num_samples, 1 / num_samples)

    ratio_q, ratio_p = ratio_q + np.log(share), ratio_p + np.log(share)
    # log(q / m) with m = (p + q) / 2 is log 2 - log(1 + p / q), and so for p.
    js = np.log(2) - 0.5 * (
        share * (weight_q @ np.logaddexp(0, -ratio_q))
        + weight_p @ np.logaddexp(0, ratio_p)
    )
    return Divergences(
        js=max(0.0, float(js)),
        kl_q_p=max(0.0, float(weight_q @ ratio_q)) if share == 1 else float("inf"),
        kl_p_q=max(0.0, float(-weight_p @ ratio_p)),
    )


def _log_ratio(z: np.ndarray, means: np.ndarray, stds: np.ndarray) -> np.ndarray:
    """The log of q(z) / N(z; 0, I) at `[M, K]` points, q the mixture of all rows."""
    log_q = np.empty(len(z))
    log_scale = np.log(stds).sum(axis=1)
    block = max(1, BLOCK_SIZE // len(means))
    for start in range(0, len(z), block):
        part = slice(start, start + block)
        logits = -np.broadcast_to(log_scale, (len(z[part]), len(means)))
        for value, mean, std in zip(z[part].T, means.T, stds.T, strict=True):
            logits = logits - ((value[:, None] - mean) / std) ** 2 / 2
        top = logits.max(axis=1)
        log_q[part] = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
    return log_q - np.log(len(means)) + np.sum(z**2, axis=1) / 2


def _quadrature_nodes(
    means: np.ndarray, stds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights that resolve a one-dimensional mixture and N(0, 1).

    Gauss-Legendre rules on panels, each at most twice as wide as the narrowest
    component that reaches it: narrow ones are met wherever they are, at no cost
    elsewhere.
    """
    centres, widths = np.append(means, 0.0), np.append(stds, 1.0)
    by_width = np.argsort(widths)
    centres, widths = centres[by_width], widths[by_width]
    lower, upper = (
        centres - GAUSSIAN_REACH * widths,
        centres + GAUSSIAN_REACH * widths,
    )
    edges = np.linspace(lower.min(), upper.max(), 257)
    open_panels, panels = np.stack([edges[:-1], edges[1:]]), []
    while open_panels.size:
        left, right = open_panels
        narrowest = np.empty(len(left))
        block = max(1, BLOCK_SIZE // len(widths))
        for start in range(0, len(left), block):
            part = slice(start, start + block)
            reached = (left[part, None] < upper) & (right[part, None] > lower)
            # The first hit, as components are sorted by width.
            narrowest[part] = np.where(
                reached.any(axis=1), widths[reached.argmax(axis=1)], np.inf
            )
        wide = right - left > 2 * narrowest
        panels.append(open_panels[:, ~wide])
        left, right = left[wide], right[wide]
        middle = (left + right) / 2
        open_panels = np.hstack([np.stack([left, middle]), np.stack([middle, right])])
    left, right = np.hstack(panels)
    node, weight = np.polynomial.legendre.leggauss(8)
    half = (right - left)[:, None] / 2
    return (left[:, None] + half * (1 + node)).ravel(), (half * weight).ravel()
