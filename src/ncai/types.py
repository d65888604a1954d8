"""The plain data types that the packages exchange."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from jaxtyping import Array, Float, Int

# A number in a pytree: a plain number, or an array of NumPy or JAX, with a leading
# restart axis if restarts are stacked.
Number = float | Float[Any, "*restarts"]


class Data(NamedTuple):
    """Training rows, in the units of training.

    `row_weights` says how often each row counts: 1 for an ordinary row, 2 for one seen
    twice, 0 for padding (rows are padded so that data of similar size share a compiled
    program). In training they may have a leading restart axis; each restart then trains
    on its own rows.
    """

    inputs: Float[Array, "N D"]
    targets: Float[Array, "N L"]
    row_weights: Float[Array, "N"]


class Unknowns(NamedTuple):
    """The unknowns of the posterior: W, Z and, if it is learned, the noise.

    `log_noise_var` has length 0 unless the output noise is an unknown of its own.
    """

    weights: Float[Array, "P"]
    latents: Float[Array, "N K"]
    log_noise_var: Float[Array, "L"]


class WeightDraws(NamedTuple):
    """Weighted draws of W, which every method provides for predictions.

    Each draw comes with its output noise and its prior width of z. The noise is a
    mixture of Gaussians: its width is `noise_std` times one of J factors.
    """

    weights: Float[Array | np.ndarray, "S P"]
    noise_std: Float[Array | np.ndarray, "S L"]
    latent_std: Float[Array | np.ndarray, "S"]
    # Weights of the draws in the mixture that predicts; they add up to 1.
    shares: Float[Array | np.ndarray, "S"]
    # The ensemble member or chain that each draw comes from.
    members: Int[Array | np.ndarray, "S"]
    noise_factors: Float[Array | np.ndarray, "S J"]
    noise_shares: Float[Array | np.ndarray, "S J"]

    @classmethod
    def equal(cls, weights, noise_std, latent_std) -> Self:
        """Equally weighted draws of one member, with Gaussian noise."""
        count = len(weights)
        ones = np.ones((count, 1))
        shares, members = np.full(count, 1 / count), np.zeros(count, int)
        return cls(weights, noise_std, latent_std, shares, members, ones, ones)

    def pick(self, index) -> Self:
        """Return only these draws; their shares are scaled to add up to 1."""
        picked = type(self)(*(np.asarray(leaf)[index] for leaf in self))
        return picked._replace(shares=picked.shares / picked.shares.sum())

    def resampled(self, count: int, seed: int) -> Self:
        """Return `count` equally weighted draws, each with noise of one width."""
        rng = np.random.default_rng(seed)
        # Systematic resampling: a draw is chosen in proportion to its share.
        places = (rng.uniform() + np.arange(count)) / count
        edges = np.cumsum(np.asarray(self.shares, float))
        chosen = np.searchsorted(edges / edges[-1], places)
        picked = self.pick(np.minimum(chosen, len(edges) - 1))
        edges = np.cumsum(np.asarray(picked.noise_shares, float), axis=1)
        places = rng.uniform(size=(count, 1)) * edges[:, -1:]
        factor = np.argmax(edges > places, axis=1)[:, None]
        factors = np.take_along_axis(np.asarray(picked.noise_factors), factor, axis=1)
        ones = np.ones((count, 1))
        return picked._replace(
            noise_std=np.asarray(picked.noise_std) * factors,
            shares=np.full(count, 1 / count),
            noise_factors=ones,
            noise_shares=ones,
        )


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
        """Return only these rows."""
        return type(self)(self.inputs[index], self.targets[index], self.weights[index])


class RawRows(Rows):
    """Rows as the user gave them: X and y in their own units, y perhaps rounded."""


class ContinuousRows(Rows):
    """Rows in the user's units whose rounded targets have been dequantised."""


class TrainingRows(Rows):
    """Rows in the units of training: standardised, y dequantised and transformed."""
