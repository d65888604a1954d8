"""Permutation importance: which inputs the mean needs, and which the spread."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ncai.conditional import as_inputs, feature_names, find_feature


class Importance(NamedTuple):
    """Importance of D inputs or groups of them: averages over shuffles, and spreads.

    Attributes:
        names: of the inputs.
        mean: rise of the root mean squared error, in the units of y, [D].
        mean_std: its standard deviation over shuffles, [D].
        spread: rise of the average negative log density of a Gaussian with the
            predicted mean and the shuffled rows' standard deviation, in nats, [D].
        spread_std: its standard deviation over shuffles, [D].
    """

    names: list[str]
    mean: np.ndarray
    mean_std: np.ndarray
    spread: np.ndarray
    spread_std: np.ndarray

    def to_frame(self):
        """As a pandas table, one row for each input."""
        import pandas as pd

        return pd.DataFrame(self._asdict()).set_index("names")

    def order(self) -> np.ndarray:
        """Inputs from most to least important, mean and spread counted alike."""
        shares = [
            np.maximum(part, 0) / max(float(np.maximum(part, 0).sum()), 1e-12)
            for part in (self.mean, self.spread)
        ]
        return np.argsort(-(shares[0] + shares[1]), kind="stable")


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
    error, score = _root_mean_square(y - mean), _gaussian_score(y, mean, std)
    rises = np.zeros((2, n_repeats, len(together)))
    for place, columns in enumerate(together.values()):
        # All shuffles of a group in one prediction: most of a call is its overhead.
        shuffled = np.tile(rows, (n_repeats, 1))
        orders = [rng.permutation(len(rows)) for _ in range(n_repeats)]
        shuffled[:, columns] = np.concatenate([rows[o][:, columns] for o in orders])
        new_mean, new_std = (
            part.reshape(n_repeats, -1)
            for part in model.predict(as_inputs(model, shuffled), return_std=True)
        )
        for repeat in range(n_repeats):
            rises[0, repeat, place] = _root_mean_square(y - new_mean[repeat]) - error
            rises[1, repeat, place] = _gaussian_score(y, mean, new_std[repeat]) - score
    average, deviation = rises.mean(axis=1), rises.std(axis=1)
    return Importance(
        list(together),
        average[0],
        deviation[0],
        average[1],
        deviation[1],
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


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _gaussian_score(y, mean, std) -> float:
    """Average negative log density, less its constant (Dawid and Sebastiani, 1999)."""
    return float(np.mean(np.log(std) + 0.5 * ((y - mean) / std) ** 2))
