"""Data sets: synthetic ones with a known truth."""

from ncai.datasets.oracles import GaussianOracle, NetworkOracle, Oracle, Truth
from ncai.datasets.synthetic import (
    Part,
    SyntheticData,
    dataset_names,
    load_truth,
    make_dataset,
)

__all__ = [
    "GaussianOracle",
    "NetworkOracle",
    "Oracle",
    "Part",
    "SyntheticData",
    "Truth",
    "dataset_names",
    "load_truth",
    "make_dataset",
]
