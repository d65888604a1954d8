"""`latent-dim`: the benchmark's numbers with one and with two latent dimensions."""

from ncai.study.engine.scales import Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.benchmark import BENCHMARK, LATENT_DIM
from ncai.study.output.tables.benchmark import LABELS
from ncai.study.output.tables.benchmark_frame import Numbers
from ncai.study.output.tables.write import MARK_NOTE, Table, side_by_side

SHOWN = {
    "avg_ll_test": True,
    "rmse_test": False,
    "picp95_test_percent": None,
    "crps_test": False,
    "hz_mu_z": None,
    "mi_x_mu_z": None,
    "js_qz_pz": None,
}


def tables(scale: Scale, store: Store) -> list[Table]:
    """K = 2 beside K = 1, on the same splits."""
    two = Numbers.of(LATENT_DIM, scale, store)
    one = Numbers.of(BENCHMARK, scale, store)
    if two.ours.empty:
        return []
    rows = []
    for dataset in LATENT_DIM.sets(scale):
        for metric, larger in SHOWN.items():
            cells = tuple(
                side_by_side(
                    two.entry(dataset, method, metric),
                    one.entry(dataset, method, metric),
                    larger,
                )
                for method in LATENT_DIM.methods
            )
            if any(two.entry(dataset, m, metric).count for m in LATENT_DIM.methods):
                rows.append((dataset, metric, *cells))
    columns = ("data set", "metric", *(LABELS[m] for m in LATENT_DIM.methods))
    note = (
        "K = 2 (K = 1), both ours, mean ± std over splits; the better in bold. "
        f"{MARK_NOTE}"
    )
    return [Table("latent_dim", LATENT_DIM.title, columns, tuple(rows), note)]
