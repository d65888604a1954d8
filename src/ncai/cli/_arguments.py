"""Options of the commands, and how commands print. Imports nothing heavy."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

EXIT_INTERRUPTED = 130
_TABLE_HELP = "Table: .csv, .tsv (also .gz) or .parquet; - is standard input."
Data = Annotated[str, typer.Argument(help=_TABLE_HELP, metavar="DATA")]
Model = Annotated[
    Path,
    typer.Argument(
        help="File written by `ncai fit`.",
        metavar="MODEL",
        readable=False,  # our own check explains what is wrong
    ),
]
Target = Annotated[str, typer.Option(help="Column to predict.", metavar="COL")]
Features = Annotated[
    str | None,
    typer.Option(
        help="Columns to predict from. Default: all others. Put a name that contains a "
        """comma in double quotes: 'a,"b, c"'.""",
        metavar="A,B",
    ),
]
Drop = Annotated[
    str | None,
    typer.Option(help="Columns to leave out, written in the same way.", metavar="C,D"),
]
Preset = Annotated[str, typer.Option(help="default or paper.", metavar="NAME")]
Hidden = Annotated[
    str | None,
    typer.Option(
        help="Nodes of each hidden layer. Default: the preset's.", metavar="50,50"
    ),
]
Restarts = Annotated[
    int | None, typer.Option(help="Random starts. Default: the preset's.")
]
Steps = Annotated[
    int | None,
    typer.Option(
        help="Limit on the steps of the main training. Default: the preset's. A warm "
        "start adds up to a third of it, learning the noise a tenth."
    ),
]
Inference = Annotated[
    str | None,
    typer.Option(
        help="marginal, iwae, ncai, ncai0, mfvi, map, hmc or hmc_marginal. Default: "
        "marginal, or ncai with the preset paper.",
        metavar="NAME",
    ),
]
LatentDim = Annotated[
    int,
    typer.Option(help="Number of latent inputs; 0 is a plain BNN (ncai is then mfvi)."),
]
Transform = Annotated[
    str | None,
    typer.Option(
        help="Learn none, log or yeo_johnson of the target; auto lets held-out rows "
        "choose. Default: the preset's.",
        metavar="NAME",
    ),
]
Valid = Annotated[
    str | None,
    typer.Option(
        help="Rows that choose among restarts: a share of those that --test leaves, or "
        "a file. Default: each restart holds out a fold of its own (marginal), or 0.1.",
        metavar="SHARE|FILE",
    ),
]
Test = Annotated[
    str,
    typer.Option(
        help="Rows held out to score the result: a share (at least 10 rows, of 50 or "
        "more), or a file; 0 holds out none.",
        metavar="SHARE|FILE",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for a program.")]


def tell(text: str) -> None:
    """Print news or a warning to standard error, beside the result."""
    typer.echo(text, err=True)


def print_json(found: Any) -> None:
    """Print a result for a program."""
    typer.echo(json.dumps(without_infinity(found), indent=2, allow_nan=False))


def without_infinity(found: Any) -> Any:
    """The same with null in place of NaN and infinity, which JSON lacks."""
    if isinstance(found, dict):
        return {name: without_infinity(value) for name, value in found.items()}
    if isinstance(found, list | tuple):
        return [without_infinity(value) for value in found]
    if isinstance(found, float) and not math.isfinite(found):
        return None
    return found
