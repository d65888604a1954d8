"""What the noise looks like: the density over the inputs that matter most."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from ncai.diagnostics.curves import ConditionalDensity
from ncai.diagnostics.permutation_importance import (
    LEAST_NATS,
    Importance,
    permutation_importance,
)
from ncai.report.axes import FeatureAxis
from ncai.report.densities import Densities, densities_over, packed, ridgelines
from ncai.report.sections.data import row_titles
from ncai.report.subject import Method, Subject, shared
from ncai.report.svg import Chart, number
from ncai.report.words import fixed, nice
from ncai.tables.inspect import decimals_for

# Inputs that get a picture of their own, and inputs in the table of importances.
MOST_FEATURES = 4
MOST_LISTED = 12


@dataclass(frozen=True, eq=False)
class Noise:
    """The contents of the section, which the template shows.

    Attributes:
        thumbnails: one small picture per method, if there are several.
        importance: the table of importances; empty if there is only one input.
        most_important: the name of the input that matters most, if one stands out.
        explorers: the density over each of the most important inputs.
        ridgelines: conditional densities at chosen rows.
    """

    thumbnails: list[dict[str, Any]]
    importance: list[dict[str, Any]]
    most_important: str | None
    explorers: list[dict[str, Any]]
    ridgelines: Markup


@shared
def noise(subject: Subject) -> Noise:
    """Draw the predicted density over the inputs that matter most."""
    found, features = importance(subject), chosen_features(subject)
    most_important = None if found is None else found.first()
    listed, titles = importance_rows(found), row_titles(subject)
    densities = [densities_over(subject, one) for one in features]
    return Noise(
        thumbnails=_thumbnails(subject, densities[0]),
        importance=listed,
        most_important=most_important,
        explorers=[_explorer(subject, one, titles) for one in densities],
        ridgelines=ridgelines(subject),
    )


@shared
def importance(subject: Subject) -> Importance | None:
    """Permutation importance of the inputs; None if there is only one."""
    if subject.one_input:
        return None
    return permutation_importance(
        subject.model,
        subject.eval_inputs,
        subject.eval_target,
        n_repeats=3,
        max_rows=300,
        groups={group.name: subject.columns(group) for group in subject.groups},
    )


def importance_rows(found: Importance | None) -> list[dict[str, Any]]:
    """The table of importances; an importance that chance explains gets no bar."""
    if found is None:
        return []
    # A bar is full at the largest importance, unless that is close to zero.
    parts = (
        ("mean", found.mean, found.rmse * np.expm1(LEAST_NATS)),
        ("spread", found.spread, LEAST_NATS),
    )
    rows: list[dict[str, Any]] = [{"name": name} for name in found.names]
    for (part, values, least), clear in zip(parts, found.is_clear(), strict=True):
        top = max(float(values.max()), float(least), 1e-300)
        decimals = decimals_for(values)
        for row, value, counts in zip(rows, values, clear, strict=True):
            row[part] = {
                "text": fixed(float(value), decimals),
                "share": round(100 * float(value) / top) if counts else 0,
                "counts": bool(counts),
            }
    return [rows[i] for i in found.order()[:MOST_LISTED]]


def chosen_features(subject: Subject) -> list[int]:
    """Numbers of the groups of inputs to draw over, the most important first."""
    found = importance(subject)
    if found is None:
        return [0]
    return [int(i) for i in found.order()[:MOST_FEATURES]]


def _explorer(
    subject: Subject, densities: Densities, titles: list[str]
) -> dict[str, Any]:
    """The density over one input, with a slider that picks one value of it.

    Returns what the template places (`svg`, `name`, ...) and, under `data`, what the
    script needs.
    """
    feature, across, y_grid = densities.feature, densities.across, densities.y
    group = subject.groups[feature]
    columns = subject.columns(group)
    wide = subject.one_input
    chart = Chart(
        across.axis,
        densities.upright,
        *((760, 420) if wide else (480, 300)),
        title=f"Density of {subject.target_name} over {group.name}",
        kind="explorer",
        right=150 if wide else 100,
    )
    off = np.abs(across.settings - subject.typical[columns]).sum(axis=1)
    start = int(off.argmin())
    data: dict[str, Any] = {
        "labels": across.labels,
        "places": [round(float(p), 5) for p in across.places],
        "y": [float(y_grid[0]), float(y_grid[-1]), len(y_grid)],
        "area": chart.plot_area(),
        "profile": [chart.width - chart.right + 12, chart.width - 8],
        "start": start,
        "methods": {},
    }
    for method in reversed(subject.methods):
        densities.shade(chart, method)
        data["methods"][method.key] = _for_script(method, densities.of[method.key])
    places = across.place(subject.train[subject.shown][:, columns])
    there = np.flatnonzero(np.isfinite(places))
    chart.points(
        places[there],
        subject.target[subject.shown][there],
        "data",
        there.tolist(),
        titles=[titles[row] for row in there],
    )
    for method in reversed(subject.methods):
        _lines(chart, method, across, densities.of[method.key])
    _profile(chart, subject, densities.of, start, data)
    return {
        "svg": chart.render(f'id="explorer-{feature}"'),
        "id": f"explorer-{feature}",
        "name": group.name,
        "steps": len(across.places) - 1,
        "start": start,
        "start_label": data["labels"][start],
        "data": data,
    }


def _thumbnails(subject: Subject, densities: Densities) -> list[dict[str, Any]]:
    """One small picture per method, side by side; none if there is only one method."""
    order = [*(m for m in subject.methods if m.is_truth), *reversed(subject.models)]
    if len(order) < 2 or not subject.one_input:
        return []
    across = densities.across
    pictures = []
    for method in order:
        shown = densities.of[method.key]
        chart = Chart(
            across.axis,
            densities.upright,
            *(224, 196),
            title=method.name,
            x_ticks=5,
            y_ticks=5,
        )
        densities.shade(chart, method, switched=False)
        chart.points(
            across.place(subject.train[subject.shown]),
            subject.target[subject.shown],
            "data",
            radius=1.2,
        )
        chart.add(f'<g data-colour="{method.key}">')
        chart.line(across.places, shown.quantiles[:, 0], "line thin")
        chart.line(across.places, shown.quantiles[:, -1], "line thin")
        chart.add("</g>").line(across.places, shown.mean, "mean")
        pictures.append(
            {"svg": chart.render(), "title": method.name, "key": method.key}
        )
    return pictures


def _lines(chart: Chart, method: Method, across: FeatureAxis, shown) -> None:
    """The mean, and the ends of the 50, 80 and 95 % intervals."""
    quantiles, places = shown.quantiles, across.places
    chart.add(f'<g data-method="{method.key}">')
    for end, kind in ((0, "q95"), (1, "q80"), (2, "q50")):
        for side in (end, -1 - end):
            if across.discrete:
                ends = np.stack(
                    [places - 0.4, places + 0.4, np.full(len(places), np.nan)]
                )
                values = np.repeat(quantiles[:, side], 3)
                chart.line(ends.T.ravel(), values, f"line {kind}")
            else:
                chart.line(places, quantiles[:, side], f"line {kind}")
    if across.discrete:
        chart.points(places, shown.mean, "mean-dots", radius=4)
    else:
        chart.line(places, shown.mean, "mean")
    chart.add("</g>")


def _profile(chart: Chart, subject: Subject, densities, start: int, data) -> None:
    """The density at one x next to the picture, on the same vertical axis."""
    left, right = data["profile"]
    x = number(float(chart.x(data["places"][start])))
    chart.over(
        f'<path class="cursor" d="M{x} {chart.top}V{chart.height - chart.bottom}"/>'
        f'<path class="axis" d="M{left} {chart.top}V{chart.height - chart.bottom}"/>'
    )
    peak = max(float(shown.density[start].max()) for shown in densities.values())
    for method in reversed(subject.methods):
        shown = densities[method.key]
        reach = left + (right - left) * shown.density[start] / max(peak, 1e-300)
        points = "".join(
            f"L{number(px)} {number(py)}"
            for px, py in zip(reach, chart.y(shown.y), strict=True)
        )
        first, last = (
            number(float(chart.y(shown.y[0]))),
            number(float(chart.y(shown.y[-1]))),
        )
        chart.over(
            f'<path class="profile" data-method="{method.key}" '
            f'd="M{left} {first}{points}L{left} {last}Z"/>'
        )


def _for_script(method: Method, shown: ConditionalDensity) -> dict[str, Any]:
    peaks = np.maximum(shown.density.max(axis=1), 1e-300)
    return {
        "name": method.name,
        "density": packed(shown.density, peaks[:, None]),
        "peaks": [float(f"{peak:.4g}") for peak in peaks],
        "summary": [
            [nice(float(m)), nice(float(low)), nice(float(high))]
            for m, low, high in zip(
                shown.mean, shown.quantiles[:, 0], shown.quantiles[:, -1], strict=True
            )
        ],
    }
