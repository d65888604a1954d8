"""The benchmark's tables: four main ones, and one summary for each data set."""

import numpy as np
import pandas as pd

from ncai.study.benchmark import BENCHMARK
from ncai.study.paper_settings import DATASETS, METHODS, REAL, SYNTHETIC
from ncai.study.scales import Scale
from ncai.study.store import Store
from ncai.study.tables import STAR_NOTE, Entry, Table, pick, published, side_by_side

NUM_PUBLISHED_SPLITS = 5
LABELS = {
    "bnn": "BNN",
    "mfvi": "BNN+LV, MFVI",
    "ncai0": "NCAI, λ = 0",
    "ncai": "NCAI",
    "selected": "NCAI, selected",
}
# Metric, published name of it, whether larger is better (None: neither).
METRICS = (
    ("avg_ll_test", "avg_ll_test", True),
    ("avg_ll_train", "avg_ll_train", None),
    ("rmse_test", "rmse_test_as_printed", False),
    ("rmse_train", "rmse_train_as_printed", None),
    ("picp95_test_percent", "picp95_test_percent", None),
    ("picp95_train_percent", "picp95_train_percent", None),
    ("mpiw95_test_raw_units", "mpiw95_test_raw_units", None),
    ("mpiw95_train_raw_units", "mpiw95_train_raw_units", None),
    ("crps_test", None, False),
    ("reconstruction_mse", "reconstruction_mse", None),
    ("mi_x_mu_z", "mi_x_mu_z", False),
    ("mi_x_z", "mi_x_z", False),
    ("hz_mu_z", "hz_mu_z", False),
    ("pc_x_mu_z", "pc_x_mu_z", False),
    ("pc_y_mu_z", "pc_y_mu_z", False),
    ("ks", "ks", False),
    ("js_qz_pz", "js_qz_pz", False),
    ("kl_pz_qz", "kl_pz_qz", False),
    ("noise_var", "noise_var", None),
    ("prior_var_w", "prior_var_w", None),
    ("prior_var_z", "prior_var_z", None),
)
MAIN = (
    ("test_ll_synthetic", "Test log-likelihood, synthetic", "avg_ll_test", SYNTHETIC),
    ("test_ll_real", "Test log-likelihood, real", "avg_ll_test", REAL),
    ("hz", "HZ of the latent means", "hz_mu_z", DATASETS),
    ("mi", "Mutual information of x and the latent means", "mi_x_mu_z", DATASETS),
    ("rmse", "Test RMSE, raw units", "rmse_test", DATASETS),
    ("coverage", "Coverage of 95 % intervals, test", "picp95_test_percent", DATASETS),
)


def tidy(scale: Scale, store: Store) -> pd.DataFrame:
    """One line for each set, method and reported split; `selected` is a method too."""
    lines = []
    choice = selected_methods(scale, store)
    for cell in BENCHMARK.cells(scale, store):
        found = store.load(cell)
        if cell["phase"] != "report" or found is None:
            continue
        plain = {k: v for k, v in found.row.items() if not isinstance(v, list)}
        line = {"dataset": cell["dataset"], "split": cell["split"]} | plain
        lines.append(line | {"method": cell["method"]})
        if choice.get(cell["dataset"]) == cell["method"]:
            lines.append(line | {"method": "selected"})
    return pd.DataFrame(lines)


def selected_methods(scale: Scale, store: Store) -> dict[str, str]:
    """NCAI0 or NCAI for each set, by validation on the first split."""
    scores: dict[str, dict[str, float]] = {}
    for cell in BENCHMARK.cells(scale, store):
        found = store.load(cell)
        if (
            cell["phase"] == "select"
            and found is not None
            and cell["method"] in ("ncai0", "ncai")
        ):
            row = scores.setdefault(cell["dataset"], {})
            row[cell["method"]] = found.row["validation"]
    return {
        dataset: max(row, key=row.__getitem__)
        for dataset, row in scores.items()
        if len(row) == 2
    }


def tables(scale: Scale, store: Store) -> list[Table]:
    """All tables that the results so far allow."""
    ours = tidy(scale, store)
    if ours.empty:
        return []
    theirs = published()
    choice = selected_methods(scale, store)
    larger = {name: better for name, _, better in METRICS}
    printed = {name: other for name, other, _ in METRICS}

    def entry(dataset: str, method: str, metric: str) -> Entry:
        picked = pick(ours, dataset=dataset, method=method)
        return Entry.of(picked[metric].tolist() if metric in picked else [])

    def published_entry(dataset: str, method: str, metric: str) -> Entry:
        method = choice.get(dataset, "ncai") if method == "selected" else method
        picked = pick(theirs, dataset=dataset, method=method, metric=printed[metric])
        if picked.empty:
            return Entry.of([])
        scale_back = _raw_rmse_factor(ours, dataset) if "rmse" in metric else 1.0
        value, std = (float(picked[name].iloc[0]) for name in ("value", "std"))
        return Entry(value * scale_back, std * scale_back, NUM_PUBLISHED_SPLITS)

    out = []
    shown = (*METHODS, "selected")
    for name, title, metric, datasets in MAIN:
        rows = []
        for dataset in datasets:
            cells = [
                side_by_side(
                    entry(dataset, method, metric),
                    published_entry(dataset, method, metric),
                    larger[metric],
                )
                for method in shown
            ]
            oracle = entry(dataset, "bnn", "oracle_test")
            limit = f"{oracle.mean:.3f}" if oracle.count else ""
            if any(cells):
                rows.append((dataset, *cells, limit))
        columns = ("data set", *(LABELS[m] for m in shown), "oracle")
        out.append(Table(name, title, columns, tuple(rows), STAR_NOTE))
    for dataset in DATASETS:
        rows = []
        for metric, _, better in METRICS:
            cells = tuple(
                side_by_side(
                    entry(dataset, method, metric),
                    published_entry(dataset, method, metric),
                    better,
                )
                for method in METHODS
            )
            if any(cells):
                rows.append((metric, *cells))
        columns = ("metric", *(LABELS[m] for m in METHODS))
        title = f"Summary, {dataset}"
        out.append(Table(f"summary_{dataset}", title, columns, tuple(rows), STAR_NOTE))
    return out


def _raw_rmse_factor(ours: pd.DataFrame, dataset: str) -> float:
    """The paper divided standardised RMSE by std(y) where it should have multiplied.

    So its numbers are compared after multiplication by std(y)^2 (docs/readings.md).
    """
    picked = pick(ours, dataset=dataset)
    if "target_scale" not in picked or picked.empty:
        return 1.0
    return float(np.mean(picked["target_scale"].to_numpy())) ** 2
