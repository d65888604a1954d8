"""`ncai predict`: predict each row of a table, with its uncertainty."""

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from ncai.cli import _options as options
from ncai.cli._arguments import Data, Force, Model, tell

EXAMPLES = (
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
        help="Add the columns aleatoric and epistemic: standard deviations in the "
        "units of y, whose squares add up to the square of std.",
    ),
]
Samples = Annotated[
    int, typer.Option(help="Random draws to add, as columns sample_1 etc.")
]
Seed = Annotated[int, typer.Option(help="Seed of the draws.")]
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
    seed: Seed = 0,
    out: Out = "-",
    force: Force = False,
) -> None:
    """Predict each row of a table, with its uncertainty.

    Columns written: mean, std, lower_95, upper_95 (named by the level), and what the
    options add. Columns of the table are found by name, in any order; others are
    ignored. The table is read and written in pieces, so it may be larger than memory.
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
        tell(f"Ignored columns: {', '.join(found.ignored)}")
    for sentence in found.remarks():
        tell(f"Warning: {sentence}")


def _write(path: Path | None, pieces) -> None:
    from ncai.tables.write import table_writer

    # A table that cannot be read or used is refused before a file is begun.
    first = next(pieces)
    with table_writer(path) as write:
        for piece in chain([first], pieces):
            write(piece)
