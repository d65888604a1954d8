"""NGBoost with its default, a Gaussian for each row; it ends early on held-out rows."""

from contextlib import redirect_stdout
from io import StringIO

import numpy as np

from ncai.comparison.peers.base import held_out_rows
from ncai.predictive.simple import GaussianPredictions


class NGBoostPeer:
    """Natural gradient boosting (package `ngboost`)."""

    name, package = "NGBoost", "ngboost"

    def __init__(self, seed: int = 0, num_trees: int = 1000):
        self.seed = seed
        self.num_trees = num_trees

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> "NGBoostPeer":
        """Boost until held-out rows stop gaining."""
        from ngboost import NGBRegressor  # pyright: ignore

        train, held = held_out_rows(len(inputs), self.seed)
        self.model_ = NGBRegressor(
            n_estimators=self.num_trees,
            learning_rate=0.05,
            early_stopping_rounds=50,
            random_state=self.seed,
            verbose=False,
        )
        with redirect_stdout(StringIO()):  # it talks, whatever `verbose` says
            self.model_.fit(
                inputs[train], targets[train], X_val=inputs[held], Y_val=targets[held]
            )
        return self

    def predict(self, inputs: np.ndarray) -> GaussianPredictions:
        """Gaussians."""
        # Left alone it predicts with the trees after the best number of them too.
        best = self.model_.best_val_loss_itr
        found = self.model_.pred_dist(inputs, max_iter=best)
        return GaussianPredictions(found.params["loc"], found.params["scale"])
