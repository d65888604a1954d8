"""The studies by name, and who makes their tables."""

from collections.abc import Callable

from ncai.study import benchmark_tables, elbo_ranking, map_bias, theory
from ncai.study.benchmark import BENCHMARK
from ncai.study.elbo_ranking import ELBO_RANKING
from ncai.study.map_bias import MAP_BIAS
from ncai.study.run import Study
from ncai.study.scales import Scale
from ncai.study.store import Store
from ncai.study.tables import Table
from ncai.study.theory import THEORY

STUDIES: dict[str, Study] = {
    study.name: study for study in (THEORY, MAP_BIAS, ELBO_RANKING, BENCHMARK)
}
TABLES: dict[str, Callable[[Scale, Store], list[Table]]] = {
    THEORY.name: theory.tables,
    MAP_BIAS.name: map_bias.tables,
    ELBO_RANKING.name: elbo_ranking.tables,
    BENCHMARK.name: benchmark_tables.tables,
}
