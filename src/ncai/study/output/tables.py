"""Tables of our numbers and the published ones, as Markdown, CSV and LaTeX."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from ncai.runtime.atomic_write import replacing
from ncai.study.engine import Cell, Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.benchmark import Benchmark
from ncai.study.experiments.problems import (
    PUBLISHED_SELECTION,
    SYNTHETIC,
    expected_oracle,
)

BOLD = re.compile(r"\*\*(.+?)\*\*")
# This is not a star, because Markdown uses stars for bold text.
DIFFERS = "†"
LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "±": r"$\pm$",
        "†": r"$\dagger$",
        "λ": r"$\lambda$",
        "<": "$<$",
        ">": "$>$",
        **{c: rf"\{c}" for c in "&%$#_{}"},
    }
)
MARK_NOTE = f"{DIFFERS} differs by more than two pooled standard errors."
PUBLISHED_NOTE = (
    f"Ours (published), mean ± std over splits; the better in bold. {MARK_NOTE}"
)
NUM_PUBLISHED_SPLITS = 5
SELECTED = "selected"


@dataclass(frozen=True)
class Entry:
    """Mean and standard deviation over `count` splits; NaN if there are too few."""

    mean: float
    std: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Entry":
        """Create an entry from the values of the splits."""
        numbers = np.asarray([v for v in values if v is not None], float)
        numbers = numbers[~np.isnan(numbers)]
        if not len(numbers):
            return cls(math.nan, math.nan, 0)
        std = float(numbers.std(ddof=1)) if len(numbers) > 1 else math.nan
        return cls(float(numbers.mean()), std, len(numbers))

    def __str__(self) -> str:
        if self.count == 0:
            return ""
        if math.isnan(self.std):
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} ± {self.std:.3f}"

    def differs_from(self, other: "Entry") -> bool:
        """Whether two entries differ by over two pooled standard errors."""
        if math.isnan(self.std) or math.isnan(other.std):
            return False
        pooled = sum(e.std**2 / e.count for e in (self, other))
        rounding = 1e-6 * max(abs(self.mean), abs(other.mean))
        return abs(self.mean - other.mean) > max(2 * math.sqrt(pooled), rounding)


@dataclass(frozen=True)
class Table:
    """Cells of text under column names, with a title and a note.

    Args:
        name: name of its files.
        title: the title above it.
        columns: names of the columns.
        rows: a string for each column; **bold** as in Markdown.
        note: the note below it.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """Return the table as Markdown, with a heading."""
        lines = [f"### {self.title}", "", "| " + " | ".join(self.columns) + " |"]
        lines.append("|" + "---|" * len(self.columns))
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join([*lines, "", self.note]).rstrip() + "\n"

    def latex(self) -> str:
        """Return the table as LaTeX: a tabular in a table."""
        caption = f"{self.title}. {self.note}" if self.note else self.title
        lines = [r"\begin{table}", r"\centering"]
        lines.append(r"\begin{tabular}{l" + "r" * (len(self.columns) - 1) + "}")
        lines.append(" & ".join(latex_text(c) for c in self.columns) + r" \\ \hline")
        lines += [" & ".join(latex_text(c) for c in row) + r" \\" for row in self.rows]
        lines += [
            r"\end{tabular}",
            rf"\caption{{{latex_text(caption)}}}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def frame(self) -> pd.DataFrame:
        """Return the table as data, without marks."""
        plain = [[BOLD.sub(r"\1", c) for c in row] for row in self.rows]
        return pd.DataFrame(plain, columns=list(self.columns))

    def write(self, folder: Path) -> None:
        """Write NAME.md, NAME.csv and NAME.tex."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {
            ".md": self.markdown(),
            ".csv": self.frame().to_csv(index=False),
            ".tex": self.latex(),
        }
        for ending, text in texts.items():
            with replacing(folder / f"{self.name}{ending}") as temporary:
                Path(temporary).write_text(text)


def latex_text(text: str) -> str:
    """Escape special characters of LaTeX, and convert **bold** to its command."""
    return BOLD.sub(r"\\textbf{\1}", text.translate(LATEX))


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a CSV file, completely or not at all."""
    with replacing(path) as temporary:
        frame.to_csv(temporary, index=False)


def published() -> pd.DataFrame:
    """The paper's numbers: label of its table, dataset, method, metric, value, std."""
    source = files("ncai.study").joinpath("published.csv")
    with source.open() as file:
        return pd.read_csv(file)


def pick(frame: pd.DataFrame, **values) -> pd.DataFrame:
    """Return the lines that have all of these values."""
    kept = np.ones(len(frame), bool)
    for name, value in values.items():
        kept &= frame[name].to_numpy() == value
    return pd.DataFrame(frame.iloc[np.flatnonzero(kept)])


def done_cells(study, scale, store) -> list[tuple[Cell, dict]]:
    """Return the finished cells of a study, with their rows."""
    found = ((cell, store.load_row(cell)) for cell in study.cells(scale, store))
    return [(c, row) for c, row in found if row is not None and c.study == study.name]


def tidy(study, scale, store, keep_lists: bool = False) -> pd.DataFrame:
    """Return a line for each finished cell: its settings and its single values."""
    lines = [
        {
            name: value
            for name, value in (dict(cell.settings) | row).items()
            if keep_lists or not isinstance(value, list | tuple)
        }
        for cell, row in done_cells(study, scale, store)
    ]
    return pd.DataFrame(lines)


def side_by_side(ours: Entry, theirs: Entry, larger_is_better: bool | None) -> str:
    """Return `ours (theirs)`, with the better in bold and clear differences marked."""
    mark = DIFFERS if ours.differs_from(theirs) else ""
    own, other = f"{ours}{mark}", str(theirs)
    if not ours.count:
        return f"({other})" if theirs.count else ""
    if not theirs.count:
        return own
    if larger_is_better is not None and ours.mean != theirs.mean:
        if (ours.mean > theirs.mean) == larger_is_better:
            own = f"**{own}**"
        else:
            other = f"**{other}**"
    return f"{own} ({other})"


@dataclass(frozen=True, eq=False)
class Numbers:
    """Our numbers and the published ones.

    Args:
        ours: a line for each set, method and reported split. The method `selected` is
            the one of NCAI0 and NCAI that validation chose.
        theirs: the published numbers.
        choice: the method that validation chose, by set.
    """

    ours: pd.DataFrame
    theirs: pd.DataFrame
    choice: dict[str, str]

    @classmethod
    def of(cls, study: Benchmark, scale: Scale, store: Store) -> "Numbers":
        """Load our results so far, and the published numbers."""
        frame = tidy(study, scale, store)
        choice = {}
        if not frame.empty:
            for dataset in frame["dataset"].unique():
                method = study.fits.selected_method(scale, store, dataset)
                if method is not None:
                    choice[str(dataset)] = method
            frame = pick(frame, phase="report")
        if not frame.empty:
            frame["oracle_gap"] = frame["oracle_test"] - frame["avg_ll_test"]
            chosen = [
                choice.get(dataset) == method
                for dataset, method in zip(
                    frame["dataset"], frame["method"], strict=True
                )
            ]
            selected = frame[chosen].assign(method=SELECTED)
            frame = pd.concat([frame, selected], ignore_index=True)
        return cls(frame, published(), choice)

    def values(self, dataset: str, method: str, metric: str) -> dict[int, float]:
        """Return our values by split."""
        if metric not in self.ours:
            return {}
        picked = pick(self.ours, dataset=dataset, method=method)
        picked = picked[picked[metric].notna()]
        return dict(zip(picked["split"], picked[metric], strict=True))

    def entry(self, dataset: str, method: str, metric: str) -> Entry:
        """Return the mean and spread of our values over splits."""
        return Entry.of(list(self.values(dataset, method, metric).values()))

    def published_entry(self, dataset: str, method: str, metric: str) -> Entry:
        """Return the published entry in our units."""
        if metric == "oracle_gap":
            level = self.published_entry(dataset, method, "avg_ll_test")
            if dataset not in SYNTHETIC or not level.count:
                return Entry.of([])
            return Entry(expected_oracle(dataset) - level.mean, level.std, level.count)
        if method == SELECTED:
            method = PUBLISHED_SELECTION[dataset]
        factor = 1.0
        name = metric
        if metric in ("rmse_test", "rmse_train"):
            name, factor = f"{metric}_as_printed", self._raw_rmse_factor(dataset)
        picked = pick(self.theirs, dataset=dataset, method=method, metric=name)
        if picked.empty:
            return Entry.of([])
        value, std = (float(picked[column].iloc[0]) for column in ("value", "std"))
        return Entry(value * factor, std * factor, NUM_PUBLISHED_SPLITS)

    def _raw_rmse_factor(self, dataset: str) -> float:
        """Return std(y)^2, by which the paper's RMSE must be multiplied.

        The paper divided the standardised RMSE by std(y) instead of multiplying by it
        (docs/paper/paper_to_code.md).
        """
        picked = pick(self.ours, dataset=dataset)
        if picked.empty:
            return 1.0
        return float(np.mean(picked["target_scale"].to_numpy())) ** 2
