"""The benchmark's tables: the main ones, what was selected, and a summary a set."""

from ncai.study.engine.scales import Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.benchmark import BENCHMARK
from ncai.study.experiments.paper_settings import DATASETS, METHODS, REAL, SYNTHETIC
from ncai.study.output.tables.benchmark_frame import SELECTED, Numbers
from ncai.study.output.tables.write import (
    PUBLISHED_NOTE,
    Entry,
    Table,
    pick,
    side_by_side,
)

LABELS = {
    "bnn": "BNN",
    "mfvi": "BNN+LV, MFVI",
    "ncai0": "NCAI, λ = 0",
    "ncai": "NCAI",
    "selected": "NCAI, selected",
}
# Metric, and whether larger is better (None: neither).
METRICS: dict[str, bool | None] = {
    "avg_ll_test": True,
    "avg_ll_train": None,
    "oracle_gap": False,
    "rmse_test": False,
    "rmse_train": None,
    "picp95_test_percent": None,
    "picp95_train_percent": None,
    "mpiw95_test_raw_units": None,
    "mpiw95_train_raw_units": None,
    "crps_test": False,
    "reconstruction_mse": None,
    "mi_x_mu_z": False,
    "mi_x_z": False,
    "hz_mu_z": False,
    "pc_x_mu_z": False,
    "pc_y_mu_z": False,
    "ks": False,
    "js_qz_pz": False,
    "kl_pz_qz": False,
    "noise_var": None,
    "prior_var_w": None,
    "prior_var_z": None,
}
MAIN = (
    (
        "test_ll_synthetic",
        "Test log-likelihood, synthetic (table:synth_gen_ll)",
        "avg_ll_test",
        SYNTHETIC,
    ),
    (
        "oracle_gap",
        "Gap of the test log-likelihood to the oracle, synthetic",
        "oracle_gap",
        SYNTHETIC,
    ),
    (
        "test_ll_real",
        "Test log-likelihood, real (table:real_gen_ll)",
        "avg_ll_test",
        REAL,
    ),
    (
        "mi",
        "Mutual information of x and the latent means (table:synth_metrics, "
        "table:real_metrics1)",
        "mi_x_mu_z",
        DATASETS,
    ),
    (
        "hz",
        "HZ of the latent means (table:synth_metrics2, table:real_metrics2)",
        "hz_mu_z",
        DATASETS,
    ),
    ("rmse", "Test RMSE, raw units (table:synth_rmse)", "rmse_test", DATASETS),
    ("coverage", "Coverage of 95 % intervals, test", "picp95_test_percent", DATASETS),
)
HYPER_PARAMETERS = {
    "noise_var": "s_eps",
    "eps_T": "eps_T",
    "eps_x": "eps_x",
    "eps_y": "eps_y",
}


def tables(scale: Scale, store: Store) -> list[Table]:
    """All tables that the results so far allow."""
    numbers = Numbers.of(BENCHMARK, scale, store)
    if numbers.ours.empty:
        return []
    main = [_main_table(numbers, *told) for told in MAIN]
    summaries = [_summary(numbers, dataset) for dataset in DATASETS]
    found = [*main, _selection(numbers, scale, store), *summaries]
    return [table for table in found if table.rows]


def _cells(numbers: Numbers, dataset: str, metric: str, methods) -> tuple[str, ...]:
    return tuple(
        side_by_side(
            numbers.entry(dataset, method, metric),
            numbers.published_entry(dataset, method, metric),
            METRICS[metric],
        )
        for method in methods
    )


def _main_table(numbers: Numbers, name, title, metric, datasets) -> Table:
    shown = [m for m in (*METHODS, SELECTED) if m != "bnn" or _has_bnn(metric)]
    with_oracle = metric == "avg_ll_test" and datasets == SYNTHETIC
    rows = []
    for dataset in datasets:
        if numbers.ours.empty or pick(numbers.ours, dataset=dataset).empty:
            continue
        cells = _cells(numbers, dataset, metric, shown)
        if with_oracle:
            oracles = numbers.ours[numbers.ours["dataset"] == dataset]
            by_split = oracles.groupby("split")["oracle_test"].first()
            cells = (*cells, str(Entry.of(by_split.tolist())))
        rows.append((dataset, *cells))
    oracle = ("oracle, same points",) if with_oracle else ()
    columns = ("data set", *(LABELS[m] for m in shown), *oracle)
    note = PUBLISHED_NOTE
    if metric == "oracle_gap":
        note += (
            " Ours: to the oracle on the same test points; published: to its expected "
            "value, since those points are not known. Below 0 is above the oracle."
        )
    return Table(name, title, columns, tuple(rows), note)


def _has_bnn(metric: str) -> bool:
    """It has no latents to speak of."""
    return metric not in ("mi_x_mu_z", "hz_mu_z")


def _summary(numbers: Numbers, dataset: str) -> Table:
    rows = []
    if not pick(numbers.ours, dataset=dataset).empty:
        for metric in METRICS:
            cells = _cells(numbers, dataset, metric, METHODS)
            if any(cells):
                rows.append((metric, *cells))
    columns = ("metric", *(LABELS[m] for m in METHODS))
    title = f"Summary, {dataset}"
    return Table(f"summary_{dataset}", title, columns, tuple(rows), PUBLISHED_NOTE)


def _selection(numbers: Numbers, scale: Scale, store: Store) -> Table:
    """What the first split chose, with the paper's choice."""
    rows = []
    for dataset in DATASETS:
        for method in METHODS:
            found = store.load_row(BENCHMARK.select_cell(scale, dataset, method))
            if found is None:
                continue
            cells = []
            for name, ours in zip(HYPER_PARAMETERS, found["chosen"], strict=True):
                theirs = pick(
                    numbers.theirs,
                    dataset=dataset,
                    method=method,
                    metric=f"selected_{name}",
                )
                if ours is None:
                    cells.append("")
                elif theirs.empty:
                    cells.append(f"{ours:g}")
                else:
                    cells.append(f"{ours:g} ({float(theirs['value'].iloc[0]):g})")
            chosen = "x" if numbers.choice.get(dataset) == method else ""
            rows.append((dataset, LABELS[method], *cells, chosen))
    columns = ("data set", "method", *HYPER_PARAMETERS.values(), "selected for NCAI")
    note = "Ours (published), by validation log-likelihood on the first split."
    title = "Hyper-parameters selected"
    return Table("hyper_parameters", title, columns, tuple(rows), note)
