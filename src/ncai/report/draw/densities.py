"""Densities over one input, with the axes they are drawn on."""

from dataclasses import dataclass

import numpy as np

from ncai.diagnostics.conditional import (
    ConditionalDensity,
    conditional_density,
    darkest_density,
)
from ncai.report.draw.axes import Axis, axis_for
from ncai.report.draw.feature_axis import FeatureAxis, feature_axis
from ncai.report.draw.shading import shading
from ncai.report.draw.svg import Chart
from ncai.report.inputs import Method, Subject

_GRID = (120, 140)
# Columns of the picture for each value of an input with few values.
_SLAB, _SLAB_GAP = 30, 3


def target_axis(subject: Subject) -> Axis:
    """The target on the vertical axis: all data, and where most of the density is."""
    return axis_for(subject.target, subject.y_label, 0.12)


@dataclass(frozen=True, eq=False)
class Densities:
    """p(y|x) of every method over one input, the others as in a typical row.

    Attributes:
        feature: number of the input, a group of columns.
        across: its axis.
        upright: the axis of the target.
        y: values of the target that all densities share.
        of: the densities, by the key of the method.
    """

    feature: int
    across: FeatureAxis
    upright: Axis
    y: np.ndarray
    of: dict[str, ConditionalDensity]

    def shade(self, chart: Chart, method: Method, switched: bool = True) -> None:
        """Draw the density of a method; `switched` on and off with it, or always on."""
        shown, density = self.of[method.key], self.of[method.key].density
        if self.across.discrete:
            slab = np.ones(_SLAB)
            slab[:_SLAB_GAP] = slab[-_SLAB_GAP:] = 0
            density = np.concatenate([slab[:, None] * row for row in density])
        chart.image(
            shading(density, darkest_density(shown), method.colour),
            self.across.axis.low,
            self.across.axis.high,
            self.upright.low,
            self.upright.high,
            method.key if switched else None,
        )


def densities_over(subject: Subject, feature: int) -> Densities:
    """Ask every method for its density over an input."""
    group = subject.groups[feature]
    across = feature_axis(subject, group, _GRID[0])
    upright = target_axis(subject)
    y_grid = _cells(upright, _GRID[1])
    rows = np.tile(subject.typical, (len(across.settings), 1))
    rows[:, subject.columns(group)] = across.settings
    found = {
        method.key: conditional_density(method.model, rows, across.places, y_grid)
        for method in subject.methods
    }
    return Densities(feature, across, upright, y_grid, found)


def _cells(axis: Axis, num: int) -> np.ndarray:
    """Middles of equal cells: a picture of them fills the axis to its ends."""
    return axis.low + (axis.high - axis.low) / num * (np.arange(num) + 0.5)
