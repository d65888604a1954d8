"""The map from the scale of training to y: shift, scale, transform, rounding.

The network predicts u. The target is y = nearest(g^-1(shift + scale * u)): u is scaled
and shifted, the monotone transform g is inverted, and the result is rounded to the
lattice of y. Each of these steps may be the identity.
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
    """The map from the scale that the network was trained on to y.

    In all arrays that the methods take, the last axis is the axis of the L outputs.

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
        """Return the map y = shift + scale * u, without transform and rounding."""
        shift, scale = np.atleast_1d(np.asarray(shift, float), np.asarray(scale, float))
        transform = TargetTransform("none", np.ones(shift.size))
        return cls(shift, scale, transform, Lattice.none(shift.size))

    @classmethod
    def of(cls, scaling: Scaling) -> "TargetMap":
        """Return the map from the units of training of a learned scaling back to y."""
        return cls(
            scaling.target_shift,
            scaling.target_scale,
            scaling.transform,
            scaling.lattice,
        )

    # ----- Parts of the map -----------------------------------------------------------

    @property
    def num_outputs(self) -> int:
        """The number L of outputs."""
        return self.shift.size

    @property
    def is_linear(self) -> bool:
        """Whether y before rounding is linear in u, without a transform."""
        return self.transform.name == "none"

    @property
    def rounded(self) -> np.ndarray:
        """Which outputs are rounded, [L]."""
        return self.lattice.step > 0

    def checked_output(self, output: int) -> int:
        """Return the number of an output; reject an output that does not exist."""
        if output not in range(self.num_outputs):
            raise ValueError(
                f"output={output!r} must be a whole number from 0 to "
                f"{self.num_outputs - 1}."
            )
        return int(output)

    def outputs_with_mass(self, output: int | None) -> np.ndarray:
        """Return a mask of one output, or of all if None; they must be rounded."""
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
        """Return the map of a single output."""
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
        """Convert values of u to y before rounding."""
        return self.transform.inverse(self.shift + self.scale * values)

    def nearest(self, y: np.ndarray) -> np.ndarray:
        """Round y to the nearest value that it can have."""
        return self.lattice.nearest(y) if self.rounded.any() else y

    def draws_of_y(self, values: np.ndarray, rounding: bool = True) -> np.ndarray:
        """Convert draws of u to y, rounded if `rounding`; this overwrites the draws.

        Draws may fill the memory, so a linear map works in place.
        """
        values *= self.scale
        values += self.shift
        y = self.transform.inverse(values)
        return self.nearest(y) if rounding else y

    def to_training(self, y: np.ndarray) -> Float[np.ndarray, "... L"]:
        """Convert y before rounding to u, in 32-bit numbers.

        The result is minus infinity for every y below the range of the transform.
        """
        t = self.transform.forward(y)
        t = np.where(np.isnan(t), -np.inf, t)
        return ((t - self.shift) / self.scale).astype(np.float32)

    def cell_edges(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the two ends of the u that are rounded to the value nearest to y.

        For an output that is not rounded, both ends are the u of y itself.
        """
        lower, upper = self.lattice.edges(y)
        return self.to_training(lower), self.to_training(upper)

    def upper_edge(self, y: np.ndarray) -> np.ndarray:
        """Return the upper end of the u that are rounded to at most y."""
        return self.to_training(self.lattice.upper_edge(y))

    # ----- Densities ------------------------------------------------------------------

    def log_slope(self, y: np.ndarray) -> np.ndarray:
        """Log du/dy before rounding; minus infinity where the transform has no value.

        A log density of u plus this gives the log density of y.
        """
        inside = np.isfinite(self.transform.forward(y)) | self.is_linear
        slope = self.transform.log_slope(np.where(inside, y, 1.0))
        return np.where(inside, slope, -np.inf) - np.log(self.scale)

    def log_unit(self, y: np.ndarray) -> np.ndarray:
        """Return what to add to a log density of u to get the log density of y.

        For a rounded output, it is added to a log mass and divides it by the lattice
        step.
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
