"""How training went, and which restarts predict."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ncai.diagnostics.curves import (
    NAMES,
    chosen_restart,
    history_of,
    restart_kinds,
    restart_shares,
    settled_limits,
    stage_starts,
    term_values,
    terms_of,
)
from ncai.report.axes import Axis
from ncai.report.subject import Subject, shared
from ncai.report.svg import Chart
from ncai.report.words import count, fixed, percent, sentence

# The opacity of a restart with a small weight, and how far lines may leave the scale.
_FAINTEST, _FAR = 0.25, 20


@dataclass(frozen=True, eq=False)
class Training:
    """The contents of the section, which the template shows.

    Attributes:
        charts: the objective and each of its terms over the steps.
        missing: why there are no charts; empty if there are.
        notes: sentences on how training ended.
        has_stages: whether training had several stages.
        one_predicts: whether a single restart predicts.
        shares_known: whether the weights of the restarts are known.
        drawn_predict: whether a restart that predicts is in the charts.
        kinds: restarts by the part of training that they belong to.
        penalised: whether penalties on z were part of the objective.
        restarts: each restart with its score and weight.
        score_name: the score that restarts are compared by.
        seconds: duration of the fit.
        steps: number of steps.
    """

    charts: list[dict[str, Any]]
    missing: str
    notes: list[str]
    has_stages: bool
    one_predicts: bool
    shares_known: bool
    drawn_predict: bool
    kinds: list[dict[str, Any]]
    penalised: bool
    restarts: list[dict[str, Any]]
    score_name: str
    seconds: float
    steps: int


@shared
def training(subject: Subject) -> Training:
    """Draw the training curves and list the restarts."""
    model = subject.model
    try:
        charts, missing = _charts(model), ""
    except ValueError as error:
        charts, missing = [], sentence(str(error))
    return Training(
        charts=charts,
        missing=missing,
        notes=_notes(model),
        has_stages=_num_stages(model) > 1,
        one_predicts=chosen_restart(model) is not None,
        shares_known=restart_shares(model) is not None,
        drawn_predict=any(chart["predicts"] for chart in charts),
        kinds=_kinds(model),
        penalised=any(chart["title"] == NAMES["penalty"] for chart in charts),
        restarts=_restarts(model),
        score_name=model.score_name_,
        seconds=float(model.fit_seconds_),
        steps=int(model.n_iter_),
    )


def _notes(model) -> list[str]:
    notes = [f"{sentence(reason)}." for reason in model.stop_reasons_ or []]
    if model.restarts_lost_:
        lost = count(model.restarts_lost_, "restart")
        notes.append(f"{lost} became non-finite and had to be dropped.")
    if getattr(model, "sampler_report_", None) is not None:
        notes.append(str(model.sampler_report_))
    return notes


def _num_stages(model) -> int:
    history = getattr(model, "history_", None) or {"stage": ()}
    return len(set(history["stage"]))


def _charts(model) -> list[dict[str, Any]]:
    history, chosen = history_of(model)
    shares = restart_shares(model)
    charts = []
    for term in terms_of(history):
        values = term_values(history, term)
        known = np.isfinite(values)
        # A line needs two points, and a constant says nothing.
        if known.any(axis=1).sum() < 2 or not np.ptp(values[known]):
            continue
        charts.append(_chart(history, _strengths(values, chosen, shares), term, values))
    return charts


def _strengths(values, chosen: int | None, shares) -> np.ndarray:
    """Relative weight of each restart, for its line; 0 if it does not predict."""
    count = values.shape[1]
    if chosen is not None:
        return (np.arange(count) == chosen).astype(float)
    if shares is None or not shares[:count].any():
        return np.zeros(count)
    return shares[:count] / shares[:count].max()


def _chart(history, strengths: np.ndarray, term: str, values) -> dict[str, Any]:
    steps = np.asarray(history["step"], float)
    used = steps[np.isfinite(values).any(axis=1)]
    name = NAMES.get(term, term.replace("_", " "))
    low, high = settled_limits(values)
    first, last = float(used[0]), float(used[-1])
    if first == last:
        first, last = first - 1, last + 1
    big = term == "value"
    chart = Chart(
        Axis(first, last, "step"),
        Axis(low, high, name if big else ""),
        *((760, 300) if big else (300, 190)),
        title=name,
        x_ticks=8 if big else 4,
        y_ticks=5 if big else 4,
    )
    for step in stage_starts(history):
        if first < step < last:
            chart.line([step, step], [low, high], "reference")
    # Values are clipped only far outside the frame, so that slopes inside stay correct.
    far = _FAR * (high - low)
    shown = np.clip(values, low - far, high + far)
    alone = np.count_nonzero(strengths) == 1
    for restart in np.argsort(strengths, kind="stable"):
        if not strengths[restart]:
            chart.line(steps, shown[:, restart], "line restart")
        elif alone:
            chart.line(steps, shown[:, restart], "line chosen")
        else:
            opacity = _FAINTEST + (1 - _FAINTEST) * float(strengths[restart])
            chart.line(steps, shown[:, restart], "line shared", opacity=opacity)
    predicts = bool(strengths.any())
    return {"svg": chart.render(), "title": name, "big": big, "predicts": predicts}


def _kinds(model) -> list[dict[str, Any]]:
    """Number and total weight of the restarts of each part of training."""
    if model.score_name_ == "none":
        return []
    kinds, shares = np.array(restart_kinds(model)), restart_shares(model)
    return [
        {
            "name": name,
            "restarts": count(int((kinds == name).sum()), "restart"),
            "share": "" if shares is None else percent(shares[kinds == name].sum()),
        }
        for name in dict.fromkeys(kinds.tolist())
    ]


def _restarts(model) -> list[dict[str, Any]]:
    scores = np.asarray(model.restart_scores_, float)
    if model.score_name_ == "none" or not len(scores):
        return []
    chosen, shares = chosen_restart(model), restart_shares(model)
    finite = scores[np.isfinite(scores)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    span = (high - low) or 1.0
    return [
        {
            "number": number,
            "kind": kind,
            "score": fixed(float(score)) if np.isfinite(score) else "left out",
            "bar": round(15 + 85 * (score - low) / span) if np.isfinite(score) else 0,
            "share": "" if shares is None else percent(shares[number], 1),
            "chosen": number == chosen,
        }
        for number, (score, kind) in enumerate(
            zip(scores, restart_kinds(model), strict=True)
        )
    ]
