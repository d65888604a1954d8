"""Results on disk: a small file for each new cell, and one pack of all others.

While a study runs, each cell leaves a JSON file (and an .npz where a figure needs
arrays) in a folder of its study. Files are written completely or not at all, so a run
can be killed at any moment. `Store.pack` moves them into two files that are easy to
commit: `cells.jsonl`, a line for each cell, and `arrays.zip`. A fresh file takes
precedence over the pack.
"""

import datetime
import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ncai.runtime.atomic_write import replacing
from ncai.study.engine import Cell, Outcome

LONGEST_WRITE = 600.0  # seconds
ROWS, ARRAYS = "cells.jsonl", "arrays.zip"
Key = tuple[str, str]  # study, and the cell's id
Record = dict[str, Any]


class Store:
    """The folder of all studies at one scale.

    Args:
        folder: the path of the folder.
        without_stale: whether cells that are marked as stale count as not done.
    """

    def __init__(self, folder: Path, without_stale: bool = False):
        self.folder = Path(folder)
        self.without_stale = without_stale
        self._pack: tuple[Any, dict[Key, Record]] = (None, {})

    def _path(self, cell: Cell, ending: str) -> Path:
        return self.folder / cell.study / f"{cell.id}{ending}"

    def is_done(self, cell: Cell) -> bool:
        """Return whether the outcome of a cell is stored."""
        return self.record(cell) is not None

    def failure(self, cell: Cell) -> str | None:
        """Return the traceback of a cell that failed and has not been done since."""
        path = self._path(cell, ".failed.txt")
        if self.is_done(cell) or not path.exists():
            return None
        return path.read_text()

    def save(
        self, cell: Cell, outcome: Outcome, seconds: float, digest: str = ""
    ) -> None:
        """Store an outcome, arrays first, so that every stored row has its arrays.

        Args:
            cell: the cell that was computed.
            outcome: its results.
            seconds: how long it took.
            digest: digest of the code that computed it (`ncai.study.engine.digest`).
        """
        path = self._path(cell, ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays = self._path(cell, ".npz")
        if outcome.arrays:
            with replacing(arrays) as temporary, open(temporary, "wb") as file:
                np.savez_compressed(file, **outcome.arrays)  # pyright: ignore
        else:
            arrays.unlink(missing_ok=True)
        record = {
            "study": cell.study,
            "id": cell.id,
            "settings": dict(cell.settings),
            "row": dict(outcome.row),
            "seconds": round(seconds, 2),
            "date": datetime.date.today().isoformat(),
            "digest": digest,
        }
        with replacing(path) as temporary:
            Path(temporary).write_text(json.dumps(record, indent=1) + "\n")
        self._path(cell, ".failed.txt").unlink(missing_ok=True)

    def save_failure(self, cell: Cell, traceback: str) -> None:
        """Store the traceback of a failure until the cell is done."""
        path = self._path(cell, ".failed.txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        with replacing(path) as temporary:
            Path(temporary).write_text(f"{stamp} {cell}\n{traceback}")

    def drop_leftovers(self) -> None:
        """Remove hidden files that killed processes left behind."""
        long_ago = time.time() - LONGEST_WRITE
        for path in [*self.folder.glob(".*"), *self.folder.glob("*/.*")]:
            try:
                if path.is_file() and path.stat().st_mtime < long_ago:
                    path.unlink()
            except FileNotFoundError:  # the process that wrote it has finished
                continue

    def record(self, cell: Cell) -> Record | None:
        """Return the record of a cell without its arrays, or None if it is not done."""
        return self._fresh(cell) or self._packed(cell)

    def load_row(self, cell: Cell) -> dict | None:
        """Return the row of a cell without its arrays, or None."""
        record = self.record(cell)
        return None if record is None else record["row"]

    def load(self, cell: Cell) -> Outcome | None:
        """Return the outcome of a cell, or None."""
        fresh = self._fresh(cell)
        if fresh is not None:
            try:
                arrays = _arrays(self._path(cell, ".npz"))
            except FileNotFoundError:
                arrays = {}
            if arrays or self._path(cell, ".json").exists():
                return Outcome(fresh["row"], arrays)
            # The cell was packed in the meantime.
        packed = self._packed(cell)
        if packed is None:
            return None
        return Outcome(packed["row"], self._packed_arrays(cell))

    def seconds(self, cell: Cell) -> float:
        """Return how long a finished cell took."""
        record = self.record(cell)
        assert record is not None
        return float(record["seconds"])

    def stale(self, cell: Cell) -> dict[str, str] | None:
        """Return since when and why a cell is stale; None if it is not."""
        record = self.record(cell)
        return None if record is None else record.get("stale")

    def _fresh(self, cell: Cell) -> Record | None:
        try:
            return json.loads(self._path(cell, ".json").read_text())
        except FileNotFoundError:
            return None

    # ----- The pack -------------------------------------------------------------------

    def packed(self) -> dict[Key, Record]:
        """Records of the pack, read again when another process has replaced it."""
        path = self.folder / ROWS
        try:
            status = path.stat()
        except FileNotFoundError:
            return {}
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if self._pack[0] != stamp:
            records = map(json.loads, path.read_text().splitlines())
            self._pack = stamp, {(r["study"], r["id"]): r for r in records}
        return self._pack[1]

    def _packed(self, cell: Cell) -> Record | None:
        found = self.packed().get((cell.study, cell.id))
        hidden = self.without_stale and found is not None and "stale" in found
        return None if hidden else found

    def _packed_arrays(self, cell: Cell) -> dict[str, np.ndarray]:
        name = f"{cell.study}/{cell.id}.npz"
        try:
            with zipfile.ZipFile(self.folder / ARRAYS) as archive:
                return _arrays(io.BytesIO(archive.read(name)))
        except (FileNotFoundError, KeyError):
            return {}  # there is no pack

    def pack(self) -> int:
        """Move fresh files into the pack; return the number of these cells.

        The new pack is complete before any file is removed, and a file that a worker
        has replaced meanwhile stays for the next time.
        """
        with self._locked():
            found = sorted(self.folder.glob("*/*.json"))
            before = {path: path.stat().st_mtime_ns for path in found}
            fresh = {path: json.loads(path.read_text()) for path in found}
            fresh = {p: record for p, record in fresh.items() if "settings" in record}
            if not fresh:
                return 0
            self._write_arrays([*fresh])
            added = {
                (r["study"], path.stem): r | {"id": path.stem}
                for path, r in fresh.items()
            }
            self._write_rows(self.packed() | added)
            for path in fresh:
                if path.stat().st_mtime_ns == before[path]:
                    path.unlink()  # first, so that no row exists without its arrays
                    path.with_suffix(".npz").unlink(missing_ok=True)
            return len(fresh)

    def mark(self, mark: Callable[[Record], dict[str, str] | None]) -> int:
        """Mark each packed record as stale or not; return how many are stale."""
        with self._locked():
            marked = {}
            for key, record in self.packed().items():
                plain = {k: v for k, v in record.items() if k != "stale"}
                stale = mark(record)
                marked[key] = plain if stale is None else plain | {"stale": stale}
            if marked:
                self._write_rows(marked)
            return sum("stale" in record for record in marked.values())

    def _write_rows(self, records: dict[Key, Record]) -> None:
        with replacing(self.folder / ROWS) as temporary, open(temporary, "w") as file:
            for key in sorted(records):
                file.write(json.dumps(records[key]) + "\n")

    def _write_arrays(self, fresh: list[Path]) -> None:
        """Write the arrays in order and without dates: equal cells give equal files."""
        entries: dict[str, bytes] = {}
        path = self.folder / ARRAYS
        if path.exists():
            with zipfile.ZipFile(path) as archive:
                entries = {name: archive.read(name) for name in archive.namelist()}
        for row in fresh:
            arrays = row.with_suffix(".npz")
            entries.pop(f"{row.parent.name}/{arrays.name}", None)
            if arrays.exists():
                entries[f"{row.parent.name}/{arrays.name}"] = arrays.read_bytes()
        if not entries:
            return
        with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            for name in sorted(entries):
                archive.writestr(zipfile.ZipInfo(name), entries[name])

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the folder so that one process changes the pack; leaves no file."""
        import fcntl
        import os

        self.folder.mkdir(parents=True, exist_ok=True)
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def _arrays(source: Path | io.BytesIO) -> dict[str, np.ndarray]:
    with np.load(source, allow_pickle=False) as found:
        return dict(found)
