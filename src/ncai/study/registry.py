"""The studies by name, and the functions that make their tables."""

from collections.abc import Callable

from ncai.study.engine import AnyStudy, Scale
from ncai.study.engine.store import Store
from ncai.study.experiments import (
    decomposition,
    divergence,
    elbo_ranking,
    information,
    map_bias,
    theory,
    tightness,
)
from ncai.study.experiments.benchmark import (
    BENCHMARK,
    LATENT_DIM,
    QUALITATIVE,
    TIGHTER_BOUNDS,
)
from ncai.study.experiments.decomposition import DECOMPOSITION
from ncai.study.experiments.divergence import DIVERGENCE
from ncai.study.experiments.elbo_ranking import ELBO_RANKING
from ncai.study.experiments.fits import BOUND_FITS, FITS, TWO_LATENTS
from ncai.study.experiments.information import INFORMATION
from ncai.study.experiments.map_bias import MAP_BIAS, MAP_BIAS_BY_SIZE
from ncai.study.experiments.theory import THEORY
from ncai.study.experiments.tightness import TIGHTNESS
from ncai.study.output import benchmark_tables
from ncai.study.output.tables import Table

STUDIES: dict[str, AnyStudy] = {
    study.name: study
    for study in (
        THEORY,
        DIVERGENCE,
        MAP_BIAS,
        MAP_BIAS_BY_SIZE,
        ELBO_RANKING,
        TIGHTNESS,
        INFORMATION,
        FITS,
        BENCHMARK,
        QUALITATIVE,
        DECOMPOSITION,
        TWO_LATENTS,
        LATENT_DIM,
        BOUND_FITS,
        TIGHTER_BOUNDS,
    )
}
TABLES: dict[str, Callable[[Scale, Store], list[Table]]] = {
    THEORY.name: theory.tables,
    DIVERGENCE.name: divergence.tables,
    MAP_BIAS.name: map_bias.tables,
    MAP_BIAS_BY_SIZE.name: map_bias.tables_by_size,
    ELBO_RANKING.name: elbo_ranking.tables,
    TIGHTNESS.name: tightness.tables,
    INFORMATION.name: information.tables,
    BENCHMARK.name: benchmark_tables.tables,
    DECOMPOSITION.name: decomposition.tables,
    LATENT_DIM.name: benchmark_tables.latent_dim_tables,
    TIGHTER_BOUNDS.name: benchmark_tables.tighter_bounds_tables,
}
