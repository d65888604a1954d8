"""The quality benchmark: splits, scores, targets, and the command that runs it."""

import importlib.util
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

import ncai
from benchmarks.quality import methods, problems, report, targets
from benchmarks.quality import run as quality_run
from benchmarks.quality import run as scores
from benchmarks.quality.methods import (
    ALL_LEADS,
    METHOD_GROUPS,
    METHODS,
    OURS,
    paper_point,
)
from benchmarks.quality.results import Results, Store
from benchmarks.quality.run import run_missing
from benchmarks.speed.measuring import run_worker
from helpers import real_data
from ncai.cli import app as cli
from ncai.datasets import make_dataset
from ncai.stats.scores import crps_from_samples, crps_gaussian_mixture
from ncai.study.engine import SCALES
from ncai.study.engine.store import Store as StudyStore
from ncai.study.experiments.fits import FITS
from ncai.study.experiments.problems import DATASETS


def load_protocol():
    path = methods.PEER_FOLDER / "protocol.py"
    spec = importlib.util.spec_from_file_location("quality_protocol", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["quality_protocol"] = module
    spec.loader.exec_module(module)
    return module


protocol = load_protocol()

# ----- Splits -------------------------------------------------------------------------


def test_splits_are_the_published_ones():
    train, test = problems.split_rows(308, 0)
    order = np.random.default_rng(0).permutation(308)
    np.testing.assert_array_equal(np.concatenate([train, test]), order)
    assert (len(train), len(test)) == (277, 31)
    assert len({tuple(problems.split_rows(308, s)[1]) for s in range(20)}) == 20


@real_data
def test_dequantised_sets_have_the_same_rows_and_half_a_step_of_noise():
    plain = problems.load_problem("wine_red", 3)
    noisy = problems.load_problem("wine_red_dequantised", 3)
    again = problems.load_problem("wine_red_dequantised", 3)
    np.testing.assert_array_equal(plain.test[0], noisy.test[0])
    np.testing.assert_array_equal(again.test[1], noisy.test[1])
    noise = noisy.train[1] - plain.train[1]
    assert np.abs(noise).max() <= 0.5
    assert abs(noise.std() - math.sqrt(1 / 12)) < 0.02


def test_leads_are_run_only_by_name():
    assert not set(METHOD_GROUPS["all"]) & set(ALL_LEADS)
    assert set(METHOD_GROUPS["all"]) | set(ALL_LEADS) == set(METHODS)
    network = OURS["quarter"]["network"] | {"hidden": [100, 100]}
    assert OURS["wide"] == {"max_steps": 1000, "network": network}


def test_names_may_be_groups_and_unknown_ones_are_refused():
    groups = {"all": ("a", "b", "c"), "two": ("b", "c")}
    assert problems.chosen("two, a,b", groups, "--sets") == ["b", "c", "a"]
    with pytest.raises(ValueError, match="--sets 'd' is not known"):
        problems.chosen("d", groups, "--sets")


# ----- Scores of a mixture, as the peers compute them ---------------------------------


def test_a_peers_mixture_is_scored_as_ours_is():
    rng = np.random.default_rng(0)
    means, stds = rng.normal(size=(7, 3)), rng.uniform(0.2, 2, size=(7, 3))
    weights = rng.dirichlet(np.ones(3), size=7)
    targets_ = rng.normal(size=7)
    found = protocol.Prediction(means, stds, weights)
    density = (weights * stats.norm.pdf(targets_[:, None], means, stds)).sum(axis=1)
    np.testing.assert_allclose(found.log_density(targets_), np.log(density))
    expected = crps_gaussian_mixture(means, stds, weights, targets_)
    np.testing.assert_allclose(found.crps(targets_).mean(), expected)
    lower, upper = found.interval()
    for bound, level in ((lower, 0.025), (upper, 0.975)):
        cdf = (weights * stats.norm.cdf(bound[:, None], means, stds)).sum(axis=1)
        np.testing.assert_allclose(cdf, level, atol=1e-9)


def test_points_give_crps_mean_and_interval():
    rng = np.random.default_rng(1)
    points, targets_ = rng.normal(size=(4, 50)), rng.normal(size=4)
    found = protocol.Prediction(points, np.full((4, 1), 0.3), points=points)
    expected = crps_from_samples(points.T, targets_)
    np.testing.assert_allclose(found.crps(targets_).mean(), expected)
    np.testing.assert_allclose(found.mean(), points.mean(axis=1))


def test_one_training_serves_all_points_that_share_it():
    rows = protocol.Rows(np.zeros((5, 1)), np.zeros(5))
    valid = protocol.Rows(np.zeros((3, 1)), np.array([2.0, 2.1, 1.9]))
    trained = []

    def train(_, settings, seed):
        trained.append(settings["centre"])
        return lambda inputs: np.full((len(inputs), 1), settings["centre"])

    def finish(means, settings):
        return protocol.Prediction(means, np.full_like(means, settings["width"]))

    centres = [{"centre": c} for c in (0.0, 2.0, 9.0)]
    widths = [{"width": w} for w in (3.0, 0.1)]
    chosen, found = protocol.tune_nested(train, finish, centres, widths, rows, valid, 0)
    assert trained == [0.0, 2.0, 9.0]
    assert chosen == {"centre": 2.0, "width": 0.1}
    grid = [centre | width for centre in centres for width in widths]
    plain, expected = protocol.tune_on_grid(
        lambda rows, point, seed, _: (
            lambda inputs: finish(train(rows, point, seed)(inputs), point)
        ),
        grid,
        rows,
        valid,
        0,
    )
    assert plain == chosen
    np.testing.assert_allclose(found, expected)


def test_scores_of_a_split_are_in_raw_units(tmp_path):
    rng = np.random.default_rng(2)
    inputs, y = rng.normal(size=(50, 2)), 100 + 30 * rng.normal(size=50)
    problem = problems.Problem((inputs[:40], y[:40]), (inputs[40:], y[40:]), None, -2.0)
    problem.save(tmp_path / "0.npz")
    seen = protocol.Problem(tmp_path / "0.npz")
    assert abs(seen.train.targets.std() - 1) < 1e-12
    # The marginal normal of the training rows.
    predicted = protocol.Prediction(np.zeros((10, 1)), np.ones((10, 1)))
    said = seen.scores(predicted) | {"split": 0, "seconds": 1.0, "cpu_seconds": 1.0}
    row = scores.score_split(said, problem)
    centre, width = y[:40].mean(), y[:40].std()
    expected = -stats.norm.logpdf(y[40:], centre, width).mean()
    assert math.isclose(row["nll"], expected, rel_tol=1e-9)
    assert math.isclose(row["gap"], expected - 2.0, rel_tol=1e-9)
    assert math.isclose(row["width"], 2 * stats.norm.ppf(0.975) * width, rel_tol=1e-6)
    error = math.sqrt(np.mean((y[40:] - centre) ** 2))
    assert math.isclose(row["rmse"], error, rel_tol=1e-9)


def test_a_worker_that_says_nonsense_is_refused():
    rows = (np.zeros((2, 1)), np.zeros(2))
    said = {name: [0.0, math.nan] for name in ("log_density", "crps", "mean")}
    said |= {"split": 4, "lower": [0.0, 0.0], "upper": [1.0, 1.0]}
    with pytest.raises(ValueError, match="of split 4 is not a number a row"):
        scores.score_split(said, problems.Problem(rows, rows))


# ----- Means and who is best ----------------------------------------------------------


def results_of(values, metric="nll", dataset="goldberg"):
    """From {method: values of splits}."""
    blank = {"nll": 0.0, "gap": 0.0, "crps": 0.0, "rmse": 0.0, "coverage": 0.95}
    blank |= {"width": 1.0, "seconds": 1.0, "cpu_seconds": 1.0}
    rows = [
        blank | {metric: v, "split": s, "method": method, "dataset": dataset}
        for method, found in values.items()
        for s, v in enumerate(found)
    ]
    return Results(pd.DataFrame(rows), 3)


def test_leaders_by_paired_differences():
    results = results_of(
        {
            "best": [1.0, 5.0, 9.0],
            # 0.1 worse in every split: far more than the error of the difference.
            "always_worse": [1.1, 5.1, 9.1],
            # 0.1 worse on average, with differences of either sign.
            "as_good": [0.0, 5.0, 10.3],
            # Better, with a split missing: it does not compete.
            "part": [0.0, 0.0],
        }
    )
    names = results.methods()
    assert results.best("goldberg", "nll", names) == "best"
    assert results.leaders("goldberg", "nll", names) == {"best", "as_good"}
    entry = results.entry("goldberg", "best", "nll")
    assert entry is not None
    assert (entry.mean, entry.count, entry.complete) == (5.0, 3, True)
    assert math.isclose(entry.error, 4 / math.sqrt(3))
    assert str(replace(entry, mean=1.5, error=0.25)) == "1.500 ± 0.250"
    assert str(replace(entry, mean=1.5, error=math.nan)) == "1.500"
    assert results.entry("goldberg", "nobody", "nll") is None


def test_targets_are_met_or_not():
    close, far = [0.05, 0.06, 0.07], [0.05, 0.06, 0.2]
    for gaps, met in ((close, True), (far, False), (close[:2], None)):
        lines = targets.check_targets(results_of({"default": gaps}, "gap"), "default")
        line = next(line for line in lines if line.target.startswith("goldberg"))
        assert line.met is met


def test_coverage_is_judged_with_noise_on_y_too():
    whole = results_of({"default": [0.99] * 3}, "coverage", "wine_red").rows
    noisy = results_of({"default": [0.95] * 3}, "coverage", "wine_red_dequantised").rows
    lines = targets.check_targets(Results(pd.concat([whole, noisy]), 3), "default")
    met = {
        line.target.split(":")[0]: line.met for line in lines if "cover" in line.target
    }
    assert (met["wine_red"], met["wine_red_dequantised"]) == (False, True)
    assert met["boston_dequantised"] is None  # not run


def test_the_slowest_set_counts_and_none_twice():
    quick = results_of({"default": [50.0, 55.0, 70.0]}, "seconds", "wine_red").rows
    slow = results_of({"default": [99.0] * 3}, "seconds", "wine_red_dequantised").rows
    line = targets.check_targets(Results(pd.concat([quick, slow]), 3), "default")[-1]
    assert (line.found, line.met) == ("55 s on wine_red, the slowest", True)


def test_fits_that_shared_the_machine_are_not_timed_by_the_clock():
    alone = [50.0, math.nan, 70.0]
    results = results_of({"default": alone}, "seconds", "wine_red")
    line = targets.check_targets(results, "default")[-1]
    assert (line.found, line.met) == ("60 s on wine_red, the slowest", False)
    assert results.entry("wine_red", "default", "seconds").mean == 60.0
    assert results.entry("wine_red", "default", "seconds").count == 2
    shared = results_of({"default": [math.nan] * 3}, "seconds", "wine_red")
    line = targets.check_targets(shared, "default")[-1]
    assert (line.found, line.met) == ("not run", None)


def test_the_count_of_sets_led():
    parts = []
    for index, name in enumerate(problems.REAL):
        ours = [1.0, 1.1, 1.2] if index < 5 else [3.0, 3.0, 3.0]
        values = {"default": ours, "ngboost": [2.0, 2.1, 2.2]}
        parts.append(results_of(values, "nll", name).rows)
    lines = targets.check_targets(Results(pd.concat(parts), 3), "default")
    plain, dequantised = (line for line in lines if "best NLL" in line.target)
    assert plain.met is True
    assert plain.found.startswith("5: yacht yes (-1.000")
    assert dequantised.met is None  # three sets are not run


def test_peers_beside_print():
    table = pd.DataFrame(
        {
            "method": ["a", "b"],
            "dataset": "goldberg",
            "nll": [2.1, 4.0],
            "standard_error": [math.nan, 0.01],
            "source": "a paper",
        }
    )
    results = results_of({"a": [1.8, 2.0, 2.2], "b": [1.8, 2.0, 2.2]})
    first, second = targets.check_published(results, table)
    assert first.verdict == "agrees"
    assert second.verdict == "better by 2.00"


def test_numbers_in_print_are_of_known_peers_and_sets():
    table = report.published_table()
    assert set(table["method"]) <= set(methods.PEERS)
    assert set(table["dataset"]) <= set(problems.REAL)


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


@pytest.mark.usefixtures("any_types")  # of a million calls
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
    tiny = TINY | {"inference": "mfvi", "latent_dim": 0, "noise_variance": 1e-6}
    tiny |= {"inference__validation_fraction": 0.0}
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
    assert len(methods.our_grid("ncai", "boston")) == 16
    assert len(methods.our_grid("mfvi", "boston")) == 2


@pytest.mark.parametrize("method", ["mfvi", "ncai"])
def test_the_papers_methods_have_the_point_that_the_study_selected(method):
    store = StudyStore(Path(__file__).parents[2] / "results/study/paper")
    for name in DATASETS:
        row = store.load_row(FITS.select_cell(SCALES["paper"], name, method))
        if row is None:  # the study has not chosen: the benchmark does
            assert paper_point(method, name) is None
            assert methods.our_grid(method, name)
        else:
            noise, *tolerances = row["chosen"]
            settings = methods.our_settings(method, name)
            assert settings["noise_variance"] == noise
            if method == "ncai":
                names = ("hz", "input", "target")
                given = [settings[f"inference__{n}_tolerance"] for n in names]
                assert given == tolerances
            assert methods.our_grid(method, name) == ()
    assert paper_point(method, "boston") is None


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
