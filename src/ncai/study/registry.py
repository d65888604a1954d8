"""The studies by name."""

from ncai.study.benchmark import BENCHMARK
from ncai.study.run import Study

STUDIES: dict[str, Study] = {study.name: study for study in (BENCHMARK,)}
