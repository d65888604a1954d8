"""The commands that read a model file: predict, evaluate, inspect and diagnose."""

import errno
import gzip
import io
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from helpers import refused, run
from ncai import MFVI, BNNLVRegressor, TableModel
from ncai.tables import read as table_io


def predictions(text):
    return pd.read_csv(io.StringIO(text))


def test_predict_finds_columns_by_name(trained, table, tmp_path):
    folder, _ = trained
    usual = run("predict", folder / "m.ncai", folder / "data.csv")
    assert usual.exit_code == 0
    assert usual.stderr == "Ignored columns: id, y\n"
    found = predictions(usual.stdout)
    assert list(found.columns) == ["mean", "std", "lower_95", "upper_95"]
    assert len(found) == len(table)
    assert (found["lower_95"] < found["mean"]).all()
    assert (found["mean"] < found["upper_95"]).all()

    table[["b", "a"]].to_csv(tmp_path / "turned.tsv", sep="\t", index=False)
    turned = run("predict", folder / "m.ncai", tmp_path / "turned.tsv")
    assert (turned.stdout, turned.stderr) == (usual.stdout, "")


def test_predict_adds_what_is_asked_for(trained, tmp_path):
    folder, _ = trained
    (tmp_path / "p.csv.gz").write_text("old")
    result = run(
        *("predict", folder / "m.ncai", folder / "data.csv", "--level", 0.9),
        *("--quantiles", "0.05,0.5,0.975", "--decompose"),
        *("--out", tmp_path / "p.csv.gz", "--force"),
    )
    assert (result.exit_code, result.stdout) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv.gz"]
    found = predictions(gzip.decompress((tmp_path / "p.csv.gz").read_bytes()).decode())
    assert list(found.columns) == [
        *("mean", "std", "lower_90", "upper_90"),
        *("q05", "q50", "q97.5", "total", "aleatoric", "epistemic"),
        *("split_error", "unstable"),
    ]
    np.testing.assert_allclose(found["q05"], found["lower_90"], rtol=1e-5)
    added = found["aleatoric"] + found["epistemic"]
    np.testing.assert_allclose(added, found["total"], rtol=1e-4)
    # The same numbers as in Python.
    model = TableModel.load(folder / "m.ncai")
    parts = model.predict_dist(pd.read_csv(folder / "data.csv")).decompose()
    np.testing.assert_allclose(found["epistemic"], parts.epistemic, rtol=1e-4)
    assert found["unstable"].tolist() == parts.unstable.tolist()


def test_fine_levels_have_columns_of_their_own(trained):
    folder, _ = trained
    options = ("--level", 0.9999, "--quantiles", "0.0001,0.1234567,0.12345678,0.9999")
    found = run("predict", folder / "m.ncai", folder / "data.csv", *options)
    assert list(predictions(found.stdout).columns[2:]) == [
        *("lower_99.99", "upper_99.99"),
        *("q00.01", "q12.34567", "q12.345678", "q99.99"),
    ]


def test_python_predicts_what_the_command_does(trained, table):
    folder, _ = trained
    model = TableModel.load(folder / "m.ncai")
    result = run("predict", folder / "m.ncai", folder / "data.csv", "--out", "-")
    found = model.predict(table)
    np.testing.assert_allclose(predictions(result.stdout)["mean"], found, rtol=1e-5)
    estimator = BNNLVRegressor.load(folder / "m.ncai")
    with pytest.raises(ValueError, match=r"ncai\.TableModel\.load"):
        estimator.predict(table)
    np.testing.assert_array_equal(estimator.predict(table[["a", "b"]]), found)


def test_predict_refuses_what_it_cannot_use(trained, table, tmp_path):
    folder, _ = trained
    model, data = folder / "m.ncai", folder / "data.csv"
    (tmp_path / "broken.ncai").write_bytes(model.read_bytes()[:500])
    table[["a", "y"]].to_csv(tmp_path / "foreign.csv", index=False)
    (tmp_path / "text.csv").write_text("a,b\n1,2\nred,3\n")
    out = ["--out", tmp_path / "p.csv"]
    before = sorted(tmp_path.iterdir())
    assert refused(run("predict", tmp_path / "broken.ncai", data, *out), "broken.ncai")
    assert refused(run("predict", data, data, *out), "data.csv")
    assert refused(run("predict", tmp_path / "none", data, *out), "no model file")
    assert refused(run("predict", tmp_path, data, *out), "is a folder, not a model")
    assert refused(run("predict", model, tmp_path, *out), "is a folder, not a table")
    assert refused(run("predict", model, tmp_path / "no.csv", *out), "no file")
    foreign = run("predict", model, tmp_path / "foreign.csv", *out)
    assert refused(foreign, "no column 'b'")
    text = run("predict", model, tmp_path / "text.csv", *out)
    assert refused(text, "'red' in row 2", "finite numbers only")
    assert refused(run("predict", model, data, *out, "--level", "95"), "--level")
    assert refused(run("predict", model, data, *out, "--quantiles", "5"), "0.05")
    assert sorted(tmp_path.iterdir()) == before


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


def fitted(folder):
    return json.loads((folder / "fit.json").read_text())


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
        b"54 to train on, 6 to choose among restarts, 10 held out",
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
