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
from ncai.bench_commands import add_bench
from ncai.dataset_commands import add_datasets
from ncai.study_commands import add_study

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

app = typer.Typer(
    name="ncai",
    no_args_is_help=True,
    add_completion=False,
    # Plain help and messages: they read the same in a terminal, a log and a pipe.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Entry point of the command line."""
    app()


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
            with warnings.catch_warnings():
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
        Path, typer.Option(help="Folder that demo.png goes to.", metavar="DIR")
    ] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the data and the fits.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few steps only: a check, poor fits.")
    ] = False,
) -> None:
    """Fit an example with a known truth, three ways, and draw it.

    Takes two to three minutes on two cores.
    """
    from rich.console import Console

    from ncai.demo import PICTURE, run_demo, table

    rows = run_demo(out, seed, quick, _is_terminal(), lambda s: typer.echo(s, err=True))
    Console().print(table(rows))
    typer.echo(f"Picture: {out / PICTURE}")


@_command("ncai fit houses.csv --target price --drop id --out houses.ncai")
def fit(
    data: Annotated[
        Path, typer.Argument(help="Table: .csv or .tsv, also .gz.", metavar="DATA")
    ],
    target: Annotated[str, typer.Option(help="Column to predict.", metavar="COL")],
    features: Annotated[
        str | None,
        typer.Option(
            help="Columns to predict from; all others if not given.", metavar="A,B"
        ),
    ] = None,
    drop: Annotated[
        str | None, typer.Option(help="Columns to leave out.", metavar="C,D")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="File of the fitted model.", metavar="FILE")
    ] = Path("model.ncai"),
    inference: Annotated[
        str,
        typer.Option(
            help="ncai, ncai0, mfvi, marginal, map, hmc or hmc_marginal.",
            metavar="NAME",
        ),
    ] = "ncai",
    preset: Annotated[
        str, typer.Option(help="default or paper.", metavar="NAME")
    ] = "default",
    hidden: Annotated[
        str, typer.Option(help="Nodes of each hidden layer.", metavar="50,50")
    ] = "50",
    latent_dim: Annotated[
        int,
        typer.Option(
            help="Number of latent inputs; 0 is a plain BNN (ncai is then mfvi)."
        ),
    ] = 1,
    restarts: Annotated[int, typer.Option(help="Random starts.")] = 10,
    max_steps: Annotated[
        int | None,
        typer.Option(
            help="Limit on the steps of the main training, else the preset's; the warm "
            "start adds up to a third of it, learning the noise a tenth."
        ),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(help="Stop training after this time: 60s, 5m, 1h.", metavar="T"),
    ] = None,
    valid: Annotated[
        float,
        typer.Option(
            help="Share of the rows held out to choose a start.", metavar="FRACTION"
        ),
    ] = 0.1,
    seed: Annotated[int, typer.Option(help="The same seed repeats a fit.")] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing FILE.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No progress bar, no summary.")
    ] = False,
) -> None:
    """Fit a model to the rows of a table, and save it.

    All columns used must hold numbers, without gaps. Ctrl-C stops the training, saves
    the best found so far, and leaves with code 130.
    """
    from ncai import table_commands as work

    work.check_output(out, force, inputs=[data])
    settings = {
        "inference": inference,
        "preset": preset,
        "hidden": work.parse_layers(hidden),
        "latent_dim": latent_dim,
        "n_restarts": restarts,
        "max_steps": max_steps,
        "time_limit": work.parse_duration(time_limit),
        "validation_fraction": valid,
        "random_state": work.check_seed(seed),
        "progress": _is_terminal() and not quiet,
    }
    columns = work.parse_names(features), work.parse_names(drop)
    try:
        model = work.fit_table(data, target, *columns, settings)
    except KeyboardInterrupt:
        typer.echo(
            "Stopped before anything was trained; no model was written.", err=True
        )
        raise typer.Exit(EXIT_INTERRUPTED) from None
    model.save(out, include_training=False)
    if not quiet:
        typer.echo(work.summarise(model, target))
        typer.echo(f"Model: {out}")
    if model.interrupted_:
        raise typer.Exit(EXIT_INTERRUPTED)


@_command(
    "ncai predict houses.ncai new.csv --level 0.9 --decompose --out predictions.csv"
)
def predict(
    model: Annotated[
        Path, typer.Argument(help="File written by `ncai fit`.", metavar="MODEL")
    ],
    data: Annotated[
        Path, typer.Argument(help="Table: .csv or .tsv, also .gz.", metavar="DATA")
    ],
    level: Annotated[
        float, typer.Option(help="Probability of the interval.", metavar="P")
    ] = 0.95,
    quantiles: Annotated[
        str | None,
        typer.Option(help="Quantiles to add, as columns q05 etc.", metavar="0.05,0.5"),
    ] = None,
    decompose: Annotated[
        bool,
        typer.Option(
            "--decompose",
            help="Add the columns aleatoric and epistemic: standard deviations in the "
            "units of y, whose squares add up to that of std (about).",
        ),
    ] = False,
    out: Annotated[
        str, typer.Option(help="Table to write; - is standard output.", metavar="FILE")
    ] = "-",
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing FILE.")
    ] = False,
) -> None:
    """Predict each row of a table, with its uncertainty.

    Columns written: mean, std, lower_95, upper_95 (named by the level), and what the
    options add. Columns read are found by name, in any order; others are
    ignored.
    """
    from ncai import table_commands as work
    from ncai.table_io import write_table

    path = None if out == "-" else Path(out)
    if path is not None:
        work.check_output(path, force, inputs=[model, data])
    levels = work.parse_quantiles(quantiles)
    table, ignored = work.predict_table(model, data, level, levels, decompose)
    if ignored:
        typer.echo(f"Ignored columns: {', '.join(ignored)}", err=True)
    write_table(table, path)


def _is_terminal() -> bool:
    return sys.stderr.isatty()


add_datasets(app, _guard, _example)
add_bench(app, _guard, _example)
add_study(app, _guard, _example)
