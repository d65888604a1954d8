"""The real data sets of the paper: find their files and read them."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray as Array

from ncai.datasets.registry import REAL_SETS, DatasetError, RealSet, find_set
from ncai.runtime.jax_setup import user_cache_folder

DATA_VARIABLE = "NCAI_DATA_DIR"


class WrongContentError(ValueError):
    """A file does not contain the set; the message is part of a sentence."""


def download_folder() -> Path | None:
    """The default folder for downloads; None if there is no user cache."""
    cache = user_cache_folder()
    return None if cache is None else cache / "data"


def places(folder: str | Path | None = None) -> list[tuple[str, Path | None]]:
    """Where we look for files, in order: a description, and the folder if it is set."""
    found: list[tuple[str, Path | None]] = []
    if folder is not None:
        path = Path(folder).expanduser()
        found.append((str(path), path))
    named = os.environ.get(DATA_VARIABLE)
    path = Path(named).expanduser() if named else None
    found.append((f"{DATA_VARIABLE} ({path or 'not set'})", path))
    path = download_folder()
    found.append((f"the user cache ({path or 'switched off'})", path))
    return found


def find_file(known: RealSet, folder: str | Path | None = None) -> Path | None:
    """Return the first existing file of the set, unread; None if there is none."""
    for _, place in places(folder):
        if place is not None and (place / known.file).exists():
            return place / known.file
    return None


def read_clean_file(known: RealSet, path: Path) -> pd.DataFrame:
    """Return the columns of a clean file after comparing them with the known values."""
    try:
        raw = pd.read_csv(path, header=None, dtype=str, keep_default_na=False)
        raw = raw.fillna("")  # rows that are too short
        table = raw.iloc[1:].set_axis(list(raw.iloc[0]), axis="columns")
        return check_table(known, table)
    except WrongContentError as error:
        reason = str(error)
    except OSError as error:
        reason = f"it cannot be read ({error.strerror or error})"
    except ValueError:  # pandas: the file is empty, ragged or not text
        reason = "it is not a table in plain CSV"
    raise DatasetError(
        f"{path} is not the data set {known.name!r}: {reason}. {known.expectation}"
    )


def check_table(known: RealSet, table: pd.DataFrame) -> pd.DataFrame:
    """The table of text as numbers (categories stay text), if its values are right."""
    header = ",".join(map(str, table.columns))
    if header != known.header:
        raise WrongContentError(f"its header is {_shortened(header)}")
    if len(table) != known.rows:
        raise WrongContentError(f"it has {len(table)} rows")
    categories = dict(known.one_hot)
    columns, digits = {}, []
    for name in known.columns:
        values = [value.strip() for value in table[name]]
        if name not in categories:
            values = _numbers(name, values)
        columns[name] = values
        digits.append([v if isinstance(v, str) else f"{v:.6g}" for v in values])
    text = "".join(",".join(row) + "\n" for row in zip(*digits, strict=True))
    checked = pd.DataFrame(columns)
    if hashlib.sha256(text.encode()).hexdigest() != known.digest:
        raise WrongContentError(
            f"its values differ from the known ones (the mean of {known.target} is "
            f"{checked[known.target].mean():.6f}, not {known.target_mean:.6f})"
        )
    return checked


def _numbers(name: str, values: list[str]) -> list[float]:
    numbers = []
    for index, value in enumerate(values, start=1):
        try:
            numbers.append(float(value))
        except ValueError:
            raise WrongContentError(
                f"row {index} of {name} is {_shortened(value)!r}, not a number"
            ) from None
    return numbers


def _shortened(text: str, most: int = 80) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[:most] + "..."


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
        DatasetError: the set is unknown, or its file is missing or damaged.

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
