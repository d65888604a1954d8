"""Statistics of arrays. This file has their shared checks, scaling and limits."""

import numpy as np
from numpy.typing import ArrayLike

# The largest temporary array, as a count of numbers.
BLOCK_SIZE = 500_000
# exp(-8.5^2 / 2) = 2e-16: a Gaussian is 0 to rounding beyond this many deviations.
GAUSSIAN_REACH = 8.5
# Size of the noise that breaks ties, relative to the spread of the data.
_JITTER = 1e-10


def as_matrix(values: ArrayLike, name: str) -> np.ndarray:
    """The values as a finite float64 matrix with at least one row and column."""
    matrix = np.asarray(values, float)
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(
            f"{name} has shape {np.shape(values)}; it must be [N] or [N, K] and not "
            "empty."
        )
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} holds values that are NaN or infinite.")
    return matrix


def as_row_weights(weights: ArrayLike | None, num_rows: int) -> np.ndarray:
    """How often each row counts: once, unless `weights` says otherwise."""
    counts = np.ones(num_rows) if weights is None else np.asarray(weights, float)
    if counts.shape != (num_rows,) or not counts.sum() > 0 or counts.min() < 0:
        raise ValueError(
            f"weights of shape {counts.shape} must be one non-negative number for each "
            f"of the {num_rows} rows, not all of them 0."
        )
    return counts


def check_neighbours(k: int, num_rows: int) -> None:
    """Refuse more neighbours than there are other rows."""
    if not 1 <= k < num_rows:
        raise ValueError(f"k={k} neighbours must be at least 1 and below N={num_rows}.")


def standardise(values: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and standard deviation 1; constant columns become 0."""
    centred = values - values.mean(axis=0)
    std = centred.std(axis=0)
    constant = std <= 8 * np.finfo(float).eps * np.abs(values).max(axis=0)
    return np.where(constant, 0.0, centred / np.where(constant, 1.0, std))


def without_ties(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Standardised values with noise that only breaks ties: distances hardly change."""
    return values + _JITTER * rng.standard_normal(values.shape)
