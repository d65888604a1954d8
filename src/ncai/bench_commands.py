"""`ncai bench`: the commands that measure."""

from pathlib import Path
from typing import Annotated

import typer


def add_bench(app: typer.Typer, guard, example) -> None:
    """Add the commands to the main app, with its way of telling errors."""
    bench = typer.Typer(
        help="Measure speed beside peers, in one run on this machine.",
        rich_markup_mode=None,
        epilog=example("ncai bench", "ncai bench --full --out bench.json"),
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
            typer.Option(help="Only this part of the full run (may be repeated)."),
        ] = None,
        out: Annotated[
            Path | None, typer.Option(help="Also write the numbers there, as JSON.")
        ] = None,
    ) -> None:
        """Measure speed; nothing else should run meanwhile."""
        if context.invoked_subcommand is None:
            from ncai.bench.run import run_bench

            run_bench(full, out, typer.echo, tuple(only or ()))

    app.add_typer(bench, name="bench")
