"""The study runner: resuming, failures, worker processes, and digests of results."""

import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from helpers import refused, run
from ncai.runtime.jax_setup import ONE_THREAD
from ncai.study import console, registry
from ncai.study.console import RunView, TimeLeft, in_words
from ncai.study.engine import SCALES, Cell, Outcome, digest
from ncai.study.engine.digest import SOURCE, Code, digest_of, digest_of_study
from ncai.study.engine.run import Finished, Watcher, Workers, run_study
from ncai.study.engine.store import ARRAYS, ROWS, Store
from ncai.study.experiments.benchmark import BENCHMARK, Benchmark
from ncai.study.experiments.divergence import DIVERGENCE
from ncai.study.experiments.problems import DATASETS, METHODS, grid
from ncai.study.output.report import state_of
from ncai.study.output.tables import (
    Entry,
    Table,
    latex_text,
    published,
    side_by_side,
)
from ncai.study.registry import STUDIES

SCALE = SCALES["smoke"]


class Toy:
    """Squares of numbers; the second round asks for what the first found."""

    title = "a toy"

    def __init__(self, name="toy"):
        self.name = name
        self.runs, self.broken = [], set()

    def cells(self, scale, store):
        first = [Cell.of(self.name, part=i, phase="first") for i in range(3)]
        found = [store.load(c) for c in first]
        second = [
            Cell.of(self.name, part=o.row["square"], phase="second")
            for o in found
            if o is not None
        ]
        return first + second

    def run(self, cell):
        self.runs.append(cell.id)
        if cell["part"] in self.broken:
            raise RuntimeError("broken on purpose")
        return Outcome({"square": cell["part"] ** 2}, {"numbers": np.arange(3)})


@pytest.fixture
def toy(monkeypatch):
    study = Toy()
    monkeypatch.setitem(registry.STUDIES, "toy", study)
    return study


def test_runs_what_is_missing_and_what_follows_from_it(toy, tmp_path):
    store, seen = Store(tmp_path), []

    class Notes(Watcher):
        def known(self, cells, missing, slots):
            seen.append((len(cells), len(missing)))

        def started(self, cell):
            seen.append(cell["part"])

        def finished(self, finished):
            seen.append(-finished.cell["part"])

    assert run_study(toy, SCALE, store, jobs=0, watcher=Notes()) == []
    assert len(toy.runs) == 6
    assert seen == [(3, 3), 0, 0, 1, -1, 2, -2, (6, 3), 0, 0, 1, -1, 4, -4, (6, 0)]
    np.testing.assert_array_equal(
        store.load(Cell.of("toy", part=2, phase="first")).arrays["numbers"], [0, 1, 2]
    )
    run_study(toy, SCALE, store, jobs=0)
    assert len(toy.runs) == 6  # done cells are never run again


def test_no_worker_idles_while_there_are_cells_that_follow(toy, tmp_path, monkeypatch):
    followed = threading.Event()

    def run(cell):
        if cell["phase"] == "second":
            followed.set()
        elif cell["part"] == 2:  # ends only once a cell that follows another has run
            assert followed.wait(timeout=20)
        return Outcome({"square": cell["part"] ** 2}, {})

    @contextmanager
    def two_threads(jobs, scheduler):
        with ThreadPoolExecutor(2) as pool:
            yield Workers(pool.submit, lambda: 2)

    monkeypatch.setattr(toy, "run", run)
    monkeypatch.setattr("ncai.study.engine.run.workers", two_threads)
    assert run_study(toy, SCALE, Store(tmp_path)) == []


def test_a_failure_is_kept_and_tried_again(toy, tmp_path):
    store, bad = Store(tmp_path), Cell.of("toy", part=1, phase="first")
    toy.broken.add(1)
    assert run_study(toy, SCALE, store, jobs=0) == [bad]
    assert "broken on purpose" in store.failure(bad)
    assert not store.is_done(bad)
    toy.broken.clear()
    assert run_study(toy, SCALE, store, jobs=0) == []
    assert store.failure(bad) is None
    assert not list(tmp_path.rglob("*.failed.txt"))


def test_a_kill_between_cells_loses_and_doubles_nothing(toy, tmp_path):
    store = Store(tmp_path)

    class Die(Watcher):
        def finished(self, finished):
            if finished.cell["part"] == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(toy, SCALE, store, jobs=0, watcher=Die())
    run_study(toy, SCALE, store, jobs=0)
    assert len(toy.runs) == len(set(toy.runs)) == 6


def test_half_written_files_are_never_seen(toy, tmp_path, monkeypatch):
    store, cell = Store(tmp_path), Cell.of("toy", part=1, phase="first")
    monkeypatch.setattr(
        json, "dumps", lambda *a, **k: (_ for _ in ()).throw(OSError("disk full"))
    )
    with pytest.raises(OSError, match="disk full"):
        store.save(cell, Outcome({"square": 1}, {}), 1.0)
    monkeypatch.undo()
    assert not store.is_done(cell)
    assert not list(tmp_path.rglob("*.json"))


def outcome(value):
    return Outcome({"square": value}, {"numbers": np.full(2, value)})


def test_a_pack_holds_rows_and_arrays_and_fresh_files_win(tmp_path):
    store = Store(tmp_path)
    cells = [Cell.of("toy", part=i, phase="first") for i in range(3)]
    for value, cell in enumerate(cells):
        store.save(cell, outcome(value), 1.5, "code")
    assert store.pack() == 3
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == [ARRAYS, ROWS]
    found = store.load(cells[1])
    assert found.row == {"square": 1}
    np.testing.assert_array_equal(found.arrays["numbers"], [1, 1])
    assert store.seconds(cells[1]) == 1.5
    store.save(cells[1], outcome(7), 2.5, "other code")
    assert store.load(cells[1]).row == {"square": 7}
    np.testing.assert_array_equal(store.load(cells[1]).arrays["numbers"], [7, 7])
    assert store.pack() == 1
    fresh_store = Store(tmp_path)
    assert [fresh_store.load(cell).row["square"] for cell in cells] == [0, 7, 2]
    assert fresh_store.load(cells[1]).arrays["numbers"][0] == 7
    assert store.pack() == 0


def test_a_study_goes_on_from_a_pack(toy, tmp_path):
    store = Store(tmp_path)
    run_study(toy, SCALE, store, jobs=0)
    store.pack()
    run_study(toy, SCALE, Store(tmp_path), jobs=0)
    assert len(toy.runs) == 6


@pytest.mark.parametrize("step", ["_write_arrays", "_write_rows", "unlink"])
def test_a_pack_that_is_interrupted_loses_nothing(tmp_path, monkeypatch, step):
    store = Store(tmp_path)
    cells = [Cell.of("toy", part=i, phase="first") for i in range(3)]
    store.save(cells[0], outcome(0), 1.0)
    store.save(cells[1], outcome(1), 1.0)
    store.pack()
    store.save(cells[1], outcome(5), 1.0)
    store.save(cells[2], outcome(2), 1.0)
    calls = []

    def interrupted(*args, **kwargs):
        calls.append(args)
        if step != "unlink" or len(calls) > 1:
            raise KeyboardInterrupt
        return unlink(*args, **kwargs)

    unlink = Path.unlink
    monkeypatch.setattr(Path if step == "unlink" else Store, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.pack()
    monkeypatch.undo()
    for _ in range(2):
        found = [Store(tmp_path).load(cell) for cell in cells]
        assert [o.row["square"] for o in found] == [0, 5, 2]
        assert [o.arrays["numbers"][0] for o in found] == [0, 5, 2]
        store.pack()


def test_a_cell_that_is_replaced_while_it_is_packed_stays(tmp_path, monkeypatch):
    store, cell = Store(tmp_path), Cell.of("toy", part=1, phase="first")
    store.save(cell, outcome(1), 1.0)
    write = Store._write_rows

    def replaced(self, records):
        write(self, records)
        time.sleep(0.01)
        store.save(cell, outcome(2), 1.0)

    monkeypatch.setattr(Store, "_write_rows", replaced)
    store.pack()
    assert Store(tmp_path).load(cell).row == {"square": 2}


def test_stale_cells_are_marked_and_run_again_if_asked(toy, tmp_path, monkeypatch):
    folder = tmp_path / "smoke"
    store = Store(folder)
    run_study(toy, SCALE, store, jobs=0)
    store.pack()
    monkeypatch.setattr(console, "digest_of_study", lambda study: "today")
    assert console.mark_stale(tmp_path, "The maths changed.") == {"smoke": 6}
    assert "The maths changed." in state_of(toy, SCALE, Store(folder))
    assert len(toy.runs) == 6
    run_study(toy, SCALE, Store(folder), jobs=0)
    assert len(toy.runs) == 6  # stale cells still count
    monkeypatch.setattr("ncai.study.engine.run.digest_of_study", lambda study: "today")
    run_study(toy, SCALE, Store(folder, without_stale=True), jobs=0)
    assert len(toy.runs) == 12
    store.pack()
    assert console.mark_stale(tmp_path, "Another reason.") == {"smoke": 0}
    assert "stale" not in state_of(toy, SCALE, Store(folder))


def test_leftovers_of_killed_writers_go_and_fresh_ones_stay(toy, tmp_path):
    folder = tmp_path / "toy"
    folder.mkdir()
    old, fresh = folder / ".a.json.0123", folder / ".b.json.4567"
    for path in (old, fresh):
        path.write_text("{")
    os.utime(old, (0, 0))
    run_study(toy, SCALE, Store(tmp_path), jobs=0)
    assert not old.exists()
    assert fresh.exists()


def test_time_left_is_guessed_from_cells_of_the_same_kind():
    guess = TimeLeft()
    slow = Cell.of("x", method="slow", split=1)
    quick = Cell.of("x", method="quick", split=1)
    assert guess.together([slow], {}, 1) is None
    guess.learn(slow, 100.0)
    guess.learn(quick, 10.0)
    assert guess.of(Cell.of("x", method="slow", split=5)) == 100.0
    assert guess.of(Cell.of("x", method="new", split=5)) == 55.0
    assert guess.together([quick], {slow: 30.0}, 2) == (10 + 70) / 2
    assert guess.together([], {slow: 300.0}, 1) == 0  # late, but not below nothing
    assert [in_words(s) for s in (7, 600, 12_000)] == ["7 s", "10 min", "3 h 20 min"]


def test_the_live_table_counts(toy, tmp_path):
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    store, cells = Store(tmp_path), toy.cells(SCALE, Store(tmp_path))
    view = RunView(store, ["toy", "other"], console)
    view.begin("toy")
    view.known(cells, cells, 2)
    view.started(cells[0])
    view.started(cells[1])
    view.finished(Finished(cells[0], "Traceback", 1.0))
    with console.capture() as shown:
        console.print(view.table())
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.get()).splitlines()
    assert plain[1].split()[:5] == ["toy", "0", "3", "1", "1"]  # done, of, running...
    assert cells[1].id in shown.get()


def test_plain_lines_where_there_is_no_terminal(toy, tmp_path, capsys):
    toy.broken.add(1)
    store = Store(tmp_path)
    with RunView(store, ["toy"], Console(file=io.StringIO())) as view:
        view.begin("toy")
        run_study(toy, SCALE, store, jobs=0, watcher=view)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert "FAILED" in lines[1]
    assert "toy 4 of 5, 1 failed; none left" in lines[-1]


def test_studies_are_run_one_after_the_other(toy, tmp_path, monkeypatch, capsys):
    other = Toy("other")
    monkeypatch.setitem(registry.STUDIES, "other", other)
    assert console.run_and_show(["toy", "other"], "smoke", 0, None, tmp_path) == 0
    assert len(toy.runs) == len(other.runs) == 6
    assert f"All done: {tmp_path}" in capsys.readouterr().out.replace("\n", "")


def test_identity_of_a_cell_is_its_settings():
    one = Cell.of("x", dataset="yacht", split=1)
    assert one == Cell.of("x", split=1, dataset="yacht")
    assert one.id == Cell.of("x", split=1, dataset="yacht").id
    assert one.id.startswith("yacht-1-")
    assert one.id != Cell.of("x", dataset="yacht", split=1, restarts=2).id
    assert one.seed != Cell.of("x", dataset="yacht", split=2).seed


def test_grids_are_those_of_the_paper():
    assert len(grid("yacht", "ncai")) == 16
    assert len(grid("heavy_tail", "ncai")) == 8
    assert [p.noise for p in grid("depeweg", "bnn")] == [1.0, 0.5, 0.1]
    assert [p.noise for p in grid("yacht", "mfvi")] == [0.1, 0.01]


def test_the_benchmark_lists_the_papers_cells(tmp_path):
    store, scale = Store(tmp_path), SCALES["paper"]
    cells = BENCHMARK.cells(scale, store)
    assert len(cells) == len(DATASETS) * len(METHODS) == 44
    store.save(cells[0], Outcome({"chosen": [0.1, None, None, None]}, {}), 1.0)
    again = Benchmark().cells(scale, store)
    assert len(again) == 44 + 5
    assert len({c.id for c in again}) == len(again)


def test_published_numbers_have_labels():
    table = published()
    assert set(table.columns) >= {"label", "dataset", "method", "metric", "value"}
    picked = table[
        (table.dataset == "heavy_tail")
        & (table.method == "ncai")
        & (table.metric == "avg_ll_test")
    ]
    assert float(picked.value.iloc[0]) == pytest.approx(-1.43, abs=0.01)


def test_entries_and_marks():
    ours, theirs = Entry.of([1.0, 1.2, 1.1]), Entry(0.5, 0.1, 5)
    assert str(ours) == "1.100 ± 0.100"
    assert ours.differs_from(theirs)
    assert not ours.differs_from(Entry.of([9.0]))  # one value has no known error
    assert not Entry(0.01, 0.0, 5).differs_from(Entry(0.01 + 1e-10, 0.0, 5))
    assert side_by_side(ours, theirs, True) == "**1.100 ± 0.100†** (0.500 ± 0.100)"
    assert side_by_side(ours, theirs, False) == "1.100 ± 0.100† (**0.500 ± 0.100**)"
    assert side_by_side(Entry.of([]), theirs, True) == "(0.500 ± 0.100)"
    assert str(Entry.of([math.nan])) == ""
    assert str(Entry.of([2.0])) == "2.000"


def test_latex_escapes_and_bold_anywhere():
    assert latex_text("1.1† (**0.5 ± 0.1**)") == (
        r"1.1$\dagger$ (\textbf{0.5 $\pm$ 0.1})"
    )
    assert latex_text(r"a_b & 5 % \x {λ}") == (
        r"a\_b \& 5 \% \textbackslash{}x \{$\lambda$\}"
    )


def test_a_table_in_three_forms(tmp_path):
    table = Table(
        "t", "A title", ("set", "a_b"), (("x", "**1.0 ± 0.1** (2)"),), note="A note."
    )
    table.write(tmp_path)
    assert "| x | **1.0 ± 0.1** (2) |" in (tmp_path / "t.md").read_text()
    assert r"\textbf{1.0 $\pm$ 0.1} (2)" in (tmp_path / "t.tex").read_text()
    assert pd.read_csv(tmp_path / "t.csv").iloc[0, 1] == "1.0 ± 0.1 (2)"


WAIT = 900.0  # seconds, for a machine that is busy with other things
# The study whose smoke cells are quickest to compute with JAX.
CELLS = DIVERGENCE.cells(SCALE, Store(Path("nowhere")))


def told(folder: Path, *more: str) -> list[str]:
    out = ["--scale", "smoke", "--out", str(folder)]
    return ["study", "run", DIVERGENCE.name, *out, *more]


def command(folder: Path, *more: str) -> list[str]:
    call = "from ncai.cli.app import main; main()"
    return [sys.executable, "-c", call, *told(folder, *more)]


def found(folder: Path) -> dict[str, object]:
    """Contents of every file but for times; arrays as their bytes."""
    contents: dict[str, object] = {}
    for path in sorted((folder / "smoke").rglob("*")):
        if path.is_dir():
            continue
        name = str(path.relative_to(folder))
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                contents[name] = {k: v.tobytes() for k, v in arrays.items()}
        else:
            record = json.loads(path.read_text())
            contents[name] = {k: record[k] for k in ("study", "settings", "row")}
    return contents


def wait_until(condition, what: str) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)


def num_done(folder: Path) -> int:
    return len(list(folder.rglob("*.json")))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> dict[str, object]:
    """What one job finds that nobody disturbs."""
    folder = tmp_path_factory.mktemp("unbroken")
    subprocess.run(command(folder), check=True, timeout=WAIT, capture_output=True)
    contents = found(folder)
    assert len([n for n in contents if n.endswith(".json")]) == len(CELLS)
    return contents


def test_two_jobs_find_the_same_bit_for_bit(unbroken, tmp_path):
    subprocess.run(
        command(tmp_path, "--jobs", "2"), check=True, timeout=WAIT, capture_output=True
    )
    assert found(tmp_path) == unbroken


def test_a_run_killed_in_the_middle_and_resumed_finds_the_same(unbroken, tmp_path):
    run = subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: num_done(tmp_path) >= 2, "two cells")
        run.send_signal(signal.SIGKILL)
    finally:
        run.kill()
        run.wait()
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.json")}
    assert 2 <= len(before) < len(CELLS)
    subprocess.run(command(tmp_path), check=True, timeout=WAIT, capture_output=True)
    assert found(tmp_path) == unbroken
    # The cell that was running may have been ended by its orphaned worker.
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_dask_workers_one_of_them_killed(unbroken, tmp_path):
    """A scheduler and two workers on loopback; every cell is stored once, whole."""
    pytest.importorskip("distributed")
    environment = os.environ | ONE_THREAD
    address_file, folder = tmp_path / "scheduler.json", tmp_path / "out"

    def dask(*told: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *told],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    started = [
        dask(
            *("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
            *("--scheduler-file", str(address_file)),
        )
    ]
    try:
        wait_until(address_file.exists, "the scheduler")
        address = json.loads(address_file.read_text())["address"]
        for name in ("first", "second"):
            local = str(tmp_path / name)
            started.append(
                # Without a nanny: a process that is killed stays dead.
                dask(
                    *("worker", address, "--nthreads", "1", "--no-nanny"),
                    *("--no-dashboard", "--name", name, "--local-directory", local),
                )
            )
        run = subprocess.Popen(
            command(folder, "--scheduler", address), stdout=subprocess.PIPE, text=True
        )
        started.append(run)
        wait_until(lambda: num_done(folder) >= 3, "three cells")
        started[2].send_signal(signal.SIGKILL)
        output, _ = run.communicate(timeout=WAIT)
        assert run.returncode == 0, output
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()
    assert found(folder) == unbroken
    finished = [line.split()[1] for line in output.splitlines() if " s  (" in line]
    assert sorted(finished) == sorted(cell.id for cell in CELLS)


@pytest.mark.filterwarnings("ignore")  # of Dask, that asks after its own threads
def test_a_scheduler_that_is_not_there(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    client = distributed.Client  # it is asked to wait for 10 seconds
    soon = partial(client, timeout="200ms")
    monkeypatch.setattr(distributed, "Client", lambda address, **_: soon(address))
    ended = run(*told(tmp_path, "--scheduler", "tcp://127.0.0.1:9"))
    assert refused(ended, "--scheduler tcp://127.0.0.1:9 cannot be reached")


def test_without_dask_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    ended = run(*told(tmp_path, "--scheduler", "tcp://127.0.0.1:9"))
    assert refused(ended, 'pip install "ncai[distributed]"')


READ_TEXT = Path.read_text

MATHS = '''
"""Formulas."""
from dataclasses import dataclass
import numpy as np

FACTOR = 2.0
UNUSED = 3.0

def scaled(x, shift=1.0):
    """Of x."""
    if x is None:
        raise ValueError("x is missing.")
    return FACTOR * x + shift  # a comment

def never_called(x):
    return scaled(x) ** 2

@dataclass(frozen=True)
class Method:
    """Settings."""

    rate: float = 0.1
    other: int = 5

    def fit(self, x):
        return scaled(x) * self.rate

    def plot(self):
        return self.other
'''
ENTRY = """
from package.maths import Method

def run(x):
    return Method().fit(x)
"""


def meaning(maths=MATHS, entry=ENTRY, **more):
    sources = {"package.maths": maths, "package.entry": entry, **more}
    return Code.of(sources).reach([("package.entry", "run")])


BEFORE = meaning()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Of x."""', '"""Of x, scaled and shifted."""'),
        ('    """Of x."""\n', ""),
        ("# a comment", "# another"),
        ("x is missing.", "x must be given."),
        ("FACTOR * x + shift", "(FACTOR *\n        x) + shift"),
        (
            "def scaled(x, shift=1.0)",
            "def scaled(x: float, shift: float = 1.0) -> float",
        ),
        ("rate: float", "rate: int | float"),
        ("UNUSED = 3.0\n", ""),
        ("def never_called(x):\n    return scaled(x) ** 2\n", ""),
        ("    def plot(self):\n        return self.other\n", ""),
        ("    other: int = 5\n", ""),
        ("import numpy as np\n", "import numpy as np\nimport math\n"),
    ],
)
def test_what_decides_no_number_keeps_it(old, new):
    assert old in MATHS
    assert meaning(MATHS.replace(old, new)) == BEFORE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FACTOR * x + shift", "FACTOR * x - shift"),
        ("FACTOR = 2.0", "FACTOR = 2.5"),
        ("shift=1.0", "shift=0.0"),
        ("rate: float = 0.1", "rate: float = 0.2"),
        ("scaled(x) * self.rate", "scaled(x) * self.rate / self.other"),
    ],
)
def test_another_formula_constant_or_default_changes_it(old, new):
    assert old in MATHS
    assert meaning(MATHS.replace(old, new)) != BEFORE


def test_a_function_that_moves_keeps_it():
    start, end = MATHS.index("def scaled"), MATHS.index("def never_called")
    moved = "FACTOR = 2.0\n" + MATHS[start:end]
    rest = (MATHS[:start] + MATHS[end:]).replace("FACTOR = 2.0\n", "")
    by_name = "from package.other import scaled\n" + rest
    assert meaning(by_name, **{"package.other": moved}) == BEFORE
    by_alias = "from package.other import scaled as s\n" + re.sub(
        r"\bscaled\(x\)", "s(x)", rest
    )
    assert meaning(by_alias, **{"package.other": moved}) == BEFORE
    by_module = "from package import other\n" + re.sub(
        r"\bscaled\(x\)", "other.scaled(x)", rest
    )
    assert meaning(by_module, **{"package.other": moved}) == BEFORE
    changed = moved.replace("+ shift", "- shift")
    assert meaning(by_module, **{"package.other": changed}) != BEFORE


def test_imports_inside_a_function_are_followed():
    lazy = ENTRY.replace("from package.maths import Method\n", "").replace(
        "    return", "    from package.maths import Method\n    return"
    )
    found = meaning(entry=lazy)
    assert len(found) == len(BEFORE)
    assert meaning(MATHS.replace("2.0", "2.5"), lazy) != found


def test_a_constructor_that_only_stores_counts_by_what_is_used():
    estimator = """
class Method:
    def __init__(self, rate=0.1, unused=5):
        self.rate = rate
        self.unused = unused

    def fit(self, x):
        return x * self.rate
"""
    before = meaning(estimator)
    shorter = estimator.replace(", unused=5", "").replace(
        "        self.unused = unused\n", ""
    )
    assert meaning(shorter) == before
    assert meaning(estimator.replace("rate=0.1", "rate=0.2")) != before


def test_a_class_that_a_module_registers_is_reached():
    registry = "METHODS = {}\ndef run(name, x):\n    return METHODS[name]().fit(x)\n"
    entry = f"from package.maths import Method\n{registry}METHODS['a'] = Method\n"
    before = meaning(entry=entry)
    assert meaning(MATHS.replace("2.0", "2.5"), entry) != before


@pytest.mark.usefixtures("any_types")
@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("elbo.py", {"fits": True, "benchmark": True}),
        (
            "marginal_elbo.py",
            {"fits": False, "tighter-bounds": True, "decomposition": True},
        ),
    ],
)
def test_the_digest_of_a_study_covers_the_methods_that_it_fits(
    file, counts, monkeypatch
):
    def digests():
        return {name: digest_of_study(STUDIES[name]) for name in counts}

    before = digests()
    path = SOURCE / "objectives" / file
    changed = path.read_text().replace("+", "-")
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda self, *args: changed if self == path else READ_TEXT(self, *args),
    )
    caches = (digest._code, digest._meaning, digest_of_study)
    for cached in caches:
        cached.cache_clear()
    after = digests()
    assert {name: after[name] != before[name] for name in counts} == counts
    monkeypatch.undo()
    for cached in caches:
        cached.cache_clear()
    assert digests() == before


def test_settings_count_and_an_unknown_entry_is_named():
    entry = [("ncai.study.experiments.theory", "Theory.run")]
    assert digest_of(entry) == digest_of(entry, {})
    assert digest_of(entry, {"rate": 1}) != digest_of(entry)
    with pytest.raises(ValueError, match="Nobody"):
        digest_of([("ncai.study.experiments.theory", "Nobody")])
