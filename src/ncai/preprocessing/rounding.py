"""Rounded targets, whose values lie on a lattice, such as whole numbers."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ncai.types import ContinuousRows, RawRows

ROWS_A_VALUE = 4  # the fewest rows per value, on average, of a rounded target
# A number counts as a lattice value up to this distance, in steps.
_ON_LATTICE = 1e-3
# For a logarithm, the lower end of the values drawn for a rounded 0.
_LEAST_SHARE = 1e-3


@dataclass(frozen=True, eq=False)
class Lattice:
    """The values origin + k * step of each output, for whole k.

    If no observed value is negative, no predicted value is: anything below the lowest
    possible value is rounded to it.

    Args:
        origin: the smallest value that was seen.
        step: distance between neighbouring values; 0 for an output that is not rounded.
    """

    origin: Float[np.ndarray, "L"]
    step: Float[np.ndarray, "L"]

    @classmethod
    def none(cls, num_outputs: int) -> "Lattice":
        """Create a lattice for outputs that are not rounded."""
        return cls(np.zeros(num_outputs), np.zeros(num_outputs))

    @classmethod
    def learn(cls, targets: Float[np.ndarray, "N L"]) -> "Lattice":
        """Find the lattice of each column of y; its step is 0 if it is not rounded.

        Values count as rounded if they repeat and lie on a lattice. Two distinct values
        count as two classes, not as a lattice.
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
        """The smallest possible value; minus infinity if there is no limit."""
        steps_down = np.floor(self.origin / self._width + _ON_LATTICE)
        bounded = (self.step > 0) & (self.origin > -_ON_LATTICE * self.step)
        return np.where(bounded, self.origin - self._width * steps_down, -np.inf)

    def nearest(self, y: np.ndarray) -> np.ndarray:
        """Round y to the nearest lattice value; the last axis has the outputs."""
        with np.errstate(invalid="ignore"):
            places = np.floor((y - self.origin) / self._width + 0.5)
        value = np.maximum(self.origin + self._width * places, self.lowest)
        return np.where(self.step > 0, value, y)

    def edges(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the cell that is rounded to the value nearest to y.

        Without a step, both ends are y itself. For an impossible y, both are minus
        infinity.
        """
        places = np.floor((y - self.origin) / self._width + 0.5)
        centre = self.origin + self._width * places
        low, high = self._edge(places - 0.5), self._edge(places + 0.5)
        low = np.where(centre <= self.lowest + _ON_LATTICE * self._width, -np.inf, low)
        return np.where(self.step > 0, low, y), np.where(self.step > 0, high, y)

    def upper_edge(self, y: np.ndarray) -> np.ndarray:
        """Return the upper end of the numbers that are rounded to at most y."""
        places = np.floor((y - self.origin) / self._width + _ON_LATTICE)
        return np.where(self.step > 0, self._edge(places + 0.5), y)

    def _edge(self, places: np.ndarray) -> np.ndarray:
        """The edge between two values; minus infinity below the lowest value."""
        edge = self.origin + self._width * places
        return np.where(edge < self.lowest, -np.inf, edge)

    def dequantise(
        self, rows: RawRows, seed: int, positive: bool = False
    ) -> ContinuousRows:
        """Replace each rounded y by a uniform draw from the cell that is rounded to it.

        The density with the highest likelihood of rounded values would consist of
        spikes on the lattice, which say nothing about new rows.

        Args:
            rows: rows whose targets may be rounded.
            seed: seed of the uniform noise; the same rows and seed give the same
                values.
            positive: draw only positive values, which have a logarithm; for a rounded
                0, draw from the part of its cell above 0.
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
