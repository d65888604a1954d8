"""The command `ncai`. Each command parses, calls one function, and prints.

Nothing heavy is imported before a command runs: `ncai --help` must answer at once.
"""

import functools
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ncai import __version__
from ncai.cli._arguments import EXIT_INTERRUPTED, Force
from ncai.cli.bench import add_bench
from ncai.cli.datasets import add_datasets
from ncai.cli.models import add_models
from ncai.cli.study import add_study
from ncai.cli.tables import add_tables
from ncai.runtime.interrupt import noting_ctrl_c

EXIT_ERROR = 2
EXIT_BROKEN_PIPE = 141

app = typer.Typer(
    name="ncai",
    no_args_is_help=True,
    add_completion=True,
    # Plain help and messages: they read the same in a terminal, a log and a pipe.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Entry point of the command line."""
    try:
        app()
    except SystemExit as end:
        if end.code != EXIT_INTERRUPTED:
            raise
        # Threads that still compile cannot be stopped, and Python's own way out would
        # now and then crash on them. All files are closed by now.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(EXIT_INTERRUPTED)


def _example(*lines: str) -> str:
    r"""The end of a help text; after a \b its lines stay as they are."""
    return "\n".join(["\b", "Example:", *(f"  {line}" for line in lines)])


def _command(example: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command whose failures are one sentence and an exit code."""
    return lambda function: app.command(epilog=_example(example))(_guard(function))


def _guard(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def guarded(*args, **kwargs):
        try:
            with warnings.catch_warnings(), noting_ctrl_c():
                _show_plain_warnings()
                function(*args, **kwargs)
            sys.stdout.flush()
        except KeyboardInterrupt:
            typer.echo("Stopped.", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            # The reader has left (as `| head` does). Python would complain once more
            # when it flushes at exit, so what remains goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_BROKEN_PIPE) from None
        except (ValueError, OSError, MemoryError) as error:
            _fail(error)
        except RuntimeError as error:
            # Typer's own signals are RuntimeErrors too, and not failures.
            if type(error).__name__ != "FitFailedError":
                raise
            _fail(error)

    return guarded


def _fail(error: Exception) -> None:
    if isinstance(error, OSError) and error.strerror:
        about = f"{error.filename}: " if error.filename else ""
        sentence = f"{about}{error.strerror}."
    else:
        sentence = " ".join(str(error).split()) or f"{type(error).__name__}."
    typer.echo(f"Error: {sentence}", err=True)
    raise typer.Exit(EXIT_ERROR) from None


def _show_plain_warnings() -> None:
    """Our own warnings as one line, without the place in the code; others as ever."""
    usual = warnings.showwarning

    def show(message, category, *place, **named):
        if category is UserWarning:
            typer.echo(f"Warning: {message}", err=True)
        else:
            usual(message, category, *place, **named)

    warnings.showwarning = show


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ncai {__version__}")
        raise typer.Exit


@app.callback(
    epilog=_example(
        "ncai demo",
        "ncai fit houses.csv --target price --out houses.ncai",
        "ncai predict houses.ncai new.csv --out predictions.csv",
    )
)
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and leave.",
        ),
    ] = False,
) -> None:
    """Regression with Bayesian neural networks that have latent variables.

    A prediction is a whole density, and its uncertainty splits into what more data
    would remove (epistemic) and what it would not (aleatoric).
    """


@_command("ncai demo --out pictures")
def demo(
    out: Annotated[
        Path,
        typer.Option(help="Folder that demo.png and report.html go to.", metavar="DIR"),
    ] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the data and the fits.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few steps only: a check, poor fits.")
    ] = False,
    force: Force = False,
) -> None:
    """Fit an example with a known truth, three ways; draw it and write a report.

    Takes two to three minutes on two cores.
    """
    from rich.console import Console

    from ncai.cli import _options as options
    from ncai.cli.demo import PICTURE, REPORT, run_demo, table

    for name in (PICTURE, REPORT):
        # The folder is made by the demo, and what is not there is not replaced.
        if (out / name).exists():
            options.check_output(out / name, force, [])
    rows = run_demo(out, seed, quick, _is_terminal(), lambda s: typer.echo(s, err=True))
    Console().print(table(rows))
    typer.echo(f"Picture: {out / PICTURE}")
    typer.echo(f"Report:  {out / REPORT}")


def _is_terminal() -> bool:
    return sys.stderr.isatty()


add_tables(app, _guard, _example)
add_models(app, _guard, _example)
add_datasets(app, _guard, _example)
add_bench(app, _guard, _example)
add_study(app, _guard, _example)
