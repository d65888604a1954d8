"""The real data sets of the paper, read from files on this computer."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray as Array

from ncai.datasets.clean_files import find_file, places, read_clean_file
from ncai.datasets.registry import REAL_SETS, DatasetError, RealSet, find_set

SUBSAMPLES = (None, "paper")


@dataclass(frozen=True, eq=False)
class RealDataset:
    """A real set in raw units.

    Args:
        name: one of `real_dataset_names()`.
        inputs: one row per row of the file; categories as columns of 0 and 1.
        targets: the column to predict.
        input_names: name of each column of `inputs`.
        target_name: name of the target.
        found_at: the file it was read from.
    """

    name: str
    inputs: Float[Array, "N D"]
    targets: Float[Array, "N 1"]
    input_names: tuple[str, ...]
    target_name: str
    found_at: Path


def real_dataset_names() -> tuple[str, ...]:
    """The names that `load_dataset` knows."""
    return tuple(REAL_SETS)


def load_dataset(
    name: str,
    folder: str | Path | None = None,
    subsample: str | None = None,
    seed: int = 0,
) -> RealDataset:
    """Read a real set from a file on this computer; nothing is downloaded.

    We look for the file NAME.csv in `folder`, then in the folder that the environment
    variable NCAI_DATA_DIR names, then in the user cache, where `ncai datasets get NAME`
    puts it. The first file found must have exactly the values of the set.

    Args:
        name: one of `real_dataset_names()`.
        folder: where to look first.
        subsample: None for all rows; "paper" for as many as the paper used (1000 of
            airfoil and abalone, all of the others), drawn without replacement.
        seed: seed of that draw; the paper does not say which rows it used.

    Returns:
        The rows in the order of the source.

    Raises:
        DatasetError: the set is unknown or not here, or its file is damaged.

    Example:
        >>> data = load_dataset("abalone", subsample="paper")  # doctest: +SKIP
        >>> data.inputs.shape  # doctest: +SKIP
        (1000, 10)
    """
    known = find_set(name)
    if subsample not in SUBSAMPLES:
        raise ValueError(f"subsample={subsample!r} must be one of {list(SUBSAMPLES)}.")
    path, table = _find_and_read(known, folder)
    inputs = _input_matrix(known, table)
    targets = table[known.target].to_numpy(np.float64)[:, None]
    if subsample == "paper" and known.paper_rows is not None:
        generator = np.random.default_rng(seed)
        rows = np.sort(generator.permutation(known.rows)[: known.paper_rows])
        inputs, targets = inputs[rows], targets[rows]
    return RealDataset(name, inputs, targets, known.input_names, known.target, path)


def _find_and_read(known: RealSet, folder) -> tuple[Path, pd.DataFrame]:
    """The clean file of a set, and its table; errors say where we looked."""
    searched = "Searched: " + ", ".join(words for words, _ in places(folder)) + "."
    path = find_file(known, folder)
    if path is None:
        raise DatasetError(
            f"The data set {known.name!r} is not here. {searched} {known.expectation}"
            f"{known.advice}"
        )
    try:
        return path, read_clean_file(known, path)
    except DatasetError as error:
        raise DatasetError(f"{error} {searched}{known.advice}") from None


def _input_matrix(known: RealSet, table: pd.DataFrame) -> Float[Array, "N D"]:
    """The inputs as numbers: a category becomes one column of 0 and 1 per level."""
    categories = dict(known.one_hot)
    columns = []
    for name in known.columns[:-1]:
        if name in categories:
            columns += [table[name] == level for level in categories[name]]
        else:
            columns.append(table[name])
    return np.stack([np.asarray(column, np.float64) for column in columns], axis=1)
