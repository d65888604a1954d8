"""The paper's claims, each judged by the results: holds, does not, or not yet run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from ncai.study.engine.scales import Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.benchmark import BENCHMARK
from ncai.study.experiments.divergence import DIVERGENCE
from ncai.study.experiments.elbo_ranking import ELBO_RANKING
from ncai.study.experiments.map_bias import MAP_BIAS
from ncai.study.experiments.theory import THEORY
from ncai.study.output.claims import benchmark as benchmark_claims
from ncai.study.output.claims import other_studies as other_claims
from ncai.study.output.claims.findings import Finding
from ncai.study.output.tables.benchmark_frame import Numbers
from ncai.study.output.tables.decomposition import distances
from ncai.study.output.tables.write import Table, tidy


@dataclass(frozen=True, eq=False)
class Results:
    """Tidy results of every study that claims look at."""

    benchmark: Numbers
    theory: pd.DataFrame
    map_bias: pd.DataFrame
    elbos: pd.DataFrame
    distances: pd.DataFrame
    divergence: pd.DataFrame

    @classmethod
    def load(cls, scale: Scale, store: Store) -> "Results":
        """What is done so far."""
        return cls(
            Numbers.of(BENCHMARK, scale, store),
            tidy(THEORY, scale, store, keep_lists=True),
            tidy(MAP_BIAS, scale, store),
            tidy(ELBO_RANKING, scale, store),
            distances(scale, store),
            tidy(DIVERGENCE, scale, store),
        )


class Claim(NamedTuple):
    """A sentence, and how the results judge it."""

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
        for dataset in ("heavy_tail", "depeweg", "williams", "goldberg")
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
        lambda results: other_claims.bound_holds(results.theory),
    ),
    Claim(
        "The log posterior at the joint mode is far above the truth's",
        lambda results: other_claims.mode_beats_truth(results.map_bias),
    ),
    Claim(
        "ELBO: fixed at the truth < from the truth < from the mode, on all three sets",
        lambda results: other_claims.elbo_order(results.elbos),
    ),
    Claim(
        "The start at the mode has the highest ELBO in most draws of Bimodal",
        lambda results: other_claims.mode_wins_on_bimodal(results.elbos),
    ),
    Claim(
        "NCAI's uncertainty decomposition is nearer to HMC's than MFVI's",
        lambda results: other_claims.decomposition_closer(results.distances),
    ),
    Claim(
        "Of five divergences only HZ makes the latent means Gaussian",
        lambda results: other_claims.only_hz_makes_gaussian(results.divergence),
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
        "Differences are paired over splits or draws, mean ± standard error. NCAI is "
        "the one of NCAI0 and NCAI that validation selected, unless both are named."
    )
    columns = ("claim", "verdict", "numbers")
    return Table("claims", "The paper's claims", columns, tuple(rows), note)
