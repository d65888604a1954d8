"""Other people's regressors behind one small interface, to compare with.

To add one, write a class with `name`, `package`, `fit` and `predict`, and list it in
`PEERS`. Its library is imported when it is first fitted.
"""

from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from typing import Protocol, runtime_checkable

import numpy as np

from ncai.predictive.simple import GaussianPredictions, Predictions, QuantilePredictions

NUM_LEVELS = 100
# Quantiles are values of training rows; gaps are at least this share of their spread.
NARROWEST = 1e-3


@runtime_checkable
class Peer(Protocol):
    """A regressor that predicts distributions."""

    name: str
    package: str

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> "Peer":
        """Learn from rows of numbers."""
        ...

    def predict(self, inputs: np.ndarray) -> Predictions:
        """The distribution of each row."""
        ...


class NGBoostPeer:
    """Natural gradient boosting (package `ngboost`): a Gaussian for each row."""

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
        with redirect_stdout(StringIO()):  # it prints, whatever `verbose` says
            self.model_.fit(
                inputs[train], targets[train], X_val=inputs[held], Y_val=targets[held]
            )
        return self

    def predict(self, inputs: np.ndarray) -> GaussianPredictions:
        """Gaussians."""
        # Without max_iter it would also use the trees after the best number of them.
        best = self.model_.best_val_loss_itr
        found = self.model_.pred_dist(inputs, max_iter=best)
        return GaussianPredictions(found.params["loc"], found.params["scale"])


class CatBoostPeer:
    """Gradient boosting on symmetric trees (package `catboost`).

    With the loss RMSEWithUncertainty: the mean and the variance of a Gaussian.
    """

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


class QuantileForestPeer:
    """Quantile regression forest (package `quantile-forest`).

    It predicts quantiles of the training targets in the leaves that a row falls into.
    """

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


PEERS = (NGBoostPeer, CatBoostPeer, QuantileForestPeer)


def installed_peers(seed: int = 0) -> tuple[list[Peer], list[str]]:
    """Peers to use, and the names of those whose package is missing."""
    found = [peer for peer in PEERS if find_spec(peer.package) is not None]
    missing = [peer.name for peer in PEERS if peer not in found]
    return [peer(seed) for peer in found], missing


def missing_sentence(names: list[str]) -> str:
    """How to get the peers that are missing."""
    are = "are" if len(names) > 1 else "is"
    return f"{', '.join(names)} {are} not installed: pip install 'ncai[compare]'."


def held_out_rows(num_rows: int, seed: int, share: float = 0.1):
    """Numbers of the rows to train on, and of those that end the training early."""
    order = np.random.default_rng(seed).permutation(num_rows)
    num_held = max(1, round(share * num_rows))
    return order[num_held:], order[:num_held]
