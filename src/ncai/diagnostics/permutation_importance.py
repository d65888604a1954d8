"""Permutation importance: which inputs the predicted mean and spread depend on."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import ndtri

from ncai.diagnostics.curves import as_inputs, feature_names, find_feature

# An input is not named if it is worth less log-likelihood than this, in nats per row.
LEAST_NATS = 0.05
# The probability that any input stands out by chance alone.
_CHANCE = 0.025


class Importance(NamedTuple):
    """Importance of D inputs, or groups of inputs: averages over shuffles.

    Attributes:
        names: names of the inputs or groups.
        mean: rise of the root mean squared error, in the units of y, [D].
        mean_std: its standard deviation over shuffles, [D].
        spread: rise of the average negative log density of a Gaussian with the
            predicted mean and the standard deviation of the shuffled rows, in nats,
            [D].
        spread_std: its standard deviation over shuffles, [D].
        mean_error: standard error of `mean`, over rows and shuffles, [D].
        spread_error: standard error of `spread`, over rows and shuffles, [D].
        rmse: root mean squared error before anything is shuffled.
    """

    names: list[str]
    mean: np.ndarray
    mean_std: np.ndarray
    spread: np.ndarray
    spread_std: np.ndarray
    mean_error: np.ndarray
    spread_error: np.ndarray
    rmse: float

    def to_frame(self):
        """Return a pandas table with one row for each input."""
        import pandas as pd

        columns = {k: v for k, v in self._asdict().items() if k != "rmse"}
        return pd.DataFrame(columns).set_index("names")

    def is_clear(self) -> tuple[np.ndarray, np.ndarray]:
        """Which inputs clearly matter for the mean, and which for the spread, [D] each.

        The limit is about two standard errors for one input, and higher for many, since
        some of them would otherwise stand out by chance.
        """
        limit = ndtri(1 - _CHANCE / len(self.names))
        of_mean = self.mean > limit * self.mean_error
        return of_mean, self.spread > limit * self.spread_error

    def nats(self) -> tuple[np.ndarray, np.ndarray]:
        """Both importances in nats per row, so that they can be compared, [D] each.

        If a Gaussian is as wide as the errors, and these grow by a factor, it loses the
        logarithm of this factor.
        """
        growth = np.maximum(self.mean, 0) / max(self.rmse, 1e-12)
        return np.log1p(growth), np.maximum(self.spread, 0)

    def clear_nats(self) -> np.ndarray:
        """Total importance of inputs that clearly matter, 0 for the others, [D]."""
        of_mean, of_spread = self.nats()
        mean_clear, spread_clear = self.is_clear()
        return (of_mean + of_spread) * (mean_clear | spread_clear)

    def order(self) -> np.ndarray:
        """Inputs from most to least important; those that may be chance come last."""
        of_mean, of_spread = self.nats()
        return np.lexsort((-(of_mean + of_spread), -self.clear_nats()))

    def first(self) -> str | None:
        """The most important input; None if none clearly matters by `LEAST_NATS`."""
        worth = self.clear_nats()
        best = int(np.argmax(worth))
        return self.names[best] if worth[best] >= LEAST_NATS else None


def permutation_importance(
    model,
    X,
    y: ArrayLike,
    *,
    n_repeats: int = 5,
    max_rows: int = 500,
    random_state: int = 0,
    groups: Mapping[str, Sequence[str | int]] | None = None,
) -> Importance:
    """How much worse the predicted mean and spread get when one input is shuffled.

    For the spread, the means of the original rows are kept. An input that affects the
    location of y but not its spread therefore counts only for the mean. Use rows that
    the model was not fitted to.

    Args:
        model: a fitted regressor with `predict(X, return_std=True)` and one output.
        X: rows, [N, D].
        y: their targets, [N].
        n_repeats: number of shuffles of each input.
        max_rows: at most this many rows are used, chosen at random.
        random_state: seed of the choice and the shuffles.
        groups: columns to shuffle together, by name or number, such as the columns of
            one category (`TablePreparer.groups` lists them). None shuffles each column
            by itself.
    """
    rows, y = _checked_rows(X, y)
    if n_repeats < 1 or max_rows < 2:
        raise ValueError(
            f"n_repeats={n_repeats} must be at least 1 and max_rows={max_rows} at "
            "least 2."
        )
    together = _columns_of(model, groups, rows.shape[1])
    rng = np.random.default_rng(random_state)
    if len(rows) > max_rows:
        chosen = rng.choice(len(rows), max_rows, replace=False)
        rows, y = rows[chosen], y[chosen]
    before = _losses(y, *model.predict(as_inputs(model, rows), return_std=True))
    rises = []
    for columns in together.values():
        shuffled = _shuffled(rows, columns, n_repeats, rng)
        new_mean, new_std = (
            part.reshape(n_repeats, -1)
            for part in model.predict(as_inputs(model, shuffled), return_std=True)
        )
        rises.append(_rise(y, before, new_mean, new_std))
    return Importance(
        list(together),
        *(np.array(column) for column in zip(*rises, strict=True)),
        rmse=float(_root_mean(before.squares)),
    )


class _Losses(NamedTuple):
    """What predictions lose on each row before anything is shuffled."""

    mean: np.ndarray
    squares: np.ndarray
    scores: np.ndarray


class _Rise(NamedTuple):
    """How much worse predictions are after one input is shuffled.

    The fields are those of `Importance`, for one input.
    """

    mean: float
    mean_std: float
    spread: float
    spread_std: float
    mean_error: float
    spread_error: float


def _checked_rows(X, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    rows, y = np.asarray(X, float), np.asarray(y, float)
    if rows.ndim != 2 or y.shape != rows.shape[:1]:
        raise ValueError(
            f"X has shape {rows.shape} and y {y.shape}; they must be [N, D] and [N]."
        )
    return rows, y


def _losses(y, mean, std) -> _Losses:
    squares = (y - np.clip(mean, y.min(), y.max())) ** 2
    return _Losses(mean, squares, _gaussian_scores(y, mean, std))


def _shuffled(rows, columns: list[int], n_repeats: int, rng) -> np.ndarray:
    """Copies of the rows, one below the other, each with its columns shuffled.

    All shuffles go into one prediction, since most of a call is its overhead.
    """
    shuffled = np.tile(rows, (n_repeats, 1))
    orders = [rng.permutation(len(rows)) for _ in range(n_repeats)]
    shuffled[:, columns] = np.concatenate([rows[order][:, columns] for order in orders])
    return shuffled


def _rise(y, before: _Losses, new_mean, new_std) -> _Rise:
    """The rise of both losses, from predictions [shuffles, rows]."""
    # Shuffled rows may be unlike any real one. A prediction there that lies far outside
    # all targets says nothing about the input, so we clip it.
    squares = (y - np.clip(new_mean, y.min(), y.max())) ** 2
    scores = _gaussian_scores(y, before.mean, new_std)
    of_mean = _root_mean(squares) - _root_mean(before.squares)
    of_spread = (scores - before.scores).mean(axis=1)
    return _Rise(
        of_mean.mean(),
        of_mean.std(),
        of_spread.mean(),
        of_spread.std(),
        _standard_error(_contributions(squares) - _contributions(before.squares)),
        _standard_error(scores - before.scores),
    )


def _columns_of(model, groups, num_inputs: int) -> dict[str, list[int]]:
    """Column numbers of each group, by its name."""
    if groups is None:
        names = feature_names(model, num_inputs)
        return {name: [place] for place, name in enumerate(names)}
    return {
        str(name): [find_feature(model, column, num_inputs) for column in columns]
        for name, columns in groups.items()
    }


def _root_mean(squares: Float[np.ndarray, "*S N"]) -> Float[Any, "*S"]:
    """Root of the mean over rows, the last axis."""
    return np.sqrt(squares.mean(axis=-1))


def _contributions(squares: np.ndarray) -> np.ndarray:
    """What each row contributes to the root mean square, to first order."""
    return squares / np.maximum(2 * _root_mean(squares)[..., None], 1e-300)


def _standard_error(rises: np.ndarray) -> float:
    """Standard error of the average over [shuffles, rows]: both are samples."""
    of_rows = rises.mean(axis=0).var(ddof=1) / rises.shape[1]
    of_shuffles = 0.0
    if len(rises) > 1:
        of_shuffles = rises.mean(axis=1).var(ddof=1) / len(rises)
    return float(np.sqrt(of_rows + of_shuffles))


def _gaussian_scores(y, mean, std) -> np.ndarray:
    """Negative log densities without their constant (Dawid and Sebastiani, 1999)."""
    return np.log(std) + 0.5 * ((y - mean) / std) ** 2
