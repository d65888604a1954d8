"""Targets that are rounded: they lie on a lattice, as whole numbers do."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ncai.types import ContinuousRows, RawRows

ROWS_A_VALUE = 4  # of a value that repeats, on average
# How far from a value of the lattice, in steps, a number still counts as that value.
_ON_LATTICE = 1e-3
# Of the cell of 0 under a logarithm: the lowest part that a value is drawn from.
_LEAST_SHARE = 1e-3


@dataclass(frozen=True, eq=False)
class Lattice:
    """The values origin + k * step, whole k, of each output.

    Where none of the values seen is negative, none is possible: what would be rounded
    to less counts as the lowest.

    Args:
        origin: one of the values, the smallest that was seen.
        step: between neighbouring values; 0 for an output that is not rounded.
    """

    origin: Float[np.ndarray, "L"]
    step: Float[np.ndarray, "L"]

    @classmethod
    def none(cls, num_outputs: int) -> "Lattice":
        """For outputs that are not rounded."""
        return cls(np.zeros(num_outputs), np.zeros(num_outputs))

    @classmethod
    def learn(cls, targets: Float[np.ndarray, "N L"]) -> "Lattice":
        """The lattice of each column of y; a step of 0 where it does not look rounded.

        Rounded are values that repeat and lie on a lattice. Two values are no lattice
        but two classes.
        """
        step = np.array([_step_of(column) for column in targets.T])
        return cls(np.where(step > 0, targets.min(axis=0), 0.0), step)

    def __bool__(self) -> bool:
        return bool((self.step > 0).any())

    @property
    def _width(self) -> np.ndarray:
        return np.where(self.step > 0, self.step, 1.0)

    @property
    def lowest(self) -> np.ndarray:
        """The smallest value possible; minus infinity where there is none."""
        steps_down = np.floor(self.origin / self._width + _ON_LATTICE)
        bounded = (self.step > 0) & (self.origin > -_ON_LATTICE * self.step)
        return np.where(bounded, self.origin - self._width * steps_down, -np.inf)

    def nearest(self, y: np.ndarray) -> np.ndarray:
        """The value of the lattice next to y; the last axis is that of outputs."""
        with np.errstate(invalid="ignore"):
            places = np.floor((y - self.origin) / self._width + 0.5)
        value = np.maximum(self.origin + self._width * places, self.lowest)
        return np.where(self.step > 0, value, y)

    def edges(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ends of what is rounded to the value next to y; y itself without a step.

        Both are minus infinity for a y that is not possible.
        """
        places = np.floor((y - self.origin) / self._width + 0.5)
        centre = self.origin + self._width * places
        low, high = self._edge(places - 0.5), self._edge(places + 0.5)
        low = np.where(centre <= self.lowest + _ON_LATTICE * self._width, -np.inf, low)
        return np.where(self.step > 0, low, y), np.where(self.step > 0, high, y)

    def upper_edge(self, y: np.ndarray) -> np.ndarray:
        """Up to where numbers are rounded to values of at most y."""
        places = np.floor((y - self.origin) / self._width + _ON_LATTICE)
        return np.where(self.step > 0, self._edge(places + 0.5), y)

    def _edge(self, places: np.ndarray) -> np.ndarray:
        """Between two values; minus infinity below the lowest."""
        edge = self.origin + self._width * places
        return np.where(edge < self.lowest, -np.inf, edge)

    def dequantise(
        self, rows: RawRows, seed: int, positive: bool = False
    ) -> ContinuousRows:
        """Rows with y drawn anew, uniformly, from all that is rounded to it.

        Rounded values would be fitted best by a density of spikes on the lattice, which
        says nothing about new rows.

        Args:
            rows: rows whose targets may be rounded.
            seed: of the uniform noise; the same rows and seed give the same values.
            positive: draw positive values only, for a logarithm: of the cell of 0 the
                part above 0.
        """
        targets = rows.targets
        if self:
            noise = np.random.default_rng(seed).uniform(-0.5, 0.5, targets.shape)
            drawn = targets + self.step * noise
            if positive:
                top = targets + 0.5 * self.step
                reaches_zero = (self.step > 0) & (targets < 0.5 * self.step) & (top > 0)
                share = _LEAST_SHARE + (1 - _LEAST_SHARE) * (noise + 0.5)
                drawn = np.where(reaches_zero, top * share, drawn)
            targets = drawn
        return ContinuousRows(rows.inputs, targets, rows.weights)


def _step_of(column: np.ndarray) -> float:
    values = np.unique(column)
    if not 2 < len(values) <= len(column) / ROWS_A_VALUE:
        return 0.0
    step = np.diff(values).min()
    places = (values - values[0]) / step
    on_lattice = np.abs(places - np.round(places)).max() <= _ON_LATTICE
    return float(step) if on_lattice else 0.0
