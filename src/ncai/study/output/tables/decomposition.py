"""How far each method's decomposition is from HMC's."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from ncai.study.engine.cells import Outcome
from ncai.study.engine.scales import Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.decomposition import (
    DECOMPOSITION,
    MEASURES,
    PARTS,
    REFERENCE,
)
from ncai.study.output.tables.write import Table

METHODS = {
    "mfvi": "MFVI",
    "ncai": "NCAI",
    "marginal": "marginal",
    "default": "default",
    "hmc": "HMC",
}
PRIORS = {
    "shared": "10, as HMC's",
    "empirical": "empirical Bayes",
    "own": "its own network",
    "own_2": "its own, another seed",
    "own_3": "its own, a third seed",
}


class Found(NamedTuple):
    """What is done so far: HMC's outcome, and the others' by method and prior."""

    reference: Outcome | None
    others: dict[tuple[str, str], Outcome]


def load(scale: Scale, store: Store) -> Found:
    """From the store."""
    reference, others = None, {}
    for cell in DECOMPOSITION.cells(scale, store):
        outcome = store.load(cell) if cell.study == DECOMPOSITION.name else None
        if outcome is None:
            continue
        if cell["method"] == REFERENCE:
            reference = outcome
        else:
            others[cell["method"], cell["weight_prior"]] = outcome
    return Found(reference, others)


def distances(scale: Scale, store: Store) -> pd.DataFrame:
    """A line for each method and prior; empty without the reference.

    Mean absolute difference over the grid of x of each part, and the rank correlation
    of the epistemic part. Variances are compared as standard deviations.
    """
    reference, others = load(scale, store)
    if reference is None:
        return pd.DataFrame()
    lines = []
    for (method, prior), outcome in others.items():
        line: dict = {"method": method, "weight_prior": prior}
        for measure in MEASURES:
            for part in PARTS:
                ours, theirs = (
                    _comparable(measure, o.arrays[f"{measure}_{part}"])
                    for o in (outcome, reference)
                )
                line[f"{measure}_{part}"] = float(np.mean(np.abs(ours - theirs)))
            ours, theirs = (
                o.arrays[f"{measure}_epistemic"] for o in (outcome, reference)
            )
            line[f"{measure}_rank"] = float(spearmanr(ours, theirs)[0])  # pyright: ignore
        lines.append(line)
    return pd.DataFrame(lines)


def _comparable(measure: str, values: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(values, 0)) if measure == "variance" else values


def tables(scale: Scale, store: Store) -> list[Table]:
    """One for entropy, the paper's measure, and one for variance."""
    found = distances(scale, store)
    reference = load(scale, store).reference
    if reference is None or found.empty:
        return []
    row = reference.row
    verdict = "mixed" if row["mixed"] else "NOT mixed: a rough picture only"
    note = (
        "Mean absolute difference from HMC's over x, and rank correlation of the "
        f"epistemic part with HMC's. HMC: {row['source']}, {row['num_chains']} chains "
        f"of {row['num_draws']} draws, largest R-hat {row['max_rhat']:.3f}, smallest "
        f"effective sample size {row['min_ess']:.0f} ({verdict})."
    )
    units = {"entropy": "entropy, nats", "variance": "standard deviations, units of y"}
    out = []
    for measure in MEASURES:
        columns = (
            "method",
            "s_w",
            *PARTS,
            "rank correlation of epistemic",
        )
        rows = tuple(
            (
                METHODS[line["method"]],
                PRIORS[line["weight_prior"]],
                *(f"{line[f'{measure}_{part}']:.3f}" for part in PARTS),
                f"{line[f'{measure}_rank']:.2f}",
            )
            for line in found.to_dict("records")
        )
        title = f"Distance of each decomposition from HMC's ({units[measure]})"
        out.append(Table(f"decomposition_{measure}", title, columns, rows, note))
    return out
