"""Densities as pictures: shaded over one input, and as ridges at chosen rows."""

import base64
import struct
import zlib
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from ncai.diagnostics.curves import (
    ConditionalDensity,
    conditional_density,
    darkest_density,
    row_densities,
)
from ncai.report.axes import Axis, FeatureAxis, axis_for, cell_middles, value_text
from ncai.report.subject import Method, PredictedByModel, Subject, row_label, shared
from ncai.report.svg import Chart, number
from ncai.report.words import nice, shorten

# Points across and up.
_GRID = (120, 140)
# Pixel columns for each level of a discrete input, and the gap at both sides.
_SLAB, _SLAB_GAP = 30, 3
# The root of the density is shown, so that thin tails stay visible.
_POWER = 0.5
_RIDGES = 8
_RIDGE_POINTS = 192


@dataclass(frozen=True, eq=False)
class Densities:
    """p(y|x) of every method over one input, with the other inputs at a typical row.

    Attributes:
        feature: number of the group of input columns.
        across: the horizontal axis.
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
        """Draw the density of a method, which `switched` lets the reader turn off."""
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


@shared
def densities_over(subject: Subject, feature: int) -> Densities:
    """The density of every method over one group of inputs."""
    group = subject.groups[feature]
    across = subject.axis_of(group, _GRID[0])
    upright = axis_for(subject.target, subject.y_label, 0.12)
    y_grid = cell_middles(upright, _GRID[1])
    rows = np.tile(subject.typical, (len(across.settings), 1))
    rows[:, subject.columns(group)] = across.settings
    found = {
        method.key: conditional_density(method.model, rows, across.places, y_grid)
        for method in subject.methods
    }
    return Densities(feature, across, upright, y_grid, found)


# ----- Shades -------------------------------------------------------------------------


def shading(density: np.ndarray, darkest: float, colour: str) -> str:
    """A data URI of p(y|x) [G, H], x across and y up.

    The palette is one colour in 256 degrees of opacity, so that a density of zero shows
    the background, light or dark.
    """
    share = np.clip(density.T[::-1] / darkest, 0, 1) ** _POWER
    pixels = np.round(255 * share).astype(np.uint8)
    return "data:image/png;base64," + base64.b64encode(_png(pixels, colour)).decode()


def packed(density: np.ndarray, darkest: float | np.ndarray) -> str:
    """Densities as bytes for the script, with 255 for the darkest."""
    share = np.clip(density / darkest, 0, 1)
    return base64.b64encode(np.round(255 * share).astype(np.uint8).tobytes()).decode()


def _png(pixels: np.ndarray, colour: str) -> bytes:
    height, width = pixels.shape
    red_green_blue = bytes.fromhex(colour.removeprefix("#"))
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", red_green_blue * 256),
            _chunk(b"tRNS", bytes(range(256))),
            _chunk(b"IDAT", zlib.compress(lines, 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return b"".join(
        (
            struct.pack(">I", len(content)),
            kind,
            content,
            struct.pack(">I", zlib.crc32(kind + content)),
        )
    )


# ----- Ridges -------------------------------------------------------------------------


def ridgelines(subject: Subject) -> Markup:
    """The conditional density at rows from low to high, each with its own target."""
    rows, predicted = _ridge_rows(subject)
    by = rows[:, 0] if subject.one_input else predicted.mean
    # Rows with equal inputs have equal densities: one of them is enough.
    order = np.unique(by, return_index=True)[1]
    picked = order[np.linspace(0, len(order) - 1, min(_RIDGES, len(order))).astype(int)]
    predictive, y = predicted.predictive[picked], predicted.target[picked]
    ends = np.asarray(predictive.quantile([0.002, 0.998])).reshape(len(picked), 2)
    axis = _ridge_axis(subject, ends, y)
    grid = np.linspace(axis.low, axis.high, _RIDGE_POINTS)
    density = row_densities(predictive, np.tile(grid, (len(picked), 1)))
    heights = density / np.maximum(density.max(axis=1, keepdims=True), 1e-300)
    labels = [_ridge_label(subject, rows[place], int(place)) for place in picked]
    ticks = [(float(i), shorten(text, 18)) for i, text in enumerate(labels)]
    chart = Chart(
        axis,
        Axis(-0.2, len(picked) + 0.35, "", ticks),
        760,
        70 + 44 * len(picked),
        title="Conditional densities at chosen rows",
        kind="ridges",
    )
    for place in reversed(range(len(picked))):
        top = place + 1.25 * heights[place]
        chart.band(grid, np.full(len(grid), place), top, "ridge", subject.main.key)
        chart.line(grid, top, "line thin", subject.main.key)
        x, base = float(chart.x(y[place])), float(chart.y(place))
        mark = f"M{number(x)} {number(base)}V{number(base - 13)}"
        chart.add(f'<path class="target" d="{mark}"/>')
    return chart.render()


def _ridge_rows(subject: Subject) -> tuple[np.ndarray, PredictedByModel]:
    """Held-out rows where there are any: training rows would flatter the model."""
    if subject.held_out:
        return subject.eval_inputs.to_numpy(float), subject.main_on_eval
    return subject.train[subject.shown], subject.on_shown


def _ridge_axis(subject: Subject, ends: np.ndarray, y: np.ndarray) -> Axis:
    # A far tail would squeeze everything else into a corner.
    room = 0.3 * np.ptp(subject.target) or np.inf
    low, high = subject.target.min() - room, subject.target.max() + room
    return axis_for(np.append(np.clip(ends, low, high), y), subject.y_label, 0.02)


def _ridge_label(subject: Subject, row: np.ndarray, place: int) -> str:
    if subject.one_input:
        group, value = subject.groups[0], float(row[0])
        text = nice(value, 2) if group.origin is None else value_text(group, value)
        return f"{shorten(group.name, 7)} = {text}"
    if subject.held_out:
        return row_label(subject.eval_inputs.index, place)
    return subject.row_names[place]
