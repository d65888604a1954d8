"""How good: scores, calibration, PIT, coverage by bin, sharpness."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup
from scipy import stats

from ncai.diagnostics.evaluation import (
    BinCoverage,
    binomial_band,
    coverage_by_bin,
    coverage_curve,
    paired_difference,
)
from ncai.report.axes import Axis, axis_for, value_text
from ncai.report.subject import Subject, shared
from ncai.report.svg import Chart
from ncai.report.words import count, fixed, nice, percent, short
from ncai.stats.scores import pit_uniformity
from ncai.tables.inspect import decimals_for

LEVELS = (0.5, 0.8, 0.95)
# Three levels are tested, so each test uses a stricter level than 95 %.
_VERDICT = 0.99
_CURVE = np.linspace(0, 1, 51)
_PIT_BINS = 10
_BINS_TITLE = "Coverage by bin"


@dataclass(frozen=True, eq=False)
class Quality:
    """The contents of the section, and the numbers that the answer quotes.

    Attributes:
        scores: scores of each method, as given or computed here.
        score_rows: the same as text, for the table.
        num_scored: number of rows that the scores are averages of.
        charts: pictures with their captions.
        mean_absolute_error: of the predicted mean.
        width: mean width of the 95 % intervals.
        level: the level whose coverage differs most from its nominal value, if chance
            does not explain the difference; else 95 %.
        coverage: share of rows inside their intervals of this level.
        expected: the range of this share that chance explains.
        shifted: whether the intervals are in the wrong place, by a test of the PIT.
        has_bins: whether there are enough rows for coverage by bin.
    """

    scores: list[dict[str, Any]]
    score_rows: list[dict[str, Any]]
    num_scored: int
    charts: list[dict[str, Any]]
    mean_absolute_error: float
    width: float
    level: float
    coverage: float
    expected: tuple[float, float]
    shifted: bool
    has_bins: bool

    @property
    def too_narrow(self) -> bool:
        """Whether fewer rows lie inside their intervals than chance explains."""
        return self.coverage < self.expected[0] - 1e-9

    @property
    def too_wide(self) -> bool:
        """Whether more rows lie inside their intervals than chance explains."""
        return self.coverage > self.expected[1] + 1e-9


@shared
def quality(subject: Subject) -> Quality:
    """Evaluate the methods on held-out rows, or on training rows if there are none."""
    main = subject.main_on_eval
    level, coverage, expected = _worst_level(main.pit)
    curves = {
        key: coverage_curve(found.pit, _CURVE) for key, found in subject.on_eval.items()
    }
    bins, uniformity = _coverage_by_bin(subject), pit_uniformity(main.pit)
    given = subject.inputs.scores
    scores = given or _own_scores(subject)
    # Given scores are averages over all rows; pictures show a choice of many rows.
    num_scored = subject.num_eval_available if given else len(subject.eval_inputs)
    return Quality(
        scores=scores,
        score_rows=score_rows(scores, num_scored),
        num_scored=num_scored,
        charts=[
            _calibration(subject, curves),
            _pit_histogram(subject, main.pit),
            *_bins(subject, bins),
            _sharpness(subject, main.upper - main.lower),
        ],
        mean_absolute_error=float(np.mean(np.abs(main.target - main.mean))),
        width=float(np.mean(main.upper - main.lower)),
        level=level,
        coverage=coverage,
        expected=expected,
        shifted=uniformity.p_value < 1 - _VERDICT,
        has_bins=len(bins) > 1,
    )


def _worst_level(pit: np.ndarray) -> tuple[float, float, tuple[float, float]]:
    """The level whose coverage chance explains least; 95 % if it explains them all."""
    shares = coverage_curve(pit, LEVELS)
    low, high = binomial_band(LEVELS, len(pit), _VERDICT)
    spread = np.sqrt(np.array(LEVELS) * (1 - np.array(LEVELS)) / len(pit))
    off = np.maximum(low - shares, shares - high) / spread
    worst = int(np.argmax(off)) if off.max() > 1e-9 else len(LEVELS) - 1
    return LEVELS[worst], float(shares[worst]), (float(low[worst]), float(high[worst]))


def score_rows(table: list[dict], num_rows: int) -> list[dict[str, Any]]:
    """The scores as text; marks the best, and coverage that chance does not explain."""
    best = {
        "log_likelihood": _best(table, "log_likelihood", max),
        "crps": _best(table, "crps", min),
    }
    decimals = {
        name: decimals_for([_number(row.get(name)) for row in table]) for name in best
    }
    rows = []
    for place, row in enumerate(table):
        cells = []
        for name in ("log_likelihood", "crps"):
            value = _number(row.get(name))
            known = best[name]
            first = known is not None and value is not None and value == known
            text = fixed(value, decimals[name])
            cells.append({"text": text, "best": first, "off": False})
        for level in LEVELS:
            value = _number(row.get(f"coverage_{100 * level:.0f}"))
            low, high = (float(end) for end in binomial_band(level, num_rows))
            off = value is not None and not low - 1e-9 <= value <= high + 1e-9
            cells.append({"text": percent(value), "best": False, "off": off})
        rows.append(
            {"name": str(row.get("name", "")), "cells": cells, "main": not place}
        )
    return rows


def _best(table, name, choose):
    values = [_number(row.get(name)) for row in table]
    known = [value for value in values if value is not None]
    return choose(known) if known else None


def _number(value) -> float | None:
    if value is None or not np.isfinite(float(value)):
        return None
    return float(value)


def _own_scores(subject: Subject) -> list[dict]:
    ours = subject.main_on_eval.log_likelihood
    table = []
    for method in subject.fitted:
        found = subject.on_eval[method.key]
        row = {
            "name": method.name,
            "log_likelihood": float(np.mean(found.log_likelihood)),
            "gain": paired_difference(ours, found.log_likelihood),
            "crps": found.crps,
        }
        coverage = coverage_curve(found.pit, LEVELS)
        for level, share in zip(LEVELS, coverage, strict=True):
            row[f"coverage_{100 * level:.0f}"] = float(share)
        table.append(row)
    return table


def _calibration(subject: Subject, curves: dict[str, np.ndarray]) -> dict[str, Any]:
    chart = Chart(
        Axis(0, 1, "probability of the interval", percent=True),
        Axis(0, 1, "share of rows inside", percent=True),
        title="Calibration curve",
    )
    low, high = binomial_band(_CURVE, len(subject.eval_target))
    chart.band(_CURVE, low, high, "chance").line([0, 1], [0, 1], "reference")
    for method in reversed(subject.fitted):
        chart.line(_CURVE, curves[method.key], "line", method.key)
    return _figure(
        chart.render(),
        "Calibration",
        "Share of rows inside central intervals. A calibrated model is close to the "
        "dashed line. Below the line, intervals are too narrow; above it, they are too "
        "wide. Grey: the range that chance explains, for each level separately.",
    )


def _pit_histogram(subject: Subject, pit: np.ndarray) -> dict[str, Any]:
    counts, edges = np.histogram(pit, bins=_PIT_BINS, range=(0, 1))
    low, high = stats.binom.ppf([0.025, 0.975], len(pit), 1 / _PIT_BINS)
    top = 1.1 * max(counts.max(), high, 1)
    chart = Chart(
        Axis(0, 1, "predictive cdf at the target (PIT)"),
        Axis(0, top, "rows", whole=True),
        title="PIT histogram",
    )
    chart.bar(0, 1, low, high, "chance")
    for number, left, right in zip(counts, edges[:-1], edges[1:], strict=True):
        chart.bar(left + 0.004, right - 0.004, 0, number, "bar", subject.main.key)
    for end in (low, high):
        chart.line([0, 1], [end, end], "limit")
    chart.line([0, 1], [len(pit) / _PIT_BINS] * 2, "reference")
    return _figure(
        chart.render(),
        "PIT histogram",
        "The histogram of a calibrated model is flat. If it is high at both ends, "
        "intervals are too narrow; if it is high in the middle, they are too wide; if "
        "it is high at one end, they are shifted. Grey: the range that chance "
        "explains, for each bar separately.",
    )


def _coverage_by_bin(subject: Subject) -> list[BinCoverage]:
    """Coverage along x if it is the only input, else along the predicted mean."""
    main = subject.main_on_eval
    by = main.mean
    if subject.one_input:
        by = subject.eval_inputs.to_numpy(float)[:, 0]
    num_bins = int(np.clip(len(main.pit) // 20, 1, 6))
    return coverage_by_bin(main.pit, by, 0.95, num_bins)


def _bins(subject: Subject, found: list[BinCoverage]) -> list[dict[str, Any]]:
    """The picture of coverage by bin; nothing if there is only one bin."""
    if len(found) < 2:
        return []
    words, by_name = short, "predicted mean"
    if subject.one_input:
        words, by_name = partial(value_text, subject.groups[0]), subject.groups[0].name
    places = np.arange(len(found))
    lowest = min(0.6, *(part.lower for part in found)) - 0.02
    ticks = [
        (float(place), words((part.low + part.high) / 2))
        for place, part in zip(places, found, strict=True)
    ]
    chart = Chart(
        Axis(-0.5, len(found) - 0.5, f"{by_name}, middle of the bin", ticks),
        Axis(max(lowest, -0.02), 1.02, "share inside 95 %", percent=True),
        title=_BINS_TITLE,
    )
    chart.line([-0.5, len(found) - 0.5], [0.95, 0.95], "reference")
    for place, part in zip(places, found, strict=True):
        chart.line(
            [place, place], [part.lower, part.upper], "whisker", subject.main.key
        )
    chart.points(
        places,
        [part.coverage for part in found],
        "dots",
        method=subject.main.key,
        radius=5,
        titles=[
            f"{words(part.low)} to {words(part.high)}: {percent(part.coverage)} of "
            f"{count(part.num_rows, 'row')}"
            for part in found
        ],
    )
    return [
        _figure(
            chart.render(),
            _BINS_TITLE,
            "Do 95 % intervals contain 95 % of the rows everywhere, and not only on "
            "average? The vertical lines are 95 % confidence intervals of the share.",
        )
    ]


def _sharpness(subject: Subject, widths: np.ndarray) -> dict[str, Any]:
    top = float(np.quantile(widths, 0.99))
    shown = np.clip(widths, None, top)
    axis = axis_for(
        np.append(shown, 0.0), f"width of the 95 % interval of {subject.y_label}", 0.03
    )
    counts, edges = np.histogram(shown, bins=24, range=(0, axis.high))
    chart = Chart(
        Axis(0, axis.high, axis.label),
        Axis(0, 1.1 * max(int(counts.max()), 1), "rows", whole=True),
        title="Sharpness",
    )
    gap = 0.06 * (edges[1] - edges[0])
    for number, left, right in zip(counts, edges[:-1], edges[1:], strict=True):
        if number:
            chart.bar(left + gap, right - gap, 0, number, "bar", subject.main.key)
    middle = float(np.median(widths))
    chart.line([middle, middle], [0, 1.1 * counts.max()], "reference")
    return _figure(
        chart.render(),
        "Sharpness",
        f"Widths of the 95 % intervals; their median is {nice(middle)} (dashed). "
        "Narrower intervals are better, as long as they are calibrated.",
    )


def _figure(svg: Markup, title: str, caption: str) -> dict[str, Any]:
    return {"svg": svg, "title": title, "caption": caption}
