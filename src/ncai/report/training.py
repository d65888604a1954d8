"""How training went, and which restart was chosen."""

from typing import Any

import numpy as np

from ncai.report.axes import Axis
from ncai.report.inputs import Subject
from ncai.report.svg import Chart
from ncai.report.words import count, fixed
from ncai.training_history import (
    NAMES,
    chosen_restart,
    history_of,
    settled_limits,
    stage_starts,
    term_values,
    terms_of,
)


def training(subject: Subject) -> dict[str, Any]:
    """Charts of the objective and of each term, the restarts, and words."""
    model = subject.model
    notes = [
        f"{reason[:1].upper()}{reason[1:]}." for reason in model.stop_reasons_ or []
    ]
    if model.restarts_lost_:
        notes.append(
            f"{count(model.restarts_lost_, 'restart')} became non-finite and were "
            "dropped."
        )
    if getattr(model, "sampler_report_", None) is not None:
        notes.append(str(model.sampler_report_))
    try:
        charts = _charts(model)
        missing = ""
    except ValueError as error:
        charts, missing = [], f"{str(error)[:1].upper()}{str(error)[1:]}"
    return {
        "charts": charts,
        "missing": missing,
        "notes": notes,
        "stages": _num_stages(model) > 1,
        "one_predicts": chosen_restart(model) is not None,
        "penalised": any(chart["title"] == NAMES["penalty"] for chart in charts),
        "restarts": _restarts(model),
        "score_name": model.score_name_,
        "seconds": float(model.fit_seconds_),
        "steps": int(model.n_iter_),
    }


def _num_stages(model) -> int:
    history = getattr(model, "history_", None) or {"stage": ()}
    return len(set(history["stage"]))


def _charts(model) -> list[dict[str, Any]]:
    history, chosen = history_of(model)
    charts = []
    for term in terms_of(history):
        values = term_values(history, term)
        known = np.isfinite(values)
        # A line needs two points, and a constant says nothing.
        if known.any(axis=1).sum() < 2 or not np.ptp(values[known]):
            continue
        charts.append(_chart(history, chosen, term, values))
    return charts


def _chart(history, chosen: int | None, term: str, values) -> dict[str, Any]:
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
    shown = np.clip(values, low, high)
    for restart in range(values.shape[1]):
        if restart != chosen:
            chart.line(steps, shown[:, restart], "line restart")
    if chosen is not None:
        chart.line(steps, shown[:, chosen], "line chosen")
    return {"svg": chart.render(), "title": name, "big": big}


def _restarts(model) -> list[dict[str, Any]]:
    scores = np.asarray(model.restart_scores_, float)
    if model.score_name_ == "none" or not len(scores):
        return []
    chosen = chosen_restart(model)
    finite = scores[np.isfinite(scores)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    span = (high - low) or 1.0
    return [
        {
            "number": number,
            "score": fixed(float(score)) if np.isfinite(score) else "left out",
            "share": round(15 + 85 * (score - low) / span) if np.isfinite(score) else 0,
            "chosen": number == chosen,
        }
        for number, score in enumerate(scores)
    ]
