"""`ncai bench`: the benchmark commands, which need a clone of the repository."""

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
        help="Measure speed and quality next to peers; without a command, only speed. "
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
            "prediction, which takes about half an hour. Without this option, only the "
            "costs of our own training steps are measured.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Measure only this part of the full run (may be repeated): {PARTS}."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="JSON file to write the numbers to.")
    ] = None,
    force: Force = False,
) -> None:
    """Measure speed. Run nothing else at the same time."""
    find_benchmarks()
    if context.invoked_subcommand is not None:
        return
    from benchmarks.speed.run import run_bench
    from ncai.cli import _options as options

    if out is not None:
        # Parts requested by name are added to an existing file.
        options.check_output(out, force or bool(only), [])
        options.check_output(out.with_suffix(".md"), force or bool(only), [])
    run_bench(full, out, typer.echo, tuple(only or ()))


def quality(
    sets: Annotated[
        str,
        typer.Option(
            help="Comma-separated data sets, or all, real, dequantised, "
            "synthetic, inner."
        ),
    ] = "all",
    methods: Annotated[
        str,
        typer.Option(help="Comma-separated methods, or all, ours, peers, leads."),
    ] = "all",
    splits: Annotated[
        int, typer.Option(min=1, max=20, help="Number of splits to use, at most 20.")
    ] = 20,
    jobs: Annotated[int, typer.Option(min=1, help="Number of parallel fits.")] = 1,
    again: Annotated[
        bool, typer.Option("--again", help="Run again even if results exist.")
    ] = False,
    table: Annotated[
        bool, typer.Option("--table", help="Fit nothing; only write the tables.")
    ] = False,
    judged: Annotated[
        str, typer.Option(help="Method whose results are compared with our targets.")
    ] = "default",
    out: Annotated[
        Path,
        typer.Option(help="Folder of the results; the tables are written next to it."),
    ] = Path("results/bench/quality"),
) -> None:
    """Score predictive densities next to peers; run it again to resume."""
    from benchmarks.quality.run import Request, bench_quality

    request = Request(sets, methods, splits, jobs, again, table, judged)
    raise typer.Exit(bench_quality(request, out, typer.echo))


def mark_stale(
    reason: Annotated[
        str, typer.Option(help="Why the numbers may differ; the pages show it.")
    ] = "computed by older code.",
    results: Annotated[
        Path, typer.Option(help="Folder that contains bench/ and study/.")
    ] = Path("results"),
) -> None:
    """Mark committed results that the present code did not compute as stale."""
    from benchmarks.quality.run import mark_stale

    mark_stale(results, reason, typer.echo)
