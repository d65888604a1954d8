"""Permutation importance: which inputs the mean needs, and which the spread."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from ncai.diagnostics.conditional import as_inputs, feature_names, find_feature

# Inputs that cost less log-likelihood than this, in nats a row, are not worth a name.
LEAST_NATS = 0.05
# How often chance may make any of the inputs stand out.
_CHANCE = 0.025


class Importance(NamedTuple):
    """Importance of D inputs or groups of them: averages over shuffles, and spreads.

    Attributes:
        names: of the inputs.
        mean: rise of the root mean squared error, in the units of y, [D].
        mean_std: its standard deviation over shuffles, [D].
        spread: rise of the average negative log density of a Gaussian with the
            predicted mean and the shuffled rows' standard deviation, in nats, [D].
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
        """As a pandas table, one row for each input."""
        import pandas as pd

        columns = {k: v for k, v in self._asdict().items() if k != "rmse"}
        return pd.DataFrame(columns).set_index("names")

    def is_clear(self) -> tuple[np.ndarray, np.ndarray]:
        """Which inputs matter more than by chance: for the mean, for the spread, [D].

        About two standard errors; more for many inputs, of which one or the other
        would else stand out by chance alone.
        """
        limit = ndtri(1 - _CHANCE / len(self.names))
        of_mean = self.mean > limit * self.mean_error
        return of_mean, self.spread > limit * self.spread_error

    def nats(self) -> tuple[np.ndarray, np.ndarray]:
        """Both importances in nats a row, so that they can be weighed, [D] each.

        A Gaussian as wide as the errors loses the logarithm of their ratio.
        """
        growth = np.maximum(self.mean, 0) / max(self.rmse, 1e-12)
        return np.log1p(growth), np.maximum(self.spread, 0)

    def clear_nats(self) -> np.ndarray:
        """What an input is worth in all, chance left out, [D]."""
        of_mean, of_spread = self.nats()
        mean_clear, spread_clear = self.is_clear()
        return (of_mean + of_spread) * (mean_clear | spread_clear)

    def order(self) -> np.ndarray:
        """Inputs from most to least important; those that may be chance come last."""
        of_mean, of_spread = self.nats()
        return np.lexsort((-(of_mean + of_spread), -self.clear_nats()))

    def first(self) -> str | None:
        """The name of the most important input; None if all may be chance, or small."""
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
    """What is lost when one input is shuffled: by the mean, and by the spread.

    For the spread the mean stays as it was, so that a column that says where y lies
    but not how widely it scatters counts for the mean alone. Rows the model was not
    fitted to give the honest answer.

    Args:
        model: a fitted regressor with `predict(X, return_std=True)` and one output.
        X: rows, [N, D].
        y: their targets, [N].
        n_repeats: shuffles of each input.
        max_rows: a random choice of at most this many rows is used.
        random_state: seed of choice and shuffles.
        groups: columns to be shuffled together, by name or number, such as those of a
            category (`TablePreparer.groups` knows them); None: each by itself.
    """
    rows, y = np.asarray(X, float), np.asarray(y, float)
    if rows.ndim != 2 or y.shape != rows.shape[:1]:
        raise ValueError(
            f"X has shape {rows.shape} and y {y.shape}; they must be [N, D] and [N]."
        )
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
    mean, std = model.predict(as_inputs(model, rows), return_std=True)
    squares = (y - np.clip(mean, y.min(), y.max())) ** 2
    scores = _gaussian_scores(y, mean, std)
    rises = np.zeros((2, n_repeats, len(together)))
    errors = np.zeros((2, len(together)))
    for place, columns in enumerate(together.values()):
        # All shuffles of a group in one prediction: most of a call is its overhead.
        shuffled = np.tile(rows, (n_repeats, 1))
        orders = [rng.permutation(len(rows)) for _ in range(n_repeats)]
        shuffled[:, columns] = np.concatenate([rows[o][:, columns] for o in orders])
        new_mean, new_std = (
            part.reshape(n_repeats, -1)
            for part in model.predict(as_inputs(model, shuffled), return_std=True)
        )
        # Shuffled rows may be unlike any other: what is guessed there, far outside of
        # all y, says nothing about the input.
        new_mean = np.clip(new_mean, y.min(), y.max())
        new_squares = (y - new_mean) ** 2
        new_scores = _gaussian_scores(y, mean, new_std)
        rises[0, :, place] = _root(new_squares) - _root(squares)
        rises[1, :, place] = (new_scores - scores).mean(axis=1)
        errors[:, place] = (
            _standard_error(_parts(new_squares) - _parts(squares)),
            _standard_error(new_scores - scores),
        )
    average, deviation = rises.mean(axis=1), rises.std(axis=1)
    return Importance(
        list(together),
        average[0],
        deviation[0],
        average[1],
        deviation[1],
        errors[0],
        errors[1],
        float(_root(squares)),
    )


def _columns_of(model, groups, num_inputs: int) -> dict[str, list[int]]:
    """The numbers of the columns of each group."""
    if groups is None:
        names = feature_names(model, num_inputs)
        return {name: [place] for place, name in enumerate(names)}
    return {
        str(name): [find_feature(model, column, num_inputs) for column in columns]
        for name, columns in groups.items()
    }


def _root(squares: np.ndarray) -> np.ndarray:
    """Root of the mean over rows, the last axis."""
    return np.sqrt(squares.mean(axis=-1))


def _parts(squares: np.ndarray) -> np.ndarray:
    """What each row adds to the root of the mean, to first order."""
    return squares / np.maximum(2 * _root(squares)[..., None], 1e-300)


def _standard_error(rises: np.ndarray) -> float:
    """Of the average of [shuffles, rows]; others would have given another."""
    of_rows = rises.mean(axis=0).var(ddof=1) / rises.shape[1]
    of_shuffles = 0.0
    if len(rises) > 1:
        of_shuffles = rises.mean(axis=1).var(ddof=1) / len(rises)
    return float(np.sqrt(of_rows + of_shuffles))


def _gaussian_scores(y, mean, std) -> np.ndarray:
    """Negative log densities, less their constant (Dawid and Sebastiani, 1999)."""
    return np.log(std) + 0.5 * ((y - mean) / std) ** 2
