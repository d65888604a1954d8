"""Data sets: synthetic ones with a known truth, and the paper's real ones."""

from ncai.datasets.download import download_dataset
from ncai.datasets.oracles import GaussianOracle, NetworkOracle, Oracle, Truth
from ncai.datasets.real import RealDataset, load_dataset, real_dataset_names
from ncai.datasets.registry import DatasetError
from ncai.datasets.splits import Scaling, Split, split
from ncai.datasets.synthetic import (
    Part,
    SyntheticData,
    dataset_names,
    load_truth,
    make_dataset,
)

__all__ = [
    "DatasetError",
    "GaussianOracle",
    "NetworkOracle",
    "Oracle",
    "Part",
    "RealDataset",
    "Scaling",
    "Split",
    "SyntheticData",
    "Truth",
    "dataset_names",
    "download_dataset",
    "load_dataset",
    "load_truth",
    "make_dataset",
    "real_dataset_names",
    "split",
]
