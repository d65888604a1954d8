"""Data and how it was processed: the columns, and the rows behind the dots."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from ncai.diagnostics.curves import row_densities
from ncai.report.axes import value_text
from ncai.report.densities import packed
from ncai.report.subject import Subject, shared
from ncai.report.svg import number
from ncai.report.words import cell, nice
from ncai.tables.inspect import learned_as

# Columns in the table; the page says how many more there are.
MOST_COLUMNS = 60
# Columns in the box next to the pointer; the box says how many more there are.
MOST_COLUMNS_OF_A_ROW = 14
_BINS = 20
_POINTS = 56


@dataclass(frozen=True, eq=False)
class Data:
    """The contents of the section, which the template shows.

    Attributes:
        columns: each column with its quantiles and a small histogram, the target first.
        columns_left_out: number of columns that the table does not list.
        learned_as: how the model saw the target.
        rounded: whether the target has only rounded values.
        rows: for the script: what the box next to the pointer shows of each row.
    """

    columns: list[dict[str, Any]]
    columns_left_out: int
    learned_as: str
    rounded: bool
    rows: dict[str, Any]


@shared
def data(subject: Subject) -> Data:
    """Describe the columns and the training rows."""
    columns = _columns(subject)
    return Data(
        columns=[_column_row(*column) for column in columns[:MOST_COLUMNS]],
        columns_left_out=max(0, len(columns) - MOST_COLUMNS),
        learned_as=learned_as(subject.model.settings_.to_dict()),
        rounded=any(subject.model.settings_.rounding_steps),
        rows=_rows_for_script(subject),
    )


def row_titles(subject: Subject) -> list[str]:
    """Each row in one line, for readers without the script."""
    shown = _raw_columns(subject).iloc[subject.shown, :3]
    titles = []
    rows = shown.itertuples(index=False)
    for name_of_row, position, values in zip(
        subject.row_names, subject.shown, rows, strict=True
    ):
        cells = ", ".join(
            f"{name} = {cell(value)}"
            for name, value in zip(shown.columns, values, strict=True)
        )
        titles.append(
            f"{name_of_row}: {cells}, "
            f"{subject.target_name} = {cell(subject.target[position])}"
        )
    return titles


def _columns(
    subject: Subject,
) -> list[tuple[str, np.ndarray, bool, Callable[[float], str]]]:
    """Name, values, whether it is the target, and how to write a value."""
    columns: list[tuple[str, np.ndarray, bool, Callable[[float], str]]]
    columns = [(subject.target_name, subject.target, True, nice)]
    dates = {g.columns[0]: g for g in subject.groups if g.origin is not None}
    for place, name in enumerate(subject.names):
        values = subject.train[:, place]
        if name in dates:
            words = partial(value_text, dates[name])
            columns.append((dates[name].name, values, False, words))
        else:
            columns.append((name, values, False, nice))
    return columns


def _column_row(name: str, values: np.ndarray, is_target: bool, words) -> dict:
    low, middle, high = np.quantile(values, [0, 0.5, 1])
    return {
        "name": name,
        "target": is_target,
        "low": words(float(low)),
        "middle": words(float(middle)),
        "high": words(float(high)),
        "distinct": f"{len(np.unique(values)):,}",
        "bars": _bars(values),
    }


def _bars(values: np.ndarray) -> str:
    """Path of a histogram, 100 wide and 24 high."""
    counts = np.histogram(values, bins=_BINS)[0]
    heights = 22 * counts / counts.max()
    step = 100 / _BINS
    width = number(step - 0.8)
    return "".join(
        f"M{number(step * place)} 24v-{number(float(height) + 0.8)}h{width}V24z"
        for place, height in enumerate(heights)
        if height > 0
    )


def _rows_for_script(subject: Subject) -> dict[str, Any]:
    table = _raw_columns(subject)
    shown = table.iloc[subject.shown, :MOST_COLUMNS_OF_A_ROW]
    predicted, y = subject.on_shown, subject.on_shown.target
    grid = _row_grids(predicted.predictive, y)
    ends = grid[:, [0, -1]]
    density = row_densities(predicted.predictive, grid)
    peaks = np.maximum(density.max(axis=1, keepdims=True), 1e-300)
    return {
        "columns": [str(name) for name in shown.columns],
        "left_out": max(0, table.shape[1] - MOST_COLUMNS_OF_A_ROW),
        "cells": [[cell(v) for v in row] for row in shown.itertuples(index=False)],
        "names": subject.row_names,
        "target": subject.target_name,
        "y": [float(f"{value:.6g}") for value in y],
        "y_text": [cell(value) for value in y],
        "summary": [
            [nice(float(value)) for value in values]
            for values in zip(
                predicted.mean, predicted.lower, predicted.upper, strict=True
            )
        ],
        "ends": [[float(f"{end:.6g}") for end in pair] for pair in ends],
        "end_texts": [[nice(float(end)) for end in pair] for pair in ends],
        "points": _POINTS,
        "density": packed(density, peaks),
    }


def _row_grids(predictive, y: np.ndarray) -> np.ndarray:
    """Values of y that cover the bulk of each density and the target, [N, points]."""
    ends = np.asarray(predictive.quantile([0.005, 0.995])).reshape(len(y), 2)
    low, high = np.minimum(ends[:, 0], y), np.maximum(ends[:, 1], y)
    room = 0.04 * np.maximum(high - low, 1e-12)
    low, high = low - room, high + room
    return low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _POINTS)


def _raw_columns(subject: Subject) -> pd.DataFrame:
    """The user's columns without the target; the inputs if these are not given."""
    raw = subject.inputs.raw_train
    table = subject.inputs.train_inputs if raw is None else raw
    is_target = [str(name) == subject.target_name for name in table.columns]
    return table.loc[:, ~np.array(is_target)]
