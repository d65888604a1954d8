"""Aleatoric against epistemic: over x, row by row, and the most uncertain rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from ncai.diagnostics.conditional import is_discrete
from ncai.predictive.rare_draws import rests_on_rare_draws
from ncai.report.draw.axes import Axis, axis_for
from ncai.report.draw.feature_axis import feature_axis
from ncai.report.draw.svg import Chart
from ncai.report.inputs import Subject
from ncai.report.sections.rows import cell
from ncai.report.words import nice

_LISTED = 10
_GRID = 100
# Values of z for each weight draw: their average is a variance to within a percent.
_LATENT_DRAWS = 64
_MANY = 0.1
# Of rows in neither list of the most uncertain, in the first, the second, and in both.
_MARKS = ("data", "dots aleatoric", "dots epistemic", "dots both")


@dataclass(frozen=True, eq=False)
class Split:
    """The section, and the numbers that the answer quotes.

    Attributes:
        over_input: lines over x, if there is one input with many values.
        scatter: one point for each row.
        lists: the most uncertain rows of each kind.
        aleatoric_share: of the variance, averaged over rows.
        noise_ratio: aleatoric standard deviation at the 95th percentile of rows over
            that at the 5th.
        rare_share: of rows whose standard deviation rests on a few rare draws.
    """

    over_input: Markup | None
    scatter: Markup
    lists: list[dict[str, Any]]
    aleatoric_share: float
    noise_ratio: float
    rare_share: float = 0.0

    @property
    def is_rough(self) -> bool:
        """Whether variances of many rows say little about the width of densities."""
        return self.rare_share > _MANY


def split(subject: Subject) -> Split:
    """Decompose the variance of the rows shown."""
    parts = _stds(subject, subject.shown_predictive)
    aleatoric, epistemic = parts
    variances = aleatoric**2, epistemic**2
    low, high = np.quantile(aleatoric, [0.05, 0.95])
    lower, upper = subject.shown_predictive.interval(0.95)
    width = np.asarray(upper - lower).reshape(-1)
    total = np.hypot(aleatoric, epistemic)
    rare = rests_on_rare_draws(subject.shown_predictive, total, width)
    return Split(
        over_input=_over_input(subject),
        scatter=_scatter(subject, aleatoric, epistemic),
        lists=[
            _most_uncertain(subject, "aleatoric", aleatoric, parts),
            _most_uncertain(subject, "epistemic", epistemic, parts),
        ],
        aleatoric_share=float(np.mean(variances[0] / sum(variances))),
        noise_ratio=float(high / max(low, 1e-300)),
        rare_share=float(rare.mean()),
    )


def _stds(subject: Subject, predictive) -> tuple[np.ndarray, np.ndarray]:
    parts = predictive.decompose("variance", num_latent_draws=_LATENT_DRAWS)
    aleatoric, epistemic = (
        np.sqrt(np.asarray(part).reshape(-1))
        for part in (parts.aleatoric, parts.epistemic)
    )
    return aleatoric, epistemic


def _over_input(subject: Subject) -> Markup | None:
    if not subject.one_input or is_discrete(subject.train[:, 0]):
        return None
    across = feature_axis(subject, subject.groups[0], _GRID)
    predictive = subject.predict(subject.main, across.settings)
    x, (aleatoric, epistemic) = across.places, _stds(subject, predictive)
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


def _most_uncertain(subject: Subject, kind: str, values, parts) -> dict[str, Any]:
    aleatoric, epistemic = parts
    mean = np.asarray(subject.shown_predictive.mean()).reshape(-1)
    rows = []
    for place in np.argsort(-values, kind="stable")[:_LISTED]:
        position = int(subject.shown[place])
        rows.append(
            {
                "place": int(place),
                "name": subject.row_name(position),
                "y": cell(subject.target[position]),
                "mean": nice(float(mean[place])),
                "aleatoric": nice(float(aleatoric[place])),
                "epistemic": nice(float(epistemic[place])),
            }
        )
    return {"kind": kind, "rows": rows}
