"""Check the paper's claims against the results: holds, does not hold, or not run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from ncai.study.engine import Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.benchmark import BENCHMARK
from ncai.study.experiments.decomposition import distances
from ncai.study.experiments.divergence import DIVERGENCE, LEVEL
from ncai.study.experiments.elbo_ranking import ELBO_RANKING
from ncai.study.experiments.map_bias import MAP_BIAS
from ncai.study.experiments.problems import GROUND_TRUTH_SETS, SYNTHETIC
from ncai.study.experiments.theory import THEORY
from ncai.study.output import benchmark_claims
from ncai.study.output.benchmark_claims import NOT_YET, Finding
from ncai.study.output.tables import Entry, Numbers, Table, pick, tidy

FAR_ABOVE = 100.0  # nats
NEARLY_ALWAYS = 0.95
ORDER = ("fixed", "truth", "map")


def bound_holds(theory: pd.DataFrame) -> Finding:
    """The bound holds, and if it is high, the scaled parameters win nearly always.

    With few rows, the prior of the scaled weights still outweighs the gain; the bound
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
    """The log posterior is far higher at the joint mode than at the truth."""
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
    """The mean ELBO is in the order Fixed < GT < MAP on all three sets."""
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
    """Each part (entropy) of NCAI is closer to HMC than the same part of MFVI."""
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
    """Of five divergences, only HZ makes the means Gaussian."""
    if len(divergence) < 5:
        return NOT_YET
    p_values: Any = divergence.set_index("part")["p_value_after"]
    gaussian = sorted(str(part) for part in p_values.index[p_values > LEVEL])
    shown = "; ".join(f"{part} p = {value:.3f}" for part, value in p_values.items())
    return Finding.of(gaussian == ["hz"], shown)


@dataclass(frozen=True, eq=False)
class Results:
    """Tidy results of every study that the claims use."""

    benchmark: Numbers
    theory: pd.DataFrame
    map_bias: pd.DataFrame
    elbos: pd.DataFrame
    distances: pd.DataFrame
    divergence: pd.DataFrame

    @classmethod
    def load(cls, scale: Scale, store: Store) -> "Results":
        """Load the results so far."""
        return cls(
            Numbers.of(BENCHMARK, scale, store),
            tidy(THEORY, scale, store, keep_lists=True),
            tidy(MAP_BIAS, scale, store),
            tidy(ELBO_RANKING, scale, store),
            distances(scale, store),
            tidy(DIVERGENCE, scale, store),
        )


class Claim(NamedTuple):
    """A sentence, and the function that judges it by the results."""

    sentence: str
    judge: Callable[[Results], Finding]


def _benchmark(sentence: str, judge: Callable[[Numbers], Finding]) -> Claim:
    return Claim(sentence, lambda results: judge(results.benchmark))


CLAIMS = (
    *(
        _benchmark(
            f"NCAI has a higher test log-likelihood than MFVI on {dataset}",
            benchmark_claims.better_than_mfvi(dataset),
        )
        for dataset in SYNTHETIC
    ),
    _benchmark(
        "NCAI has a higher test log-likelihood than MFVI on at least 4 of 6 real sets",
        benchmark_claims.better_on_real_sets,
    ),
    _benchmark(
        "HZ is lower by 10 times or more where the penalties are on",
        benchmark_claims.hz_far_lower,
    ),
    _benchmark(
        "Mutual information of x and z is lower than MFVI's on most sets",
        benchmark_claims.mi_lower_on_most,
    ),
    _benchmark(
        "NCAI's 95 % intervals cover near 95 % where BNN's cover 60 to 80 %",
        benchmark_claims.covers_where_bnn_does_not,
    ),
    _benchmark(
        "NCAI0 and NCAI are alike where noise is symmetric",
        benchmark_claims.alike_where_symmetric,
    ),
    _benchmark(
        "NCAI is ahead of NCAI0 where noise is skewed (Heavy-Tail)",
        benchmark_claims.ahead_where_skewed,
    ),
    _benchmark(
        "On Energy BNN wins the test log-likelihood but covers about 80 %",
        benchmark_claims.energy,
    ),
    _benchmark(
        "NCAI's test log-likelihood is within 0.1 nats of the published, or better",
        benchmark_claims.near_published,
    ),
    Claim(
        "Scaled parameters beat the truth with probability to 1 as N grows (theorems)",
        lambda results: bound_holds(results.theory),
    ),
    Claim(
        "The log posterior at the joint mode is far above the truth's",
        lambda results: mode_beats_truth(results.map_bias),
    ),
    Claim(
        "ELBO: fixed at the truth < from the truth < from the mode, on all three sets",
        lambda results: elbo_order(results.elbos),
    ),
    Claim(
        "The start at the mode has the highest ELBO in most draws of Bimodal",
        lambda results: mode_wins_on_bimodal(results.elbos),
    ),
    Claim(
        "NCAI's uncertainty decomposition is nearer to HMC's than MFVI's",
        lambda results: decomposition_closer(results.distances),
    ),
    Claim(
        "Of five divergences only HZ makes the latent means Gaussian",
        lambda results: only_hz_makes_gaussian(results.divergence),
    ),
)


def claims_table(scale: Scale, store: Store) -> Table:
    """Every claim with its verdict and numbers."""
    results = Results.load(scale, store)
    rows = []
    for claim in CLAIMS:
        found = claim.judge(results)
        rows.append((claim.sentence, f"**{found.verdict}**", found.numbers))
    note = (
        "Differences are paired over splits or draws, mean ± standard error; one "
        "within two standard errors of 0 cannot tell. NCAI is the one of NCAI0 and "
        "NCAI that validation selected, unless both are named. Mutual information: "
        "MFVI less NCAI, in nats."
    )
    columns = ("claim", "verdict", "numbers")
    return Table("claims", "The paper's claims", columns, tuple(rows), note)
