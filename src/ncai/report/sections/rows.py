"""The rows that can be looked at: their columns, target and density."""

from typing import Any

import numpy as np
import pandas as pd

from ncai.diagnostics.conditional import row_densities
from ncai.report.draw.shading import packed
from ncai.report.inputs import Subject
from ncai.report.words import MINUS, nice

_POINTS = 56
# Columns that fit in the box; the rest is said to be there.
MOST_COLUMNS = 14
# Whole numbers below this are written out: an id is no measurement.
_LARGEST_WHOLE = 1e15


def rows_for_script(subject: Subject) -> dict[str, Any]:
    """What the box beside the pointer shows of each row."""
    table = _table(subject)
    shown = table.iloc[subject.shown, :MOST_COLUMNS]
    y = subject.target[subject.shown]
    predictive = subject.shown_predictive
    ends = np.asarray(predictive.quantile([0.005, 0.995])).reshape(len(y), 2)
    low = np.minimum(ends[:, 0], y)
    high = np.maximum(ends[:, 1], y)
    room = 0.04 * np.maximum(high - low, 1e-12)
    low, high = low - room, high + room
    grid = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _POINTS)
    density = row_densities(predictive, grid)
    peaks = np.maximum(density.max(axis=1, keepdims=True), 1e-300)
    means = np.asarray(predictive.mean()).reshape(-1)
    lower, upper = (np.asarray(end).reshape(-1) for end in predictive.interval(0.95))
    return {
        "columns": [str(name) for name in shown.columns],
        "left_out": max(0, table.shape[1] - MOST_COLUMNS),
        "cells": [[cell(v) for v in row] for row in shown.itertuples(index=False)],
        "names": [subject.row_name(int(position)) for position in subject.shown],
        "target": subject.target_name,
        "y": [float(f"{value:.6g}") for value in y],
        "y_text": [cell(value) for value in y],
        "summary": [
            [nice(float(m)), nice(float(a)), nice(float(b))]
            for m, a, b in zip(means, lower, upper, strict=True)
        ],
        "ends": [
            [float(f"{a:.6g}"), float(f"{b:.6g}")]
            for a, b in zip(low, high, strict=True)
        ],
        "end_texts": [
            [nice(float(a)), nice(float(b))] for a, b in zip(low, high, strict=True)
        ],
        "points": _POINTS,
        "density": packed(density, peaks),
    }


def row_titles(subject: Subject) -> list[str]:
    """Each row in a line, for readers without the script."""
    table = _table(subject)
    shown = table.iloc[subject.shown, :3]
    return [
        f"{subject.row_name(int(position))}: "
        + ", ".join(
            f"{name} = {cell(value)}"
            for name, value in zip(shown.columns, values, strict=True)
        )
        + f", {subject.target_name} = {cell(subject.target[position])}"
        for position, values in zip(
            subject.shown, shown.itertuples(index=False), strict=True
        )
    ]


def _table(subject: Subject) -> pd.DataFrame:
    """The user's columns without the target; the inputs where they are not there."""
    raw = subject.inputs.raw_train
    table = subject.inputs.train_inputs if raw is None else raw
    is_target = [str(name) == subject.target_name for name in table.columns]
    return table.loc[:, ~np.array(is_target)]


def cell(value: Any) -> str:
    """One value of the user's table."""
    if (
        value is None
        or value is pd.NA
        or (isinstance(value, float) and np.isnan(value))
    ):
        return "\u2013"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | float | np.integer | np.floating):
        whole = float(value).is_integer() and abs(value) < _LARGEST_WHOLE
        return f"{float(value):{'.0f' if whole else '.6g'}}".replace("-", MINUS)
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}\u2026"
