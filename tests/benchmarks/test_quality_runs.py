"""The judge of quality as a command: what is run, kept, and run again."""

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

import ncai
from benchmarks.quality import methods, report
from benchmarks.quality import run as quality_run
from benchmarks.quality.methods import paper_point
from benchmarks.quality.results import Results, Store
from benchmarks.quality.run import run_missing
from benchmarks.speed.measuring import run_worker
from ncai.cli import app as cli
from ncai.datasets import make_dataset
from ncai.study.engine.cells import SCALES
from ncai.study.engine.store import Store as StudyStore
from ncai.study.experiments.benchmark import BENCHMARK
from ncai.study.experiments.problems import DATASETS

# ----- What is kept -------------------------------------------------------------------


def test_rows_are_kept_replaced_and_outdated(tmp_path):
    store = Store(tmp_path)
    store.tell("yacht", "default", digest="one")
    store.add("yacht", "default", {"split": 1, "nll": 2.0})
    store.add("yacht", "default", {"split": 0, "nll": 1.0})
    store.add("yacht", "default", {"split": 1, "nll": 3.0})
    assert store.rows("yacht", "default")["nll"].tolist() == [1.0, 3.0]
    store.tell("yacht", "default", digest="two")
    assert not len(store.rows("yacht", "default"))
    assert {p.suffix for p in (tmp_path / "cells/yacht").iterdir()} == {".csv", ".json"}


def test_a_pack_is_read_added_to_and_cleared(tmp_path):
    out = tmp_path / "quality"
    store = Store(out)
    store.tell("yacht", "default", digest="one", versions={"thing": "1.2"})
    for split in range(2):
        store.add("yacht", "default", {"split": split, "nll": split / 3, "gap": None})
    store.tell("yacht", "ngboost", digest="two")  # no row yet
    assert store.pack() == 1
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == [
        "quality_cells.csv",
        "quality_cells.jsonl",
    ]
    assert not list(out.rglob("default.*"))
    again = Store(out)
    assert again.rows("yacht", "default")["nll"].tolist() == [0.0, 0.333333]
    assert again.about("yacht", "default")["versions"] == {"thing": "1.2"}
    assert again.about("yacht", "ngboost") == {"digest": "two"}
    again.add("yacht", "default", {"split": 2, "nll": 5.0, "gap": None})
    assert store.rows("yacht", "default")["split"].tolist() == [0, 1, 2]
    assert again.pack() == 1
    assert len(store.rows("yacht", "default")) == 3
    store.clear("yacht", "default")
    store.tell("yacht", "default", digest="one")  # the same method, run again
    assert not len(Store(out).rows("yacht", "default"))
    assert store.about("yacht", "default") == {"digest": "one"}


@pytest.mark.parametrize("step", ["_write_pack", "unlink"])
def test_a_pack_that_is_interrupted_loses_nothing(tmp_path, monkeypatch, step):
    store = Store(tmp_path / "quality")
    for name in ("yacht", "energy"):
        store.tell(name, "default", digest="one")
        store.add(name, "default", {"split": 0, "nll": 1.0})
    store.pack()
    store.add("yacht", "default", {"split": 1, "nll": 2.0})

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path if step == "unlink" else Store, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.pack()
    monkeypatch.undo()
    for _ in range(2):
        again = Store(tmp_path / "quality")
        assert again.rows("yacht", "default")["nll"].tolist() == [1.0, 2.0]
        assert again.rows("energy", "default")["nll"].tolist() == [1.0]
        again.pack()


def test_settings_that_are_not_defaults_count(monkeypatch):
    before = methods.digest_of("default", "yacht")
    monkeypatch.setitem(methods.OURS, "default", {"target_transform": "none"})
    assert methods.digest_of("default", "yacht") != before
    monkeypatch.setitem(methods.OURS, "default", {"preset": "default"})
    assert methods.digest_of("default", "yacht") == before
    assert len({methods.digest_of(name, "yacht") for name in methods.PEERS}) == 7


# ----- Runs ---------------------------------------------------------------------------

TINY = {
    "max_steps": 20,
    "n_restarts": 1,
    "inference__n_weight_draws": 8,
    "inference__n_latent_draws": 4,
}
FAKE = """
import numpy as np
from protocol import Peer, Prediction, run_peer

GRID = [{"width": 3.0}, {"width": 1.0}]

def fit(train, settings, seed, valid):
    def predict(inputs):
        ones = np.ones((len(inputs), 1))
        return Prediction(0 * ones, settings["width"] * ones)
    return predict

if __name__ == "__main__":
    run_peer({"fake": Peer(fit, GRID, ("numpy",))})
"""


@pytest.fixture
def fake_peer(tmp_path, monkeypatch):
    """Predicts N(mean, width^2) of the training targets for every row."""
    folder = tmp_path / "peers"
    folder.mkdir()
    shutil.copy(methods.PEER_FOLDER / "protocol.py", folder)
    (folder / "fake.py").write_text(FAKE)
    monkeypatch.setattr(methods, "PEER_FOLDER", folder)
    monkeypatch.setitem(methods.PEERS, "fake", methods.PeerFile("fake.py", "numpy"))
    monkeypatch.setattr(methods, "_python_with", lambda module: sys.executable)
    return folder


def test_a_peer_is_tuned_run_and_not_run_again(tmp_path, fake_peer):
    store, told = Store(tmp_path / "cells"), []
    args = (store, ["goldberg"], ["fake"], 2, 1, False, told.append)
    assert run_missing(*args) == 0
    rows = store.rows("goldberg", "fake")
    assert rows["split"].tolist() == [0, 1]
    assert store.about("goldberg", "fake")["settings"] == {"width": 1.0}
    data = make_dataset("goldberg", seed=1)
    y, test = data.train.targets[:, 0], data.test.targets[:, 0]
    expected = -stats.norm.logpdf(test, y.mean(), y.std()).mean()
    oracle = data.oracle.log_prob(data.test.inputs, data.test.targets).mean()
    assert math.isclose(rows["nll"][1], expected, rel_tol=1e-4)
    assert math.isclose(rows["gap"][1], expected + oracle, rel_tol=1e-4)
    told.clear()
    assert run_missing(*args) == 0
    assert told == []
    page = report.markdown(
        store, Results.load(store, ["goldberg"], ["fake"], 2), "", ""
    )
    assert f"**{rows['gap'].mean():.3f} ±" in page


def test_the_clock_is_read_only_of_fits_that_run_alone(tmp_path, fake_peer):
    store = Store(tmp_path / "cells")
    for splits, jobs in ((1, 1), (2, 2)):
        assert not run_missing(store, ["yuan"], ["fake"], splits, jobs, False, print)
    alone, beside = store.rows("yuan", "fake").to_dict("records")
    assert alone["seconds"] >= 0
    assert math.isnan(beside["seconds"])
    assert beside["cpu_seconds"] >= 0


def test_a_peer_that_fails_is_told_and_leaves_no_row(tmp_path, fake_peer):
    (fake_peer / "fake.py").write_text("raise SystemExit('no such luck')\n" + FAKE)
    store, told = Store(tmp_path / "cells"), []
    assert run_missing(store, ["yuan"], ["fake"], 1, 1, False, told.append) == 1
    assert told == ["yuan fake failed: no such luck"]
    assert not len(store.rows("yuan", "fake"))


def test_a_peer_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(methods, "_python_with", lambda module: None)
    with pytest.raises(ValueError, match=r"ngboost needs ngboost, .* `make peers`"):
        methods.worker("ngboost", "yacht")


def test_our_estimator_is_scored(tmp_path, monkeypatch):
    tiny = TINY | {"inference": "mfvi"}
    monkeypatch.setitem(methods.OURS, "tiny", tiny)
    grid = ({"noise_variance": 0.1}, {"noise_variance": 1e-4})
    monkeypatch.setitem(methods.OUR_GRIDS, "tiny", grid)
    store, told = Store(tmp_path / "cells"), []
    assert run_missing(store, ["goldberg"], ["tiny"], 1, 1, False, told.append) == 0, (
        told
    )
    assert store.about("goldberg", "tiny")["settings"] == {"noise_variance": 0.1}
    row = store.rows("goldberg", "tiny").iloc[0]
    assert 0 < row["gap"] < 5
    assert 0 <= row["coverage"] <= 1


def test_corrected_intervals_go_with_the_density_of_the_estimator(
    tmp_path, monkeypatch
):
    tiny = TINY | {"latent_dim": 0, "noise_variance": 1e-6}
    tiny |= {"inference__validation_fraction": 0.0, "inference__n_folds": None}
    monkeypatch.setitem(methods.OURS, "tiny", tiny)
    monkeypatch.setitem(methods.OURS, "guarded", tiny)
    monkeypatch.setattr(methods, "CONFORMAL", ("guarded",))
    store, told = Store(tmp_path / "cells"), []
    names = ["tiny", "guarded"]
    assert run_missing(store, ["goldberg"], names, 1, 1, False, told.append) == 0, told
    plain, guarded = (store.rows("goldberg", name).iloc[0] for name in names)
    assert plain["coverage"] < 0.8  # noise is far too small
    assert guarded["coverage"] > 0.85
    assert guarded["nll"] == plain["nll"]
    digests = {store.about("goldberg", name)["digest"] for name in names}
    assert len(digests) == 2


def test_the_papers_methods_have_its_networks_and_units():
    settings = methods.our_settings("ncai", "heavy_tail")
    assert settings["hidden"] == (50,)
    assert settings["inference__latent_variance"] == 0.01
    assert settings["standardize"] is False
    assert methods.our_settings("default", "heavy_tail") == methods.OURS["default"]
    assert methods.our_grid("ncai", "heavy_tail") == ()  # the study chose
    assert settings["inference__hz_tolerance"] == 0.0003
    assert len(methods.our_grid("ncai", "boston")) == 16
    assert len(methods.our_grid("mfvi", "boston")) == 2


def test_points_of_the_papers_grids_are_those_that_the_study_chose():
    store = StudyStore(Path(__file__).parents[2] / "results/study/paper")
    for method in ("mfvi", "ncai"):
        for name in DATASETS:
            row = store.load_row(BENCHMARK.select_cell(SCALES["paper"], name, method))
            if name != "lidar":  # not in the benchmark
                point = [value for value in row["chosen"] if value is not None]
                assert list(paper_point(method, name).values()) == point
    assert paper_point("ncai", "boston") is None


# ----- The command --------------------------------------------------------------------


def invoke(*words):
    return CliRunner().invoke(cli.app, ["bench", "quality", *words])


def test_the_command_works_from_any_folder_with_a_clone(tmp_path):
    source = Path(ncai.__file__).parents[1]
    words = ["bench", "quality", "--table", "--out", str(tmp_path / "quality")]
    done = subprocess.run(
        [sys.executable, "-m", "ncai", *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "there are no results" in done.stderr  # so it was found and asked


def test_workers_find_the_benchmarks_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    script = "import json, benchmarks, ncai; print(json.dumps([ncai.__file__]))"
    (found,) = run_worker([sys.executable, "-c", script], {})
    assert found == ncai.__file__


@pytest.mark.parametrize("words", [(), ("quality", "--table")])
def test_the_command_needs_a_clone(tmp_path, monkeypatch, words):
    installed = tmp_path / "lib" / "python" / "ncai" / "__init__.py"
    monkeypatch.setattr(ncai, "__file__", str(installed))
    result = CliRunner().invoke(cli.app, ["bench", *words])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "clone" in result.stderr


def test_the_command_refuses_what_it_does_not_know(tmp_path):
    for words, message in (
        (["--sets", "moon"], "--sets 'moon' is not known"),
        (["--methods", "magic"], "--methods 'magic' is not known"),
        (["--judged", "magic"], "--judged 'magic' must be one of"),
        (["--table"], "there are no results"),
    ):
        result = invoke("--out", str(tmp_path / "quality"), *words)
        assert result.exit_code == 2
        assert message in result.stderr


def test_the_table_from_what_is_there(tmp_path):
    store = Store(tmp_path / "quality")
    row = {"nll": 1.0, "crps": 0.5, "rmse": 1.0, "coverage": 0.95, "width": 2.0}
    row |= {"gap": math.nan, "test_rows": 31, "seconds": 1.0, "cpu_seconds": 1.0}
    for method, shift in (("default", 0.0), ("ngboost", 0.5)):
        store.tell("yacht", method, digest="", versions={"thing": "1.2"})
        for split in range(2):
            nll = shift + 0.1 * split * (1 + shift)
            store.add("yacht", method, row | {"split": split, "nll": nll})
    out = tmp_path / "quality"
    result = invoke("--table", "--splits", "2", "--out", str(out))
    assert result.exit_code == 0, result.stderr
    assert "| default | **0.050 ± 0.050** |" in result.stdout
    assert "| ngboost | 0.575 ± 0.075 |" in result.stdout
    assert "thing 1.2" in (tmp_path / "quality.md").read_text()
    tidy = pd.read_csv(tmp_path / "quality" / "summary.csv")
    best = tidy[(tidy["metric"] == "nll") & tidy["best_or_within_one_error"]]
    assert best["method"].tolist() == ["default"]


def test_leads_are_told_as_paired_differences(tmp_path):
    store = Store(tmp_path / "quality")
    row = {"crps": 0.5, "rmse": 1.0, "coverage": 0.95, "width": 2.0, "cpu_seconds": 2.0}
    nlls = {"quarter": (1.0, 3.0), "wide": (0.9, 2.8), "one_layer": (2.0, 2.9)}
    held_out = {"quarter": (-1.0, -3.0), "wide": (-2.0, -2.8), "one_layer": (-3, -3)}
    for method, values in nlls.items():
        store.tell("yacht_inner", method, digest="")
        for split, nll in enumerate(values):
            more = {"split": split, "nll": nll, "held_out": held_out[method][split]}
            store.add("yacht_inner", method, row | more)
    out = tmp_path / "quality"
    words = ["--methods", "leads", "--table", "--splits", "2", "--out", str(out)]
    result = invoke(*words)
    assert result.exit_code == 0, result.stderr
    page = (tmp_path / "leads.md").read_text()
    assert not (tmp_path / "quality.md").exists()
    assert "| quarter | (the values themselves) | 2.000 ± 1.000 |" in page
    wide = next(line for line in page.splitlines() if line.startswith("| wide |"))
    assert '"hidden": [100, 100]' in wide
    assert wide.endswith("| **-0.150 ± 0.050** | 1 | 0 |")
    # By held-out rows the first split takes the base, the second the wide network.
    chosen = next(line for line in page.splitlines() if line.startswith("| chosen_s"))
    assert chosen.endswith("| -0.100 ± 0.100 | 0 | 0 |")


def test_speed_is_still_what_bench_does_alone(monkeypatch):
    from benchmarks.speed import run

    called = []
    monkeypatch.setattr(run, "run_bench", lambda *args: called.append(args))
    assert CliRunner().invoke(cli.app, ["bench", "--only", "hz"]).exit_code == 0
    assert [args[3] for args in called] == [("hz",)]
    monkeypatch.setattr(quality_run, "bench_quality", lambda *args: 0)
    assert invoke("--table").exit_code == 0
    assert len(called) == 1
