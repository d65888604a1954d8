"""The plain values that flow from one part of the package to the next."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from jaxtyping import Array, Float

# A number in an object that JAX takes apart and puts together again: a plain one, or an
# array of NumPy or JAX, with a leading restart axis where restarts are stacked.
Number = float | Float[Any, "*restarts"]


class Data(NamedTuple):
    """Rows to learn from, in the units that inference works in.

    `row_weights` counts how often a row stands for itself: 1 for an ordinary row, 2 for
    one seen twice, 0 for padding (rows are padded so that data of nearly the same size
    share one compiled program). In training they may have a leading restart axis:
    each restart then learns from rows of its own.
    """

    inputs: Float[Array, "N D"]
    targets: Float[Array, "N L"]
    row_weights: Float[Array, "N"]


class Unknowns(NamedTuple):
    """All that the posterior is over: W, Z and, where it is learned, the noise.

    `log_noise_var` has length 0 unless the output noise is an unknown of its own.
    """

    weights: Float[Array, "P"]
    latents: Float[Array, "N K"]
    log_noise_var: Float[Array, "L"]


class WeightDraws(NamedTuple):
    """What a prediction needs, whatever method was used: equally weighted draws of W.

    Each draw carries the output noise and the prior width of z that belong to it.
    """

    weights: Float[Array | np.ndarray, "S P"]
    noise_std: Float[Array | np.ndarray, "S L"]
    latent_std: Float[Array | np.ndarray, "S"]


@dataclass(frozen=True)
class Rows:
    """Rows as NumPy arrays; each subclass states the one unit that its values have.

    Args:
        inputs: `[N, D]`.
        targets: `[N, L]`.
        weights: `[N]`, how often each row counts.
    """

    inputs: np.ndarray
    targets: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.inputs)

    def pick(self, index) -> Self:
        """Only these rows."""
        return type(self)(self.inputs[index], self.targets[index], self.weights[index])


class RawRows(Rows):
    """Rows as the user gave them: X and y in their own units, y perhaps rounded."""


class ContinuousRows(Rows):
    """Rows in the user's units whose rounded targets have been dequantised."""


class TrainingRows(Rows):
    """Rows in the units of training: standardised, y dequantised and transformed."""
