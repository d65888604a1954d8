"""How an estimator shows itself: the progress bar and the notebook summary."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ncai.diagnostics.latent_diagnosis import LatentDiagnosis
from ncai.training.driver import Progress

SHORT_NAMES = {
    "expected_log_likelihood": "loglik",
    "kl_weights": "KL(W)",
    "kl_latents": "KL(z)",
    "kl_noise": "KL(noise)",
    "log_likelihood": "loglik",
    "log_prior_weights": "log p(W)",
    "log_prior_latents": "log p(z)",
    "hz": "HZ",
    "pc_inputs": "PC(x)",
    "pc_targets": "PC(y)",
    "offdiagonal": "off-diagonal",
    "penalty": "penalty",
    "mean_squared_error": "MSE",
    "acceptance": "accept",
    "divergences": "diverged",
    "leapfrogs": "leapfrogs",
}


def describe(progress: Progress) -> str:
    """Return the objective and its main terms in one line."""
    parts = [f"objective {progress.value:.4g}"]
    parts += [
        f"{short} {progress.terms[name]:.3g}"
        for name, short in SHORT_NAMES.items()
        if name in progress.terms
    ]
    if progress.alive < progress.restarts:
        parts.append(f"{progress.restarts - progress.alive} restarts lost")
    return "  ".join(parts)


@contextmanager
def progress_bar(show: bool) -> Iterator[Callable[[Progress], None] | None]:
    """Show a bar on standard error while the context lasts; yield None if hidden."""
    if not show:
        yield None
        return
    tasks: dict[str, Any] = {}
    with _new_bar() as bar:

        def report(progress: Progress) -> None:
            if progress.stage not in tasks:
                for task in tasks.values():
                    bar.stop_task(task)
                tasks[progress.stage] = bar.add_task(
                    progress.stage, total=progress.max_steps, terms=""
                )
            bar.update(
                tasks[progress.stage],
                completed=progress.step,
                terms=describe(progress),
            )

        yield report


def _new_bar():
    """Create the bar; a narrow terminal leaves out the terms of the objective."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichProgress
    from rich.table import Column

    def fixed(width: int) -> Column:
        return Column(no_wrap=True, min_width=width)

    console = Console(file=sys.stderr)
    bar_width = 24 if console.width >= 100 else 8
    name = Column(no_wrap=True, min_width=10, max_width=20, overflow="ellipsis")
    bar = Column(no_wrap=True, min_width=8, max_width=bar_width)
    terms = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    steps = "{task.completed:.0f}/{task.total:.0f}"
    return RichProgress(
        TextColumn("{task.description}", table_column=name),
        BarColumn(bar_width=None, table_column=bar),
        TextColumn(steps, justify="right", table_column=fixed(11)),
        TextColumn("in", table_column=fixed(2)),
        TimeElapsedColumn(table_column=fixed(7)),
        TextColumn("left", table_column=fixed(4)),
        TimeRemainingColumn(table_column=fixed(7)),
        TextColumn("{task.fields[terms]}", table_column=terms),
        console=console,
        expand=True,
    )


# A diagnosis takes about a second, so it is computed once for each fit.
_DIAGNOSES: WeakKeyDictionary[Any, tuple[Any, LatentDiagnosis]] = WeakKeyDictionary()
_STYLE = (
    "border-collapse:collapse;margin:8px 0 4px;font-size:13px;"
    "font-variant-numeric:tabular-nums"
)
_CELL = "text-align:left;padding:3px 14px 3px 0;vertical-align:top"


def fitted_html(model) -> str:
    """Return an HTML table: size, score, restarts, time, and the diagnosis of z."""
    rows = "".join(
        f'<tr><th style="{_CELL};font-weight:600">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(text)}</td></tr>'
        for name, text in fitted_facts(model)
    )
    return f'<table style="{_STYLE}"><tbody>{rows}</tbody></table>'


def fitted_facts(model) -> list[tuple[str, str]]:
    """Return the labels and texts of the summary of a fit."""
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
