"""`ncai compare`: several methods on the same folds of a table."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncai.cli import _options as options
from ncai.cli._options import (
    AsJson,
    Data,
    Drop,
    Features,
    Force,
    Hidden,
    Preset,
    Restarts,
    Steps,
    Target,
    notify,
    print_json,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

EXAMPLES = (
    "ncai compare houses.csv --target price --folds 5",
    "ncai compare houses.csv --target price --methods NCAI,NGBoost --out c.csv",
)
NumFolds = Annotated[int, typer.Option("--folds", help="Number of folds.")]
Methods = Annotated[
    str | None,
    typer.Option(help="Comma-separated methods. Default: all.", metavar="NAMES"),
]
TimeLimit = Annotated[
    str | None,
    typer.Option(help="Time limit of each of our own fits: 60s, 5m.", metavar="T"),
]
Seed = Annotated[int, typer.Option(help="Seed of the folds and the fits.")]
Out = Annotated[
    Path | None,
    typer.Option(
        help="File for the scores of every fold: .csv or .json.", metavar="FILE"
    ),
]
Figure = Annotated[Path, typer.Option(help="File of the picture.", metavar="FILE.png")]


@dataclass(frozen=True)
class CompareRequest:
    """The parsed options of `ncai compare`.

    Args:
        data: the file with the rows, or "-" for standard input.
        columns: the target, the columns to predict from and those to leave out.
        methods: names of the methods; None for all.
        num_folds: number of cross-validation folds.
        settings: arguments of our own estimators.
        out: file of the scores, if wanted.
        figure: file of the picture.
        as_json: print JSON.
    """

    data: str
    columns: tuple[str, list[str] | None, list[str] | None]
    methods: list[str] | None
    num_folds: int
    settings: Mapping[str, Any]
    out: Path | None
    figure: Path
    as_json: bool

    def check_files(self, force: bool) -> None:
        """Reject files that cannot or must not be written, before any work is done."""
        inputs = options.files_among(self.data)
        options.check_ending(self.figure, (".png",), "--figure")
        options.check_output(self.figure, force, inputs, "--figure")
        if self.out is not None:
            options.check_ending(self.out, (".csv", ".json"), "--out")
            options.check_output(self.out, force, [*inputs, self.figure])


def compare(
    data: Data,
    target: Target,
    features: Features = None,
    drop: Drop = None,
    num_folds: NumFolds = 5,
    methods: Methods = None,
    preset: Preset = "default",
    hidden: Hidden = None,
    restarts: Restarts = None,
    max_steps: Steps = None,
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    out: Out = None,
    figure: Figure = Path("compare.png"),
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Fit several methods on the same folds of a table, and rank them.

    BNN, MFVI, NCAI0, NCAI, IWAE and Marginal are ours; NGBoost, CatBoost and Quantile
    forest take part if they are installed (`pip install 'ncai[compare]'`).
    """
    settings = {
        "preset": preset,
        "hidden": options.parse_layers(hidden),
        "n_restarts": restarts,
        "max_steps": max_steps,
        "time_limit": options.parse_duration(time_limit),
        "random_state": options.check_seed(seed),
    }
    names = target, options.parse_names(features), options.parse_names(drop)
    wanted = options.parse_names(methods)
    request = CompareRequest(
        data, names, wanted, num_folds, settings, out, figure, as_json
    )
    request.check_files(force)
    fit_and_rank(request)


def fit_and_rank(request: CompareRequest) -> None:
    """Fit all methods to all folds, draw and print the ranking."""
    from ncai.tables import compare as comparison

    results = _results(request)
    summary = comparison.summarise(results)
    for row in results.dropna(subset="failure").to_dict("records"):
        place = f"{row['method']} failed in fold {row['fold']}"
        notify(f"Warning: {place}: {row['failure']}")
    if request.out is not None:
        comparison.write_comparison(results, summary, request.out)
    target, num_folds = request.columns[0], request.num_folds
    title = f"{target}, {num_folds} folds: mean and its standard error"
    comparison.draw_comparison(summary, request.figure, title)
    if request.as_json:
        print_json(comparison.records(summary))
        return
    from rich.console import Console

    Console().print(comparison_table(summary, num_folds))
    typer.echo(f"Figure: {request.figure}")


def _results(request: CompareRequest) -> "pd.DataFrame":
    """Return the scores of each method on each fold."""
    from ncai.comparison import missing_sentence
    from ncai.tables import compare as comparison
    from ncai.tables.fit import TableSource

    seed = request.settings["random_state"]
    with options.named_as_options():
        chosen, missing = comparison.choose_methods(
            request.methods, request.settings, seed
        )
        note = missing_sentence(missing) if missing else ""
        if not chosen:
            raise ValueError(note or "--methods is empty; give at least one name.")
        source = TableSource(request.data, *request.columns)
        folds = comparison.read_folds(source, request.num_folds, seed)
        if note:
            notify(note)
        return comparison.score_folds(folds, chosen, notify)


def comparison_table(summary: "pd.DataFrame", num_folds: int) -> "Table":
    """Return the means and standard errors over folds, best likelihood first."""
    from rich.text import Text

    from ncai.cli._options import plain_table

    headings = ("log-lik.", "CRPS", "RMSE", "in 50%", "in 95%", "s per fit")
    table = plain_table(
        f"Mean over {num_folds} folds, and its standard error", headings
    )
    for row in summary.to_dict("records"):
        if not row["folds"]:
            table.add_row(Text(row["method"]), "failed", *[""] * 5)
            continue
        table.add_row(
            Text(row["method"]),
            f"{row['log_likelihood']:.3f} ± {row['log_likelihood_se']:.3f}",
            f"{row['crps']:.4g}",
            f"{row['rmse']:.4g}",
            f"{row['coverage_50']:.1%}",
            f"{row['coverage_95']:.1%}",
            f"{row['seconds']:.1f}",
        )
    return table
