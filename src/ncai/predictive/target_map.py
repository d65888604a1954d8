"""From the scale of training to y and back: shift, scale, transform, rounding.

The network works on u. The target is y = nearest(g^-1(shift + scale * u)): u is shifted
and scaled, the monotone transform g is undone, and the result is rounded to the lattice
of y. Each of these steps may be the identity.
"""

import reprlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ncai.preprocessing.rounding import Lattice
from ncai.preprocessing.scaling import Scaling
from ncai.preprocessing.target_transforms import TargetTransform


@dataclass(frozen=True, eq=False)
class TargetMap:
    """How the y of L outputs follows from what the network works on.

    In every array that a method takes the last axis is that of outputs.

    Args:
        shift: one number for each output.
        scale: one positive number for each output.
        transform: g, for all outputs.
        lattice: the values that y is rounded to.
    """

    shift: Float[np.ndarray, "L"]
    scale: Float[np.ndarray, "L"]
    transform: TargetTransform
    lattice: Lattice

    def __post_init__(self):
        num_outputs = np.size(self.shift)
        for name in ("shift", "scale"):
            value = np.asarray(getattr(self, name), np.float64).reshape(-1)
            object.__setattr__(self, name, value)
            if value.size != num_outputs:
                raise ValueError(
                    f"{name} holds {value.size} numbers; it must hold one for each of "
                    f"the {num_outputs} outputs."
                )
        if not (self.scale > 0).all():
            raise ValueError(f"scale={self.scale.tolist()} must be positive.")

    @classmethod
    def linear(cls, shift: ArrayLike, scale: ArrayLike) -> "TargetMap":
        """Y = shift + scale * u, neither transformed nor rounded."""
        shift, scale = np.atleast_1d(np.asarray(shift, float), np.asarray(scale, float))
        transform = TargetTransform("none", np.ones(shift.size))
        return cls(shift, scale, transform, Lattice.none(shift.size))

    @classmethod
    def of(cls, scaling: Scaling) -> "TargetMap":
        """The map back from the units of training that a scaling has learned."""
        return cls(
            scaling.target_shift,
            scaling.target_scale,
            scaling.transform,
            scaling.lattice,
        )

    # ----- What it is made of ---------------------------------------------------------

    @property
    def num_outputs(self) -> int:
        """The number L of outputs."""
        return self.shift.size

    @property
    def is_linear(self) -> bool:
        """Whether y before rounding is a shifted and scaled u, without a transform."""
        return self.transform.name == "none"

    @property
    def rounded(self) -> np.ndarray:
        """Which outputs are rounded, [L]."""
        return self.lattice.step > 0

    def checked_output(self, output: int) -> int:
        """The number of an output."""
        if output not in range(self.num_outputs):
            raise ValueError(
                f"output={output!r} must be a whole number from 0 to "
                f"{self.num_outputs - 1}."
            )
        return int(output)

    def outputs_with_mass(self, output: int | None) -> np.ndarray:
        """A mask of one output, or of all if it is None; all must be rounded."""
        asked = np.ones(self.num_outputs, bool)
        if output is not None:
            asked = np.arange(self.num_outputs) == self.checked_output(output)
        smooth = np.flatnonzero(asked & ~self.rounded).tolist()
        if smooth:
            raise ValueError(
                f"output {', '.join(map(str, smooth))} is not rounded, so that single "
                "values have no probability: use log_prob, the log density."
            )
        return asked

    def of_output(self, output: int) -> "TargetMap":
        """The map of one output alone."""
        transform = self.transform
        lower, upper = (
            np.broadcast_to(bound, self.shift.shape)[[output]]
            for bound in (transform.lower, transform.upper)
        )
        return TargetMap(
            self.shift[[output]],
            self.scale[[output]],
            TargetTransform(transform.name, transform.powers[[output]], lower, upper),
            Lattice(self.lattice.origin[[output]], self.lattice.step[[output]]),
        )

    # ----- To y and back --------------------------------------------------------------

    def from_training(self, values: np.ndarray) -> np.ndarray:
        """The y, before it is rounded, that belong to values of u."""
        return self.transform.inverse(self.shift + self.scale * values)

    def nearest(self, y: np.ndarray) -> np.ndarray:
        """Y rounded to the nearest value that it can have."""
        return self.lattice.nearest(y) if self.rounded.any() else y

    def draws_of_y(self, values: np.ndarray, rounding: bool = True) -> np.ndarray:
        """The y of draws of u, rounded if wanted; the draws are overwritten.

        Draws may fill the memory, so a linear map works in place.
        """
        values *= self.scale
        values += self.shift
        y = self.transform.inverse(values)
        return self.nearest(y) if rounding else y

    def to_training(self, y: np.ndarray) -> Float[np.ndarray, "... L"]:
        """The u that belong to y before rounding, in 32-bit numbers.

        Minus infinity stands for every y below those that the transform can reach.
        """
        t = self.transform.forward(y)
        t = np.where(np.isnan(t), -np.inf, t)
        return ((t - self.shift) / self.scale).astype(np.float32)

    def cell_edges(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The u between which everything is rounded to the value nearest to y.

        Both are that of y itself where an output is not rounded.
        """
        lower, upper = self.lattice.edges(y)
        return self.to_training(lower), self.to_training(upper)

    def upper_edge(self, y: np.ndarray) -> np.ndarray:
        """The u up to which everything is rounded to at most y."""
        return self.to_training(self.lattice.upper_edge(y))

    # ----- Densities ------------------------------------------------------------------

    def log_slope(self, y: np.ndarray) -> np.ndarray:
        """Log du/dy before rounding; minus infinity where the transform has no value.

        Added to a log density of u it gives that of y.
        """
        inside = np.isfinite(self.transform.forward(y)) | self.is_linear
        slope = self.transform.log_slope(np.where(inside, y, 1.0))
        return np.where(inside, slope, -np.inf) - np.log(self.scale)

    def log_unit(self, y: np.ndarray) -> np.ndarray:
        """What to add to a log density of u, or to a log mass, for that of y.

        Where y is rounded a mass is divided by the step between two values.
        """
        step = np.where(self.rounded, self.lattice.step, 1.0)
        return np.where(self.rounded, -np.log(step), self.log_slope(y))


# ----- Arguments that hold values of y ------------------------------------------------


def numbers(name: str, values: ArrayLike) -> np.ndarray:
    """`values` in 64-bit numbers."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        shown = " ".join(reprlib.repr(values).split())
        raise ValueError(
            f"{name}={shown} must be a number or an array of numbers."
        ) from None


def rows_of_numbers(
    name: str, values: ArrayLike, shape: tuple[int, int], single_output: bool
) -> Float[np.ndarray, "N L"]:
    """`values` as an array [N, L] without NaN; one number stands for all."""
    given = numbers(name, values)
    flat = shape[1] == 1 and given.shape == shape[:1]
    if given.ndim and given.shape != shape and not flat:
        right = f"[{shape[0]}]" if single_output else f"[{shape[0]}, {shape[1]}]"
        raise ValueError(
            f"{name} has shape {list(given.shape)}; it must be {right}, one value for "
            "each row and output."
        )
    if np.isnan(given).any():
        raise ValueError(f"{name} holds NaN; every value must be a number.")
    return np.broadcast_to(given[:, None] if flat else given, shape)


def grid_of_numbers(
    name: str, values: ArrayLike, num_rows: int
) -> Float[np.ndarray, "..."]:
    """`values` as an array [G] for all rows, or [N, G] for each row, without NaN."""
    given = numbers(name, values)
    of_rows = given.ndim == 2 and len(given) == num_rows
    if not (of_rows or given.ndim == 1) or np.isnan(given).any():
        raise ValueError(
            f"{name} has shape {given.shape}; it must be a list of numbers, or one "
            f"for each of the {num_rows} rows, without NaN."
        )
    return given
