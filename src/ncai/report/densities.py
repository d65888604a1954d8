"""Densities over one input, with the axes they are drawn on."""

from dataclasses import dataclass

import numpy as np

from ncai.conditional import (
    ConditionalDensity,
    conditional_density,
    darkest_density,
    is_discrete,
    rows_along,
)
from ncai.report.axes import Axis, axis_for
from ncai.report.inputs import Method, Subject
from ncai.report.shading import shading
from ncai.report.svg import Chart
from ncai.report.words import nice

_GRID = (120, 140)
# Columns of the picture for each value of an input with few values.
_SLAB, _SLAB_GAP = 30, 3


@dataclass(frozen=True, eq=False)
class FeatureAxis:
    """An input on the horizontal axis: a line of numbers, or a place for each value.

    Attributes:
        axis: the axis.
        values: where the density is computed.
        places: where that is on the axis.
        discrete: whether each value has a place of its own.
    """

    axis: Axis
    values: np.ndarray
    places: np.ndarray
    discrete: bool

    def place(self, column: np.ndarray) -> np.ndarray:
        """Where values of the input are; equal ones are spread, to be seen."""
        if not self.discrete:
            return column
        nearest = np.abs(column[:, None] - self.values).argmin(axis=1)
        jitter = np.random.default_rng(0).uniform(-0.28, 0.28, len(column))
        return nearest + jitter


def feature_axis(name: str, column: np.ndarray, num: int) -> FeatureAxis:
    """The axis of an input."""
    if is_discrete(column):
        values = np.unique(column)
        places = np.arange(len(values), dtype=float)
        ticks = [
            (float(p), nice(float(v))) for p, v in zip(places, values, strict=True)
        ]
        return FeatureAxis(
            Axis(-0.5, len(values) - 0.5, name, ticks), values, places, True
        )
    axis = axis_for(column, name, 0.02)
    step = (axis.high - axis.low) / num
    values = axis.low + step * (np.arange(num) + 0.5)
    return FeatureAxis(axis, values, values, False)


def target_axis(subject: Subject) -> Axis:
    """The target on the vertical axis: all data, and where most of the density is."""
    return axis_for(subject.target, subject.y_label, 0.12)


@dataclass(frozen=True, eq=False)
class Densities:
    """p(y|x) of every method over one input, the others at their median.

    Attributes:
        feature: number of the input.
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
    column = subject.train[:, feature]
    across = feature_axis(subject.names[feature], column, _GRID[0])
    upright = target_axis(subject)
    y_grid = _cells(upright, _GRID[1])
    rows = rows_along(subject.train, feature, across.values)
    found = {
        method.key: conditional_density(method.model, rows, across.places, y_grid)
        for method in subject.methods
    }
    return Densities(feature, across, upright, y_grid, found)


def _cells(axis: Axis, num: int) -> np.ndarray:
    """Middles of equal cells: a picture of them fills the axis to its ends."""
    return axis.low + (axis.high - axis.low) / num * (np.arange(num) + 0.5)
