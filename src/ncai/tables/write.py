"""Write tables in chunks: CSV, TSV, gzip, Parquet or standard output."""

import gzip
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from ncai.runtime.atomic_write import replacing
from ncai.tables.read import PARQUET_ENDINGS, require_pyarrow


def write_table(frame: pd.DataFrame, path: str | Path | None) -> None:
    """Write a whole table at once; see `table_writer`."""
    with table_writer(path) as write:
        write(frame)


@contextmanager
def table_writer(path: str | Path | None) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Yield a function that writes the chunks of a table one after another.

    The ending of the file name selects CSV or TSV (gzipped or not) or Parquet; None is
    standard output. The file appears only when the context ends without an error.
    """
    if path is None:
        yield _text_writer(sys.stdout, ",")
        return
    path = Path(path)
    lower = path.name.lower()
    with replacing(path) as temporary:
        if lower.endswith(PARQUET_ENDINGS):
            with _parquet_writer(temporary, path) as write:
                yield write
            return
        opener: Callable[..., Any] = gzip.open if lower.endswith(".gz") else open
        with opener(temporary, "wt", encoding="utf-8", newline="") as file:
            tabs = lower.endswith((".tsv", ".tsv.gz"))
            yield _text_writer(file, "\t" if tabs else ",")


def _text_writer(file, separator: str) -> Callable[[pd.DataFrame], None]:
    started = False

    def write(frame: pd.DataFrame) -> None:
        nonlocal started
        frame.to_csv(
            file, index=False, header=not started, float_format="%.8g", sep=separator
        )
        started = True

    return write


@contextmanager
def _parquet_writer(temporary: Path, path: Path):
    pyarrow = require_pyarrow(path)
    from pyarrow.parquet import ParquetWriter

    writer: Any = None

    def write(frame: pd.DataFrame) -> None:
        nonlocal writer
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
        if writer is None:
            writer = ParquetWriter(temporary, table.schema)
        writer.write_table(table)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
