"""Scores of predictions, and Kolmogorov-Smirnov tests of PIT values and latents.

All functions take plain arrays and return floats. Targets are `[N]`, or `[N, L]` for L
outputs. A score is the mean over rows and outputs, so that numbers stay comparable for
any L.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import ndtr

# The largest temporary array of the pairwise formula, as a count of numbers.
_BLOCK_SIZE = 2_000_000


class KSResult(NamedTuple):
    """A Kolmogorov-Smirnov distance and its p-value."""

    statistic: float
    p_value: float


def average_log_likelihood(
    log_prob: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """Mean over rows of log p(y_n | x_n), the paper's test log-likelihood.

    Args:
        log_prob: `[N]` log predictive densities, joint over the outputs of a row.
        sample_weight: `[N]` weights of the rows; equal if not given.
    """
    log_prob = np.asarray(log_prob, float)
    if log_prob.ndim != 1:
        raise ValueError(
            f"log_prob has shape {log_prob.shape}; give one joint log density per row."
        )
    return _average(log_prob, sample_weight)


def mse(y: ArrayLike, mean: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
    """Mean squared error over all rows and outputs.

    The paper sums the outputs of a row (eq. for the predictive MSE); that is L times
    this value.

    Args:
        y: `[N]` or `[N, L]` observed targets.
        mean: predictions of the same shape.
        sample_weight: `[N]` weights of the rows; equal if not given.
    """
    y, mean = _same_shape(y=y, mean=mean)
    return _average((y - mean) ** 2, sample_weight)


def rmse(
    y: ArrayLike, mean: ArrayLike, sample_weight: ArrayLike | None = None
) -> float:
    """Root of `mse`: one root of the mean over all rows and outputs.

    Example:
        >>> rmse([0.0, 0.0], [3.0, -3.0])
        3.0
    """
    return float(np.sqrt(mse(y, mean, sample_weight)))


def picp(
    y: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Prediction interval coverage: the fraction of targets in [lower, upper].

    This is a fraction in [0, 1]; the paper prints percentages. Each output counts by
    itself: it is the coverage of L intervals, not of their joint box.
    """
    y, lower, upper = _same_shape(y=y, lower=lower, upper=upper)
    return _average((lower <= y) & (y <= upper), sample_weight)


def mpiw(lower: ArrayLike, upper: ArrayLike) -> float:
    """Mean prediction interval width, in the units of the targets."""
    lower, upper = _same_shape(lower=lower, upper=upper)
    return _average(upper - lower)


def interval_score(
    y: ArrayLike, lower: ArrayLike, upper: ArrayLike, level: float = 0.95
) -> float:
    """Interval score: width, plus 2/(1 - level) times the distance of missed targets.

    It is a proper score for the central interval of this level and balances coverage
    against width (Gneiting and Raftery, 2007, eq. 43); smaller is better.
    """
    if not 0 < level < 1:
        raise ValueError(f"level={level} must lie between 0 and 1.")
    y, lower, upper = _same_shape(y=y, lower=lower, upper=upper)
    missed = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    return _average(upper - lower + 2 / (1 - level) * missed)


def crps_from_samples(samples: ArrayLike, y: ArrayLike) -> float:
    """Mean CRPS of the empirical distribution of samples (the energy form).

    E|X - y| - E|X - X'| / 2, where the means run over all S samples and all S^2 pairs,
    including each sample with itself. This is the exact CRPS of the step function that
    the samples define. It is a little above the CRPS of the distribution that they come
    from.

    Args:
        samples: `[S, N]` or `[S, N, L]` predictive draws.
        y: `[N]` or `[N, L]` targets.

    Example:
        >>> crps_from_samples([[0.0], [2.0]], [1.0])
        0.5
    """
    samples, y = np.asarray(samples, float), np.asarray(y, float)
    if samples.ndim < 1 or samples.shape[1:] != y.shape or not len(samples):
        raise ValueError(
            f"samples has shape {samples.shape}; it must have a leading axis of draws, "
            f"followed by the shape {y.shape} of y."
        )
    errors = np.sort(samples - y, axis=0)
    num_samples = len(errors)
    # In sorted order, value number i (from 0) is the larger of i pairs and the smaller
    # of S - 1 - i pairs. So a sort is enough to sum over all pairs.
    signed_count = 2 * np.arange(num_samples) - num_samples + 1
    half_spread = np.tensordot(signed_count, errors, axes=1) / num_samples**2
    return _average(np.abs(errors).mean(axis=0) - half_spread)


def crps_gaussian_mixture(
    means: ArrayLike, stds: ArrayLike, weights: ArrayLike | None, y: ArrayLike
) -> float:
    """Mean CRPS of Gaussian mixtures in closed form (Grimit et al., 2006).

    sum_i w_i A(y - m_i, s_i^2) - sum_ij w_i w_j A(m_i - m_j, s_i^2 + s_j^2) / 2, where
    A(m, s^2) = E|N(m, s^2)|. It sums over all C^2 pairs: a reference for cheaper forms.

    Args:
        means: `[N, C]` component means, or `[N, L, C]` for L outputs.
        stds: component standard deviations, broadcast to the shape of `means`.
        weights: component weights, broadcast likewise; None for equal ones.
        y: `[N]` or `[N, L]` targets.
    """
    means, y = np.asarray(means, float), np.asarray(y, float)
    if means.shape[:-1] != y.shape:
        raise ValueError(
            f"means has shape {means.shape}; it must have the shape {y.shape} of y, "
            "followed by a last axis of components."
        )
    num_components = means.shape[-1]
    rows = (-1, num_components)
    stds = np.broadcast_to(np.asarray(stds, float), means.shape).reshape(rows)
    share = np.broadcast_to(
        np.asarray(1.0 if weights is None else weights, float), means.shape
    ).reshape(rows)
    share = share / share.sum(axis=1, keepdims=True)
    means, errors = means.reshape(rows), y.reshape(-1, 1) - means.reshape(rows)

    scores = np.sum(share * expected_absolute_value(errors, stds), axis=1)
    block = max(1, _BLOCK_SIZE // num_components**2)
    for start in range(0, len(scores), block):
        part = slice(start, start + block)
        mean, std, weight = means[part], stds[part], share[part]
        spread = expected_absolute_value(
            mean[:, :, None] - mean[:, None, :],
            np.hypot(std[:, :, None], std[:, None, :]),
        )
        scores[part] -= np.einsum("ni,nij,nj->n", weight, spread, weight) / 2
    return float(scores.mean())


def pit_uniformity(pit: ArrayLike) -> KSResult:
    """Kolmogorov-Smirnov test of predictive cdf values against the uniform law.

    If the predictive distributions are right, cdf_n(y_n) is uniform on [0, 1].

    Args:
        pit: `[N]` or `[N, L]` values of the predictive cdf at the targets. With several
            outputs the worst one counts, its p-value times L (Bonferroni). We do not
            pool the outputs, because the outputs of a row need not be independent.
    """
    pit = np.asarray(pit, float)
    if not np.all((pit >= 0) & (pit <= 1)):
        raise ValueError("pit must hold probabilities between 0 and 1.")
    return _worst(stats.kstest(column, "uniform") for column in _columns(pit))


def ks_statistic(
    latent_means: ArrayLike,
    prior_std: ArrayLike,
    num_prior_samples: int | None = None,
    seed: int = 0,
) -> KSResult:
    """Kolmogorov-Smirnov distance between latent means and the prior N(0, prior_std^2).

    By default this is the exact distance to the prior's cdf. The paper compares with
    samples of the prior instead, which adds sampling noise: pass `num_prior_samples`
    (and a seed) for that.

    Args:
        latent_means: `[N]` or `[N, K]`. With several latents the worst one counts, its
            p-value times K (Bonferroni).
        prior_std: standard deviation of the prior, a number or `[K]`.
        num_prior_samples: size of the prior sample; None for the exact distance.
        seed: seed of the prior sample.

    Example:
        >>> ks_statistic([0.0, 0.0], prior_std=1.0).statistic
        0.5
    """
    columns = _columns(np.asarray(latent_means, float))
    prior_std = np.broadcast_to(np.asarray(prior_std, float), len(columns))
    if not np.all(prior_std > 0):
        raise ValueError(f"prior_std={prior_std} must be positive.")
    # The test does not depend on the scale, so a standard normal serves all columns.
    columns = columns / prior_std[:, None]
    if num_prior_samples is None:
        return _worst(stats.kstest(column, "norm") for column in columns)
    rng = np.random.default_rng(seed)
    return _worst(
        stats.ks_2samp(column, rng.standard_normal(num_prior_samples))
        for column in columns
    )


def expected_absolute_value(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """E|X| for X ~ N(mean, std^2); |mean| in the limit of std = 0."""
    positive = std > 0
    scaled = np.divide(mean, std, out=np.zeros_like(mean), where=positive)
    density = np.exp(-(scaled**2) / 2) / np.sqrt(2 * np.pi)
    smooth = 2 * std * density + mean * (2 * ndtr(scaled) - 1)
    return np.where(positive, smooth, np.abs(mean))


def _average(values: np.ndarray, sample_weight: ArrayLike | None = None) -> float:
    """Weighted mean over rows of the plain mean over outputs."""
    if not values.size:
        raise ValueError("There are no rows to average over.")
    per_row = values.reshape(len(values), -1).mean(axis=1)
    if sample_weight is None:
        return float(per_row.mean())
    weight = np.asarray(sample_weight, float)
    if weight.shape != per_row.shape or not weight.sum() > 0 or weight.min() < 0:
        raise ValueError(
            f"sample_weight of shape {weight.shape} must have one non-negative number "
            f"for each of the {len(per_row)} rows, not all of them 0."
        )
    # Rows of weight 0 are padding; a value of inf there would give 0 * inf = NaN.
    used = weight > 0
    return float(weight[used] @ per_row[used] / weight.sum())


def _same_shape(**arrays: ArrayLike) -> list[np.ndarray]:
    """The arrays in float64; unequal shapes would broadcast silently."""
    converted = {name: np.asarray(value, float) for name, value in arrays.items()}
    shapes = {name: value.shape for name, value in converted.items()}
    if len(set(shapes.values())) > 1 or () in shapes.values():
        raise ValueError(f"Arrays must share one shape [N] or [N, L], got {shapes}.")
    return list(converted.values())


def _columns(values: np.ndarray) -> np.ndarray:
    """The columns of `[N]` or `[N, L]` values, as rows."""
    if values.ndim not in (1, 2) or not values.size:
        raise ValueError(f"values of shape {values.shape} must be [N] or [N, L].")
    return np.atleast_2d(values.T)


def _worst(results) -> KSResult:
    """The largest of several KS distances, its p-value corrected for the choice."""
    results = list(results)
    worst = max(results, key=lambda result: result.statistic)
    return KSResult(
        float(worst.statistic), min(1.0, len(results) * float(worst.pvalue))
    )
