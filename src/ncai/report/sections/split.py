"""Aleatoric and epistemic uncertainty: over x, row by row, and the largest."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from ncai.diagnostics.curves import is_discrete
from ncai.report.axes import Axis, axis_for
from ncai.report.subject import Subject, shared, split_of
from ncai.report.svg import Chart
from ncai.report.words import cell, nice

_LISTED = 10
_GRID = 100
# Marks of rows in no list, in the list of the most aleatoric uncertainty, in the list
# of the most epistemic uncertainty, and in both lists.
_MARKS = ("data", "dots aleatoric", "dots epistemic", "dots both")


@dataclass(frozen=True, eq=False)
class Split:
    """The contents of the section, and the numbers that the answer quotes.

    Attributes:
        over_input: both kinds over x, if there is one input with many values.
        scatter: one point per row.
        lists: the most uncertain rows of each kind.
        aleatoric_share: aleatoric share of the uncertainty, averaged over held-out
            rows (over training rows if none were held out).
        noise_ratio: 95th percentile of the aleatoric part of these rows, divided by
            the 5th.
        unstable: names of rows shown whose parts have a large Monte Carlo error.
    """

    over_input: Markup | None
    scatter: Markup
    lists: list[dict[str, Any]]
    aleatoric_share: float
    noise_ratio: float
    unstable: tuple[str, ...] = ()


@shared
def split(subject: Subject) -> Split:
    """Decompose the uncertainty of the rows shown and of held-out rows."""
    shown = subject.on_shown.split
    of_new_rows = subject.main_on_eval.split
    low, high = np.quantile(of_new_rows.aleatoric, [0.05, 0.95])
    total = np.maximum(of_new_rows.total, 1e-300)
    unstable = np.flatnonzero(shown.unstable)
    return Split(
        over_input=_over_input(subject),
        scatter=_scatter(subject, shown.aleatoric, shown.epistemic),
        lists=[
            _most_uncertain(subject, "aleatoric", shown.aleatoric),
            _most_uncertain(subject, "epistemic", shown.epistemic),
        ],
        aleatoric_share=float(np.mean(of_new_rows.aleatoric / total)),
        noise_ratio=float(high / max(low, 1e-300)),
        unstable=tuple(subject.row_names[i] for i in unstable),
    )


def _over_input(subject: Subject) -> Markup | None:
    if not subject.one_input or is_discrete(subject.train[:, 0]):
        return None
    across = subject.axis_of(subject.groups[0], _GRID)
    predictive = subject.predict(subject.main, across.settings)
    x, found = across.places, split_of(predictive)
    chart = Chart(
        across.axis,
        Axis(0, 1.08 * float(found.total.max()), f"uncertainty of {subject.y_label}"),
        480,
        300,
        title="Uncertainty over the input",
    )
    chart.line(x, found.total, "line total")
    chart.line(x, found.aleatoric, "line aleatoric")
    chart.line(x, found.epistemic, "line epistemic")
    return chart.render()


def _scatter(subject: Subject, aleatoric, epistemic) -> Markup:
    across = axis_for(np.append(aleatoric, 0), "aleatoric uncertainty")
    upright = axis_for(np.append(epistemic, 0), "epistemic uncertainty")
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
    shown = subject.on_shown.split
    rows = []
    for place in np.argsort(-values, kind="stable")[:_LISTED]:
        rows.append(
            {
                "place": int(place),
                "name": subject.row_names[place],
                "y": cell(subject.target[subject.shown[place]]),
                "mean": nice(float(subject.on_shown.mean[place])),
                "aleatoric": nice(float(shown.aleatoric[place])),
                "epistemic": nice(float(shown.epistemic[place])),
            }
        )
    return {"kind": kind, "rows": rows}
