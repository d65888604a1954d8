"""The study runner: resuming, failures, workers; and tables."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from ncai.study import registry
from ncai.study.benchmark import BENCHMARK, Benchmark
from ncai.study.cells import Cell, Outcome
from ncai.study.paper_settings import DATASETS, METHODS, grid
from ncai.study.run import run_study
from ncai.study.scales import SCALES
from ncai.study.store import Store
from ncai.study.tables import Entry, Table, published, side_by_side

SCALE = SCALES["smoke"]


class Toy:
    """Squares of numbers; the second round asks for what the first found."""

    name = "toy"
    title = "a toy"

    def __init__(self):
        self.runs, self.broken = [], set()

    def cells(self, scale, store):
        first = [Cell.of("toy", part=i, phase="first") for i in range(3)]
        found = [store.load(c) for c in first]
        second = [
            Cell.of("toy", part=o.row["square"], phase="second")
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
    failed = run_study(
        toy, SCALE, store, on_finished=lambda f, d, t: seen.append((d, t))
    )
    assert failed == []
    assert len(toy.runs) == 6
    assert seen == [(1, 3), (2, 3), (3, 3), (4, 6), (5, 6), (6, 6)]
    np.testing.assert_array_equal(
        store.load(Cell.of("toy", part=2, phase="first")).arrays["numbers"], [0, 1, 2]
    )
    run_study(toy, SCALE, store)
    assert len(toy.runs) == 6  # done cells are never run again


def test_a_failure_is_kept_and_tried_again(toy, tmp_path):
    store, bad = Store(tmp_path), Cell.of("toy", part=1, phase="first")
    toy.broken.add(1)
    assert run_study(toy, SCALE, store) == [bad]
    assert "broken on purpose" in store.failure(bad)
    assert not store.is_done(bad)
    toy.broken.clear()
    assert run_study(toy, SCALE, store) == []
    assert store.failure(bad) is None
    assert not list(tmp_path.rglob("*.failed.txt"))


def test_a_kill_between_cells_loses_and_doubles_nothing(toy, tmp_path):
    store = Store(tmp_path)

    def die(finished, done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(toy, SCALE, store, on_finished=die)
    run_study(toy, SCALE, store)
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
    assert side_by_side(ours, theirs, True) == "**1.100 ± 0.100*** (0.500 ± 0.100)"
    assert side_by_side(ours, theirs, False) == "1.100 ± 0.100* (**0.500 ± 0.100**)"
    assert side_by_side(Entry.of([]), theirs, True) == "(0.500 ± 0.100)"
    assert str(Entry.of([math.nan])) == ""
    assert str(Entry.of([2.0])) == "2.000"


def test_a_table_in_three_forms(tmp_path):
    table = Table(
        "t", "A title", ("set", "a_b"), (("x", "**1.0 ± 0.1** (2)"),), note="A note."
    )
    table.write(tmp_path)
    assert "| x | **1.0 ± 0.1** (2) |" in (tmp_path / "t.md").read_text()
    assert r"\textbf{1.0 $\pm$ 0.1} (2)" in (tmp_path / "t.tex").read_text()
    assert pd.read_csv(tmp_path / "t.csv").iloc[0, 1] == "1.0 ± 0.1 (2)"
