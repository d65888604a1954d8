"""Hold out rows: the same rows from all restarts, or a fold from each restart."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from ncai.fitting.settings import Settings
from ncai.types import Data, TrainingRows, Unknowns

FEWEST_HELD_OUT = 5


@dataclass(frozen=True)
class HoldOut:
    """The training rows, and the held-out rows that score the restarts.

    Args:
        train_index: numbers of the rows that are trained on.
        judges: the rows that score restarts: held-out rows, the user's validation rows
            or, with folds, all training rows (each scores only the restarts that held
            it out); None if there are none.
        held_index: numbers of these rows among all rows; None if the user gave them.
        folds: the fold of each training row; None without folds.
    """

    train_index: np.ndarray
    judges: TrainingRows | None = None
    held_index: np.ndarray | None = None
    folds: np.ndarray | None = None

    def data(self, rows: TrainingRows, num_restarts: int) -> Data:
        """Return the training data; with folds, each restart has its own weights."""
        if self.folds is None:
            return to_data(rows.pick(self.train_index))
        return without_own_fold(to_data(rows), self.folds, num_restarts)

    def judges_of(self, restart: int) -> np.ndarray:
        """Return which of the held-out rows a restart did not train on."""
        assert self.judges is not None
        if self.folds is None:
            return np.ones(len(self.judges), bool)
        return self.folds == fold_of(restart, self.folds)


def plan_holdout(
    rows: TrainingRows, settings: Settings, seed: int, valid: TrainingRows | None
) -> HoldOut:
    """Plan folds or a validation part, as the settings say; `valid` replaces both."""
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
    """Return how many rows can choose among fits."""
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
    """Return the row numbers to train on and to hold out (none if too few)."""
    num_held = round(fraction * num_rows)
    if num_held < FEWEST_HELD_OUT or num_rows - num_held < FEWEST_HELD_OUT:
        return np.arange(num_rows), np.arange(0)
    order = np.random.default_rng(seed).permutation(num_rows)
    return np.sort(order[num_held:]), np.sort(order[:num_held])


def draw_folds(num_rows: int, num_folds: int, seed: int) -> np.ndarray:
    """Return the fold of each row: random folds of equal size."""
    return np.random.default_rng(seed).permutation(num_rows) % min(num_folds, num_rows)


def fold_of(restart: int, folds: np.ndarray) -> int:
    """Return the fold that a restart holds out."""
    return restart % (int(folds.max()) + 1)


def without_own_fold(data: Data, folds: np.ndarray, num_restarts: int) -> Data:
    """Set the weight of a row to 0 for each restart that holds out its fold."""
    weights = np.tile(np.asarray(data.row_weights), (num_restarts, 1))
    for restart, row_weights in enumerate(weights):
        row_weights[: len(folds)][folds == fold_of(restart, folds)] = 0
    return data._replace(row_weights=jnp.asarray(weights))


def padded_size(num_rows: int) -> int:
    """Round up to one of a few sizes, by at most an eighth: 8, 16, 24, ..., 768, ...

    Data of nearly the same size then share a compiled program.
    """
    step = max(8, 2 ** max(num_rows.bit_length() - 4, 0))
    return -(-num_rows // step) * step


def to_data(rows: TrainingRows) -> Data:
    """Convert rows to JAX arrays, padded with rows of weight 0."""
    extra = padded_size(len(rows)) - len(rows)

    def pad(array):
        widths = [(0, extra)] + [(0, 0)] * (array.ndim - 1)
        return jnp.asarray(np.pad(array, widths), jnp.result_type(float))

    return Data(pad(rows.inputs), pad(rows.targets), pad(rows.weights))


def pad_start(start: Unknowns | None, index: np.ndarray) -> Unknowns | None:
    """Restrict a start for all rows to the training rows, and pad it."""
    if start is None:
        return None
    latents = np.asarray(start.latents)[..., index, :]
    extra = padded_size(len(index)) - len(index)
    widths = [(0, 0)] * (latents.ndim - 2) + [(0, extra), (0, 0)]
    return start._replace(latents=jnp.asarray(np.pad(latents, widths)))
