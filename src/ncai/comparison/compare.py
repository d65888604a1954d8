"""`ncai compare`: our methods and other people's on the same folds of a table."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ncai.comparison.peers.registry import installed_peers
from ncai.diagnostics.evaluation import MAIN_SCORES, average_scores, row_scores
from ncai.predictive.simple import Predictions
from ncai.preprocessing.columns.notes import tell_surprises
from ncai.preprocessing.table_preparer import TablePreparer
from ncai.runtime.atomic_write import replacing
from ncai.tables.columns import numbers, table_name
from ncai.tables.fit import choose_columns, require_rows
from ncai.tables.read import TableError, read_table

OWN = {
    "BNN": {"latent_dim": 0, "inference": "mfvi"},
    "MFVI": {"inference": "mfvi"},
    "NCAI0": {"inference": "ncai0"},
    "NCAI": {"inference": "ncai"},
    "IWAE": {"inference": "iwae"},
    "Marginal": {"inference": "marginal"},
}


class OwnMethod:
    """One of our estimators behind the interface of the peers."""

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
        """Its predictive distributions."""
        return self.model_.predict_dist(inputs)  # pyright: ignore


def choose_methods(
    wanted: Sequence[str] | None, settings: Mapping[str, Any], seed: int
) -> tuple[list, list[str]]:
    """The methods asked for (all, if none is named), and the peers not installed."""
    peers, missing = installed_peers(seed)
    methods = [*(OwnMethod(name, settings) for name in OWN), *peers]
    if wanted is None:
        return methods, missing
    known = {method.name.lower(): method for method in methods}
    absent = {name.lower() for name in missing}
    unknown = [name for name in wanted if name.lower() not in known.keys() | absent]
    if unknown:
        names = [*(method.name for method in methods), *missing]
        raise ValueError(f"--methods {unknown[0]!r} must be among {', '.join(names)}.")
    chosen = [known[name.lower()] for name in wanted if name.lower() in known]
    lacking = [name for name in missing if name.lower() in map(str.lower, wanted)]
    return chosen, lacking


def compare_table(
    path: str | Path,
    target: str,
    columns: tuple[Sequence[str] | None, Sequence[str] | None],
    methods: Sequence,
    folds: int,
    seed: int,
    tell: Callable[[str], None],
    note: str = "",
) -> pd.DataFrame:
    """A row of scores for each method and fold; a fit that fails says why.

    `note` is told when all is found to be in order, before the work.
    """
    frame = read_table(path)
    names = choose_columns(frame, target, *columns, path)
    targets = numbers(frame.loc[:, target], path)
    require_rows(frame, path)
    if not 2 <= folds <= len(frame) // 2:
        raise ValueError(
            f"--folds {folds} must be from 2 to {max(2, len(frame) // 2)}, since "
            f"{table_name(path)} has {len(frame)} rows."
        )
    if note:
        tell(note)
    order = np.random.default_rng(seed).permutation(len(frame))
    parts = np.array_split(order, folds)
    results = []
    for number, held in enumerate(parts, start=1):
        kept = np.setdiff1d(order, held)
        try:
            preparer = TablePreparer().fit(frame.iloc[kept][names])
            prepared, new = preparer.prepare(frame[names])
            inputs = prepared.to_numpy()
        except ValueError as error:
            raise TableError(f"{table_name(path)}: {error}") from None
        for sentence in tell_surprises(new):
            tell(f"Fold {number} of {folds}: {sentence}")
        for method in methods:
            tell(f"Fold {number} of {folds}: {method.name}")
            found = _one_fit(method, inputs, targets, kept, held)
            results.append({"method": method.name, "fold": number, **found})
    return pd.DataFrame(results)


def _one_fit(method, inputs, targets, kept, held) -> dict[str, Any]:
    from ncai.training.driver import FitFailedError

    # Other libraries fail in ways of their own; of ours only a fit that got nowhere is
    # a result, anything else is a wrong setting or a bug.
    failures = FitFailedError if isinstance(method, OwnMethod) else Exception
    started = time.monotonic()
    with warnings.catch_warnings():
        # Of scikit-learn's checks, of numbers that overflow in a fit that then fails,
        # and the like: in code that is not ours.
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        if not isinstance(method, OwnMethod):
            warnings.simplefilter("ignore", RuntimeWarning)
        try:
            method.fit(inputs[kept], targets[kept])
            rows = row_scores(method.predict(inputs[held]), targets[held])
        except failures as error:
            return {"failure": " ".join(str(error).split())[:200] or "it failed"}
    seconds = time.monotonic() - started
    return {**average_scores(rows), "seconds": seconds, "failure": None}


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard error over folds, a method a line, best likelihood first."""
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
    """Points with standard errors: likelihood, CRPS and coverage of each method."""
    import matplotlib.pyplot as plt

    panels = [
        ("log_likelihood", "log-likelihood a row (right is better)"),
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
