"""`ncai study`: run the paper's experiments, and show their progress and results."""

from pathlib import Path
from typing import Annotated

import typer

RESULTS = Path("results/study")
Names = Annotated[
    list[str] | None, typer.Argument(help="Names of studies. Default: all.")
]
ScaleName = Annotated[str, typer.Option("--scale", help="smoke, small or paper.")]
Folder = Annotated[Path, typer.Option("--out", help="Folder of the results.")]

# Commands that read the results so far: their help text and their function.
LOOKS = {
    "status": ("Show how many cells are done, failed and missing.", "show_status"),
    "figures": (
        "Draw all figures for which there are results (PNG).",
        "draw_figures",
    ),
    "report": (
        "Write one page with all tables, figures and claims (HTML).",
        "write_whole_report",
    ),
    "pack": (
        "Move the files of finished cells into two files that can be committed.",
        "pack_results",
    ),
}


def add_study(app: typer.Typer, guard, example) -> None:
    """Add the commands to the main app, which decides how errors are reported."""
    study = typer.Typer(
        help="Run or resume the paper's experiments, and show the results.",
        no_args_is_help=True,
        rich_markup_mode=None,
        epilog=example("ncai study run --scale smoke", "ncai study status"),
    )
    study.command(
        epilog=example(
            "ncai study run --scale smoke",
            "ncai study run benchmark --scale paper --jobs 2",
        )
    )(guard(run))
    study.command(
        epilog=example(
            "ncai study tables --scale paper",
            "ncai study tables theory --scale smoke --files",
        )
    )(guard(tables))
    for name, (words, function) in LOOKS.items():
        _add_look(study, guard, example, name, words, function)
    app.add_typer(study, name="study")


def run(
    names: Names = None,
    scale: ScaleName = "paper",
    jobs: Annotated[int, typer.Option(min=1, help="Number of parallel processes.")] = 1,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler, tcp://HOST:PORT.")
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Also run stale cells again.")
    ] = False,
    out: Folder = RESULTS,
) -> None:
    """Run all missing cells; run the same command again to resume after a stop."""
    from ncai.study.console import run_and_show

    raise typer.Exit(run_and_show(names, scale, jobs, scheduler, out, stale))


def tables(
    names: Names = None,
    scale: ScaleName = "paper",
    files: Annotated[
        bool,
        typer.Option(
            "--files", help="Also write a file for each table: .md, .csv and .tex."
        ),
    ] = False,
    out: Folder = RESULTS,
) -> None:
    """Write a page with all tables for which there are results (Markdown).

    If you name studies, the command prints their tables instead.
    """
    from ncai.study.console import write_tables

    write_tables(names, scale, out, files)


def _add_look(study: typer.Typer, guard, example, name, words, function) -> None:
    @study.command(name, help=words, epilog=example(f"ncai study {name} --scale paper"))
    @guard
    def look(
        names: Names = None, scale: ScaleName = "paper", out: Folder = RESULTS
    ) -> None:
        from ncai.study import console

        getattr(console, function)(names, scale, out)
