"""What a notebook shows of a fitted estimator, below scikit-learn's own table."""

from html import escape
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ncai.diagnostics.latent_diagnosis import LatentDiagnosis

# Diagnosing takes a second or so: once for each fit, however often it is shown.
_DIAGNOSES: WeakKeyDictionary[Any, tuple[Any, LatentDiagnosis]] = WeakKeyDictionary()
_STYLE = (
    "border-collapse:collapse;margin:8px 0 4px;font-size:13px;"
    "font-variant-numeric:tabular-nums"
)
_CELL = "text-align:left;padding:3px 14px 3px 0;vertical-align:top"


def fitted_html(model) -> str:
    """A small table: size, score, restarts, time, and the verdict on z."""
    rows = "".join(
        f'<tr><th style="{_CELL};font-weight:600">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(text)}</td></tr>'
        for name, text in fitted_facts(model)
    )
    return f'<table style="{_STYLE}"><tbody>{rows}</tbody></table>'


def fitted_facts(model) -> list[tuple[str, str]]:
    """Names and texts of what is worth knowing about a fit."""
    network = model.posterior_.model.network
    rows = model.training_rows_
    inputs = "input" if network.input_dim == 1 else "inputs"
    size = f"{network.input_dim} {inputs}, {network.num_weights:,} weights"
    if rows is not None:
        size = f"{len(rows):,} rows, {size}"
    facts = [("fitted to", size), ("restarts", _restarts(model))]
    facts.append(("training", f"{model.n_iter_:,} steps in {model.fit_seconds_:.0f} s"))
    if model.sampler_report_ is not None:
        facts.append(("chains", str(model.sampler_report_)))
    if network.latent_dim == 0:
        return [*facts, ("z", "none: the noise has the same width everywhere")]
    found = _diagnosis(model)
    if found is None:
        return [*facts, ("z", "cannot be judged without the training rows")]
    return [
        *facts,
        ("z and x", found.independence_verdict),
        ("z and its prior", found.prior_verdict),
    ]


def _restarts(model) -> str:
    scores = np.asarray(model.restart_scores_, float)
    if model.score_name_ == "none":
        return f"{len(scores)} chains"
    finite = np.sort(scores[np.isfinite(scores)])[::-1]
    text = f"best of {len(scores)}: {finite[0]:.3f}"
    kept = len(model.posterior_.shares)
    if kept > 1:
        text = f"{kept} of {len(scores)} kept, the best at {finite[0]:.3f}"
    if len(finite) > 1:
        text += f", the others down to {finite[-1]:.3f}"
    if model.restarts_lost_:
        text += f", {model.restarts_lost_} lost"
    return f"{text} ({model.score_name_})"


def _diagnosis(model) -> LatentDiagnosis | None:
    known = _DIAGNOSES.get(model)
    if known is not None and known[0] is model.posterior_:
        return known[1]
    try:
        found = model.diagnose()
    except ValueError:  # without training rows, or too few of them
        return None
    _DIAGNOSES[model] = (model.posterior_, found)
    return found
