"""Divergences between the aggregated posterior of z and its prior, in float64.

The aggregated posterior is q(z) = 1/N sum_n N(z; mu_n, sigma_n^2), a mixture with one
component for each row; the prior is p(z) = N(z; 0, prior_std^2 I).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ncai.stats import BLOCK_SIZE, GAUSSIAN_REACH, as_matrix

# Beyond this many densities, Monte Carlo is much faster than quadrature.
_MOST_DENSITIES = 100_000_000
# Components narrower than this, in units of the prior's deviation, count as atoms.
_SMALLEST_STD = 1e-9


class Divergences(NamedTuple):
    """Divergences between the aggregated posterior q and the prior p, in nats.

    Attributes:
        js: Jensen-Shannon divergence, at most log 2.
        kl_q_p: KL(q || p).
        kl_p_q: KL(p || q).
    """

    js: float
    kl_q_p: float
    kl_p_q: float


class _LogRatios(NamedTuple):
    """log q(z) / p(z) at points that stand for q and for p, and weights of the points.

    `weight_q @ f(ratio_q)` is then the mean of f under q, and likewise for p.
    """

    ratio_q: np.ndarray
    ratio_p: np.ndarray
    weight_q: np.ndarray
    weight_p: np.ndarray


def aggregated_posterior_divergences(
    means: ArrayLike,
    stds: ArrayLike,
    prior_std: ArrayLike,
    num_samples: int = 4096,
    seed: int = 0,
) -> Divergences:
    """Divergences between the aggregated posterior and the prior.

    They come from quadrature for K = 1, and from Monte Carlo samples of q and of p for
    K > 1, or where thousands of very narrow components would make quadrature slow. An
    estimate below 0 is raised to 0.

    Rows with sigma_n = 0 (point estimates; less than 1e-9 prior_std counts as 0) are
    atoms, which no density can match: KL(q || p) is then infinite, and the
    Jensen-Shannon divergence takes log 2 for half their share.

    Args:
        means: `[N, K]` means mu_n.
        stds: `[N, K]` standard deviations sigma_n.
        prior_std: standard deviation of the prior, a number or `[K]`.
        num_samples: number of Monte Carlo samples from each of q and p.
        seed: seed of these samples.
    """
    means, stds = _in_prior_units(means, stds, prior_std)
    smooth = np.all(stds > _SMALLEST_STD, axis=1)
    share = float(smooth.mean())
    if share == 0:
        return Divergences(float(np.log(2)), float("inf"), float("inf"))
    means, stds = means[smooth], stds[smooth]

    ratios = _ratios_by_quadrature(means, stds)
    if ratios is None:
        ratios = _ratios_by_monte_carlo(means, stds, num_samples, seed)
    ratio_q, ratio_p = ratios.ratio_q + np.log(share), ratios.ratio_p + np.log(share)
    # log(q / m) with m = (p + q) / 2 is log 2 - log(1 + p / q); the same goes for p.
    js = np.log(2) - 0.5 * (
        share * (ratios.weight_q @ np.logaddexp(0, -ratio_q))
        + ratios.weight_p @ np.logaddexp(0, ratio_p)
    )
    kl_q_p = float(ratios.weight_q @ ratio_q) if share == 1 else float("inf")
    return Divergences(
        js=max(0.0, float(js)),
        kl_q_p=max(0.0, kl_q_p),
        kl_p_q=max(0.0, float(-ratios.weight_p @ ratio_p)),
    )


def _in_prior_units(means, stds, prior_std) -> tuple[np.ndarray, np.ndarray]:
    """Divide means and std by the std of the prior; this keeps the divergences."""
    means, stds = as_matrix(means, "means"), as_matrix(stds, "stds")
    if means.shape != stds.shape or stds.min() < 0:
        raise ValueError(
            f"stds must be non-negative and have the shape {means.shape} of means, got "
            f"shape {stds.shape} and a smallest value of {stds.min():g}."
        )
    prior_std = np.broadcast_to(np.asarray(prior_std, float), means.shape[1])
    if not np.all(prior_std > 0):
        raise ValueError(f"prior_std={prior_std} must be positive.")
    return means / prior_std, stds / prior_std


def _ratios_by_quadrature(means, stds) -> _LogRatios | None:
    """For one latent; None for several, or if it would be slow."""
    if means.shape[1] > 1:
        return None
    nodes, spacing = _quadrature_nodes(means[:, 0], stds[:, 0])
    if len(nodes) * len(means) > _MOST_DENSITIES:
        return None
    ratio = _log_ratio(nodes[:, None], means, stds)
    weight_q = spacing * np.exp(ratio + stats.norm.logpdf(nodes))
    return _LogRatios(ratio, ratio, weight_q, spacing * stats.norm.pdf(nodes))


def _ratios_by_monte_carlo(means, stds, num_samples: int, seed: int) -> _LogRatios:
    rng = np.random.default_rng(seed)
    shape = (num_samples, means.shape[1])
    # Taking every row in turn adds almost no variance from the choice of component.
    rows = np.resize(rng.permutation(len(means)), num_samples)
    from_q = means[rows] + stds[rows] * rng.standard_normal(shape)
    ratio_q = _log_ratio(from_q, means, stds)
    ratio_p = _log_ratio(rng.standard_normal(shape), means, stds)
    weights = np.full(num_samples, 1 / num_samples)
    return _LogRatios(ratio_q, ratio_p, weights, weights)


def _log_ratio(z: np.ndarray, means: np.ndarray, stds: np.ndarray) -> np.ndarray:
    """The log of q(z) / N(z; 0, I) at `[M, K]` points, q being the mixture."""
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
    component that overlaps it: panels are narrow where a component is, and only there.
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
            # Components are sorted by width, so the first hit is the narrowest.
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
