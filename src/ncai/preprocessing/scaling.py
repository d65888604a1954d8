"""Conversion between the user's units and the units of training."""

import numpy as np

from ncai.preprocessing.rounding import Lattice
from ncai.preprocessing.target_transforms import TargetTransform
from ncai.types import ContinuousRows, RawRows, TrainingRows


class Scaling:
    """Shifts and scales of inputs and (transformed) targets.

    Args:
        input_shift: one number for each input.
        input_scale: one number for each input; infinite for a constant one.
        target_shift: one number for each output, of the transformed targets.
        target_scale: one number for each output, of the transformed targets.
        transform: the monotone transform of y.
        rounding: the lattice that the targets were rounded to.
        rounds_predictions: whether predictions are rounded to this lattice, too; if
            not, they refer to y before rounding.
    """

    def __init__(
        self,
        input_shift,
        input_scale,
        target_shift,
        target_scale,
        transform: TargetTransform | None = None,
        rounding: Lattice | None = None,
        rounds_predictions: bool = True,
    ):
        self.input_shift = np.asarray(input_shift, np.float64)
        self.input_scale = np.asarray(input_scale, np.float64)
        self.target_shift = np.asarray(target_shift, np.float64)
        self.target_scale = np.asarray(target_scale, np.float64)
        if transform is None:
            transform = TargetTransform("none", np.ones(len(self.target_shift)))
        self.transform = transform
        self.rounding = rounding or Lattice.none(len(self.target_shift))
        self.rounds_predictions = rounds_predictions
        # The values that predictions are rounded to.
        self.lattice = self.rounding
        if not rounds_predictions:
            self.lattice = Lattice.none(len(self.target_shift))

    @classmethod
    def learn(
        cls,
        rows: ContinuousRows,
        standardize: bool,
        transform: str = "none",
        rounding: Lattice | None = None,
        rounds_predictions: bool = True,
    ) -> "Scaling":
        """Learn shifts and scales from rows, each counted by its weight.

        A constant target keeps scale 1. A constant input has an infinite scale, so it
        is always 0 for the network, which cannot know the effect of other values.
        """
        inputs = rows.inputs
        learned = TargetTransform.learn(transform, rows.targets)
        targets = learned.forward(rows.targets)
        from_targets = learned, rounding, rounds_predictions
        if not standardize:
            return cls(
                np.zeros(inputs.shape[1]),
                np.ones(inputs.shape[1]),
                np.zeros(targets.shape[1]),
                np.ones(targets.shape[1]),
                *from_targets,
            )
        share = rows.weights / rows.weights.sum()

        def moments(columns, scale_of_constants):
            # In units of the largest value, so that squares do not overflow.
            largest = np.abs(columns).max(axis=0)
            unit = np.where(largest > 0, largest, 1.0)
            mean = share @ (columns / unit)
            std = np.sqrt(share @ (columns / unit - mean) ** 2)
            # A spread at the level of rounding errors counts as none.
            constant = (std <= 1e-12 * np.abs(mean)) | (std == 0)
            return mean * unit, np.where(constant, scale_of_constants, std * unit)

        return cls(*moments(inputs, np.inf), *moments(targets, 1.0), *from_targets)

    def inputs(self, inputs) -> np.ndarray:
        """Inputs in the units of training."""
        return (inputs - self.input_shift) / self.input_scale

    def apply(self, rows: ContinuousRows) -> TrainingRows:
        """Rows in the units of training."""
        targets = self.transform.forward(rows.targets)
        scaled = (targets - self.target_shift) / self.target_scale
        return TrainingRows(self.inputs(rows.inputs), scaled, rows.weights)

    def prepare(self, rows: RawRows, seed: int) -> TrainingRows:
        """Dequantise the user's rows and convert them to the units of training.

        `seed` is the seed of the dequantisation.
        """
        positive = self.transform.name == "log"
        return self.apply(self.rounding.dequantise(rows, seed, positive))

    def log_density_shifts(self, rows: ContinuousRows) -> np.ndarray:
        """Return what turns log densities in training units into log densities of y."""
        slopes = self.transform.log_slope(rows.targets).sum(axis=1)
        return slopes - np.log(self.target_scale).sum()
