"""The commands on a model file: `predict`, `evaluate`, `diagnose` and `inspect`."""

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from ncai.cli._arguments import AsJson, Data, Force, Model, print_json, tell


def add_models(app: typer.Typer, guard, example) -> None:
    """Add the commands to the main app, with its way of telling errors."""
    app.command(
        epilog=example(
            "ncai predict houses.ncai new.csv --out predictions.csv",
            "ncai predict houses.ncai new.csv --level 0.9 --quantiles 0.05,0.5,0.95",
            "ncai predict houses.ncai new.csv --decompose --samples 100 > all.csv",
        )
    )(guard(predict))
    app.command(
        epilog=example(
            "ncai evaluate houses.ncai sold.csv",
            "ncai evaluate houses.ncai sold.csv --json > scores.json",
        )
    )(guard(evaluate))
    app.command(
        epilog=example("ncai diagnose houses.ncai", "ncai diagnose houses.ncai --json")
    )(guard(diagnose))
    app.command(
        epilog=example("ncai inspect houses.ncai", "ncai inspect houses.ncai --json")
    )(guard(inspect))


def predict(
    model: Model,
    data: Data,
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
            "units of y, whose squares add up to that of std.",
        ),
    ] = False,
    samples: Annotated[
        int, typer.Option(help="Random draws to add, as columns sample_1 etc.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    out: Annotated[
        str, typer.Option(help="Table to write; - is standard output.", metavar="FILE")
    ] = "-",
    force: Force = False,
) -> None:
    """Predict each row of a table, with its uncertainty.

    Columns written: mean, std, lower_95, upper_95 (named by the level), and what the
    options add. Columns read are found by name, in any order; others are
    ignored. The table is read and written in pieces, so it may be larger than memory.
    """
    from ncai.cli import _options as options
    from ncai.tables.read import ENDINGS

    path = None if out == "-" else Path(out)
    if path is not None:
        inputs = [model, *([Path(data)] if data != "-" else [])]
        options.check_output(path, force, inputs)
        options.check_ending(path, ENDINGS, "--out")
    levels = options.parse_quantiles(quantiles)

    from ncai.tables.predict import Wanted, predict_pieces
    from ncai.tables.write import table_writer

    wanted = Wanted(level, levels, decompose, samples, options.check_seed(seed))
    found, pieces = predict_pieces(model, data, wanted)
    # A table that cannot be read or used is refused before a file is begun.
    first = next(pieces)
    with table_writer(path) as write:
        for piece in chain([first], pieces):
            write(piece)
    if found.ignored:
        tell(f"Ignored columns: {', '.join(found.ignored)}")
    for sentence in found.remarks():
        tell(f"Warning: {sentence}")


def evaluate(
    model: Model,
    data: Data,
    target: Annotated[
        str | None,
        typer.Option(help="Column of the truth, if the model does not know it."),
    ] = None,
    bootstrap: Annotated[
        int, typer.Option(min=20, help="Resamples of the rows for the intervals.")
    ] = 1000,
    seed: Annotated[int, typer.Option(help="Of the resamples.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Score a model on the rows of a table, with bootstrap intervals.

    The rows should be new to the model: of rows that it was trained on the scores are
    too good.
    """
    from ncai.cli._options import check_seed

    check_seed(seed)
    from ncai.diagnostics.evaluation import evaluate_rows
    from ncai.tables.predict import score_table_rows

    rows, target, pieces = score_table_rows(model, data, target)
    scored = evaluate_rows(rows, bootstrap, seed)
    found = {"model": str(model), "data": data, "target": target, **scored}
    for sentence in pieces.remarks():
        tell(f"Warning: {sentence}")
    if as_json:
        print_json(found)
        return
    from rich.console import Console

    from ncai.tables.display import ROUNDED_COVERAGE, calibration_sentence, metric_table

    Console().print(metric_table(found))
    typer.echo(calibration_sentence(scored["calibration"], scored["rows"]))
    if pieces.model.estimator.scaling_.lattice.step.any():
        typer.echo(f"Coverage: {ROUNDED_COVERAGE}")


def diagnose(model: Model, as_json: AsJson = False) -> None:
    """Tell whether z is white noise, as the model assumes.

    By the diagnosis that `ncai fit` kept in the file, or by the training rows, if the
    file holds them.
    """
    from ncai.tables.inspect import diagnose_model

    found = diagnose_model(model)
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))


def inspect(model: Model, as_json: AsJson = False) -> None:
    """Show what a model file holds, without running it.

    Columns, settings, versions and scores, of which only the header is read.
    """
    from ncai.tables.inspect import inspect_model, shown_lines

    found = inspect_model(model)
    if as_json:
        print_json(found)
        return
    from rich.console import Console

    from ncai.tables.display import column_table, label_table, score_table

    console = Console()
    console.print(label_table(shown_lines(found)))
    if found["columns"]:
        console.print("\nColumns", style="bold")
        console.print(column_table(found["columns"], most=None))
    if found["scores"]:
        console.print()
        console.print(score_table(found["scores"], found["num_test"]))
