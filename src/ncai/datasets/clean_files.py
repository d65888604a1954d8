"""Clean files of real sets: where to look for them, and how to check them."""

import hashlib
import os
from pathlib import Path

import pandas as pd

from ncai.datasets.registry import DatasetError, RealSet
from ncai.runtime.jax_setup import user_cache_folder

DATA_VARIABLE = "NCAI_DATA_DIR"


class WrongContentError(ValueError):
    """The rows are not those of the set; the message is part of a sentence."""


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
    """The first clean file of the set that exists, not yet read; None without one."""
    for _, place in places(folder):
        if place is not None and (place / known.file).exists():
            return place / known.file
    return None


def read_clean_file(known: RealSet, path: Path) -> pd.DataFrame:
    """The columns of a clean file, checked against what we know about the set."""
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
