"""The interface of predictive distributions, and two simple ones.

The simple ones are a Gaussian for each row, and a distribution that is given by its
quantiles. Baselines and peers use them for their predictions.
"""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats


@runtime_checkable
class Predictions(Protocol):
    """Predictive distributions of N rows; `PredictiveDistribution` is one."""

    def __len__(self) -> int:
        """N."""
        ...

    def __getitem__(self, rows: Any) -> "Predictions":
        """The distributions of some of the rows."""
        ...

    def mean(self) -> np.ndarray:
        """E[y|x], [N]."""
        ...

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """Log p(y|x), [N]."""
        ...

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """P(y' <= y), [N]."""
        ...

    def crps(self, y: ArrayLike) -> np.ndarray:
        """Continuous ranked probability score, [N]."""
        ...

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Quantiles at Q levels, [N, Q]."""
        ...


class GaussianPredictions:
    """A Gaussian for each row."""

    def __init__(self, mean: ArrayLike, std: ArrayLike):
        self._mean = np.asarray(mean, np.float64)
        self._std = np.broadcast_to(np.asarray(std, np.float64), self._mean.shape)

    def __len__(self) -> int:
        return len(self._mean)

    def __getitem__(self, rows: Any) -> "GaussianPredictions":
        return GaussianPredictions(self._mean[rows], self._std[rows])

    def mean(self) -> np.ndarray:
        """E[y|x]."""
        return self._mean

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """Log p(y|x)."""
        return stats.norm.logpdf(np.asarray(y), self._mean, self._std)

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """P(y' <= y)."""
        return stats.norm.cdf(np.asarray(y), self._mean, self._std)

    def crps(self, y: ArrayLike) -> np.ndarray:
        """The CRPS in closed form (minus eq. 21 of Gneiting and Raftery, 2007)."""
        scaled = (np.asarray(y) - self._mean) / self._std
        spread = scaled * (2 * stats.norm.cdf(scaled) - 1)
        return self._std * (spread + 2 * stats.norm.pdf(scaled) - 1 / np.sqrt(np.pi))

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Quantiles, [N, Q]."""
        deviations = stats.norm.ppf(np.atleast_1d(q))
        return self._mean[:, None] + self._std[:, None] * deviations


class QuantilePredictions:
    """A distribution given by its quantiles at the middles of equal shares.

    Scores and intervals use the quantiles as they are. For a density, Gaussian kernels
    smooth them, with Silverman's width for each row: the quantiles of a forest are
    values of training rows, and a density with steps between them would be misleading.
    """

    def __init__(self, quantiles: ArrayLike, narrowest: float):
        """Quantiles [N, Q], and the smallest width of a kernel."""
        self.values = np.sort(np.asarray(quantiles, np.float64), axis=1)
        num_levels = self.values.shape[1]
        self.levels = (np.arange(num_levels) + 0.5) / num_levels
        ends = np.quantile(self.values, [0.25, 0.75], axis=1)
        spread, middle = self.values.std(axis=1), (ends[1] - ends[0]) / 1.349
        narrow = np.where(middle > 0, np.minimum(spread, middle), spread)
        distinct = 1 + (np.diff(self.values, axis=1) > 0).sum(axis=1)
        self._widths = np.maximum(0.9 * narrow * distinct**-0.2, narrowest)
        self._narrowest = narrowest

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> "QuantilePredictions":
        return QuantilePredictions(self.values[rows], self._narrowest)

    def mean(self) -> np.ndarray:
        """E[y|x], the average of the quantiles."""
        return self.values.mean(axis=1)

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """Log density of the kernels at y."""
        width = self._widths[:, None]
        logs = stats.norm.logpdf(np.asarray(y)[:, None], self.values, width)
        return np.logaddexp.reduce(logs, axis=1) - np.log(len(self.levels))

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """P(y' <= y) with the same kernels."""
        scaled = (np.asarray(y)[:, None] - self.values) / self._widths[:, None]
        return stats.norm.cdf(scaled).mean(axis=1)

    def crps(self, y: ArrayLike) -> np.ndarray:
        """Twice the average pinball loss over the levels."""
        errors = np.asarray(y, np.float64)[:, None] - self.values
        losses = np.maximum(self.levels * errors, (self.levels - 1) * errors)
        return 2 * losses.mean(axis=1)

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Quantiles, [N, Q]; none lies beyond the outermost quantiles given."""
        levels = np.atleast_1d(np.asarray(q, np.float64))
        return np.stack([np.interp(levels, self.levels, row) for row in self.values])
