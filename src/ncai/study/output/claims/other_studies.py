"""Claims that the other studies decide, from their tidy frames."""

from typing import Any

import pandas as pd

from ncai.study.experiments.divergence import LEVEL
from ncai.study.experiments.ground_truth import GROUND_TRUTH_SETS
from ncai.study.output.claims.findings import NOT_YET, Finding
from ncai.study.output.tables.write import Entry, pick

FAR_ABOVE = 100.0  # nats
NEARLY_ALWAYS = 0.95
ORDER = ("fixed", "truth", "map")


def bound_holds(theory: pd.DataFrame) -> Finding:
    """The scaled parameters win nearly always once the bound says so; it is kept.

    With few rows the prior of the scaled weights still outweighs the gain: the bound
    is then 0 and says nothing.
    """
    if len(theory) < 2:
        return NOT_YET
    shown, wins_where_bound = [], []
    for row in theory.to_dict("records"):
        wins, bounds = row["wins_at_most_rows"], row["bound_at_most_rows"]
        shown.append(f"{row['part']} " + ", ".join(f"{share:.3f}" for share in wins))
        wins_where_bound += [
            share for share, bound in zip(wins, bounds, strict=True) if bound > 0.5
        ]
    nearly_always = all(share > NEARLY_ALWAYS for share in wins_where_bound)
    kept = bool(theory["bound_holds"].all())
    said = f"bound {'kept' if kept else 'NOT kept'}; share of wins at the most rows, "
    return Finding.of(
        kept and nearly_always and bool(wins_where_bound),
        said + "by scale: " + "; ".join(shown),
    )


def mode_beats_truth(map_bias: pd.DataFrame) -> Finding:
    """The log posterior at the joint mode far above the truth's, in every draw."""
    if map_bias.empty:
        return NOT_YET
    gaps: Any = map_bias["log_posterior_map"] - map_bias["log_posterior_true"]
    by_set = {
        dataset: Entry.of(gaps[map_bias["dataset"] == dataset].tolist())
        for dataset in GROUND_TRUTH_SETS
    }
    if not all(entry.count for entry in by_set.values()):
        return NOT_YET
    listed = "; ".join(f"{name} {entry}" for name, entry in by_set.items())
    return Finding.of(
        bool((gaps > FAR_ABOVE).all()), f"mode less truth, nats: {listed}"
    )


def elbo_order(elbos: pd.DataFrame) -> Finding:
    """Fixed < GT < MAP in mean ELBO on all three sets."""
    if elbos.empty:
        return NOT_YET
    shown, kept = [], 0
    for dataset in GROUND_TRUTH_SETS:
        means: Any = pick(elbos, dataset=dataset).groupby("start")["elbo"].mean()
        if not set(ORDER) <= set(means.index):
            return NOT_YET
        levels = [float(means[start]) for start in ORDER]
        kept += levels == sorted(levels)
        shown.append(f"{dataset} " + ", ".join(f"{level:.0f}" for level in levels))
    return Finding.of(
        kept == len(GROUND_TRUTH_SETS),
        f"{kept} of {len(GROUND_TRUTH_SETS)} sets; fixed, truth, map: "
        + "; ".join(shown),
    )


def mode_wins_on_bimodal(elbos: pd.DataFrame) -> Finding:
    """The start at the mode gives the highest ELBO in most draws of Bimodal."""
    if elbos.empty:
        return NOT_YET
    picked = pick(elbos, dataset="bimodal")
    by_draw = picked.pivot_table(index="draw", columns="start", values="elbo").dropna()
    if by_draw.empty or len(by_draw.columns) < 5:
        return NOT_YET
    best: Any = by_draw.idxmax(axis=1)
    wins = int((best == "map").sum())
    return Finding.of(
        wins > len(best) / 2,
        f"{wins} of {len(best)} draws; best: {', '.join(map(str, best))}",
    )


def decomposition_closer(distances: pd.DataFrame) -> Finding:
    """NCAI's decomposition nearer to HMC's than MFVI's, part by part (entropy)."""
    if distances.empty:
        return NOT_YET
    shared: Any = pick(distances, weight_prior="shared").set_index("method")
    if not {"ncai", "mfvi"} <= set(shared.index):
        return NOT_YET
    parts = ["entropy_total", "entropy_aleatoric", "entropy_epistemic"]
    ours, other = shared.loc["ncai", parts], shared.loc["mfvi", parts]
    shown = "; ".join(
        f"{part.split('_')[1]} {ours[part]:.3f} (MFVI {other[part]:.3f})"
        for part in parts
    )
    return Finding.of(bool((ours < other).all()), f"distance to HMC's, nats: {shown}")


def only_hz_makes_gaussian(divergence: pd.DataFrame) -> Finding:
    """Of five divergences only HZ makes the means Gaussian."""
    if len(divergence) < 5:
        return NOT_YET
    p_values: Any = divergence.set_index("part")["p_value_after"]
    gaussian = sorted(str(part) for part in p_values.index[p_values > LEVEL])
    shown = "; ".join(f"{part} p = {value:.3f}" for part, value in p_values.items())
    return Finding.of(gaussian == ["hz"], shown)
