"""Quantile regression forest.

The forest has quantiles and no density. CRPS, mean and interval are those of its
quantiles at 199 even levels; for NLL each of them carries a Gaussian kernel, whose
width is `factor` times Silverman's for the row (the smaller of standard deviation and
interquartile range / 1.34, at least 1 % of the standard deviation of y), with the
factor tuned.
"""

import numpy as np
from protocol import Prediction, run_peer
from quantile_forest import RandomForestQuantileRegressor

TREES = 300
LEVELS = (np.arange(199) + 0.5) / 199
GRID = [
    {"leaf": leaf, "factor": factor}
    for leaf in (1, 5, 10)
    for factor in (0.5, 1.0, 2.0)
]


def fit(train, settings, seed, valid):
    model = RandomForestQuantileRegressor(
        n_estimators=TREES, min_samples_leaf=settings["leaf"], random_state=seed
    )
    model.fit(train.inputs, train.targets)

    def predict(inputs):
        points = np.asarray(model.predict(inputs, quantiles=list(LEVELS)))
        quartiles = np.quantile(points, [0.25, 0.75], axis=1)
        robust = (quartiles[1] - quartiles[0]) / 1.34
        spread = points.std(axis=1)
        spread = np.where(robust > 0, np.minimum(robust, spread), spread)
        width = settings["factor"] * 0.9 * spread * points.shape[1] ** -0.2
        return Prediction(points, np.maximum(width, 0.01)[:, None], points=points)

    return predict


if __name__ == "__main__":
    run_peer(fit, GRID, ("quantile-forest", "scikit-learn"))
