"""The functions behind `ncai study`, and the live table of a running study."""

import datetime
import time
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ncai.study.engine import SCALES, AnyStudy, Cell, Scale
from ncai.study.engine.digest import digest_of_study
from ncai.study.engine.run import Finished, Watcher, run_study
from ncai.study.engine.store import ROWS, Store
from ncai.study.registry import STUDIES, TABLES

EXIT_FAILED_CELLS = 1
MOST_SHOWN = 12  # running cells below the table
# Settings that do not change how long a cell takes.
ALIKE = ("split", "draw", "point")


def _chosen(names: list[str] | None, scale: str) -> tuple[list[AnyStudy], Scale]:
    for name in names or ():
        if name not in STUDIES:
            raise ValueError(f"study {name!r} is not known; choose among {[*STUDIES]}.")
    if scale not in SCALES:
        raise ValueError(f"--scale {scale!r} must be one of {[*SCALES]}.")
    return [STUDIES[name] for name in names or STUDIES], SCALES[scale]


def run_and_show(
    names, scale_name, jobs, scheduler, out: Path, stale: bool = False
) -> int:
    """Run studies with a live table; return the exit code."""
    studies, scale = _chosen(names, scale_name)
    console = Console()
    store = Store(out / scale.name, without_stale=stale)
    failed = []
    with RunView(store, [study.name for study in studies], console) as view:
        for study in studies:
            view.begin(study.name)
            failed += run_study(study, scale, store, jobs, scheduler, view)
    if failed:
        console.print(
            f"{len(failed)} cells failed; their tracebacks are beside the results "
            "(*.failed.txt). The same command tries them again."
        )
        return EXIT_FAILED_CELLS
    console.print(f"All done: {store.folder}")
    return 0


def show_status(names, scale_name, out: Path) -> None:
    """Print a table of studies."""
    studies, scale = _chosen(names, scale_name)
    store = Store(out / scale.name)
    columns = ("study", "done", "stale", "failed", "missing", "hours so far")
    table = Table(*columns, box=None)
    for study in studies:
        cells = study.cells(scale, store)
        done = [cell for cell in cells if store.is_done(cell)]
        stale = [cell for cell in done if store.stale(cell)]
        failed = [cell for cell in cells if store.failure(cell)]
        own = [cell for cell in done if cell.study == study.name]
        hours = sum(store.seconds(cell) for cell in own) / 3600
        missing = len(cells) - len(done) - len(failed)
        counts = (len(done), len(stale), len(failed), missing)
        table.add_row(study.name, *map(str, counts), f"{hours:.2f}")
    Console().print(table)


def write_tables(names, scale_name, out: Path, files: bool = False) -> None:
    """Write OUT/SCALE/tables.md or, if studies are named, print their tables.

    With `files`, each table is also written as Markdown, CSV and LaTeX to
    OUT/SCALE/tables, with a tidy CSV for each study.
    """
    from ncai.study.output.report import page_of_tables, write_text

    studies, scale = _chosen(names, scale_name)
    store = Store(out / scale.name)
    page = page_of_tables(studies, scale, store)
    if names:
        print(page)
    else:
        store.folder.mkdir(parents=True, exist_ok=True)
        write_text(store.folder / "tables.md", page)
        print(f"Tables: {store.folder / 'tables.md'}")
    if files:
        _write_table_files(studies, scale, store)


def _write_table_files(studies: list[AnyStudy], scale: Scale, store: Store) -> None:
    from ncai.study.output.claims import claims_table
    from ncai.study.output.tables import tidy, write_csv

    folder = store.folder / "tables"
    for study in studies:
        found = TABLES[study.name](scale, store) if study.name in TABLES else []
        for table in found:
            table.write(folder)
        lines = tidy(study, scale, store)
        if len(lines):
            folder.mkdir(parents=True, exist_ok=True)
            write_csv(lines, folder / f"tidy_{study.name}.csv")
        print(f"{study.name}: {len(found)} tables in {folder}")
    claims_table(scale, store).write(folder)
    print(f"claims: {folder / 'claims.md'}")


def pack_results(names, scale_name, out: Path) -> None:
    """Move the files of done cells into OUT/SCALE/cells.jsonl and arrays.zip."""
    _, scale = _chosen(names, scale_name)
    store = Store(out / scale.name)
    print(f"{store.pack()} cells packed, {len(store.packed())} in {store.folder}")


def mark_stale(out: Path, reason: str) -> dict[str, int]:
    """Mark packed cells that the present code did not compute; count them by scale.

    An existing mark keeps its date and reason; cells of the present code lose their
    mark.
    """
    today = datetime.date.today().isoformat()

    def mark(record: dict) -> dict[str, str] | None:
        study = STUDIES.get(record["study"])
        if study is not None and record.get("digest") == digest_of_study(study):
            return None
        return record.get("stale") or {"since": today, "reason": reason}

    folders = sorted(path.parent for path in out.glob(f"*/{ROWS}"))
    return {folder.name: Store(folder).mark(mark) for folder in folders}


def draw_figures(names, scale_name, out: Path) -> None:
    """Draw figures to OUT/SCALE/figures, and for all studies also to figures.png."""
    from ncai.study.output.figures import write_figures, write_sheet

    studies, scale = _chosen(names, scale_name)
    store = Store(out / scale.name)
    drawn = []
    for study in studies:
        for path in write_figures(study.name, scale, store, store.folder / "figures"):
            Console().print(f"{study.name}: {path}")
            drawn.append(path)
    if drawn and not names:
        write_sheet(drawn, store.folder / "figures.png")


def write_whole_report(names, scale_name, out: Path) -> None:
    """Write OUT/SCALE/report.html with all tables, figures and claims."""
    from ncai.study.output.report import write_report

    studies, scale = _chosen(names, scale_name)
    path = write_report(studies, scale, Store(out / scale.name))
    Console().print(f"Report: {path}")


class TimeLeft:
    """Estimates the duration of cells from finished cells of the same kind."""

    def __init__(self) -> None:
        self._seconds: dict[tuple, list[float]] = {}

    def learn(self, cell: Cell, seconds: float) -> None:
        """Record the duration of a cell."""
        for kind in self._kinds(cell):
            self._seconds.setdefault(kind, []).append(seconds)

    def of(self, cell: Cell) -> float | None:
        """Return the mean duration of cells of the same kind, or else of the study."""
        for kind in self._kinds(cell):
            if kind in self._seconds:
                found = self._seconds[kind]
                return sum(found) / len(found)
        return None

    def together(self, waiting: list[Cell], running: dict[Cell, float], slots: int):
        """Return the seconds until all cells are done, or None if that is unknown."""
        total = 0.0
        for cell in [*waiting, *running]:
            guess = self.of(cell)
            if guess is None:
                return None
            total += max(0.0, guess - running.get(cell, 0.0))
        return total / max(1, slots)

    def _kinds(self, cell: Cell) -> tuple[tuple, tuple]:
        alike = tuple(item for item in cell.settings if item[0] not in ALIKE)
        return (cell.study, alike), (cell.study,)


class RunView(Watcher):
    """Shows the counts of each study, and the cells that are running."""

    def __init__(self, store: Store, names: list[str], console: Console):
        self.console, self._store = console, store
        self._counts = {name: {"done": 0, "failed": 0, "known": 0} for name in names}
        self._started: dict[Cell, float] = {}
        self._waiting: list[Cell] = []
        self._time_left, self._slots, self._study = TimeLeft(), 1, names[0]
        self._live: Live | None = None

    def __enter__(self) -> "RunView":
        if self.console.is_terminal:
            self._live = Live(
                get_renderable=self.table,
                console=self.console,
                refresh_per_second=2,
            )
            self._live.start()
        return self

    def __exit__(self, *error) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, study: str) -> None:
        """The cells of this study come next."""
        self._study, self._waiting, self._started = study, [], {}
        self._counts[study]["failed"] = 0

    def known(self, cells: list[Cell], missing: list[Cell], slots: int) -> None:
        """The cells known so far; the missing ones are running or waiting."""
        out = {cell.id for cell in missing}
        for cell in cells:
            if cell.id not in out and self._store.is_done(cell):
                self._time_left.learn(cell, self._store.seconds(cell))
        counts = self._counts[self._study]
        counts["known"] = len(cells)
        counts["done"] = len(cells) - len(missing) - counts["failed"]
        self._waiting = [cell for cell in missing if cell not in self._started]
        self._slots = slots

    def started(self, cell: Cell) -> None:
        """A worker has started a cell."""
        if cell in self._waiting:
            self._waiting.remove(cell)
        self._started[cell] = time.monotonic()

    def finished(self, finished: Finished) -> None:
        """A cell has finished or failed."""
        self._started.pop(finished.cell, None)
        counts = self._counts[self._study]
        counts["failed" if finished.failed else "done"] += 1
        if not finished.failed:
            self._time_left.learn(finished.cell, finished.seconds)
        how = "FAILED" if finished.failed else f"{finished.seconds:.0f} s"
        line = f"{time.strftime('%H:%M:%S')}  {finished.cell.id}  {how}"
        if self._live is None:
            count = f"{self._study} {counts['done']} of {counts['known']}"
            if counts["failed"]:
                count += f", {counts['failed']} failed"
            line += f"  ({count}; {self._left_in_words()})"
            print(line, flush=True)
        elif finished.failed:
            self.console.print(line, highlight=False)

    def table(self) -> Group:
        """Return the present table."""
        table = Table(box=None, pad_edge=False)
        for name in ("study", "done", "of", "running", "failed", "time left"):
            table.add_column(name, justify="left" if name == "study" else "right")
        for name, counts in self._counts.items():
            here = name == self._study
            table.add_row(
                name,
                str(counts["done"]),
                str(counts["known"]) if counts["known"] else "",
                str(len(self._started)) if here else "0",
                str(counts["failed"]),
                self._left_in_words() if here else "",
                style="bold" if here else None,
            )
        now = time.monotonic()
        started = list(self._started.items())  # another thread may change it
        lines = [
            Text(f"  {in_words(now - begun):>9}  {cell.id}", overflow="ellipsis")
            for cell, begun in started[:MOST_SHOWN]
        ]
        if len(started) > MOST_SHOWN:
            lines.append(Text(f"  and {len(started) - MOST_SHOWN} more"))
        return Group(table, *lines)

    def _left_in_words(self) -> str:
        now = time.monotonic()
        running = {cell: now - begun for cell, begun in list(self._started.items())}
        left = self._time_left.together(list(self._waiting), running, self._slots)
        if left is None:
            return "time left not known yet"
        if not (running or self._waiting):
            return "none left"
        return f"about {in_words(left)} left"


def in_words(seconds: float) -> str:
    """Write a duration such as 40 s, 12 min, 3 h 20 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
