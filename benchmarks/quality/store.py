"""Results on disk: a CSV and a JSON for each set and method, replaced as a whole.

The CSV has a row a split; the JSON says how they came about: settings, versions, date,
machine. Rows whose digest is not that of the JSON are of an older method and unread.
"""

import fcntl
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from ncai.runtime.atomic_write import replacing


class Store:
    """The folder of all cells."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)

    def path(self, dataset: str, method: str, ending: str) -> Path:
        """Where a file of a set and a method is."""
        return self.folder / dataset / f"{method}{ending}"

    def about(self, dataset: str, method: str) -> dict[str, Any]:
        """How the rows came about; empty where there are none."""
        path = self.path(dataset, method, ".json")
        return json.loads(path.read_text()) if path.exists() else {}

    def rows(self, dataset: str, method: str) -> pd.DataFrame:
        """The rows of the method as it is now, by split."""
        path = self.path(dataset, method, ".csv")
        if not path.exists():
            return pd.DataFrame({"split": pd.Series(dtype=int)})
        found = pd.read_csv(path, dtype={"digest": str}, keep_default_na=True)
        digest = self.about(dataset, method).get("digest", "")
        return found.loc[found["digest"].fillna("") == digest].drop(columns="digest")

    def tell(self, dataset: str, method: str, **values: Any) -> None:
        """Add to what is known of how the rows came about."""
        path = self.path(dataset, method, ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked(dataset, method):
            known = self.about(dataset, method) | values
            with replacing(path) as temporary:
                Path(temporary).write_text(json.dumps(known, indent=1) + "\n")

    def add(self, dataset: str, method: str, row: dict[str, Any]) -> None:
        """One split more; takes the place of an earlier one."""
        path = self.path(dataset, method, ".csv")
        with self._locked(dataset, method):
            before = self.rows(dataset, method)
            before = before.loc[before["split"] != row["split"]]
            digest = self.about(dataset, method).get("digest", "")
            table = pd.DataFrame([*before.to_dict("records"), row])
            table = table.sort_values("split").assign(digest=digest)
            with replacing(path) as temporary:
                table.to_csv(temporary, index=False, float_format="%.6g")

    def clear(self, dataset: str, method: str) -> None:
        """Forget what there is."""
        for ending in (".csv", ".json"):
            self.path(dataset, method, ending).unlink(missing_ok=True)

    @contextmanager
    def _locked(self, dataset: str, method: str):
        """Two runs may add to the same file; the folder's own lock leaves no file."""
        folder = os.open(self.path(dataset, method, "").parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)
