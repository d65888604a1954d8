"""A quantile regression forest: the training targets of the leaves a row falls into."""

import numpy as np

from ncai.predictive.simple import QuantilePredictions

NUM_LEVELS = 100
# Quantiles are values of training rows; gaps are at least this share of their spread.
NARROWEST = 1e-3


class QuantileForestPeer:
    """Quantile forest (package `quantile-forest`)."""

    name, package = "Quantile forest", "quantile_forest"

    def __init__(self, seed: int = 0, num_trees: int = 300):
        self.seed = seed
        self.num_trees = num_trees

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> "QuantileForestPeer":
        """Grow the forest."""
        from quantile_forest import (  # pyright: ignore
            RandomForestQuantileRegressor,
        )

        self.narrowest_ = NARROWEST * float(np.std(targets) or 1.0)
        self.model_ = RandomForestQuantileRegressor(
            n_estimators=self.num_trees,
            min_samples_leaf=5,
            max_samples_leaf=None,  # pyright: ignore[reportArgumentType]
            random_state=self.seed,
        ).fit(inputs, targets)
        return self

    def predict(self, inputs: np.ndarray) -> QuantilePredictions:
        """Quantiles at the middles of equal shares of probability."""
        levels = (np.arange(NUM_LEVELS) + 0.5) / NUM_LEVELS
        found = self.model_.predict(inputs, quantiles=list(levels))
        return QuantilePredictions(found, self.narrowest_)
