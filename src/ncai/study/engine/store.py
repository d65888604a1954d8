"""Results on disk: one small file a cell, whole or not there at all."""

import datetime
import json
import time
from pathlib import Path

import numpy as np

from ncai.runtime.atomic_write import replacing
from ncai.study.engine.cells import Cell, Outcome

LONGEST_WRITE = 600.0  # seconds


class Store:
    """The folder of one study at one scale."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)

    def _path(self, cell: Cell, ending: str) -> Path:
        return self.folder / cell.study / f"{cell.id}{ending}"

    def is_done(self, cell: Cell) -> bool:
        """Whether its outcome is there."""
        return self._path(cell, ".json").exists()

    def failure(self, cell: Cell) -> str | None:
        """Traceback of its last failure, if it failed and has not been done since."""
        path = self._path(cell, ".failed.txt")
        if self.is_done(cell) or not path.exists():
            return None
        return path.read_text()

    def save(self, cell: Cell, outcome: Outcome, seconds: float) -> None:
        """Arrays first: a row that is there has its arrays."""
        path = self._path(cell, ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        if outcome.arrays:
            with replacing(self._path(cell, ".npz")) as temporary:
                with open(temporary, "wb") as file:
                    np.savez_compressed(file, **outcome.arrays)  # pyright: ignore
        record = {
            "study": cell.study,
            "settings": dict(cell.settings),
            "row": dict(outcome.row),
            "seconds": round(seconds, 2),
            "date": datetime.date.today().isoformat(),
        }
        with replacing(path) as temporary:
            Path(temporary).write_text(json.dumps(record, indent=1) + "\n")
        self._path(cell, ".failed.txt").unlink(missing_ok=True)

    def save_failure(self, cell: Cell, traceback: str) -> None:
        """Kept until the cell is done."""
        path = self._path(cell, ".failed.txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        with replacing(path) as temporary:
            Path(temporary).write_text(f"{stamp} {cell}\n{traceback}")

    def drop_leftovers(self) -> None:
        """Remove what killed writers left: hidden files that nobody writes any more."""
        long_ago = time.time() - LONGEST_WRITE
        for path in self.folder.glob("*/.*"):
            try:
                if path.is_file() and path.stat().st_mtime < long_ago:
                    path.unlink()
            except FileNotFoundError:  # its writer was quicker
                continue

    def load(self, cell: Cell) -> Outcome | None:
        """What it found, or None."""
        row = self.load_row(cell)
        if row is None:
            return None
        arrays = {}
        arrays_path = self._path(cell, ".npz")
        if arrays_path.exists():
            with np.load(arrays_path, allow_pickle=False) as found:
                arrays = dict(found)
        return Outcome(row, arrays)

    def load_row(self, cell: Cell) -> dict | None:
        """Its row without its arrays, or None."""
        path = self._path(cell, ".json")
        return json.loads(path.read_text())["row"] if path.exists() else None

    def seconds(self, cell: Cell) -> float:
        """How long it took."""
        return float(json.loads(self._path(cell, ".json").read_text())["seconds"])
