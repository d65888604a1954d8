"""The command `ncai`. Each command parses, calls one function, and prints.

Heavy packages are imported only when a command runs, so `ncai --help` answers at once.
"""

import functools
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from ncai import __version__
from ncai.cli import compare, demo, fit, models
from ncai.cli._options import EXIT_INTERRUPTED, notify
from ncai.cli.bench import add_bench
from ncai.cli.datasets import add_datasets
from ncai.cli.study import add_study
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
        # Threads that are still compiling cannot be stopped, and Python's usual exit
        # sometimes crashes because of them. All files are closed by now.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(EXIT_INTERRUPTED)


def _example(*lines: str) -> str:
    r"""Return the examples at the end of a help text; \b keeps their line breaks."""
    return "\n".join(["\b", "Example:", *(f"  {line}" for line in lines)])


def _add_command(function: Callable[..., None], examples: Sequence[str]) -> None:
    """Register a command that reports a failure by one sentence and an exit code."""
    app.command(epilog=_example(*examples))(_guard(function))


def _guard(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def guarded(*args, **kwargs):
        try:
            with warnings.catch_warnings(), noting_ctrl_c() as was_pressed:
                _show_plain_warnings()
                try:
                    function(*args, **kwargs)
                except Exception:
                    # An import that Ctrl-C breaks off may raise any other error.
                    if was_pressed():
                        raise KeyboardInterrupt from None
                    raise
            sys.stdout.flush()
        except KeyboardInterrupt:
            notify("Stopped.")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            # The reader of the pipe has stopped (as with `| head`). Discard the rest,
            # because Python would raise the error again when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_BROKEN_PIPE) from None
        except (ValueError, OSError, MemoryError) as error:
            _fail(error)
        except RuntimeError as error:
            # Typer's own signals are RuntimeErrors too, but they are not failures.
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
    notify(f"Error: {sentence}")
    raise typer.Exit(EXIT_ERROR) from None


def _show_plain_warnings() -> None:
    """Show our own warnings as one line, without the place in the code."""
    usual = warnings.showwarning

    def show(message, category, *place, **named):
        if category is UserWarning:
            notify(f"Warning: {message}")
        else:
            usual(message, category, *place, **named)

    warnings.showwarning = show


def _print_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"ncai {__version__}")
        raise typer.Exit
    return wanted


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
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Regression with Bayesian neural networks that have latent variables.

    A prediction is a whole density. Its uncertainty splits into an epistemic part,
    which more data would reduce, and an aleatoric part, which more data would not.
    """


COMMANDS = (
    (demo.demo, demo.EXAMPLES),
    (fit.fit, fit.EXAMPLES),
    (compare.compare, compare.EXAMPLES),
    (models.predict, models.PREDICT_EXAMPLES),
    (models.evaluate, models.EVALUATE_EXAMPLES),
    (models.diagnose, models.DIAGNOSE_EXAMPLES),
    (models.inspect, models.INSPECT_EXAMPLES),
)
for _function, _examples in COMMANDS:
    _add_command(_function, _examples)
for _add_group in (add_datasets, add_bench, add_study):
    _add_group(app, _guard, _example)
