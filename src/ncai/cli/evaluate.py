"""`ncai evaluate`: score a model on the rows of a table."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncai.cli import _options as options
from ncai.cli._arguments import AsJson, Data, Model, print_json, tell

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLES = (
    "ncai evaluate houses.ncai sold.csv",
    "ncai evaluate houses.ncai sold.csv --json > scores.json",
)
FEWEST_TO_JUDGE = 10  # rows, of calibration
_METRIC_NAMES = {
    "log_likelihood": "log-likelihood a row",
    "crps": "CRPS",
    "rmse": "RMSE",
    "mae": "mean absolute error",
}
Truth = Annotated[
    str | None,
    typer.Option(
        help="Column of the true values, if the model does not know it.", metavar="COL"
    ),
]
Resamples = Annotated[
    int, typer.Option(min=20, help="Resamples of the rows for the intervals.")
]
Seed = Annotated[int, typer.Option(help="Seed of the resamples.")]


def evaluate(
    model: Model,
    data: Data,
    target: Truth = None,
    bootstrap: Resamples = 1000,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Score a model on the rows of a table, with bootstrap intervals.

    The rows should be new to the model: on rows that it was trained on, the scores are
    too good.
    """
    options.check_seed(seed)
    from ncai.diagnostics.evaluation import evaluate_rows
    from ncai.tables.predict import score_table_rows

    with options.named_as_options():
        rows, target, pieces = score_table_rows(model, data, target)
    scored = evaluate_rows(rows, bootstrap, seed)
    found = {"model": str(model), "data": data, "target": target, **scored}
    for sentence in pieces.remarks():
        tell(f"Warning: {sentence}")
    if as_json:
        print_json(found)
        return
    from rich.console import Console

    from ncai.cli._display import ROUNDED_COVERAGE

    Console().print(metric_table(found))
    typer.echo(calibration_sentence(scored["calibration"], scored["rows"]))
    if pieces.model.estimator.scaling_.lattice.step.any():
        typer.echo(f"Coverage: {ROUNDED_COVERAGE}")


def metric_table(found: Mapping[str, Any]) -> "Table":
    """All metrics with their intervals."""
    from ncai.cli._display import plain_table

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
    """Whether the predicted probabilities are right."""
    if rows < FEWEST_TO_JUDGE:
        few = "1 row is" if rows == 1 else f"{rows} rows are"
        return (
            f"Calibration: {few} too few to judge; at least {FEWEST_TO_JUDGE} needed."
        )
    verdict = (
        "the ranks of y in their predictions look uniform"
        if found["p_value"] > 0.05
        else "the ranks of y in their predictions are not uniform"
    )
    return f"Calibration: {verdict} (KS {found['ks']:.3f}, p {found['p_value']:.2g})."
