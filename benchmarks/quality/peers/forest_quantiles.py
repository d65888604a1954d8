"""Quantile regression forest.

The forest has quantiles and no density. CRPS, mean and interval are those of its
quantiles at 199 even levels; for NLL each of them carries a Gaussian kernel, whose
width is `factor` times Silverman's for the row (the smaller of standard deviation and
interquartile range / 1.34, at least 1 % of the standard deviation of y), with the
factor tuned.
"""

import numpy as np
from protocol import Prediction, run_peer, tune_nested
from quantile_forest import RandomForestQuantileRegressor

TREES = 300
LEVELS = (np.arange(199) + 0.5) / 199
GROWN = [
    {"leaf": leaf, "features": features}
    for leaf in (1, 2, 3, 5, 10, 20)
    for features in (1.0, 0.67, 0.33)
]
FACTORS = [{"factor": factor} for factor in (0.25, 0.5, 1.0, 2.0, 4.0)]
GRID = [grown | factor for grown in GROWN for factor in FACTORS]


def quantiles(train, settings, seed):
    model = RandomForestQuantileRegressor(
        n_estimators=TREES,
        min_samples_leaf=settings["leaf"],
        max_features=settings["features"],
        random_state=seed,
    )
    model.fit(train.inputs, train.targets)
    return lambda inputs: np.asarray(model.predict(inputs, quantiles=list(LEVELS)))


def smoothed(points, settings):
    quartiles = np.quantile(points, [0.25, 0.75], axis=1)
    robust = (quartiles[1] - quartiles[0]) / 1.34
    spread = points.std(axis=1)
    spread = np.where(robust > 0, np.minimum(robust, spread), spread)
    width = settings["factor"] * 0.9 * spread * points.shape[1] ** -0.2
    return Prediction(points, np.maximum(width, 0.01)[:, None], points=points)


def fit(train, settings, seed, valid):
    predict = quantiles(train, settings, seed)
    return lambda inputs: smoothed(predict(inputs), settings)


def tune(train, valid, seed):
    return tune_nested(quantiles, smoothed, GROWN, FACTORS, train, valid, seed)


if __name__ == "__main__":
    run_peer(fit, GRID, ("quantile-forest", "scikit-learn"), tune)
