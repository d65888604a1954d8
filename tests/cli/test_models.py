"""The commands on a model that `ncai fit` made of a table as people have them."""

import errno
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from command_line import QUICK, refused, run
from ncai import MFVI, BNNLVRegressor
from ncai.cli._arguments import without_infinity
from ncai.preprocessing.table_preparer import TablePreparer
from ncai.report.subject import Subject
from ncai.tables import compare
from ncai.tables import fit as table_fit
from ncai.tables import read as table_io
from ncai.tables.inspect import cut_short
from ncai.tables.model import TableModel


@pytest.fixture(scope="module")
def houses():
    rng = np.random.default_rng(0)
    num = 90
    size = rng.gamma(4, 25, num)
    return pd.DataFrame(
        {
            "size": size,
            "town": rng.choice(["Ulm", "Bonn", "Kiel"], num),
            "age": np.where(rng.random(num) < 0.2, np.nan, rng.integers(0, 90, num)),
            "sold": pd.date_range("2019-01-01", periods=num, freq="20D").astype(str),
            "land": "DE",
            "price": 50 + 2 * size + rng.exponential(0.3 * size),
        }
    )


@pytest.fixture(scope="module")
def folder(houses, tmp_path_factory):
    """Tables, a model, and what `fit --json` printed."""
    folder = tmp_path_factory.mktemp("houses")
    houses.iloc[:70].to_csv(folder / "houses.csv", index=False)
    houses.iloc[70:].to_csv(folder / "new.csv", index=False)
    result = run(
        *("fit", folder / "houses.csv", "--target", "price", "--json"),
        *("--out", folder / "h.ncai", *QUICK),
    )
    assert result.exit_code == 0, result.stderr
    (folder / "fit.json").write_text(result.stdout)
    return folder


def fitted(folder):
    return json.loads((folder / "fit.json").read_text())


# ----- Fit ----------------------------------------------------------------------------


def test_fit_prints_json_for_a_program(folder):
    found = fitted(folder)
    assert found["columns"]["land"] == "dropped: it has the same value in every row"
    assert "town=Ulm" in found["inputs"]
    counts = [found[f"num_{part}"] for part in ("train", "valid", "test")]
    assert counts == [54, 6, 10]
    names = [score["name"] for score in found["scores"]]
    assert names[0] == "BNN+LV, MFVI"
    assert len(names) == 4
    for score in found["scores"]:
        assert {"log_likelihood", "crps", "coverage_50", "coverage_95"} <= set(score)
    assert "white noise" in found["diagnosis"]["independence_verdict"]


def test_scores_are_of_rows_that_nothing_was_fitted_to(folder, houses):
    """Computed anew from the file, on the rows the split left out."""
    held = table_fit.choose_test_rows(70, 0.1, seed=0)
    model = BNNLVRegressor.load(folder / "h.ncai")
    trained = houses.iloc[:70].drop(index=held)
    preparer = TablePreparer().fit(trained.drop(columns="price"))
    test = houses.iloc[held]
    score = model.log_score(preparer.prepare(test)[0], test["price"])
    ours = fitted(folder)["scores"][0]["log_likelihood"]
    assert ours == pytest.approx(score, rel=1e-5)


@pytest.mark.parametrize(
    ("num_rows", "share", "count"),
    [(49, 0.1, 0), (50, 0.1, 10), (1000, 0.1, 100), (1000, 0, 0), (60, 0.9, 54)],
)
def test_test_rows(num_rows, share, count):
    rows = table_fit.choose_test_rows(num_rows, share, seed=3)
    assert len(np.unique(rows)) == count


def test_test_rows_leave_some_to_fit():
    with pytest.raises(ValueError, match=r"test=0\.99 leaves 1 of 60 rows"):
        table_fit.choose_test_rows(60, 0.99, seed=0)


def test_other_files_are_read_as_the_training_rows_were(tmp_path):
    rng = np.random.default_rng(0)
    codes = np.array(["01", "02", "AB"])[np.arange(60) % 3]
    prices = [f"{v:.3f}".replace(".", ",") for v in rng.uniform(1, 9, size=60)]
    prices[0] = "2.500,5"  # so the point is one of thousands
    frame = pd.DataFrame({"code": codes, "price": prices, "y": rng.normal(size=60)})
    frame.to_csv(tmp_path / "train.tsv", index=False, sep="\t")
    other = frame.iloc[:4].assign(code=["01", "02", "01", "02"], price=["2.500"] * 4)
    other.to_csv(tmp_path / "other.tsv", index=False, sep="\t")
    new = other.assign(code="zz")
    new.to_csv(tmp_path / "new.tsv", index=False, sep="\t")

    def load(file):
        files = tmp_path / file, tmp_path / file
        source = table_fit.TableSource(tmp_path / "train.tsv", "y")
        return table_fit.load_tables(source, *files, seed=0)

    tables = load("other.tsv")
    assert tables.valid.inputs["price"].tolist() == [2500.0] * 4
    assert tables.test.inputs["code=01"].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert not any("code" in sentence for sentence in tables.surprises)
    assert not any("rows to learn from" in sentence for sentence in tables.surprises)
    (first, *_) = [s for s in load("new.tsv").surprises if "'code'" in s]
    assert "new.tsv: column 'code' has levels not seen in training in 4 rows" in first


def test_files_can_choose_the_restart_and_score(folder, tmp_path):
    source = table_fit.TableSource(folder / "houses.csv", "price", drop=["land"])
    other = folder / "new.csv"
    tables = table_fit.load_tables(source, other, other, seed=0)
    assert (len(tables.train), len(tables.valid), len(tables.test)) == (70, 20, 20)
    assert list(tables.train.inputs) == list(tables.test.inputs)
    (tmp_path / "other.csv").write_text("size,price\n1,2\n")
    result = run(
        *("fit", folder / "houses.csv", "--target", "price"),
        *("--test", tmp_path / "other.csv", "--out", tmp_path / "m.ncai"),
    )
    assert refused(result, "other.csv has no columns 'town', 'age', 'sold'")


@pytest.fixture
def trained_already(folder, monkeypatch):
    """`ncai fit` takes the model of the folder in place of training one."""

    def fit_table(tables, settings, command):
        return TableModel.load(folder / "h.ncai")

    monkeypatch.setattr(table_fit, "fit_table", fit_table)
    return "fit", folder / "houses.csv", "--target", "price"


@pytest.mark.usefixtures("trained_already")
def test_test_rows_are_predicted_once(folder, tmp_path, monkeypatch):
    """Scores, summary and report share the predictive distributions."""
    predicted, shared = [], []
    usual = BNNLVRegressor.predict_dist

    def predict_dist(model, rows):
        predicted.append(len(rows))
        return usual(model, rows)

    def write_report(path, inputs):
        shared.extend(Subject(inputs).on_eval.values())

    monkeypatch.setattr(BNNLVRegressor, "predict_dist", predict_dist)
    monkeypatch.setattr("ncai.report.write_report", write_report)
    files = ("--out", tmp_path / "m.ncai", "--report", tmp_path / "r.html")
    result = run("fit", folder / "houses.csv", "--target", "price", *files)
    assert result.exit_code == 0, result.stderr
    assert predicted == [10]
    assert len(shared) == 4  # the model and three baselines


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (ValueError("no score"), 2)]
)
def test_whatever_stops_the_scoring_the_model_is_kept(
    error, code, trained_already, folder, tmp_path, monkeypatch
):
    def stop(*_):
        raise error

    monkeypatch.setattr("ncai.tables.score.score_test_rows", stop)
    out = tmp_path / "m.ncai"
    result = run(*trained_already, "--out", out)
    assert result.exit_code == code
    assert f"the model is in {out}" in result.stderr
    assert str(error) in result.stderr
    assert run("predict", out, folder / "new.csv").exit_code == 0


def test_a_process_killed_while_it_scores_leaves_the_model(folder, tmp_path):
    """What only a file written before the scores can promise."""
    program = (
        "import os, signal, sys\n"
        "from ncai import TableModel\n"
        "from ncai.cli import app as cli\n"
        "from ncai.tables import fit, score\n"
        f"fit.fit_table = lambda *_: TableModel.load({str(folder / 'h.ncai')!r})\n"
        "score.score_test_rows = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "cli.main()\n"
    )
    out = tmp_path / "m.ncai"
    options = ("fit", folder / "houses.csv", "--target", "price", "--out", out)
    done = subprocess.run([sys.executable, "-c", program, *map(str, options)])
    assert done.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["m.ncai"]
    assert TableModel.load(out).record.target == "price"


def test_a_report_must_have_a_place(folder, tmp_path):
    usual = ["fit", folder / "houses.csv", "--target", "price"]
    usual += ["--out", tmp_path / "m.ncai"]
    (tmp_path / "r.html").write_text("mine")
    assert refused(run(*usual, "--report", tmp_path / "r.html"), "r.html", "--force")
    both = ("--out", tmp_path / "m.html", "--report", tmp_path / "m.html")
    assert refused(run(*usual, *both), "also --out")
    assert (tmp_path / "r.html").read_text() == "mine"


# ----- Predict ------------------------------------------------------------------------


def test_predictions_do_not_depend_on_the_pieces(folder, tmp_path, monkeypatch):
    options = ["--samples", 3, "--decompose", "--quantiles", "0.05"]
    texts = []
    for rows in (1000, 7):
        monkeypatch.setattr(table_io, "CHUNK_ROWS", rows)
        result = run("predict", folder / "h.ncai", folder / "houses.csv", *options)
        assert result.exit_code == 0, result.stderr
        texts.append(result.stdout)
    assert texts[0] == texts[1]
    header = texts[0].splitlines()[0].split(",")
    assert header[-3:] == ["sample_1", "sample_2", "sample_3"]
    assert len(texts[0].splitlines()) == 71


def test_predict_prepares_and_tells_what_is_new(folder, houses, tmp_path):
    new = houses.iloc[70:][["town", "sold", "age", "size"]].copy()
    usual = run("predict", folder / "h.ncai", folder / "new.csv")
    new.to_parquet(tmp_path / "turned.parquet")
    turned = run("predict", folder / "h.ncai", tmp_path / "turned.parquet")
    assert turned.stdout == usual.stdout
    new.iloc[2, 0] = "Rom"
    new.to_csv(tmp_path / "new.csv", index=False)
    result = run("predict", folder / "h.ncai", tmp_path / "new.csv")
    assert "'town' has levels not seen in training in 1 row" in result.stderr
    same = [a == b for a, b in zip(result.stdout, usual.stdout, strict=False)]
    assert not all(same)


def test_values_far_from_the_training_rows_are_told(folder, houses, tmp_path):
    far = houses.iloc[70:].assign(size=5000.0)
    far.to_csv(tmp_path / "far.csv", index=False)
    result = run("predict", folder / "h.ncai", tmp_path / "far.csv")
    assert result.exit_code == 0
    assert "'size' lies far outside its training values (" in result.stderr
    assert "in 20 rows: predictions there are guesses." in result.stderr
    near = run("predict", folder / "h.ncai", folder / "houses.csv")
    assert "far outside" not in near.stderr


def test_few_rows_are_taken_with_a_warning(houses, tmp_path):
    houses.iloc[:6].to_csv(tmp_path / "few.csv", index=False)
    source = table_fit.TableSource(tmp_path / "few.csv", "price")
    tables = table_fit.load_tables(source, valid=None, test=0.1, seed=0)
    (told,) = tables.surprises
    assert "few.csv: 6 rows to learn from" in told


@pytest.mark.parametrize(("spread", "warned"), [(1.0, False), (3.0, True)])
def test_a_std_made_by_rare_draws_is_told(folder, monkeypatch, spread, warned):
    """Of a log-normal: its std is 1.2 and 89 times what its interval tells of."""

    class LogNormal:
        def starting_at(self, row):
            return self

        def mean(self):
            return np.full(20, np.exp(spread**2 / 2))

        def std(self):
            return stats.lognorm.std(spread) * np.ones(20)

        def quantile(self, levels):
            return np.tile(stats.lognorm.ppf(levels, spread), (20, 1))

    monkeypatch.setattr(BNNLVRegressor, "predict_dist", lambda *_: LogNormal())
    result = run("predict", folder / "h.ncai", folder / "new.csv")
    assert result.exit_code == 0, result.stderr
    assert ("in 20 of 20 rows a few rare draws" in result.stderr) == warned
    low = run("predict", folder / "h.ncai", folder / "new.csv", "--level", "0.5")
    assert "rare draws" not in low.stderr  # half of the mass says nothing of tails


def test_predict_reads_standard_input(folder):
    content = (folder / "new.csv").read_bytes()
    piped = run("predict", folder / "h.ncai", "-", input=content)
    assert piped.stdout == run("predict", folder / "h.ncai", folder / "new.csv").stdout


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device")])
def test_a_full_disk_leaves_the_old_file(error, folder, tmp_path, monkeypatch):
    (tmp_path / "p.csv").write_text("old")
    count = iter(range(10))
    usual = pd.DataFrame.to_csv

    def fill(*arguments, **options):
        if next(count) > 0:
            raise error
        return usual(*arguments, **options)

    monkeypatch.setattr(table_io, "CHUNK_ROWS", 7)
    monkeypatch.setattr(pd.DataFrame, "to_csv", fill)
    out = ["--out", tmp_path / "p.csv", "--force"]
    result = run("predict", folder / "h.ncai", folder / "new.csv", *out)
    assert refused(result, "cannot write", "p.csv", "No space left")
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]
    assert (tmp_path / "p.csv").read_text() == "old"


def test_a_full_disk_while_a_model_is_written(folder, tmp_path, monkeypatch):
    model = BNNLVRegressor.load(folder / "h.ncai")

    def fill(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fill)
    with pytest.raises(OSError, match=r"cannot write .*m.ncai: No space left"):
        model.save(tmp_path / "m.ncai")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_standard_output_is_one_sentence(folder):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ncai", "inspect", folder / "h.ncai"],
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert done.returncode == 2
    assert done.stderr == b"Error: No space left on device.\n"
    device = run("predict", folder / "h.ncai", "x.csv", "--out", "/dev/full", "--force")
    assert refused(device, "not a file that can be replaced")


# ----- Evaluate, diagnose, inspect ----------------------------------------------------


def test_evaluate_scores_as_the_estimator_does(folder, houses):
    result = run("evaluate", folder / "h.ncai", folder / "new.csv", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["rows"], found["target"]) == (20, "price")
    model = TableModel.load(folder / "h.ncai")
    with pytest.warns(UserWarning, match="column 'sold' lies far outside"):
        predictive = model.predict_dist(houses.iloc[70:])
    value = found["metrics"]["log_likelihood"]
    expected = predictive.log_prob(houses["price"].iloc[70:]).mean()
    assert value["value"] == pytest.approx(expected, rel=1e-5)
    assert value["lower_95"] < value["value"] < value["upper_95"]
    shown = run("evaluate", folder / "h.ncai", folder / "new.csv")
    for text in ("CRPS", "in the 95% interval", "Calibration"):
        assert text in shown.stdout


def test_one_row_tells_nothing_of_calibration(folder, houses, tmp_path):
    houses.iloc[:1].to_csv(tmp_path / "one.csv", index=False)
    shown = run("evaluate", folder / "h.ncai", tmp_path / "one.csv")
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.split("\n")[0].strip() == "price, 1 row"
    assert "Calibration: 1 row is too few to judge" in shown.stdout


def test_evaluate_needs_the_target(folder, houses, tmp_path):
    houses.drop(columns="price").to_csv(tmp_path / "t.csv", index=False)
    result = run("evaluate", folder / "h.ncai", tmp_path / "t.csv")
    assert refused(result, "no column 'price'")
    assert refused(run("evaluate", folder / "h.ncai", tmp_path / "no.csv"), "no file")
    assert refused(run("evaluate", tmp_path / "t.csv", folder / "new.csv"), "readable")


def test_an_input_is_no_target_to_evaluate_by(folder):
    result = run("evaluate", folder / "h.ncai", folder / "new.csv", "--target", "age")
    assert refused(result, "--target age is an input of", "which predicts price")


def test_evaluate_takes_a_model_of_arrays(folder, houses, tmp_path):
    rows = houses[["size", "price"]]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    quick = {"max_steps": 20, "n_restarts": 2, "random_state": 0}
    model = BNNLVRegressor(inference=MFVI(n_weight_draws=16), **quick)
    model.fit(rows[["size"]].to_numpy(), rows["price"]).save(tmp_path / "a.ncai")
    arguments = ("evaluate", tmp_path / "a.ncai", tmp_path / "rows.csv")
    result = run(*arguments, "--target", "price", "--json", "--bootstrap", "100")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["rows"] == len(rows)


def test_json_has_null_for_what_it_cannot_say():
    found = {"a": [1.0, float("nan")], "b": {"c": (float("inf"), "x")}, "d": None}
    plain = {"a": [1.0, None], "b": {"c": [None, "x"]}, "d": None}
    assert without_infinity(found) == plain


def test_diagnose_needs_no_training_rows(folder):
    found = json.loads(run("diagnose", folder / "h.ncai", "--json").stdout)
    assert found == fitted(folder)["diagnosis"]
    shown = run("diagnose", folder / "h.ncai").stdout
    assert found["independence_verdict"] in shown


def test_diagnose_says_what_is_missing(folder, tmp_path):
    model = BNNLVRegressor.load(folder / "h.ncai")
    model.save(tmp_path / "bare.ncai")
    result = run("diagnose", tmp_path / "bare.ncai")
    assert refused(result, "neither a diagnosis nor the training rows")
    assert refused(run("diagnose", folder / "new.csv"), "not a readable ncai model")


def test_inspect_tells_all_without_loading_jax(folder):
    program = (
        "import sys\n"
        "from ncai.cli.app import app\n"
        f"app(['inspect', {str(folder / 'h.ncai')!r}], standalone_mode=False)\n"
        "heavy = {'jax', 'sklearn', 'pandas', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    for text in (
        b"price",
        b"town=Ulm",
        b"a number, used as it is",
        b"jax 0",
        b"Linear",
        b"54 trained on, 6 to choose among restarts, 10 held out",
    ):
        assert text in done.stdout
    found = json.loads(run("inspect", folder / "h.ncai", "--json").stdout)
    assert found["settings"]["inference"] == "mfvi"
    assert found["scores"] == fitted(folder)["scores"]


def test_inspect_shows_the_settings_that_a_preset_filled_in(
    tmp_path, monkeypatch, short_fits
):
    rng = np.random.default_rng(0)
    x = rng.uniform(size=60)
    rows = pd.DataFrame({"row_id": np.arange(60), "x": x, "y": np.exp(rng.normal(x))})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    handed = []
    monkeypatch.setattr(
        "ncai.report.write_report", lambda _, given: handed.append(given)
    )
    out = ("--out", tmp_path / "m.ncai", "--report", tmp_path / "r.html")
    # More steps than the time is enough for, more time than reading takes.
    steps = ("--max-steps", 2_000_000, "--time-limit", "2s", "--restarts", 2)
    told = run("fit", tmp_path / "rows.csv", "--target", "y", *out, *steps, "--seed", 7)
    assert told.exit_code == 0, told.stderr
    found = json.loads(run("inspect", tmp_path / "m.ncai", "--json").stdout)
    settings = found["settings"]
    assert (settings["inference"], settings["hidden"]) == ("marginal", [50, 50])
    assert settings["max_steps"] == 2_000_000
    transform = settings["target_transform"]
    assert transform in ("none", "log")
    assert found["seed"] == 7
    assert "'row_id' looks like a row number" in found["warnings"][0]
    assert "'row_id' looks like a row number" in told.stderr
    assert handed[0].data_warnings == found["warnings"]
    shown = " ".join(run("inspect", tmp_path / "m.ncai").stdout.split())
    assert "inference=marginal, preset=default, hidden=50,50, activation=silu" in shown
    assert "hz_weight" not in shown
    assert "Seed 7 Rows" in shown
    assert "Warnings column 'row_id' looks like" in shown
    # What was learned, and that time ran out, stand in the summary of the fit too.
    words = {"none": "learned as it is", "log": "learned as its logarithm"}[transform]
    assert f"Target y, {words}" in shown
    for text in (shown, " ".join(told.stdout.split())):
        assert words in text
        assert "the time limit cut training short, after" in text


def test_only_a_cut_of_the_training_itself_is_told():
    trial = "trial marginal: time limit after 9 steps"
    assert cut_short([trial, "marginal: plateau after 100 steps"], 109) is None
    assert cut_short(["elbo: step limit after 100 steps"], 100) is None
    assert "short, after 9 steps:" in cut_short([trial], 9)
    assert "short, after 40 draws:" in cut_short(["hmc: time limit after 40 draws"], 9)
    assert "nothing was learned" in cut_short([], 0)
    assert cut_short([], None) is None  # a file that does not say


@pytest.mark.parametrize(
    "content", [b"", b"abc", b"\xff" * 40, b"\x02" + b"\0" * 7 + b"[]"]
)
def test_inspect_refuses_other_files(content, tmp_path):
    (tmp_path / "m.ncai").write_bytes(content)
    assert refused(run("inspect", tmp_path / "m.ncai"), "not a readable ncai model")
    assert refused(run("inspect", tmp_path / "none"), "no model file")


def test_inspect_refuses_damage(folder, tmp_path):
    whole = bytearray((folder / "h.ncai").read_bytes())
    flipped = whole.copy()
    flipped[-5] ^= 255
    renamed = whole.replace(b"price", b"prize")
    for content in (whole[:-40], flipped, renamed):
        (tmp_path / "m.ncai").write_bytes(content)
        assert refused(run("inspect", tmp_path / "m.ncai"), "damaged")


# ----- Compare ------------------------------------------------------------------------


class Constant:
    name, package = "Constant", "none"

    def fit(self, inputs, targets):
        self.rows = len(inputs)
        from ncai.comparison.baselines import MarginalDensity

        self.model = MarginalDensity().fit(inputs, targets)
        return self

    def predict(self, inputs):
        return self.model.predict(inputs)


class Broken(Constant):
    name = "Broken"

    def fit(self, inputs, targets):
        raise RuntimeError("it broke")


def test_compare_writes_table_figure_and_scores(folder, tmp_path, monkeypatch):
    methods = [Constant(), Broken()]
    monkeypatch.setattr(compare, "choose_methods", lambda *_: (methods, ["CatBoost"]))
    result = run(
        *("compare", folder / "houses.csv", "--target", "price", "--folds", 3),
        *("--out", tmp_path / "c.json", "--figure", tmp_path / "c.png"),
    )
    assert result.exit_code == 0, result.stderr
    assert "CatBoost is not installed: pip install 'ncai[compare]'" in result.stderr
    assert "Warning: Broken failed in fold 1: it broke" in result.stderr
    assert "Constant" in result.stdout
    found = json.loads((tmp_path / "c.json").read_text())
    good = [row for row in found["folds"] if row["method"] == "Constant"]
    assert [row["fold"] for row in good] == [1, 2, 3]
    mean = np.mean([row["crps"] for row in good])
    assert found["summary"][0]["crps"] == pytest.approx(mean)
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_compare_fits_our_own_methods(folder, tmp_path):
    result = run(
        *("compare", folder / "houses.csv", "--target", "price", "--folds", 2),
        *("--methods", "MFVI", "--preset", "paper", "--hidden", "5"),
        *("--max-steps", 20, "--restarts", 2, "--json"),
        *("--figure", tmp_path / "c.png", "--out", tmp_path / "c.csv"),
    )
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout)
    assert (found["method"], found["folds"]) == ("MFVI", 2)
    assert np.isfinite(found["log_likelihood"])
    scores = pd.read_csv(tmp_path / "c.csv")
    assert list(scores["fold"]) == [1, 2]
    assert found["crps"] == pytest.approx(scores["crps"].mean())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--methods", "magic"], ["--methods 'magic' must be among", "NCAI"]),
        (["--folds", "1"], ["--folds 1 must be from 2"]),
        (["--target", "rent"], ["no column 'rent'"]),
        (["--hidden", "x", "--methods", "BNN"], ["--hidden 'x'"]),
        (["--out", "c.xlsx"], ["must end in .csv or .json"]),
    ],
)
def test_compare_refuses(options, words, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ncai.comparison.peers.PEERS", ())
    result = run("compare", folder / "houses.csv", "--target", "price", *options)
    assert refused(result, *words)
    assert not list(tmp_path.iterdir())
