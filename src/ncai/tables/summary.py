"""What `ncai fit` says: what became of the columns, and how good the model is."""

from typing import TYPE_CHECKING

import numpy as np

from ncai.diagnostics.evaluation import paired_difference
from ncai.tables.fit import FitTables
from ncai.tables.inspect import cut_short, learned_as

if TYPE_CHECKING:
    from ncai.diagnostics.latent_diagnosis import LatentDiagnosis
    from ncai.estimators.bnn_lv import BNNLVRegressor
    from ncai.fitting.settings import Settings


def method_name(settings: "Settings") -> str:
    """What to call our own model in a table of methods."""
    model = "BNN" if settings.latent_dim == 0 else "BNN+LV"
    return f"{model}, {settings.method.label}"


def row_counts(tables: FitTables, model: "BNNLVRegressor") -> dict[str, int]:
    """How many rows were used for what."""
    num_train = len(model.train_index_ if model.train_index_ is not None else [])
    num_valid = len(tables.train) - num_train
    if tables.valid is not None:
        num_valid = len(tables.valid)
    num_test = 0 if tables.test is None else len(tables.test)
    return {"num_train": num_train, "num_valid": num_valid, "num_test": num_test}


def verdict_on_scores(log_likelihoods: dict[str, np.ndarray]) -> str:
    """Whether the first method has more likelihood than the best of the others."""
    (ours, *others) = log_likelihoods
    best = max(others, key=lambda name: log_likelihoods[name].mean())
    gain, low, high = paired_difference(log_likelihoods[ours], log_likelihoods[best])
    if low > 0:
        found = "better than"
    elif high < 0:
        found = "worse than"
    else:
        found = "not told apart from"
    return (
        f"{found} the best baseline ({best}): {gain:+.3f} nats a row, 95% interval "
        f"{low:+.3f} to {high:+.3f}"
    )


def verdict_lines(
    model: "BNNLVRegressor", diagnosis: "LatentDiagnosis | None"
) -> list[tuple[str, str]]:
    """How training went and what became of z, as labels and sentences."""
    reasons: list[str] = model.stop_reasons_ or []
    lines = [("Target", learned_as(model.settings_.to_dict()))]
    lines += zip(("Stages", *[""] * 9), reasons, strict=False)
    if cut := cut_short(reasons, model.n_iter_):
        lines.append(("Note", cut))
    if diagnosis is not None:
        lines += [
            ("Latent", diagnosis.independence_verdict),
            ("", diagnosis.prior_verdict),
        ]
    return lines
