"""`ncai study`: run the paper's experiments, and see how far they are."""

from pathlib import Path
from typing import Annotated

import typer

RESULTS = Path("results/study")
Names = Annotated[
    list[str] | None, typer.Argument(help="Studies; all of them if none is named.")
]
ScaleName = Annotated[str, typer.Option("--scale", help="smoke, small or paper.")]
Folder = Annotated[Path, typer.Option("--out", help="Where results are kept.")]


def add_study(app: typer.Typer, guard, example) -> None:
    """Add the commands to the main app, with its way of telling errors."""
    study = typer.Typer(
        help="The paper's experiments: run, resume, look.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )

    @study.command(
        epilog=example(
            "ncai study run --scale smoke",
            "ncai study run benchmark --scale paper --jobs 2",
        )
    )
    @guard
    def run(
        names: Names = None,
        scale: ScaleName = "paper",
        jobs: Annotated[int, typer.Option(min=1, help="Cells side by side.")] = 1,
        scheduler: Annotated[
            str | None,
            typer.Option(help="Address of a Dask scheduler, tcp://HOST:PORT."),
        ] = None,
        out: Folder = RESULTS,
    ) -> None:
        """Run what is missing; stopped at any moment, the same command goes on."""
        from ncai.study.console import run_and_show

        raise typer.Exit(run_and_show(names, scale, jobs, scheduler, out))

    @study.command(epilog=example("ncai study status --scale paper"))
    @guard
    def status(
        names: Names = None, scale: ScaleName = "paper", out: Folder = RESULTS
    ) -> None:
        """How many cells are done, failed and missing."""
        from ncai.study.console import show_status

        show_status(names, scale, out)

    @study.command(epilog=example("ncai study tables --scale paper"))
    @guard
    def tables(
        names: Names = None, scale: ScaleName = "paper", out: Folder = RESULTS
    ) -> None:
        """Write every table that the results so far allow (Markdown, CSV, LaTeX)."""
        from ncai.study.console import write_tables

        write_tables(names, scale, out)

    @study.command(epilog=example("ncai study figures --scale paper"))
    @guard
    def figures(
        names: Names = None, scale: ScaleName = "paper", out: Folder = RESULTS
    ) -> None:
        """Draw every figure that the results so far allow (PNG)."""
        from ncai.study.console import draw_figures

        draw_figures(names, scale, out)

    app.add_typer(study, name="study")
