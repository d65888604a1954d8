"""A progress bar for a fit: stage, objective, its terms, and the time left."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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
    """The objective and the terms worth watching, in one line."""
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
    """A bar on standard error for as long as the context lasts; None if not shown."""
    if not show:
        yield None
        return
    tasks: dict[str, Any] = {}
    with _new_bar() as bar:

        def tell(progress: Progress) -> None:
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

        yield tell


def _new_bar():
    """Stage, bar, steps, times and terms; on a narrow terminal the terms give way."""
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
