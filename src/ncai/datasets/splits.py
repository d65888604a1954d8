"""Random splits of a real set, and the units in which the paper scores it.

The paper's text says 70 % training, 20 % validation and 10 % test rows, but the
coverages that it prints are multiples of 1 / (5 n) with n = 20 % of the rows, rounded
down. So our test part has 20 %; pass `fractions` for the split of the text.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from ncai.datasets.real import RealDataset
from ncai.datasets.synthetic import Part

FRACTIONS = (0.7, 0.1, 0.2)
"""Shares of the training, validation and test part."""

_STREAM = 1
"""Makes splits independent of subsamples that were drawn with the same seed."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """Shift and scale of each column; constant columns keep the scale 1."""

    input_shift: Float[Array, "D"]
    input_scale: Float[Array, "D"]
    target_shift: Float[Array, "1"]
    target_scale: Float[Array, "1"]

    @classmethod
    def of(cls, part: Part) -> "Scaling":
        """The scaling to mean 0 and standard deviation 1 on these rows."""
        return cls(*_moments(part.inputs), *_moments(part.targets))

    def apply(self, part: Part) -> Part:
        """The rows in these units."""
        inputs = (part.inputs - self.input_shift) / self.input_scale
        targets = (part.targets - self.target_shift) / self.target_scale
        return Part(inputs, targets, part.latents)


@dataclass(frozen=True, eq=False)
class Split:
    """Three parts of a set that share no row, in raw units."""

    train: Part
    valid: Part
    test: Part

    def standardised(self) -> "Split":
        """All parts in the units of the training rows, as the paper scores them."""
        scaling = Scaling.of(self.train)
        return Split(*(scaling.apply(p) for p in (self.train, self.valid, self.test)))


def split(
    dataset: RealDataset,
    seed: int,
    fractions: tuple[float, float, float] = FRACTIONS,
) -> Split:
    """Split the rows of a set at random.

    Args:
        dataset: a set from `load_dataset`.
        seed: a whole number of at least 0; each seed gives another split.
        fractions: shares of the training, validation and test part, which add up to 1.
            Their rows are rounded down, and the training part takes the rest.

    Example:
        >>> parts = split(load_dataset("yacht"), seed=1)  # doctest: +SKIP
        >>> [len(p.inputs) for p in (parts.train, parts.valid, parts.test)]
        ... # doctest: +SKIP
        [217, 30, 61]
    """
    if len(fractions) != 3 or min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-9:
        raise ValueError(
            f"fractions={fractions!r} must be three positive numbers that add up to 1."
        )
    number = len(dataset.inputs)
    # The small term keeps 0.3 * 10 from being rounded down to 2.
    num_valid, num_test = (math.floor(f * number + 1e-9) for f in fractions[1:])
    stream = np.random.SeedSequence(seed, spawn_key=(_STREAM,))
    order = np.random.default_rng(stream).permutation(number)
    num_train = number - num_valid - num_test
    parts = np.split(order, [num_train, num_train + num_valid])
    return Split(
        *(Part(dataset.inputs[rows], dataset.targets[rows], None) for rows in parts)
    )


def _moments(columns: Float[Array, "N D"]) -> tuple[Array, Array]:
    scale = columns.std(axis=0)
    return columns.mean(axis=0), np.where(scale > 0, scale, 1.0)
