"""Predictions and scores of the rows of a table, piece by piece.

A row's prediction does not depend on the piece it is in, so that a table larger than
memory gives what a small one would.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ncai.predictive.intervals import rests_on_rare_draws
from ncai.preprocessing.columns.column import Surprise, surprise_sentences
from ncai.tables import read as table_io
from ncai.tables.model import TableModel
from ncai.tables.read import numbers, require_columns


@dataclass(frozen=True)
class Wanted:
    """The columns to write beside mean and std.

    Args:
        level: probability of the interval.
        quantiles: levels of quantiles.
        decompose: aleatoric and epistemic standard deviations.
        samples: number of random draws.
        seed: of the draws.
    """

    level: float = 0.95
    quantiles: Sequence[float] = ()
    decompose: bool = False
    samples: int = 0
    seed: int = 0


class Pieces:
    """Predictive distributions of a table, piece by piece, and what was noticed."""

    def __init__(self, model: TableModel, data: str | Path, target: str | None = None):
        self.model, self.data = model, data
        self.target = target  # a column that is no input, where inputs have no names
        self.surprises: list[Surprise] = []
        self.num_rows = self.num_rare = 0  # all, and those whose std rests on few draws
        self.ignored: list[str] = []

    def __iter__(self) -> Iterator[tuple[pd.DataFrame, Any]]:
        """Rows as given, and their predictive distributions."""
        preparer = self.model.preparer
        text_columns = preparer.text_columns
        first_row = 0
        for frame in table_io.read_chunks(self.data, table_io.CHUNK_ROWS, text_columns):
            rows = frame
            if preparer.columns_used is None and self.target in frame:
                rows = frame.drop(columns=self.target)
            inputs, found = self.model.prepare(rows, self.data)
            self.surprises += found
            used = preparer.columns_used or list(frame.columns)
            self.ignored = [name for name in frame.columns if name not in used]
            predictive = self.model.estimator.predict_dist(inputs)
            yield frame, predictive.starting_at(first_row)
            first_row += len(frame)

    def remarks(self) -> list[str]:
        """Sentences on what the model had not seen, and on numbers to doubt."""
        remarks = surprise_sentences(self.surprises)
        if self.num_rare:
            remarks.append(
                f"in {self.num_rare} of {self.num_rows} rows a few rare draws far out "
                "make up most of std (and of its parts); use the interval or quantiles "
                "to see how wide the density is."
            )
        return remarks


def predict_pieces(
    model_path: Path, data: str | Path, wanted: Wanted
) -> tuple[Pieces, Iterator[pd.DataFrame]]:
    """Tables of predictions, one after another."""
    pieces = Pieces(TableModel.load(model_path), data)
    return pieces, _prediction_tables(pieces, wanted)


def _prediction_tables(pieces: Pieces, wanted: Wanted) -> Iterator[pd.DataFrame]:
    for _, predictive in pieces:
        columns = prediction_columns(predictive, wanted)
        std, (lower, upper) = columns["std"], list(columns.values())[2:4]
        rare = rests_on_rare_draws(predictive, std, upper - lower, wanted.level)
        pieces.num_rows += len(std)
        pieces.num_rare += int(rare.reshape(len(std), -1).any(axis=1).sum())
        yield pd.DataFrame(dict(_by_output(columns)))


def prediction_columns(predictive, wanted: Wanted) -> dict[str, np.ndarray]:
    """Mean, std, the ends of the interval, then what else is asked for."""
    level, quantiles = wanted.level, list(wanted.quantiles)
    ends = [(1 - level) / 2, (1 + level) / 2]
    found = np.moveaxis(predictive.quantile([*ends, *quantiles]), -1, 0)
    columns = {"mean": predictive.mean(), "std": predictive.std()}
    columns[f"lower_{_percent(level)}"], columns[f"upper_{_percent(level)}"] = found[:2]
    for share, values in zip(quantiles, found[2:], strict=True):
        columns[f"q{_percent(share)}"] = values
    if wanted.decompose:
        parts = predictive.decompose("variance")
        columns["aleatoric"] = np.sqrt(parts.aleatoric)
        columns["epistemic"] = np.sqrt(parts.epistemic)
    if wanted.samples:
        samples = predictive.sample(wanted.samples, wanted.seed)
        columns |= {f"sample_{n}": draw for n, draw in enumerate(samples, start=1)}
    return columns


def score_table_rows(
    model_path: Path, data: str | Path, target: str | None
) -> tuple[dict[str, np.ndarray], str, Pieces]:
    """Scores of every row of a table with the target in it."""
    from ncai.diagnostics.evaluation import row_scores

    model = TableModel.load(model_path)
    known = model.record.target
    target = target or known
    if target is None:
        raise ValueError(
            f"{model_path} was not made by `ncai fit`, so it does not know the name "
            "of its target: give it, as target=COLUMN."
        )
    inputs = list(getattr(model.preparer, "feature_names_in_", ()))
    if target != known and target in inputs:
        raise ValueError(
            f"target={target} is an input of {model_path}, which predicts {known}."
        )
    if not model.estimator.single_output_:
        raise ValueError(f"{model_path} has several outputs; evaluate takes one.")
    pieces = Pieces(model, data, target)
    parts = []
    for frame, predictive in pieces:
        require_columns(frame, [target], data)
        parts.append(row_scores(predictive, numbers(frame.loc[:, target], data)))
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return rows, target, pieces


def _by_output(columns: Mapping[str, np.ndarray]):
    """A model with several outputs gets a column for each: mean_1, mean_2, ..."""
    for name, values in columns.items():
        if values.ndim == 1:
            yield name, values
        else:
            for number, output in enumerate(values.T, start=1):
                yield f"{name}_{number}", output


def _percent(share: float) -> str:
    """A share as percent, two digits before the point: 0.05 is 05, 0.975 is 97.5.

    No digit is rounded away, so that two shares never have one name.
    """
    percent = f"{100 * Decimal(repr(float(share))):f}"
    whole, _, rest = percent.partition(".")
    rest = rest.rstrip("0")
    return whole.zfill(2) + (f".{rest}" if rest else "")
