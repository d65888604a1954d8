"""Rows that restarts do not learn from: held out from all, or a fold from each."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from ncai.fitting.settings import Settings
from ncai.types import Data, TrainingRows, Unknowns

FEWEST_HELD_OUT = 5


@dataclass(frozen=True)
class HoldOut:
    """Which rows train, and which judge what was trained.

    Args:
        train_index: numbers of the rows that are trained on.
        judges: the rows that judge: those held out, those that the user gave, or with
            folds the training rows themselves; None if there are none.
        held_index: numbers of the judging rows among all rows; None if the user gave
            them.
        folds: the fold of each training row; None without folds.
    """

    train_index: np.ndarray
    judges: TrainingRows | None = None
    held_index: np.ndarray | None = None
    folds: np.ndarray | None = None

    def data(self, rows: TrainingRows, num_restarts: int) -> Data:
        """What the restarts learn from; with folds each has row weights of its own."""
        data = to_data(rows.pick(self.train_index))
        if self.folds is None:
            return data
        return without_own_fold(data, self.folds, num_restarts)

    def judges_of(self, restart: int) -> np.ndarray:
        """Which of the judging rows a restart did not learn from."""
        assert self.judges is not None
        if self.folds is None:
            return np.ones(len(self.judges), bool)
        return self.folds == fold_of(restart, self.folds)


def plan_holdout(
    rows: TrainingRows, settings: Settings, seed: int, valid: TrainingRows | None
) -> HoldOut:
    """Folds or a validation part, as the settings ask; `valid` takes their place."""
    every = np.arange(len(rows))
    if valid is not None:
        return HoldOut(every, valid)
    if settings.has_folds and len(rows) >= FEWEST_HELD_OUT:
        folds = draw_folds(len(rows), settings.num_folds, seed)
        return HoldOut(every, rows, every, folds)
    train, held = hold_out(
        len(rows), float(settings.method.validation_fraction or 0), seed
    )
    return HoldOut(train, rows.pick(held), held) if len(held) else HoldOut(train)


def num_judges(num_rows: int, settings: Settings, valid: object | None) -> int:
    """How many rows could choose among fits."""
    if valid is not None:
        return len(valid)  # pyright: ignore[reportArgumentType]
    if settings.has_folds and num_rows >= FEWEST_HELD_OUT:
        return num_rows
    return len(
        hold_out(num_rows, float(settings.method.validation_fraction or 0), 0)[1]
    )


def hold_out(
    num_rows: int, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers to train on and to hold out (none, if that would be too few)."""
    num_held = round(fraction * num_rows)
    if num_held < FEWEST_HELD_OUT or num_rows - num_held < FEWEST_HELD_OUT:
        return np.arange(num_rows), np.arange(0)
    order = np.random.default_rng(seed).permutation(num_rows)
    return np.sort(order[num_held:]), np.sort(order[:num_held])


def draw_folds(num_rows: int, num_folds: int, seed: int) -> np.ndarray:
    """The fold of each row: equal parts, drawn with the seed."""
    return np.random.default_rng(seed).permutation(num_rows) % min(num_folds, num_rows)


def fold_of(restart: int, folds: np.ndarray) -> int:
    """The fold that a restart holds out."""
    return restart % (int(folds.max()) + 1)


def without_own_fold(data: Data, folds: np.ndarray, num_restarts: int) -> Data:
    """Rows whose weight is 0 for the restart that holds out their fold."""
    weights = np.tile(np.asarray(data.row_weights), (num_restarts, 1))
    for restart, row_weights in enumerate(weights):
        row_weights[: len(folds)][folds == fold_of(restart, folds)] = 0
    return data._replace(row_weights=jnp.asarray(weights))


def padded_size(num_rows: int) -> int:
    """The next size of a sparse list, at most an eighth more: 8, 16, 24, ..., 768, ...

    Data of nearly the same size then share a compiled program.
    """
    step = max(8, 2 ** max(num_rows.bit_length() - 4, 0))
    return -(-num_rows // step) * step


def to_data(rows: TrainingRows) -> Data:
    """Rows for JAX, padded with rows of weight 0."""
    extra = padded_size(len(rows)) - len(rows)

    def pad(array):
        widths = [(0, extra)] + [(0, 0)] * (array.ndim - 1)
        return jnp.asarray(np.pad(array, widths), jnp.result_type(float))

    return Data(pad(rows.inputs), pad(rows.targets), pad(rows.weights))


def pad_start(start: Unknowns | None, index: np.ndarray) -> Unknowns | None:
    """A start given for all rows, for the padded training rows."""
    if start is None:
        return None
    latents = np.asarray(start.latents)[..., index, :]
    extra = padded_size(len(index)) - len(index)
    widths = [(0, 0)] * (latents.ndim - 2) + [(0, extra), (0, 0)]
    return start._replace(latents=jnp.asarray(np.pad(latents, widths)))
