"""What commands share: options, the parsing of their values, and printed tables.

Needs neither JAX nor pandas. In tables the user's text is passed as `Text`, so that
square brackets in it are not markup.
"""

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ncai.runtime.atomic_write import check_writable

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
Preset = Annotated[
    str,
    typer.Option(
        help="Values of the settings that you do not give: default or paper.",
        metavar="NAME",
    ),
]
Hidden = Annotated[
    str | None,
    typer.Option(
        help="Nodes of each hidden layer. Default: see --preset.", metavar="50,50"
    ),
]
Restarts = Annotated[
    int | None, typer.Option(help="Number of random starts. Default: see --preset.")
]
Steps = Annotated[
    int | None,
    typer.Option(
        help="Limit on the steps of the main training. Default: see --preset. A warm "
        "start adds up to a third of this number, and learning the noise adds a tenth."
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
    typer.Option(help="Number of latent inputs; 0 fits a plain BNN by mfvi."),
]
Transform = Annotated[
    str | None,
    typer.Option(
        help="Transform of the target: none, log or yeo_johnson; with auto, held-out "
        "rows choose. Default: see --preset.",
        metavar="NAME",
    ),
]
Valid = Annotated[
    str | None,
    typer.Option(
        help="Validation rows, which choose among restarts: a share of the rows that "
        "--test leaves, or a file. Default: with marginal, each restart holds out a "
        "cross-validation fold; with other methods, 0.1.",
        metavar="SHARE|FILE",
    ),
]
Test = Annotated[
    str,
    typer.Option(
        help="Rows held out to score the result: a share, or a file; 0 holds out none. "
        "A share holds out at least 10 rows, or none if the table has fewer than 50.",
        metavar="SHARE|FILE",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


# Control characters, and signs that turn the direction of writing.
_UNPRINTED = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)


def printable(text: str) -> str:
    r"""Show control characters as \x1b: a name must not steer a terminal."""
    return _UNPRINTED.sub(lambda sign: ascii(sign[0])[1:-1], text)


def notify(text: str) -> None:
    """Print a progress message or a warning to standard error."""
    typer.echo(printable(text), err=True)


def print_json(found: Any) -> None:
    """Print a result as JSON."""
    typer.echo(json.dumps(without_infinity(found), indent=2, allow_nan=False))


def without_infinity(found: Any) -> Any:
    """Replace NaN and infinity, which JSON lacks, by null."""
    if isinstance(found, dict):
        return {name: without_infinity(value) for name, value in found.items()}
    if isinstance(found, list | tuple):
        return [without_infinity(value) for value in found]
    if isinstance(found, float) and not math.isfinite(found):
        return None
    return found


_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
# Arguments of the estimator and of the table functions, and the options that set them.
_OPTIONS = {
    "features": "--features",
    "drop": "--drop",
    "target": "--target",
    "valid": "--valid",
    "test": "--test",
    "folds": "--folds",
    "methods": "--methods",
    "inference": "--inference",
    "preset": "--preset",
    "hidden": "--hidden",
    "latent_dim": "--latent-dim",
    "n_restarts": "--restarts",
    "max_steps": "--max-steps",
    "time_limit": "--time-limit",
    "target_transform": "--transform",
    "validation_fraction": "--valid",
    "random_state": "--seed",
}


def parse_names(text: str | None) -> list[str] | None:
    """Parse comma-separated names; a name with a comma is in double quotes."""
    if text is None:
        return None
    try:
        (names,) = csv.reader([text], skipinitialspace=True, strict=True)
    except (csv.Error, ValueError):
        raise ValueError(
            f"{text!r} must be names between commas; put a name that contains a comma "
            'or begins with a quote in double quotes, as in a,"b, c".'
        ) from None
    return [name.strip() for name in names if name.strip()]


def parse_layers(text: str | None) -> tuple[int, ...] | None:
    """Parse comma-separated widths of hidden layers."""
    if text is None:
        return None
    try:
        widths = tuple(int(width) for width in text.split(","))
    except ValueError:
        widths = (0,)
    if min(widths) < 1:
        raise ValueError(
            f"--hidden {text!r} must be whole numbers of at least 1 between commas, "
            "such as 50,50."
        )
    return widths


def parse_duration(text: str | None) -> float | None:
    """Parse a duration with the unit s, m or h (s if there is none) into seconds."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if seconds <= 0:
        raise ValueError(
            f"--time-limit {text!r} must be a time above 0, such as 60s, 5m or 1h."
        )
    return seconds


def parse_quantiles(text: str | None) -> list[float]:
    """Parse comma-separated probabilities; drop duplicates."""
    if text is None:
        return []
    try:
        levels = [float(level) for level in text.split(",")]
    except ValueError:
        levels = []
    if not levels or not all(0 < level < 1 for level in levels):
        raise ValueError(
            f"--quantiles {text!r} must be numbers strictly between 0 and 1, such as "
            "0.05,0.5,0.95."
        )
    return list(dict.fromkeys(levels))


def check_level(level: float) -> float:
    """Check the probability of an interval."""
    if not 0 < level < 1:
        raise ValueError(f"--level {level:g} must be strictly between 0 and 1.")
    return level


def check_count(count: int, option: str) -> int:
    """Check a count, which must be 0 or more."""
    if count < 0:
        raise ValueError(f"{option} {count} must be 0 or more.")
    return count


def check_seed(seed: int) -> int:
    """Check that scikit-learn accepts a seed."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed {seed} must be from 0 to {2**32 - 1}.")
    return seed


def parse_rows(text: str, option: str) -> float | Path:
    """Parse a share of the rows, or the path of a file with rows."""
    try:
        share = float(text)
    except ValueError:
        return Path(text)
    if not 0 <= share < 1:
        raise ValueError(
            f"{option} {text} must be a share of the rows, from 0 to below 1, or a "
            "file."
        )
    return share


def files_among(*given: object) -> list[Path]:
    """Return those values that are files, not standard input, a share or None."""
    return [Path(one) for one in given if isinstance(one, str | Path) and one != "-"]


def check_output(
    path: Path, force: bool, inputs: Iterable[Path], option: str = "--out"
) -> None:
    """Reject a file that cannot or must not be written, before any work is done."""
    if any(path.exists() and used.exists() and path.samefile(used) for used in inputs):
        raise ValueError(f"{option} {path} is also an input; choose another name.")
    if path.is_dir():
        raise ValueError(f"{option} {path} is a folder; name a file in it.")
    if path.exists() and not path.is_file():
        raise ValueError(f"{option} {path} is not a file that can be replaced.")
    if path.exists() and not force:
        raise ValueError(f"{path} exists; use --force to replace it.")
    check_writable(path)


def check_ending(path: Path, endings: tuple[str, ...], option: str) -> None:
    """Reject a file name that has none of these endings."""
    if not path.name.lower().endswith(endings):
        *most, last = endings
        listed = f"{', '.join(most)} or {last}" if most else last
        raise ValueError(f"{option} {path} must end in {listed}.")


@contextmanager
def named_as_options() -> Iterator[None]:
    """Make error messages name options instead of Python arguments.

    Errors about a table stay as they are, because its columns may have any name.
    """
    try:
        yield
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise ValueError(in_options(str(error))) from error


def in_options(message: str) -> str:
    """Replace the names of arguments in a message by the names of options."""

    def rename(match):
        name, given = match.groups()
        # Some names are ordinary words too, but an argument is followed by "=".
        if not given and "_" not in name:
            return match[0]
        return f"{_OPTIONS[name]} " if given else _OPTIONS[name]

    return re.sub(rf"\b({'|'.join(_OPTIONS)})\b(=?)", rename, message)


# ----- Tables -----------------------------------------------------------------------

MOST_COLUMNS = 40
# Where y is rounded, coverage is computed from PIT values (see `row_scores`).
ROUNDED_COVERAGE = (
    "y is rounded, so intervals end at values of y and contain more rows than their "
    "level says. To make coverage comparable with the level, a row whose y is an end "
    "of its interval counts only in part."
)


def plain_table(title: str, headings: Sequence[str]) -> Table:
    """Return a table without rules: names on the left, numbers on the right."""
    table = Table(
        title=Text(printable(title), style="bold"),
        title_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
    )
    table.add_column("")
    for name in headings:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def label_table(lines: Sequence[tuple[str, str]]) -> Table:
    """Return a table with labels on the left and wrapping sentences on the right."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=8, style="bold")
    table.add_column()
    for label, text in lines:
        table.add_row(Text(label), Text(printable(text)))
    return table


def column_table(notes: Mapping[str, str], most: int | None = MOST_COLUMNS) -> Table:
    """Return a table with a line for each column of the user's table."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, max_width=24)
    table.add_column()
    for name, note in list(notes.items())[:most]:
        table.add_row(Text(printable(name)), Text(printable(note)))
    if most is not None and len(notes) > most:
        more = f"and {len(notes) - most} more; `ncai inspect` shows all"
        table.add_row("...", more)
    return table


def score_table(scores: Sequence[Mapping[str, Any]], num_rows: int | None) -> Table:
    """Return a table of the scores on test rows, with a line for each method."""
    headings = ("log-lik.", "CRPS", "in 50%", "in 80%", "in 95%")
    from ncai.tables.inspect import decimals_for

    table = plain_table(f"On {num_rows} held-out test rows", headings)
    names = ("log_likelihood", "crps", "coverage_50", "coverage_80", "coverage_95")
    values = [[_as_number(score.get(name)) for name in names] for score in scores]
    decimals = decimals_for([row[1] for row in values])
    forms = (".3f", f".{decimals}f", ".1%", ".1%", ".1%")
    for score, row in zip(scores, values, strict=True):
        table.add_row(Text(printable(score["name"])), *map(format, row, forms))
    return table


def _as_number(value: float | str | None) -> float:
    """A number of a file, which has "inf" or null for what JSON lacks."""
    return math.nan if value is None else float(value)
