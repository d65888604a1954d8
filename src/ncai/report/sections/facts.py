"""Plain facts: the columns, the settings, the versions."""

import platform
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np

from ncai.report.draw.feature_axis import value_text
from ncai.report.draw.svg import number
from ncai.report.inputs import Subject
from ncai.report.words import nice

_PACKAGES = ("jax", "numpy", "scipy", "scikit-learn", "pandas")
# Columns of the table; a wider table helps nobody, and its end is said.
MOST_COLUMNS = 60
_BINS = 20


def column_table(subject: Subject) -> tuple[list[dict[str, Any]], int]:
    """Each column with its quantiles and a small histogram, the target first.

    Returns the rows, and how many columns were left out.
    """
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
    rows = []
    for name, values, is_target, words in columns[:MOST_COLUMNS]:
        low, middle, high = np.quantile(values, [0, 0.5, 1])
        rows.append(
            {
                "name": name,
                "target": is_target,
                "low": words(float(low)),
                "middle": words(float(middle)),
                "high": words(float(high)),
                "distinct": f"{len(np.unique(values)):,}",
                "bars": _bars(values),
            }
        )
    return rows, max(0, len(columns) - MOST_COLUMNS)


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


def settings_table(subject: Subject) -> list[tuple[str, str]]:
    """What the model was fitted with, presets filled in."""
    settings = dict(subject.model.settings_)
    return [(str(name), _word(value)) for name, value in sorted(settings.items())]


def _word(value: Any) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:79]}\u2026"


def versions() -> list[tuple[str, str]]:
    """What ran."""
    from ncai import __version__

    found = [("ncai", __version__), ("Python", platform.python_version())]
    for package in _PACKAGES:
        try:
            found.append((package, metadata.version(package)))
        except metadata.PackageNotFoundError:  # vendored, or a frozen program
            continue
    return found
