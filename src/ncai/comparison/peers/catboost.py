"""CatBoost with the loss RMSEWithUncertainty: mean and variance of a Gaussian."""

import numpy as np

from ncai.comparison.peers.base import held_out_rows
from ncai.predictive.simple import GaussianPredictions


class CatBoostPeer:
    """Gradient boosting on symmetric trees (package `catboost`)."""

    name, package = "CatBoost", "catboost"

    def __init__(self, seed: int = 0, num_trees: int = 1000):
        self.seed = seed
        self.num_trees = num_trees

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> "CatBoostPeer":
        """Boost until held-out rows stop gaining."""
        from catboost import CatBoostRegressor  # pyright: ignore

        train, held = held_out_rows(len(inputs), self.seed)
        # Its loss has an absolute floor for the variance, so y goes in standardised.
        self.shift_, self.scale_ = targets.mean(), targets.std() or 1.0
        scaled = (targets - self.shift_) / self.scale_
        self.model_ = CatBoostRegressor(
            loss_function="RMSEWithUncertainty",
            iterations=self.num_trees,
            early_stopping_rounds=50,
            random_seed=self.seed,
            verbose=False,
            allow_writing_files=False,
        )
        self.model_.fit(
            inputs[train], scaled[train], eval_set=(inputs[held], scaled[held])
        )
        return self

    def predict(self, inputs: np.ndarray) -> GaussianPredictions:
        """Gaussians."""
        mean, variance = np.asarray(self.model_.predict(inputs)).T
        std = self.scale_ * np.sqrt(variance)
        return GaussianPredictions(self.shift_ + self.scale_ * mean, std)
