"""Options of the commands, what they mean, and how commands print.

Imports nothing heavy.
"""

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

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


_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
# What the commands call arguments of the estimator and of the functions for tables.
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
    """Names between commas; a name that contains a comma is in double quotes."""
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
    """Widths of hidden layers between commas."""
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
    """Seconds from a number with the unit s, m or h; s if none is given."""
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
    """Probabilities between commas, each once."""
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
    """The probability of an interval."""
    if not 0 < level < 1:
        raise ValueError(f"--level {level:g} must be strictly between 0 and 1.")
    return level


def check_count(count: int, option: str) -> int:
    """How many of something are wanted."""
    if count < 0:
        raise ValueError(f"{option} {count} must be 0 or more.")
    return count


def check_seed(seed: int) -> int:
    """A seed that scikit-learn accepts."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed {seed} must be from 0 to {2**32 - 1}.")
    return seed


def parse_rows(text: str, option: str) -> float | Path:
    """A share of the rows, or the file that has them."""
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
    """The files among what was given; the rest is standard input, a share or None."""
    return [Path(one) for one in given if isinstance(one, str | Path) and one != "-"]


def check_output(
    path: Path, force: bool, inputs: Iterable[Path], option: str = "--out"
) -> None:
    """Refuse, before any work is done, a file that cannot or must not be written."""
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
    """Refuse a file name without one of these endings."""
    if not path.name.lower().endswith(endings):
        *most, last = endings
        listed = f"{', '.join(most)} or {last}" if most else last
        raise ValueError(f"{option} {path} must end in {listed}.")


@contextmanager
def named_as_options() -> Iterator[None]:
    """Errors about arguments call them by the names of the options.

    Errors about a table are left alone, since its columns may have any name.
    """
    try:
        yield
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise ValueError(in_options(str(error))) from error


def in_options(message: str) -> str:
    """A sentence about arguments, with the names of the options in their place."""

    def rename(match):
        name, given = match.groups()
        # Some names are ordinary words too; an argument is followed by "=".
        if not given and "_" not in name:
            return match[0]
        return f"{_OPTIONS[name]} " if given else _OPTIONS[name]

    return re.sub(rf"\b({'|'.join(_OPTIONS)})\b(=?)", rename, message)
