"""What a run shows while it goes on: a live table, or plain lines where none can be."""

import time

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ncai.study.engine.cells import Cell
from ncai.study.engine.run import Finished, Watcher
from ncai.study.engine.store import Store

MOST_SHOWN = 12  # running cells below the table
# Settings that do not change how long a cell takes.
ALIKE = ("split", "draw", "point")


class TimeLeft:
    """Guesses how long cells will take from those of their kind that are done."""

    def __init__(self) -> None:
        self._seconds: dict[tuple, list[float]] = {}

    def learn(self, cell: Cell, seconds: float) -> None:
        """This one took so long."""
        for kind in self._kinds(cell):
            self._seconds.setdefault(kind, []).append(seconds)

    def of(self, cell: Cell) -> float | None:
        """The mean of its kind, else of its study; None where nothing is known."""
        for kind in self._kinds(cell):
            if kind in self._seconds:
                found = self._seconds[kind]
                return sum(found) / len(found)
        return None

    def together(self, waiting: list[Cell], running: dict[Cell, float], slots: int):
        """Seconds until all are done, or None while that cannot be said."""
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
    """Counts of each study, and the cells that are running now."""

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
        """Its cells come next."""
        self._study, self._waiting, self._started = study, [], {}
        self._counts[study]["failed"] = 0

    def known(self, cells: list[Cell], missing: list[Cell], slots: int) -> None:
        """These are all cells so far; the missing ones run, or wait."""
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
        """A worker has it."""
        if cell in self._waiting:
            self._waiting.remove(cell)
        self._started[cell] = time.monotonic()

    def finished(self, finished: Finished) -> None:
        """It is done, or failed."""
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
        """As it is at this moment."""
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
    """Such as 40 s, 12 min, 3 h 20 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
