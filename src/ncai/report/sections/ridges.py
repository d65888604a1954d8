"""The conditional density at chosen rows, one above the other."""

import numpy as np
from markupsafe import Markup

from ncai.diagnostics.conditional import row_densities
from ncai.report.draw.axes import Axis, axis_for
from ncai.report.draw.feature_axis import value_text
from ncai.report.draw.svg import Chart, number, shorten
from ncai.report.inputs import Subject, row_label
from ncai.report.words import nice

_RIDGES = 8
_POINTS = 192


def ridgelines(subject: Subject) -> Markup:
    """The conditional density at rows from low to high, each with its own target."""
    # Rows that the model has learned from would flatter it.
    rows, all_y, everywhere = (
        (
            subject.judged.to_numpy(float),
            subject.judged_target,
            subject.judged_predictive[subject.main.key],
        )
        if subject.judged_are_new
        else (
            subject.train[subject.shown],
            subject.target[subject.shown],
            subject.shown_predictive,
        )
    )
    by = rows[:, 0] if subject.one_input else np.asarray(everywhere.mean()).reshape(-1)
    # Equal inputs have equal densities: one of them is enough.
    order = np.unique(by, return_index=True)[1]
    picked = order[np.linspace(0, len(order) - 1, min(_RIDGES, len(order))).astype(int)]
    predictive = everywhere[picked]
    ends = np.asarray(predictive.quantile([0.002, 0.998])).reshape(len(picked), 2)
    y = all_y[picked]
    # A far tail must not squeeze what matters into a corner.
    room = 0.3 * np.ptp(subject.target) or np.inf
    low, high = subject.target.min() - room, subject.target.max() + room
    shown = np.append(np.clip(ends, low, high), y)
    axis = axis_for(shown, subject.y_label, 0.02)
    grid = np.linspace(axis.low, axis.high, _POINTS)
    density = row_densities(predictive, np.tile(grid, (len(picked), 1)))
    heights = density / np.maximum(density.max(axis=1, keepdims=True), 1e-300)
    labels = [_ridge_label(subject, rows[place], int(place)) for place in picked]
    chart = Chart(
        axis,
        Axis(
            -0.2,
            len(picked) + 0.35,
            "",
            [(float(i), shorten(t, 18)) for i, t in enumerate(labels)],
        ),
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


def _ridge_label(subject: Subject, row: np.ndarray, place: int) -> str:
    if subject.one_input:
        group, value = subject.groups[0], float(row[0])
        text = nice(value, 2) if group.origin is None else value_text(group, value)
        return f"{shorten(group.name, 7)} = {text}"
    if subject.judged_are_new:
        return row_label(subject.judged.index, place)
    return subject.row_name(int(subject.shown[place]))
