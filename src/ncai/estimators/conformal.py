"""Split-conformal correction of a predictive distribution.

The PIT value of a row is its predictive cdf at the target. If the predictions are
calibrated, PIT values are uniform. Calibration rows, which the model has not seen, show
the actual distribution of PIT values, and the levels of intervals are corrected by it.
If calibration rows and new rows are exchangeable, then for any model:

    P(y in the interval of a level) >= level, and <= level + 1 / (n + 1) without ties,

on average over calibration sets of n rows and over new rows, but not for each x.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from ncai.diagnostics.evaluation import pit_values
from ncai.fitting.holdout import hold_out

FURTHEST = 1e-6  # quantiles with a smaller tail probability are not computed


class ConformalRegressor(RegressorMixin, BaseEstimator):
    """A regressor with one output whose intervals have guaranteed coverage.

    Args:
        estimator: a `BNNLVRegressor` or `BNNRegressor`. `fit` uses its settings;
            `calibrate` needs it to be fitted.
        calibration_fraction: share of the rows that `fit` holds out for calibration.
        random_state: seed of the choice of these rows.

    Attributes:
        estimator_: the fitted estimator.
        pit_: PIT values of the calibration rows, in ascending order.

    Example:
        >>> import numpy as np
        >>> from ncai import BNNRegressor, ConformalRegressor
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(-1, 1, size=(100, 1))
        >>> y = x[:, 0] + rng.exponential(0.3, size=100)
        >>> model = BNNRegressor(max_steps=50, n_restarts=1, random_state=0)
        >>> guarded = ConformalRegressor(model, random_state=0).fit(x, y)
        >>> guarded.predict_interval(x, level=0.8).shape
        (100, 2)
    """

    def __init__(self, estimator, calibration_fraction=0.2, random_state=0):
        self.estimator = estimator
        self.calibration_fraction = calibration_fraction
        self.random_state = random_state

    def fit(self, X, y):
        """Fit the estimator to some rows, and calibrate it with the others."""
        if not 0 < self.calibration_fraction < 1:
            raise ValueError(
                f"calibration_fraction={self.calibration_fraction!r} must be between "
                "0 and 1."
            )
        X, y = _rows(X), np.asarray(y, float)
        if y.ndim > 1 and y.shape[1] > 1:
            raise ValueError(
                f"y has {y.shape[1]} columns, but a ConformalRegressor has one output: "
                "fit one to each column."
            )
        train, kept = hold_out(len(y), self.calibration_fraction, self.random_state)
        if not len(kept):
            raise ValueError(
                f"{len(y)} rows with calibration_fraction={self.calibration_fraction} "
                "leave fewer than 5 to calibrate with, or to train on."
            )
        fitted: Any = clone(self.estimator)
        fitted.fit(_pick(X, train), y[train])
        return self._calibrate(fitted, _pick(X, kept), y[kept])

    def calibrate(self, X, y):
        """Calibrate the fitted estimator with rows that it has not seen."""
        check_is_fitted(self.estimator)
        return self._calibrate(self.estimator, X, y)

    def _calibrate(self, fitted, X, y):
        pit = pit_values(fitted, X, y)
        if not np.isfinite(pit).all():
            raise ValueError("X and y must be finite.")
        self.estimator_ = fitted
        self.pit_ = np.sort(pit)
        return self

    def predict(self, X) -> np.ndarray:
        """Return the estimator's mean, which is not corrected."""
        check_is_fitted(self)
        return self.estimator_.predict(X)

    def predict_interval(self, X, level=0.95) -> np.ndarray:
        """Return intervals that contain a new y with at least probability `level`.

        The shape is [N, 2]. An interval is infinite if too many calibration rows lie
        outside of every interval.
        """
        check_is_fitted(self)
        if not 0 < level < 1:
            raise ValueError(f"level={level!r} must be between 0 and 1.")
        off_centre = np.sort(np.abs(self.pit_ - 0.5))
        reach = off_centre[_rank(level, len(off_centre), "level") - 1]
        return self._quantiles(X, np.array([0.5 - reach, 0.5 + reach]))

    def predict_quantiles(self, X, quantiles=(0.05, 0.5, 0.95)) -> np.ndarray:
        """Return values that a new y does not exceed with probability >= q: [N, Q]."""
        check_is_fitted(self)
        wanted = np.atleast_1d(np.asarray(quantiles, float))
        if not ((wanted > 0) & (wanted < 1)).all():
            raise ValueError(f"quantiles={quantiles!r} must be between 0 and 1.")
        ranks = [_rank(q, len(self.pit_), "a quantile") for q in wanted]
        return self._quantiles(X, self.pit_[np.array(ranks) - 1])

    def cdf(self, X, y: ArrayLike) -> np.ndarray:
        """Return the corrected cdf: the share of calibration PITs up to a row's PIT.

        The row itself counts as one half, so values lie between 0 and 1, with mean one
        half.
        """
        check_is_fitted(self)
        below = np.searchsorted(self.pit_, pit_values(self.estimator_, X, y), "right")
        return (below + 0.5) / (len(self.pit_) + 1)

    def _quantiles(self, X, levels: np.ndarray) -> np.ndarray:
        inside = np.clip(levels, FURTHEST, 1 - FURTHEST)
        found = self.estimator_.predict_dist(X).quantile(inside)
        found = found.reshape(-1, len(levels))
        # The cdf is constant this far out, so only an infinite bound is safe.
        found = np.where(levels < FURTHEST, -np.inf, found)
        return np.where(levels > 1 - FURTHEST, np.inf, found)


def _rank(probability: float, num_rows: int, what: str) -> int:
    """Return the rank of the calibration score that bounds a new one at this level."""
    rank = int(np.ceil((num_rows + 1) * probability - 1e-9))
    if rank > num_rows:
        needed = int(np.ceil(probability / (1 - probability) - 1e-9))
        raise ValueError(
            f"{what} of {probability:g} needs at least {needed} calibration rows; "
            f"there are {num_rows}."
        )
    return max(rank, 1)


def _rows(X):
    return X if hasattr(X, "iloc") else np.asarray(X)


def _pick(X, index):
    return X.iloc[index] if hasattr(X, "iloc") else X[index]
