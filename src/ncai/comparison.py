"""Baselines and peers that models are compared with, behind one interface."""

import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from importlib.util import find_spec
from io import StringIO
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.special import ndtr

from ncai.predictive.simple import GaussianPredictions, Predictions, QuantilePredictions
from ncai.stats.scores import expected_absolute_value

# The marginal density has a kernel for each row, or for this many quantiles.
MOST_KERNELS = 1000
_BLOCK_ROWS = 2048
_FOLDS = 3
_FEWEST_FOR_EARLY_STOP = 200


@dataclass(frozen=True)
class MarginalPredictions:
    """The same mixture of Gaussians as predictive density for all rows."""

    means: np.ndarray
    stds: np.ndarray
    weights: np.ndarray
    num_rows: int

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, rows: Any) -> "MarginalPredictions":
        return replace(self, num_rows=len(np.arange(self.num_rows)[rows]))

    def mean(self) -> np.ndarray:
        """E[y]."""
        return np.full(self.num_rows, self.weights @ self.means)

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """Log p(y)."""
        log_weights = np.log(self.weights)

        def block(column):
            logs = stats.norm.logpdf(column, self.means, self.stds)
            return np.logaddexp.reduce(logs + log_weights, axis=1)

        return _in_blocks(block, y)

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """P(y' <= y)."""
        return _in_blocks(
            lambda column: ndtr((column - self.means) / self.stds) @ self.weights, y
        )

    def crps(self, y: ArrayLike) -> np.ndarray:
        """The CRPS in closed form; its second term is the same for all rows."""
        distances = _in_blocks(
            lambda column: (
                expected_absolute_value(column - self.means, self.stds[None])
                @ self.weights
            ),
            y,
        )
        differences = self.means[:, None] - self.means
        spreads = np.hypot(self.stds[:, None], self.stds)
        pairs = (
            self.weights @ expected_absolute_value(differences, spreads) @ self.weights
        )
        return distances - pairs / 2

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Quantiles, [N, Q], by bisection."""
        levels = np.atleast_1d(np.asarray(q, np.float64))
        reach = 12 * self.stds.max()
        low = np.full(len(levels), self.means.min() - reach)
        high = np.full(len(levels), self.means.max() + reach)
        for _ in range(80):
            middle = (low + high) / 2
            below = self.cdf(middle) < levels
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.broadcast_to((low + high) / 2, (self.num_rows, len(levels)))


class MarginalDensity:
    """The density of y alone, by kernels: a prediction that ignores the inputs."""

    name = "Density of y alone"

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> "MarginalDensity":
        """Kernels of Silverman's width at the targets, or at quantiles of many."""
        del inputs
        y, num_rows = np.asarray(targets, np.float64), len(targets)
        spread = np.std(y)
        quartiles = np.subtract(*np.quantile(y, [0.75, 0.25])) / 1.349
        narrow = min(spread, quartiles) or spread or 1.0
        if num_rows > MOST_KERNELS:
            y = np.quantile(y, (np.arange(MOST_KERNELS) + 0.5) / MOST_KERNELS)
        width = 0.9 * narrow * num_rows**-0.2
        # A wide kernel with the weight of half a row allows for values far from all
        # training rows; without it one such row would score minus infinity.
        wide = 0.5 / (num_rows + 0.5)
        self.means_ = np.append(y, y.mean())
        self.stds_ = np.append(np.full(len(y), width), 3 * (spread or 1.0))
        self.weights_ = np.append(np.full(len(y), (1 - wide) / len(y)), wide)
        return self

    def predict(self, inputs: np.ndarray) -> Predictions:
        """Return the same density for every row."""
        return MarginalPredictions(self.means_, self.stds_, self.weights_, len(inputs))


class ConstantNoiseLinear:
    """Bayesian linear regression with noise of constant width."""

    name = "Linear, constant noise"

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> "ConstantNoiseLinear":
        """Learn weights, noise and the strength of the prior."""
        from sklearn.linear_model import BayesianRidge
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        self.model_ = make_pipeline(StandardScaler(), BayesianRidge())
        self.model_.fit(inputs, targets)
        return self

    def predict(self, inputs: np.ndarray) -> Predictions:
        """Predict Gaussians, which are slightly wider far from the data."""
        mean, std = self.model_.predict(inputs, return_std=True)
        return GaussianPredictions(mean, np.maximum(std, 1e-12))


class ConstantNoiseNetwork:
    """A plain network with the same hidden layers and noise of constant width.

    Cross-validation errors determine the width. Errors on training rows are smaller and
    would make the baseline overconfident.
    """

    name = "Network, constant noise"

    def __init__(self, hidden: tuple[int, ...] = (50,), seed: int = 0):
        self.hidden = hidden
        self.seed = seed

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> "ConstantNoiseNetwork":
        """Train by least squares; estimate the noise by cross-validation."""
        from sklearn.compose import TransformedTargetRegressor
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.model_selection import KFold, cross_val_predict
        from sklearn.neural_network import MLPRegressor
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        network = MLPRegressor(
            hidden_layer_sizes=self.hidden,  # pyright: ignore
            alpha=0.01,
            learning_rate_init=0.01,
            early_stopping=len(inputs) >= _FEWEST_FOR_EARLY_STOP,
            max_iter=300,
            random_state=self.seed,
        )
        model = TransformedTargetRegressor(
            make_pipeline(StandardScaler(), network), transformer=StandardScaler()
        )
        folds = KFold(min(_FOLDS, len(inputs)), shuffle=True, random_state=self.seed)
        with warnings.catch_warnings():
            # A baseline may stop before it has converged.
            warnings.simplefilter("ignore", ConvergenceWarning)
            errors = targets - cross_val_predict(model, inputs, targets, cv=folds)
            self.model_ = model.fit(inputs, targets)
        self.noise_std_ = float(np.sqrt(np.mean(errors**2))) or 1e-12
        return self

    def predict(self, inputs: np.ndarray) -> Predictions:
        """Predict Gaussians of constant width."""
        return GaussianPredictions(self.model_.predict(inputs), self.noise_std_)


def default_baselines(hidden: tuple[int, ...], seed: int) -> list:
    """Return the three baselines that `ncai fit` compares with."""
    return [
        ConstantNoiseLinear(),
        ConstantNoiseNetwork(hidden, seed),
        MarginalDensity(),
    ]


def _in_blocks(function: Callable[[np.ndarray], np.ndarray], y: ArrayLike):
    """A function of a column of targets, block by block to save memory."""
    column = np.asarray(y, np.float64)[:, None]
    starts = range(0, max(len(column), 1), _BLOCK_ROWS)
    return np.concatenate(
        [function(column[start : start + _BLOCK_ROWS]) for start in starts]
    )


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
        """Boost until the score of held-out rows stops improving."""
        from ngboost import NGBRegressor  # pyright: ignore

        train, held = held_out_rows(len(inputs), self.seed)
        self.model_ = NGBRegressor(
            n_estimators=self.num_trees,
            learning_rate=0.05,
            early_stopping_rounds=50,
            random_state=self.seed,
            verbose=False,
        )
        with redirect_stdout(StringIO()):  # NGBoost prints even with verbose=False
            self.model_.fit(
                inputs[train], targets[train], X_val=inputs[held], Y_val=targets[held]
            )
        return self

    def predict(self, inputs: np.ndarray) -> GaussianPredictions:
        """Gaussians."""
        # Without max_iter, trees beyond the best number would be used, too.
        best = self.model_.best_val_loss_itr
        found = self.model_.pred_dist(inputs, max_iter=best)
        return GaussianPredictions(found.params["loc"], found.params["scale"])


class CatBoostPeer:
    """Gradient boosting on symmetric trees (package `catboost`).

    With the loss RMSEWithUncertainty, it predicts the mean and the variance of a
    Gaussian.
    """

    name, package = "CatBoost", "catboost"

    def __init__(self, seed: int = 0, num_trees: int = 1000):
        self.seed = seed
        self.num_trees = num_trees

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> "CatBoostPeer":
        """Boost until the score of held-out rows stops improving."""
        from catboost import CatBoostRegressor  # pyright: ignore

        train, held = held_out_rows(len(inputs), self.seed)
        # The loss has an absolute floor for the variance, so we standardise y.
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
    """Return the installed peers, and the names of those whose package is missing."""
    found = [peer for peer in PEERS if find_spec(peer.package) is not None]
    missing = [peer.name for peer in PEERS if peer not in found]
    return [peer(seed) for peer in found], missing


def missing_sentence(names: list[str]) -> str:
    """Say how to install the missing peers."""
    are = "are" if len(names) > 1 else "is"
    return f"{', '.join(names)} {are} not installed: pip install 'ncai[compare]'."


def held_out_rows(num_rows: int, seed: int, share: float = 0.1):
    """Return the row numbers to train on and those for early stopping."""
    order = np.random.default_rng(seed).permutation(num_rows)
    num_held = max(1, round(share * num_rows))
    return order[num_held:], order[:num_held]
