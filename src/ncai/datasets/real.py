"""The real sets of the paper, from files that are already here."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from ncai.datasets.clean_files import find_file, places, read_clean_file
from ncai.datasets.registry import REAL_SETS, DatasetError, find_set

SUBSAMPLES = (None, "paper")


@dataclass(frozen=True, eq=False)
class RealDataset:
    """A real set in raw units.

    Args:
        name: one of `real_dataset_names()`.
        inputs: one row a row of the file; categories as columns of 0 and 1.
        targets: what to predict.
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
    """Read a real set from a file that is here; nothing is downloaded.

    The file NAME.csv is looked for in `folder`, then in the folder that the environment
    variable NCAI_DATA_DIR names, then in the user cache, where `ncai datasets get NAME`
    puts it. The first one found must be the set, value by value.

    Args:
        name: one of `real_dataset_names()`.
        folder: where to look first.
        subsample: None for all rows; "paper" for as many as the paper took (1000 of
            airfoil and abalone, all of the others), drawn without replacement.
        seed: seed of that draw; the paper does not say which rows it took.

    Returns:
        The rows in the order of the source.

    Raises:
        DatasetError: the set is not known, not here, or its file is damaged.

    Example:
        >>> data = load_dataset("abalone", subsample="paper")  # doctest: +SKIP
        >>> data.inputs.shape  # doctest: +SKIP
        (1000, 10)
    """
    known = find_set(name)
    if subsample not in SUBSAMPLES:
        raise ValueError(
            f"subsample={subsample!r} is not known; choose one of {list(SUBSAMPLES)}."
        )
    path = find_file(known, folder)
    searched = "Searched: " + ", ".join(words for words, _ in places(folder)) + "."
    if path is None:
        raise DatasetError(
            f"The data set {name!r} is not here. {searched} {known.expectation}"
            f"{known.advice}"
        )
    try:
        table = read_clean_file(known, path)
    except DatasetError as error:
        raise DatasetError(f"{error} {searched}{known.advice}") from None
    categories = dict(known.one_hot)
    inputs = [
        values
        for column in known.columns[:-1]
        for values in (
            [table[column] == level for level in categories[column]]
            if column in categories
            else [table[column]]
        )
    ]
    matrix = np.stack([np.asarray(column, np.float64) for column in inputs], axis=1)
    targets = table[known.target].to_numpy(np.float64)[:, None]
    if subsample == "paper" and known.paper_rows is not None:
        generator = np.random.default_rng(seed)
        rows = np.sort(generator.permutation(known.rows)[: known.paper_rows])
        matrix, targets = matrix[rows], targets[rows]
    return RealDataset(name, matrix, targets, known.input_names, known.target, path)
