"""ncai in skpro: a probabilistic regressor and the distribution it returns.

Needs the extra `ncai[skpro]`.
"""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

try:
    from skpro.distributions.base import BaseDistribution
    from skpro.regression.base import BaseProbaRegressor
except ImportError:
    raise ImportError(
        "ncai.interop.skpro needs skpro: pip install 'ncai[skpro]'."
    ) from None

from ncai.estimators.bnn_lv import BNNLVRegressor
from ncai.inference.mean_field import MFVI
from ncai.predictive.distribution import PredictiveDistribution

# Quantiles that stand for a row's density in E|Y - Y'|.
_ENERGY_LEVELS = (np.arange(256) + 0.5) / 256


class NCAIDistribution(BaseDistribution):
    """A `PredictiveDistribution` with one output, as a distribution of skpro.

    Everything is exact given the draws of W and z, except the energy of the
    distribution with itself, which is a sum over 256 quantiles. This does not affect
    differences of energies such as the CRPS.

    Args:
        predictive: the predictive distributions of the rows.
        index: names of the rows; None for a single distribution.
        columns: name of the output; None for a single distribution.
    """

    _tags = {  # noqa: RUF012  (skpro reads it from the class)
        "capabilities:approx": ["energy", "pdfnorm"],
        "capabilities:exact": ["mean", "var", "pdf", "log_pdf", "cdf", "ppf"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "nonparametric",
    }

    index: Any  # None for a single distribution, else a pandas index
    columns: Any

    def __init__(self, predictive: PredictiveDistribution, index=None, columns=None):
        self.predictive = predictive
        super().__init__(index=index, columns=columns)

    def _iloc(self, rowidx=None, colidx=None):
        if all(i is not None and np.ndim(i) == 0 for i in (rowidx, colidx)):
            return self._iat(rowidx, colidx)
        rows = np.arange(len(self.predictive))
        if rowidx is not None:
            rows = np.atleast_1d(rows[rowidx])
        columns = self.columns
        if colidx is not None:
            columns = columns[np.atleast_1d(np.asarray(colidx))]
        return type(self)(
            self.predictive[rows], index=self.index[rows], columns=columns
        )

    def _iat(self, rowidx=None, colidx=None):
        if rowidx is None or colidx is None:
            raise ValueError("iat needs the number of a row and of a column.")
        return type(self)(self.predictive[rowidx])

    def _shaped(self, values: np.ndarray):
        return np.reshape(values, self.shape)  # pyright: ignore

    def _mean(self):
        return self._shaped(self.predictive.mean())

    def _var(self):
        return self._shaped(self.predictive.variance())

    def _log_pdf(self, x):
        return self._shaped(self.predictive.log_prob(np.reshape(x, -1)))

    def _pdf(self, x):
        return np.exp(self._log_pdf(x))

    def _cdf(self, x):
        return self._shaped(self.predictive.cdf(np.reshape(x, -1)))

    def _ppf(self, p):
        levels = np.broadcast_to(np.reshape(p, -1), len(self.predictive))
        found = np.full(len(levels), np.nan)
        found[levels == 0], found[levels == 1] = -np.inf, np.inf
        for level in np.unique(levels[(levels > 0) & (levels < 1)]):
            rows = levels == level
            found[rows] = self.predictive[rows].quantile(float(level))
        return self._shaped(found)

    def _half_energy(self) -> np.ndarray:
        """E|Y - Y'| / 2 of each row: the integral of (2p - 1) Q(p)."""
        quantiles = self.predictive.quantile(_ENERGY_LEVELS)
        return quantiles @ (2 * _ENERGY_LEVELS - 1) / len(_ENERGY_LEVELS)

    def _energy_self(self):
        return self._shaped(2 * self._half_energy())

    def _energy_x(self, x):
        crps = self.predictive.crps(np.reshape(x, -1))
        return self._shaped(crps + self._half_energy())

    def _sample(self, n_samples=None):
        seed = int(np.random.default_rng().integers(2**31))
        drawn = self.predictive.sample(n_samples or 1, seed)
        if self.ndim == 0:
            return drawn[0, 0] if n_samples is None else pd.DataFrame(drawn)
        if n_samples is None:
            return pd.DataFrame(drawn[0], index=self.index, columns=self.columns)
        index = pd.MultiIndex.from_product([range(n_samples), self.index])
        return pd.DataFrame(drawn.reshape(-1, 1), index=index, columns=self.columns)


class NCAIProbaRegressor(BaseProbaRegressor):
    """`BNNLVRegressor` as a probabilistic regressor of skpro.

    Args:
        estimator: the estimator to fit, with its settings; `BNNLVRegressor()` by
            default. It is cloned and never changed.

    Attributes:
        estimator_: the fitted clone.

    Example:
        >>> import numpy as np
        >>> import pandas as pd
        >>> from ncai import BNNLVRegressor
        >>> from ncai.interop.skpro import NCAIProbaRegressor
        >>> X = pd.DataFrame({"x": np.linspace(-1, 1, 40)})
        >>> y = pd.DataFrame({"y": X["x"] ** 2})
        >>> settings = BNNLVRegressor(max_steps=50, n_restarts=1, random_state=0)
        >>> predicted = NCAIProbaRegressor(settings).fit(X, y).predict_proba(X)
        >>> predicted.shape
        (40, 1)
    """

    _tags = {  # noqa: RUF012  (skpro reads it from the class)
        "authors": ["ncai"],
        "capability:multioutput": False,
        "capability:missing": False,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator: BNNLVRegressor | None = None):
        self.estimator = estimator
        super().__init__()

    def _fit(self, X, y, C=None):
        del C  # skpro's censoring, which is for survival analysis
        estimator = self.estimator
        if estimator is None:
            estimator = BNNLVRegressor()
        self.estimator_ = clone(estimator).fit(  # pyright: ignore
            _with_text_names(X), y.iloc[:, 0]
        )
        self._target_columns = y.columns
        return self

    def _predict_proba(self, X):
        return NCAIDistribution(
            self.estimator_.predict_dist(_with_text_names(X)),
            index=X.index,
            columns=self._target_columns,
        )

    @classmethod
    def get_test_params(cls, parameter_set="default"):
        """Return settings for skpro's own checks, with very short fits."""
        del parameter_set
        quick = {
            "inference": MFVI(n_weight_draws=8, n_latent_draws=4),
            "max_steps": 4,
            "n_restarts": 1,
            "hidden": (4,),
            "random_state": 0,
        }
        return [
            {"estimator": BNNLVRegressor(**quick)},
            {"estimator": BNNLVRegressor(latent_dim=0, **quick)},
        ]


def _with_text_names(X: pd.DataFrame) -> pd.DataFrame:
    """Convert column names to text, because scikit-learn allows no mixed types."""
    return X.set_axis(X.columns.astype(str), axis=1)
