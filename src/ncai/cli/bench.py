"""`ncai bench`: the commands that measure."""

from pathlib import Path
from typing import Annotated

import typer

from ncai.cli._arguments import Force


def add_bench(app: typer.Typer, guard, example) -> None:
    """Add the commands to the main app, with its way of telling errors."""
    bench = typer.Typer(
        help="Measure speed and quality beside peers; speed without a command.",
        rich_markup_mode=None,
        epilog=example(
            "ncai bench",
            "ncai bench --full --out bench.json",
            "ncai bench quality --table",
        ),
    )

    @bench.callback(invoke_without_command=True)
    @guard
    def speed(
        context: typer.Context,
        full: Annotated[
            bool,
            typer.Option(
                "--full",
                help="Peers (where installed), HZ, growth with rows and prediction "
                "too: about half an hour. Without it, only our own step costs.",
            ),
        ] = False,
        only: Annotated[
            list[str] | None,
            typer.Option(
                help="Only this part of the full run (may be repeated): step_costs, "
                "profile, hz, growth_with_rows, predictions, time_to_quality, "
                "fit_overhead, study or fits."
            ),
        ] = None,
        out: Annotated[
            Path | None, typer.Option(help="Also write the numbers there, as JSON.")
        ] = None,
        force: Force = False,
    ) -> None:
        """Measure speed; nothing else should run meanwhile."""
        if context.invoked_subcommand is None:
            from benchmarks.speed.run import run_bench
            from ncai.cli import _options as options

            if out is not None:
                # Parts that are asked for by name are added to what is there.
                options.check_output(out, force or bool(only), [])
                options.check_output(out.with_suffix(".md"), force or bool(only), [])

            run_bench(full, out, typer.echo, tuple(only or ()))

    @bench.command(
        epilog=example(
            "ncai bench quality --methods default --sets yacht,energy --splits 5",
            "ncai bench quality --methods peers --sets real --jobs 2",
            "ncai bench quality --table",
        )
    )
    @guard
    def quality(
        sets: Annotated[
            str,
            typer.Option(
                help="Sets, with commas: names, or all, real, dequantised, synthetic, "
                "inner."
            ),
        ] = "all",
        methods: Annotated[
            str,
            typer.Option(
                help="Methods, with commas: names, or all, ours, peers, leads."
            ),
        ] = "all",
        splits: Annotated[
            int, typer.Option(min=1, max=20, help="The first so many of 20 splits.")
        ] = 20,
        jobs: Annotated[int, typer.Option(min=1, help="Fits side by side.")] = 1,
        again: Annotated[
            bool, typer.Option("--again", help="Forget results that are there.")
        ] = False,
        table: Annotated[
            bool, typer.Option("--table", help="Only the table of what is there.")
        ] = False,
        judged: Annotated[
            str, typer.Option(help="The method that targets are checked for.")
        ] = "default",
        out: Annotated[
            Path, typer.Option(help="Folder of results; the table is beside it.")
        ] = Path("results/bench/quality"),
    ) -> None:
        """Score densities on 20 splits beside peers; the same command goes on."""
        from benchmarks.quality.command import bench_quality

        raise typer.Exit(
            bench_quality(
                sets, methods, splits, jobs, again, table, judged, out, typer.echo
            )
        )

    app.add_typer(bench, name="bench")
