"""Aleatoric against epistemic: over x, row by row, and the most uncertain rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from ncai.diagnostics.curves import is_discrete
from ncai.predictive.intervals import rests_on_rare_draws
from ncai.report.axes import Axis, axis_for
from ncai.report.subject import Subject, shared, standard_deviations
from ncai.report.svg import Chart
from ncai.report.words import cell, nice

_LISTED = 10
_GRID = 100
# Above this share of rows, the report calls the variances rough.
_MANY = 0.1
# Marks of rows that are in neither list of the most uncertain, in the first, in the
# second, and in both.
_MARKS = ("data", "dots aleatoric", "dots epistemic", "dots both")


@dataclass(frozen=True, eq=False)
class Split:
    """What the template places, and the numbers that the answer quotes.

    Attributes:
        over_input: both kinds over x, if there is one input with many values.
        scatter: one point per row.
        lists: the most uncertain rows of each kind.
        aleatoric_share: aleatoric share of the variance, averaged over rows.
        noise_ratio: 95th percentile of the aleatoric standard deviations, divided by
            the 5th.
        rare_share: share of rows whose standard deviation rests on a few rare draws.
    """

    over_input: Markup | None
    scatter: Markup
    lists: list[dict[str, Any]]
    aleatoric_share: float
    noise_ratio: float
    rare_share: float = 0.0

    @property
    def is_rough(self) -> bool:
        """Whether the variances of many rows say little about typical widths."""
        return self.rare_share > _MANY


@shared
def split(subject: Subject) -> Split:
    """Decompose the variance of the rows shown."""
    aleatoric, epistemic = subject.on_shown.stds
    total = np.hypot(aleatoric, epistemic)
    low, high = np.quantile(aleatoric, [0.05, 0.95])
    rare = rests_on_rare_draws(
        subject.on_shown.predictive, total, subject.on_shown.width
    )
    return Split(
        over_input=_over_input(subject),
        scatter=_scatter(subject, aleatoric, epistemic),
        lists=[
            _most_uncertain(subject, "aleatoric", aleatoric),
            _most_uncertain(subject, "epistemic", epistemic),
        ],
        aleatoric_share=float(np.mean(aleatoric**2 / (aleatoric**2 + epistemic**2))),
        noise_ratio=float(high / max(low, 1e-300)),
        rare_share=float(rare.mean()),
    )


def _over_input(subject: Subject) -> Markup | None:
    if not subject.one_input or is_discrete(subject.train[:, 0]):
        return None
    across = subject.axis_of(subject.groups[0], _GRID)
    predictive = subject.predict(subject.main, across.settings)
    x, (aleatoric, epistemic) = across.places, standard_deviations(predictive)
    total = np.hypot(aleatoric, epistemic)
    chart = Chart(
        across.axis,
        Axis(0, 1.08 * float(total.max()), f"standard deviation of {subject.y_label}"),
        480,
        300,
        title="Uncertainty over the input",
    )
    chart.line(x, total, "line total")
    chart.line(x, aleatoric, "line aleatoric")
    chart.line(x, epistemic, "line epistemic")
    return chart.render()


def _scatter(subject: Subject, aleatoric, epistemic) -> Markup:
    across = axis_for(np.append(aleatoric, 0), "aleatoric standard deviation")
    upright = axis_for(np.append(epistemic, 0), "epistemic standard deviation")
    chart = Chart(
        Axis(0, across.high, across.label),
        Axis(0, upright.high, upright.label),
        *((480, 300) if subject.one_input else (760, 380)),
        title="Rows by both kinds of uncertainty",
    )
    rows = np.arange(len(aleatoric))
    top = [set(np.argsort(-part)[:_LISTED]) for part in (aleatoric, epistemic)]
    kinds = np.array([(row in top[0]) + 2 * (row in top[1]) for row in rows])
    for kind, name in enumerate(_MARKS):
        chosen = kinds == kind
        chart.points(
            aleatoric[chosen],
            epistemic[chosen],
            name,
            rows[chosen].tolist(),
            radius=3 if kind == 0 else 4.5,
        )
    return chart.render()


def _most_uncertain(subject: Subject, kind: str, values) -> dict[str, Any]:
    aleatoric, epistemic = subject.on_shown.stds
    rows = []
    for place in np.argsort(-values, kind="stable")[:_LISTED]:
        position = int(subject.shown[place])
        rows.append(
            {
                "place": int(place),
                "name": subject.row_name(position),
                "y": cell(subject.target[position]),
                "mean": nice(float(subject.on_shown.mean[place])),
                "aleatoric": nice(float(aleatoric[place])),
                "epistemic": nice(float(epistemic[place])),
            }
        )
    return {"kind": kind, "rows": rows}
