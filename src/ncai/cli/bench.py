"""`ncai bench`: the commands that measure. They need a clone of the repository."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import ncai
from ncai.cli._options import Force

PARTS = (
    "step_costs, profile, hz, growth_with_rows, predictions, time_to_quality, "
    "fit_overhead, study or fits"
)


def add_bench(app: typer.Typer, guard, example) -> None:
    """Add the commands to the main app, which decides how errors are reported."""
    bench = typer.Typer(
        help="Measure speed and quality beside peers; speed without a command. "
        "Needs a clone of the repository.",
        rich_markup_mode=None,
        epilog=example(
            "ncai bench",
            "ncai bench --full --out bench.json",
            "ncai bench quality --table",
            "ncai bench mark-stale",
        ),
    )
    bench.callback(invoke_without_command=True)(guard(speed))
    bench.command(
        epilog=example(
            "ncai bench quality --methods default --sets yacht,energy --splits 5",
            "ncai bench quality --methods peers --sets real --jobs 2",
            "ncai bench quality --table",
        )
    )(guard(quality))
    bench.command(
        epilog=example('ncai bench mark-stale --reason "The penalties were changed."')
    )(guard(mark_stale))
    app.add_typer(bench, name="bench")


def find_benchmarks() -> None:
    """Make the folder `benchmarks` of this clone importable.

    Raises:
        ValueError: the package was not installed from a clone, so there is none.
    """
    clone = Path(ncai.__file__).parents[2]
    if not (clone / "benchmarks" / "__init__.py").exists():
        raise ValueError(
            "`ncai bench` needs a clone of the repository, because the installed "
            "package does not contain the benchmarks: clone it, install it with "
            "`pip install --editable .` and run the command again."
        )
    if str(clone) not in sys.path:
        sys.path.insert(0, str(clone))


def speed(
    context: typer.Context,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Also measure peers (where installed), HZ, growth with rows and "
            "prediction, which takes about half an hour. Without it, only the costs "
            "of our own training steps.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Only this part of the full run (may be repeated): {PARTS}."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write the numbers there, as JSON.")
    ] = None,
    force: Force = False,
) -> None:
    """Measure speed; nothing else should run meanwhile."""
    find_benchmarks()
    if context.invoked_subcommand is not None:
        return
    from benchmarks.speed.run import run_bench
    from ncai.cli import _options as options

    if out is not None:
        # Parts that are asked for by name are added to what is there.
        options.check_output(out, force or bool(only), [])
        options.check_output(out.with_suffix(".md"), force or bool(only), [])
    run_bench(full, out, typer.echo, tuple(only or ()))


def quality(
    sets: Annotated[
        str,
        typer.Option(
            help="Data sets between commas: names, or all, real, dequantised, "
            "synthetic, inner."
        ),
    ] = "all",
    methods: Annotated[
        str,
        typer.Option(help="Methods between commas: names, or all, ours, peers, leads."),
    ] = "all",
    splits: Annotated[
        int, typer.Option(min=1, max=20, help="How many of the 20 splits to use.")
    ] = 20,
    jobs: Annotated[int, typer.Option(min=1, help="Fits side by side.")] = 1,
    again: Annotated[
        bool, typer.Option("--again", help="Run again what has results already.")
    ] = False,
    table: Annotated[
        bool, typer.Option("--table", help="Fit nothing; only write the tables.")
    ] = False,
    judged: Annotated[
        str, typer.Option(help="The method that targets are checked for.")
    ] = "default",
    out: Annotated[
        Path, typer.Option(help="Folder of results; the table is beside it.")
    ] = Path("results/bench/quality"),
) -> None:
    """Score predictive densities on 20 splits beside peers; resumes when run again."""
    from benchmarks.quality.run import Request, bench_quality

    request = Request(sets, methods, splits, jobs, again, table, judged)
    raise typer.Exit(bench_quality(request, out, typer.echo))


def mark_stale(
    reason: Annotated[
        str, typer.Option(help="Why numbers may differ; shown on the pages.")
    ] = "computed by older code.",
    results: Annotated[
        Path, typer.Option(help="The folder with bench/ and study/.")
    ] = Path("results"),
) -> None:
    """Mark committed results that the present code did not compute as stale."""
    from benchmarks.quality.run import mark_stale

    mark_stale(results, reason, typer.echo)
