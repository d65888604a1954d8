"""The studies by name, and who makes their tables."""

from collections.abc import Callable

from ncai.study import (
    benchmark_tables,
    decomposition_tables,
    divergence,
    elbo_ranking,
    full_length_tables,
    latent_dim_tables,
    map_bias,
    theory,
    tighter_bounds_tables,
)
from ncai.study.benchmark import (
    BENCHMARK,
    FULL_LENGTH,
    LATENT_DIM,
    TIGHTER_BOUNDS,
)
from ncai.study.decomposition import DECOMPOSITION
from ncai.study.divergence import DIVERGENCE
from ncai.study.elbo_ranking import ELBO_RANKING
from ncai.study.map_bias import MAP_BIAS
from ncai.study.qualitative import QUALITATIVE
from ncai.study.run import Study
from ncai.study.scales import Scale
from ncai.study.store import Store
from ncai.study.tables import Table
from ncai.study.theory import THEORY

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        THEORY,
        DIVERGENCE,
        MAP_BIAS,
        ELBO_RANKING,
        BENCHMARK,
        QUALITATIVE,
        DECOMPOSITION,
        LATENT_DIM,
        FULL_LENGTH,
        TIGHTER_BOUNDS,
    )
}
TABLES: dict[str, Callable[[Scale, Store], list[Table]]] = {
    THEORY.name: theory.tables,
    DIVERGENCE.name: divergence.tables,
    MAP_BIAS.name: map_bias.tables,
    ELBO_RANKING.name: elbo_ranking.tables,
    BENCHMARK.name: benchmark_tables.tables,
    DECOMPOSITION.name: decomposition_tables.tables,
    LATENT_DIM.name: latent_dim_tables.tables,
    FULL_LENGTH.name: full_length_tables.tables,
    TIGHTER_BOUNDS.name: tighter_bounds_tables.tables,
}
