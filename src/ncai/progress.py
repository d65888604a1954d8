"""A progress bar for a fit: stage, objective, its terms, and the time left."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ncai.optimise import Progress

SHORT_NAMES = {
    "expected_log_likelihood": "loglik",
    "kl_weights": "KL(W)",
    "kl_latents": "KL(z)",
    "hz": "HZ",
    "pc_inputs": "PC(x)",
    "pc_targets": "PC(y)",
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
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichProgress

    bar = RichProgress(
        TextColumn("{task.description:>10}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:>6.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[terms]}"),
        console=Console(file=sys.stderr),
    )
    tasks: dict[str, object] = {}
    with bar:

        def tell(progress: Progress) -> None:
            if progress.stage not in tasks:
                for task in tasks.values():
                    bar.stop_task(task)  # pyright: ignore[reportArgumentType]
                tasks[progress.stage] = bar.add_task(
                    progress.stage, total=progress.max_steps, terms=""
                )
            bar.update(
                tasks[progress.stage],  # pyright: ignore[reportArgumentType]
                completed=progress.step,
                terms=describe(progress),
            )

        yield tell
