"""Fit our methods and peers on the same folds of a table, and score them."""

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ncai.comparison import installed_peers
from ncai.diagnostics.evaluation import MAIN_SCORES, average_scores, row_scores
from ncai.predictive.simple import Predictions
from ncai.preprocessing.columns.column import surprise_sentences
from ncai.preprocessing.table_preparer import TablePreparer
from ncai.runtime.atomic_write import replacing
from ncai.tables.fit import TableSource
from ncai.tables.read import TableError, table_name

Rows = tuple[np.ndarray, np.ndarray]  # inputs and targets
OWN = {
    "BNN": {"latent_dim": 0, "inference": "mfvi"},
    "MFVI": {"inference": "mfvi"},
    "NCAI0": {"inference": "ncai0"},
    "NCAI": {"inference": "ncai"},
    "IWAE": {"inference": "iwae"},
    "Marginal": {"inference": "marginal"},
}


class OwnMethod:
    """One of our estimators, wrapped in the interface of the peers."""

    package = "ncai"

    def __init__(self, name: str, settings: Mapping[str, Any]):
        self.name = name
        self.settings = {**settings, **OWN[name]}

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> "OwnMethod":
        """Fit the estimator."""
        from ncai.estimators.bnn_lv import BNNLVRegressor

        self.model_ = BNNLVRegressor(**self.settings).fit(inputs, targets)
        return self

    def predict(self, inputs: np.ndarray) -> Predictions:
        """Return the predictive distributions of the rows."""
        return self.model_.predict_dist(inputs)  # pyright: ignore


def choose_methods(
    wanted: Sequence[str] | None, settings: Mapping[str, Any], seed: int
) -> tuple[list, list[str]]:
    """Return the requested methods (by default all) and the peers not installed."""
    peers, missing = installed_peers(seed)
    methods = [*(OwnMethod(name, settings) for name in OWN), *peers]
    if wanted is None:
        return methods, missing
    known = {method.name.lower(): method for method in methods}
    absent = {name.lower() for name in missing}
    unknown = [name for name in wanted if name.lower() not in known.keys() | absent]
    if unknown:
        names = [*(method.name for method in methods), *missing]
        raise ValueError(f"methods={unknown[0]!r} must be among {', '.join(names)}.")
    chosen = [known[name.lower()] for name in wanted if name.lower() in known]
    lacking = [name for name in missing if name.lower() in map(str.lower, wanted)]
    return chosen, lacking


@dataclass(frozen=True)
class Folds:
    """A table and its cross-validation folds: random parts of equal size."""

    source: TableSource
    inputs: pd.DataFrame
    targets: np.ndarray
    parts: Sequence[np.ndarray]


def read_folds(source: TableSource, num_folds: int, seed: int) -> Folds:
    """Read a table and split it into folds; reject one that is too small."""
    frame, names, targets = source.read()
    if not 2 <= num_folds <= len(frame) // 2:
        raise ValueError(
            f"folds={num_folds} must be from 2 to {max(2, len(frame) // 2)}, since "
            f"{table_name(source.path)} has {len(frame)} rows."
        )
    order = np.random.default_rng(seed).permutation(len(frame))
    inputs: Any = frame[names]
    return Folds(source, inputs, targets, np.array_split(order, num_folds))


def score_folds(
    folds: Folds, methods: Sequence[Any], notify: Callable[[str], None]
) -> pd.DataFrame:
    """Return a row for each method and fold: its scores, or why the fit failed.

    Args:
        folds: the rows.
        methods: the methods to fit to all folds but one and to score on that one.
        notify: called with one line before each fit, and with each warning about values
            of a fold that its training rows did not have.
    """
    results = []
    for number, held in enumerate(folds.parts, start=1):
        place = f"Fold {number} of {len(folds.parts)}"
        kept = np.setdiff1d(np.arange(len(folds.targets)), held)
        train, test, surprises = _prepared(folds, kept, held)
        for sentence in surprises:
            notify(f"{place}: {sentence}")
        for method in methods:
            notify(f"{place}: {method.name}")
            found = _one_fit(method, train, test)
            results.append({"method": method.name, "fold": number, **found})
    return pd.DataFrame(results)


def _prepared(
    folds: Folds, kept: np.ndarray, held: np.ndarray
) -> tuple[Rows, Rows, list[str]]:
    """Return the rows to train on, those to score, and warnings about the latter."""
    preparer = TablePreparer()
    try:
        train = preparer.fit_prepare(folds.inputs.iloc[kept])
        test, new = preparer.prepare(folds.inputs.iloc[held])
    except ValueError as error:
        raise TableError(f"{table_name(folds.source.path)}: {error}") from None
    pairs = [
        (part.to_numpy(), folds.targets[rows])
        for part, rows in ((train, kept), (test, held))
    ]
    return *pairs, surprise_sentences(new)  # pyright: ignore


def _one_fit(method, train: Rows, test: Rows) -> dict[str, Any]:
    from ncai.training.driver import FitFailedError

    # Other libraries may raise any error. For our own methods, only a fit without a
    # result counts as failed; any other error is a wrong setting or a bug.
    failures = FitFailedError if isinstance(method, OwnMethod) else Exception
    started = time.monotonic()
    with warnings.catch_warnings():
        # Warnings from other libraries, such as numbers that overflow in a fit that
        # then fails.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        if not isinstance(method, OwnMethod):
            warnings.simplefilter("ignore", RuntimeWarning)
        try:
            method.fit(*train)
            rows = row_scores(method.predict(test[0]), test[1])
        except failures as error:
            return {"failure": " ".join(str(error).split())[:200] or "it failed"}
    seconds = time.monotonic() - started
    return {**average_scores(rows), "seconds": seconds, "failure": None}


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Return mean and standard error over folds by method, best likelihood first."""
    lines = []
    for name, rows in results.groupby("method", sort=False):
        good: Any = rows[rows["failure"].isna()]
        line: dict[str, Any] = {"method": name, "folds": len(good)}
        for score in (*MAIN_SCORES, "rmse", "seconds"):
            values = good[score].to_numpy(float) if len(good) else np.array([np.nan])
            line[score] = float(values.mean())
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0
            line[f"{score}_se"] = float(error)
        lines.append(line)
    table = pd.DataFrame(lines)
    return table.sort_values("log_likelihood", ascending=False, ignore_index=True)


def draw_comparison(summary: pd.DataFrame, path: Path, title: str) -> None:
    """Draw likelihood, CRPS and coverage of each method, with standard errors."""
    import matplotlib.pyplot as plt

    panels = [
        ("log_likelihood", "log-likelihood per row (right is better)"),
        ("crps", "CRPS (left is better)"),
        ("coverage_95", "share in the 95% interval"),
    ]
    height = 1.6 + 0.36 * len(summary)
    figure, axes = plt.subplots(
        1, len(panels), figsize=(11, height), sharey=True, layout="constrained"
    )
    places = np.arange(len(summary))[::-1]
    for axis, (score, label) in zip(axes, panels, strict=True):
        axis.errorbar(
            summary[score],
            places,
            xerr=summary[f"{score}_se"],
            fmt="o",
            color="#b2182b",
            ecolor="#8c8c8c",
            capsize=3,
        )
        axis.set_xlabel(label)
        axis.grid(axis="x", color="#dddddd", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    axes[2].axvline(0.95, color="#4d4d4d", linewidth=1, linestyle="--")
    axes[0].set_yticks(places, summary["method"])
    axes[0].set_ylim(-0.6, len(summary) - 0.4)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    try:
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=150, format="png")
    finally:
        plt.close(figure)


def write_comparison(results: pd.DataFrame, summary: pd.DataFrame, path: Path) -> None:
    """Write the scores of every fold as CSV, or with the summary as JSON."""
    with replacing(path) as temporary:
        if path.suffix.lower() == ".csv":
            results.to_csv(temporary, index=False)
            return
        parts = {"folds": results, "summary": summary}
        content = {name: records(part) for name, part in parts.items()}
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Convert the rows of a table to values that JSON can hold."""
    return json.loads(str(frame.to_json(orient="records")))
