"""The commands on a model file: predict, evaluate, inspect and diagnose."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncai.cli import _options as options
from ncai.cli._options import AsJson, Data, Force, Model, notify, print_json

if TYPE_CHECKING:
    from rich.table import Table

PREDICT_EXAMPLES = (
    "ncai predict houses.ncai new.csv --out predictions.csv",
    "ncai predict houses.ncai new.csv --level 0.9 --quantiles 0.05,0.5,0.95",
    "ncai predict houses.ncai new.csv --decompose --samples 100 > all.csv",
)
Level = Annotated[float, typer.Option(help="Probability of the interval.", metavar="P")]
Quantiles = Annotated[
    str | None,
    typer.Option(help="Quantiles to add, as columns q05 etc.", metavar="0.05,0.5"),
]
Decompose = Annotated[
    bool,
    typer.Option(
        "--decompose",
        help="Add the columns total, aleatoric and epistemic: the uncertainty and its "
        "two parts, in the units of y (CRPS; for a rounded y they refer to y before "
        "rounding). Also add split_error, the largest Monte Carlo standard error of "
        "these, and unstable: whether it exceeds 5 % of total.",
    ),
]
Samples = Annotated[
    int, typer.Option(help="Random draws to add, as columns sample_1 etc.")
]
DrawSeed = Annotated[int, typer.Option(help="Seed of the draws.")]
Out = Annotated[
    str, typer.Option(help="Table to write; - is standard output.", metavar="FILE")
]


def predict(
    model: Model,
    data: Data,
    level: Level = 0.95,
    quantiles: Quantiles = None,
    decompose: Decompose = False,
    samples: Samples = 0,
    seed: DrawSeed = 0,
    out: Out = "-",
    force: Force = False,
) -> None:
    """Predict each row of a table, with its uncertainty.

    The output has the columns mean, std, lower_95 and upper_95 (named by the level),
    and the columns that the options add. The command finds the columns of the table by
    name, in any order, and ignores other columns. It reads and writes the table in
    chunks, so the table may be larger than memory.
    """
    from ncai.tables.predict import Wanted, predict_pieces
    from ncai.tables.read import ENDINGS

    path = None if out == "-" else Path(out)
    if path is not None:
        options.check_output(path, force, [model, *options.files_among(data)])
        options.check_ending(path, ENDINGS, "--out")
    wanted = Wanted(
        options.check_level(level),
        options.parse_quantiles(quantiles),
        decompose,
        options.check_count(samples, "--samples"),
        options.check_seed(seed),
    )
    found, pieces = predict_pieces(model, data, wanted)
    _write(path, pieces)
    if found.ignored:
        notify(f"Ignored columns: {', '.join(found.ignored)}")
    for sentence in found.remarks():
        notify(f"Warning: {sentence}")


def _write(path: Path | None, pieces) -> None:
    from ncai.tables.write import table_writer

    # Read the first chunk before opening the file, so an unusable table leaves none.
    first = next(pieces)
    with table_writer(path) as write:
        for piece in chain([first], pieces):
            write(piece)


EVALUATE_EXAMPLES = (
    "ncai evaluate houses.ncai sold.csv",
    "ncai evaluate houses.ncai sold.csv --json > scores.json",
)
FEWEST_TO_JUDGE = 10  # rows needed to judge calibration
_METRIC_NAMES = {
    "log_likelihood": "log-likelihood per row",
    "crps": "CRPS",
    "rmse": "RMSE",
    "mae": "mean absolute error",
}
Truth = Annotated[
    str | None,
    typer.Option(
        help="Column of the true values, if the model file does not name it.",
        metavar="COL",
    ),
]
Resamples = Annotated[
    int, typer.Option(min=20, help="Resamples of the rows for the intervals.")
]
ResampleSeed = Annotated[int, typer.Option(help="Seed of the resamples.")]


def evaluate(
    model: Model,
    data: Data,
    target: Truth = None,
    bootstrap: Resamples = 1000,
    seed: ResampleSeed = 0,
    as_json: AsJson = False,
) -> None:
    """Score a model on the rows of a table, with bootstrap intervals.

    Use rows that the model was not trained on, because scores on training rows are too
    good.
    """
    options.check_seed(seed)
    from ncai.diagnostics.evaluation import evaluate_rows
    from ncai.tables.predict import score_table_rows

    with options.named_as_options():
        rows, target, pieces = score_table_rows(model, data, target)
    scored = evaluate_rows(rows, bootstrap, seed)
    found = {"model": str(model), "data": data, "target": target, **scored}
    for sentence in pieces.remarks():
        notify(f"Warning: {sentence}")
    if as_json:
        print_json(found)
        return
    from rich.console import Console

    from ncai.cli._options import ROUNDED_COVERAGE

    Console().print(metric_table(found))
    typer.echo(calibration_sentence(scored["calibration"], scored["rows"]))
    if pieces.model.estimator.scaling_.lattice.step.any():
        typer.echo(f"Coverage: {ROUNDED_COVERAGE}")


def metric_table(found: Mapping[str, Any]) -> "Table":
    """Return a table of all metrics with their intervals."""
    from ncai.cli._options import plain_table

    title = f"{found['target']}, {found['rows']} row{'s' * (found['rows'] > 1)}"
    table = plain_table(title, ("value", "95% interval"))
    for name, metric in found["metrics"].items():
        low, high = metric["lower_95"], metric["upper_95"]
        if name.startswith("coverage"):
            shown = f"{metric['value']:.1%}", f"{low:.1%} to {high:.1%}"
        else:
            shown = f"{metric['value']:.4g}", f"{low:.4g} to {high:.4g}"
        table.add_row(_metric_name(name), *shown)
    return table


def _metric_name(name: str) -> str:
    kind, _, level = name.rpartition("_")
    words = {
        "coverage": f"in the {level}% interval",
        "width": f"width of the {level}% interval",
        "interval_score": f"interval score, {level}%",
    }
    return words.get(kind, _METRIC_NAMES.get(name, name))


def calibration_sentence(found: Mapping[str, float], rows: int) -> str:
    """Say whether the predicted probabilities are calibrated."""
    if rows < FEWEST_TO_JUDGE:
        few = "1 row is" if rows == 1 else f"{rows} rows are"
        return (
            f"Calibration: {few} too few to judge; at least {FEWEST_TO_JUDGE} needed."
        )
    verdict = (
        "PIT values look uniform, as they should"
        if found["p_value"] > 0.05
        else "PIT values are not uniform, as they should be"
    )
    return f"Calibration: {verdict} (KS {found['ks']:.3f}, p {found['p_value']:.2g})."


INSPECT_EXAMPLES = ("ncai inspect houses.ncai", "ncai inspect houses.ncai --json")
MOST_SHOWN = 30
# The settings to show first.
_FIRST = ("inference", "preset", "hidden", "activation", "latent_dim", "n_restarts")
_FIRST = (*_FIRST, "max_steps", "time_limit", "target_transform")
_NOT_SHOWN = ("progress", "random_state", "rounding_steps")


def inspect(model: Model, as_json: AsJson = False) -> None:
    """Show the contents of a model file without running the model.

    These are the columns, settings, versions and scores in the header of the file.
    """
    from ncai.tables.inspect import inspect_model

    found = inspect_model(model)
    if as_json:
        print_json(found)
        return
    from rich.console import Console

    from ncai.cli._options import column_table, label_table, score_table

    console = Console()
    console.print(label_table(_lines(found)))
    if found["columns"]:
        console.print("\nColumns", style="bold")
        console.print(column_table(found["columns"], most=None))
    if found["scores"]:
        console.print()
        console.print(score_table(found["scores"], found["num_test"]))


def _lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the labels and texts of the summary."""
    from ncai.tables.inspect import learned_as, rows_sentence

    versions = ", ".join(
        f"{name} {number}"
        for name, number in {"ncai": found["ncai"], **found["versions"]}.items()
    )
    rows = []
    if found["num_train"]:
        rows = [("Rows", rows_sentence(found))]
    lines = [
        ("File", f"{found['file']} ({found['bytes']:,} bytes)"),
        ("Model", f"{found['estimator']}, {found['num_weights']} weights"),
        ("Written by", versions),
        ("Target", learned_as(found["settings"], found["target"])),
        ("Inputs", _names(found)),
        ("Settings", _settings_text(found["settings"])),
        ("Seed", "none given" if found["seed"] is None else str(found["seed"])),
        *rows,
        *zip(("Stages", *[""] * 9), found["stop_reasons"], strict=False),
        *([("Note", found["cut_short"])] if found["cut_short"] else []),
        *zip(("Warnings", *[""] * 99), found["warnings"], strict=False),
    ]
    if found["diagnosis"]:
        lines += [
            ("Latent", found["diagnosis"].get("independence_verdict", "")),
            ("", found["diagnosis"].get("prior_verdict", "")),
        ]
    if found["command"]:
        lines.append(("Command", found["command"]))
    return lines


def _settings_text(settings: Mapping[str, Any]) -> str:
    """List the settings that the method uses, the main ones first."""
    names = [*_FIRST, *(name for name in settings if name not in _FIRST)]
    return ", ".join(
        f"{name}={_plain(settings[name])}"
        for name in names
        if settings.get(name) is not None and name not in _NOT_SHOWN
    )


def _plain(value: Any) -> str:
    """Write a value without blanks, in the form that an option accepts: 50,50."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _names(found: Mapping[str, Any]) -> str:
    names = found["inputs"]
    if not names:
        return f"{found['num_inputs']}, without names"
    more = f", and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return f"{len(names)}: {', '.join(names[:MOST_SHOWN])}{more}"


DIAGNOSE_EXAMPLES = ("ncai diagnose houses.ncai", "ncai diagnose houses.ncai --json")


def diagnose(model: Model, as_json: AsJson = False) -> None:
    """Check whether z is white noise, as the model assumes.

    The command shows the diagnosis that `ncai fit` stored in the file. If there is
    none, it computes the diagnosis from the training rows, if the file contains them.
    """
    from ncai.tables.inspect import diagnose_model

    found = diagnose_model(model)
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))
