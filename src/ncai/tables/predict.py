"""Predict and score the rows of a table in chunks.

The prediction of a row does not depend on its chunk, so the table may be larger than
memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ncai.predictive.decomposition import Decomposition
from ncai.predictive.intervals import rests_on_rare_draws
from ncai.preprocessing.columns.column import Surprise, surprise_sentences
from ncai.tables import read as table_io
from ncai.tables.model import TableModel
from ncai.tables.read import numbers, require_columns


@dataclass(frozen=True)
class Wanted:
    """The columns to write in addition to mean and std.

    Args:
        level: probability of the interval.
        quantiles: levels of quantiles.
        decompose: total, aleatoric and epistemic uncertainty by CRPS, their Monte Carlo
            standard error, and whether that is large.
        samples: number of random draws.
        seed: seed of the draws.
    """

    level: float = 0.95
    quantiles: Sequence[float] = ()
    decompose: bool = False
    samples: int = 0
    seed: int = 0


class Pieces:
    """The predictive distributions of a table, chunk by chunk, and remarks on them."""

    def __init__(self, model: TableModel, data: str | Path, target: str | None = None):
        self.model, self.data = model, data
        self.target = target  # not an input, even if the inputs have no names
        self.surprises: list[Surprise] = []
        self.num_rows = self.num_rare = 0  # `num_rare`: rare draws dominate std
        self.ignored: list[str] = []

    def __iter__(self) -> Iterator[tuple[pd.DataFrame, Any]]:
        """Yield chunks of rows as given, and their predictive distributions."""
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
        """Return sentences on values new to the model and on unreliable std."""
        remarks = surprise_sentences(self.surprises)
        if self.num_rare:
            remarks.append(
                f"in {self.num_rare} of {self.num_rows} rows a few rare draws "
                "dominate std; use the interval or quantiles to see how wide the "
                "density is."
            )
        return remarks


def predict_pieces(
    model_path: Path, data: str | Path, wanted: Wanted
) -> tuple[Pieces, Iterator[pd.DataFrame]]:
    """Yield tables of predictions, one per chunk."""
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
    """Return mean, std, the ends of the interval, and the other requested columns."""
    level, quantiles = wanted.level, list(wanted.quantiles)
    ends = [(1 - level) / 2, (1 + level) / 2]
    found = np.moveaxis(predictive.quantile([*ends, *quantiles]), -1, 0)
    columns = {"mean": predictive.mean(), "std": predictive.std()}
    columns[f"lower_{_percent(level)}"], columns[f"upper_{_percent(level)}"] = found[:2]
    for share, values in zip(quantiles, found[2:], strict=True):
        columns[f"q{_percent(share)}"] = values
    if wanted.decompose:
        columns |= _split_columns(predictive.decompose("crps"))
    if wanted.samples:
        samples = predictive.sample(wanted.samples, wanted.seed)
        columns |= {f"sample_{n}": draw for n, draw in enumerate(samples, start=1)}
    return columns


def _split_columns(parts: Decomposition) -> dict[str, np.ndarray]:
    """The parts of each row, their largest standard error, and whether it is large."""
    errors = parts.standard_error
    assert errors is not None
    worst = np.maximum(errors.total, np.maximum(errors.aleatoric, errors.epistemic))
    return {
        "total": parts.total,
        "aleatoric": parts.aleatoric,
        "epistemic": parts.epistemic,
        "split_error": worst,
        "unstable": parts.unstable,
    }


def score_table_rows(
    model_path: Path, data: str | Path, target: str | None
) -> tuple[dict[str, np.ndarray], str, Pieces]:
    """Score every row of a table that contains the target."""
    from ncai.diagnostics.evaluation import row_scores

    model = TableModel.load(model_path)
    known = model.record.target
    target = target or known
    if target is None:
        raise ValueError(
            f"{model_path} was not made by `ncai fit`, so it does not contain the "
            "name of the target: give it as target=COLUMN."
        )
    inputs = list(getattr(model.preparer, "feature_names_in_", ()))
    if target != known and target in inputs:
        raise ValueError(
            f"target={target} is an input of {model_path}, which predicts {known}."
        )
    if not model.estimator.single_output_:
        raise ValueError(
            f"{model_path} has several outputs; evaluate needs a model with one."
        )
    pieces = Pieces(model, data, target)
    parts = []
    for frame, predictive in pieces:
        require_columns(frame, [target], data)
        parts.append(row_scores(predictive, numbers(frame.loc[:, target], data)))
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return rows, target, pieces


def _by_output(columns: Mapping[str, np.ndarray]):
    """Give each of several outputs its own column: mean_1, mean_2, ..."""
    for name, values in columns.items():
        if values.ndim == 1:
            yield name, values
        else:
            for number, output in enumerate(values.T, start=1):
                yield f"{name}_{number}", output


def _percent(share: float) -> str:
    """Write a share as percent with two leading digits: 0.05 is 05, 0.975 is 97.5.

    No digit is rounded away, so that different shares have different names.
    """
    percent = f"{100 * Decimal(repr(float(share))):f}"
    whole, _, rest = percent.partition(".")
    rest = rest.rstrip("0")
    return whole.zfill(2) + (f".{rest}" if rest else "")
