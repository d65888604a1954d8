"""The command, its options, and what fit, compare and demo show and leave on disk."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers import QUICK, refused, run
from ncai import BNNLVRegressor, TableModel, __version__
from ncai.cli import _options as options
from ncai.cli import demo
from ncai.cli._options import without_infinity
from ncai.cli.demo import PICTURE, REPORT
from ncai.preprocessing.table_preparer import TablePreparer
from ncai.report.subject import Subject
from ncai.tables import compare
from ncai.tables import fit as table_fit
from ncai.training.driver import FitFailedError

COMMANDS = ("demo", "fit", "predict", "evaluate", "diagnose", "inspect", "compare")
COMMANDS = (*COMMANDS, "datasets", "datasets list", "datasets get", "bench")
COMMANDS = (*COMMANDS, "bench quality", "study", "study run", "study status")
COMMANDS = (*COMMANDS, "study tables", "study figures", "study report")


@pytest.mark.parametrize("command", [[], *(name.split() for name in COMMANDS)])
def test_help_shows_an_example(command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert f"Example:\n    ncai {' '.join(command)}" in result.stdout


def test_version():
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"ncai {__version__}\n")


@pytest.mark.parametrize(
    ("words", "place", "wanted"),
    [("ncai ins", 1, "inspect"), ("ncai fit --tar", 2, "--target")],
)
def test_the_shell_completes(words, place, wanted):
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(place)}
    result = run(env={"_NCAI_COMPLETE": "complete_bash", **asked}, prog_name="ncai")
    assert result.stdout.split() == [wanted]


def test_import_and_help_load_nothing_heavy():
    program = (
        "import sys, ncai\n"
        "from ncai.cli.app import app\n"
        f"for command in {COMMANDS!r}:\n"
        "    app([*command.split(), '--help'], standalone_mode=False)\n"
        "heavy = {'jax', 'sklearn', 'pandas', 'scipy', 'matplotlib', 'numpy'}\n"
        "sys.exit(f'loaded: {heavy & set(sys.modules)}' "
        "if heavy & set(sys.modules) else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_usage_errors_exit_with_2():
    result = run("fit", "data.csv")
    assert result.exit_code == 2
    assert "--target" in result.stderr


def test_a_reader_that_leaves_is_no_error():
    program = (
        "from ncai.cli import app as cli\n"
        "def flood():\n    print('y' * 10**6)\n"
        "cli._add_command(flood, [])\n"
        "cli.app(['flood'])\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    child.stdout.close()
    with child.stderr:
        assert child.stderr.read() == b""
    assert child.wait() == 141


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


def test_json_has_null_for_what_it_cannot_say():
    found = {"a": [1.0, float("nan")], "b": {"c": (float("inf"), "x")}, "d": None}
    plain = {"a": [1.0, None], "b": {"c": [None, "x"]}, "d": None}
    assert without_infinity(found) == plain


@pytest.mark.parametrize(
    ("text", "seconds"), [(None, None), ("90", 90), ("60s", 60), ("1.5m", 90)]
)
def test_durations(text, seconds):
    assert options.parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, None),
        ("a, b,,c ", ["a", "b", "c"]),
        ('a,"b, c"', ["a", "b, c"]),
        ("""town's "name",b""", ["""town's "name\"""", "b"]),
        ("", []),
    ],
)
def test_names_between_commas(text, names):
    assert options.parse_names(text) == names


def test_a_name_with_a_comma_can_be_given(table, tmp_path):
    table.rename(columns={"b": "b, old"}).to_csv(tmp_path / "t.csv", index=False)
    usual = ("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m.ncai")
    # Found, since what is refused is only the target.
    assert refused(run(*usual, "--features", 'a,"b, old",y'), "the target 'y'")
    assert refused(run(*usual, "--drop", '"b, old",y'), "--drop", "the target 'y'")
    assert refused(run(*usual, "--drop", '"b, old'), "must be names between commas")


def test_no_command_replaces_a_file_unasked(data, tmp_path):
    (tmp_path / "kept.csv").write_text("mine")
    out = ["--out", tmp_path / "kept.csv"]
    assert refused(run("fit", data, "--target", "y", *out), "kept", "--force")
    assert refused(run("predict", "m.ncai", data, *out), "kept", "--force")
    assert (tmp_path / "kept.csv").read_text() == "mine"
    same = run("fit", data, "--target", "y", "--out", data, "--force")
    assert refused(same, "also an input")


def test_a_name_must_say_what_is_written(data, tmp_path):
    predict = run("predict", "m.ncai", data, "--out", tmp_path / "p.xlsx")
    assert refused(predict, "--out", "p.xlsx must end in .csv,", "or .pq.")
    fit = ("fit", data, "--target", "y", "--out", tmp_path / "m.ncai")
    report = run(*fit, "--report", tmp_path / "r.pdf")
    assert refused(report, "--report", "r.pdf must end in .html or .htm.")
    figure = ("--figure", tmp_path / "c.pdf")
    compared = run("compare", data, "--target", "y", *figure)
    assert refused(compared, "--figure", "c.pdf must end in .png.")
    assert not list(tmp_path.iterdir())


def test_fit_refuses_a_place_it_cannot_write(data, tmp_path, monkeypatch):
    nowhere = run("fit", data, "--target", "y", "--out", tmp_path / "no" / "m.ncai")
    assert refused(nowhere, "m.ncai: the folder", "does not exist")
    assert refused(run("fit", data, "--target", "y", "--out", tmp_path), "a folder")

    def forbid(*_, **__):
        raise PermissionError(13, "Permission denied", ".m.ncai.1f")

    # Told before the table is read, in words about the place that was asked for.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(options.Path, "touch", forbid)
    result = run("fit", "none.csv", "--target", "y", "--out", "m.ncai")
    sentence = f"cannot write m.ncai: the folder {tmp_path} is not yours to change."
    assert refused(result, sentence)


def test_places_and_lists_that_cannot_be_are_told(data, tmp_path, monkeypatch):
    there = tmp_path / "there.json"
    there.write_text("mine")
    demo = run("demo", "--out", there)
    assert refused(demo, "there.json is a file; name a folder.")
    fit = run("fit", data, "--target", "y", "--out", "-")
    assert refused(fit, "--out -", "file")
    compare = run("compare", data, "--target", "y", "--methods", "")
    assert refused(compare, "--methods is empty")
    assert refused(run("bench", "--out", there), "there.json exists; use --force")
    assert there.read_text() == "mine"

    def forbid(*_, **__):
        raise PermissionError(13, "Permission denied", "secret.ncai")

    (tmp_path / "secret.ncai").write_bytes(b"")
    monkeypatch.setattr("ncai.estimators.model_file.Path.open", forbid)
    secret = run("inspect", tmp_path / "secret.ncai")
    assert refused(secret, "secret.ncai: Permission denied.")


def test_quick_demo_prints_a_table_and_writes_picture_and_report(tmp_path):
    folder = tmp_path / "new" / "folder"
    result = run("demo", "--quick", "--out", folder)
    assert result.exit_code == 0, result.stderr
    for text in ("BNN+LV, MFVI", "BNN+LV, NCAI", "White noise", "coverage"):
        assert text in result.stdout
    assert "3 of 3" in result.stderr
    assert sorted(path.name for path in folder.iterdir()) == [PICTURE, REPORT]
    assert (folder / PICTURE).read_bytes().startswith(b"\x89PNG")
    page = (folder / REPORT).read_text()
    # NCAI is the subject; the others and the truth can be switched on.
    shown = re.findall(r'id="show-(\w+)" (checked)?> <span>([^<]+)</span>', page)
    assert shown == [
        ("m0", "checked", "NCAI"),
        ("m1", "", "MFVI"),
        ("m2", "", "BNN"),
        ("truth", "", "Truth"),
    ]
    assert "ncai demo --seed 0 --quick" in page
    # The table and the report tell the same scores.
    for name in ("BNN", "BNN+LV, MFVI", "BNN+LV, NCAI"):
        (line,) = [s for s in result.stdout.splitlines() if f" {name} " in s]
        score = re.search(r"[-\u2212]\d+\.\d{3}", line).group()
        assert f">{score.replace('-', chr(0x2212))}</td>" in page


def test_demo_replaces_no_file_unasked(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(demo, "run_demo", lambda out, *_: asked.append(out) or [])
    monkeypatch.setattr(demo, "table", lambda rows: "")
    (tmp_path / REPORT).write_text("mine")
    assert refused(run("demo", "--quick", "--out", tmp_path), REPORT, "--force")
    assert not asked
    assert run("demo", "--quick", "--out", tmp_path, "--force").exit_code == 0
    assert asked == [tmp_path]


class Constant:
    name, package = "Constant", "none"

    def fit(self, inputs, targets):
        self.rows = len(inputs)
        from ncai.comparison import MarginalDensity

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


@pytest.mark.usefixtures("few_draws")
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
    monkeypatch.setattr("ncai.comparison.PEERS", ())
    result = run("compare", folder / "houses.csv", "--target", "price", *options)
    assert refused(result, *words)
    assert not list(tmp_path.iterdir())


def fitted(folder):
    return json.loads((folder / "fit.json").read_text())


def test_fit_tells_what_it_did(trained):
    folder, result = trained
    assert (folder / "m.ncai").is_file()
    for text in (
        *("2 inputs", "a number, used as it is", "45 to train on"),
        *("5 to choose", "10 held out", "step limit", "Latent", "Verdict"),
        *("Linear, constant noise", "Network, constant noise", "Density of y alone"),
    ):
        assert text in result.stdout
    assert f"Model: {folder / 'm.ncai'}" in result.stdout
    assert result.stderr == ""


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


def test_a_report_must_have_a_place(folder, tmp_path):
    usual = ["fit", folder / "houses.csv", "--target", "price"]
    usual += ["--out", tmp_path / "m.ncai"]
    (tmp_path / "r.html").write_text("mine")
    assert refused(run(*usual, "--report", tmp_path / "r.html"), "r.html", "--force")
    both = ("--out", tmp_path / "m.html", "--report", tmp_path / "m.html")
    assert refused(run(*usual, *both), "also --out")
    assert (tmp_path / "r.html").read_text() == "mine"


BAD_TABLES = {
    "text.csv": ("a,y\n1,2\n2,red\n3,4\n", ["'y'", "'red'", "row 2", "numbers"]),
    "gap.csv": (
        "a,y\n1,2\n2,\n3,4\n",
        ["'y'", "1 missing value, in row 2", "fill it in or remove that row."],
    ),
    "gap_y.csv": (
        "a,y\n1,2\n2,\n3,NA\n",
        ["'y'", "2 missing values", "row 2", "fill them in or remove those rows."],
    ),
    "yes.csv": ("a,y\n2,True\n3,False\n4,True\n", ["'y'", "'True'"]),
    "inf.csv": ("a,y\n1,2\ninf,3\n3,4\n", ["'a'", "'inf'", "row 2"]),
    "inf_y.csv": ("a,y\n1,2\n3,inf\n3,4\n", ["'y'", "'inf'", "row 2"]),
    "huge.csv": ("a,y\n1,2\n1e300,3\n3,4\n", ["'a'", "row 2", "below 1e+100 only"]),
    "huge_y.csv": ("a,y\n1,2\n2,1e300\n", ["'y'", "row 2", "below 1e+100 only"]),
    "comma_y.csv": (
        'a,y\n1,"1,5"\n2,"2,25"\n3,"7"\n',
        ["'y'", "'1,5' in row 1", "a decimal comma", "1234.5"],
    ),
    "euro_y.csv": ("a,y\n1,€5\n2,€6\n", ["looks like numbers with '€'"]),
    "flat.csv": ("a,y\n1,2\n1,3\n1,4\n", ["no column is left", "constant"]),
    "names.parquet": ("a,y\n1,2\n", ["cannot be read as Parquet"]),
    "other.csv": ("a,b\n1,2\n2,3\n", ["no column 'y'", "'a', 'b'"]),
    "utf32.csv": ("a,y\n1,2\n".encode("utf-32"), ["not text in UTF-8"]),
    "bare16.csv": ("a,y\n1,2\n".encode("utf-16-le"), ["not text in UTF-8"]),
    "double.csv": ("a,a,y\n1,2,3\n1,2,3\n", ["two columns named 'a'"]),
    "nameless.csv": ("a,,y\n1,2,3\n1,2,3\n", ["no name for column 2"]),
    "long.csv": ("a,y\n1,2,3\n1,2,3\n", ["more values"]),
    "ragged.csv": ("a,y\n1,2\n1,2,3\n", ["line 3 of", "more values"]),
    "binary.csv": ("a,y\n\0\1\2\n", ["not text in UTF-8"]),
    "latin.csv": (b"a,y\n1,\xe9\n", ["not text in UTF-8"]),
    "quote.csv": ('a,y\n1,"2\n', ["cannot be read as a table: EOF"]),
    "empty.csv": ("", ["empty"]),
    "header.csv": ("a,y\n", ["no rows"]),
    "short.csv": ("a,y\n1,2\n", ["1 row;", "at least 3"]),
    "alone.csv": ("y\n1\n2\n3\n", ["no column left"]),
    "table.xlsx": ("a,y\n1,2\n", ["must end in", ".csv"]),
    "plain.csv.gz": ("a,y\n1,2\n", ["cannot be read"]),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_fit_refuses_a_bad_table(name, tmp_path):
    text, words = BAD_TABLES[name]
    content = text if isinstance(text, bytes) else text.encode()
    (tmp_path / name).write_bytes(content)
    result = run("fit", tmp_path / name, "--target", "y", "--out", tmp_path / "m.ncai")
    assert refused(result, name, *words)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--inference", "magic"], ["--inference 'magic' must", "'ncai'"]),
        (["--preset", "none"], ["--preset 'none'"]),
        (["--hidden", "wide"], ["--hidden", "50,50"]),
        (["--hidden", "0"], ["--hidden '0'", "at least 1"]),
        (["--time-limit", "soon"], ["--time-limit", "5m"]),
        (["--valid", "1.5"], ["--valid 1.5 must"]),
        (["--valid", "0.99"], ["--valid 0.99", "at least 5"]),
        (["--valid", "0.001"], ["--valid 0.001", "at least 5"]),
        (["--latent-dim", "-1"], ["--latent-dim -1 must"]),
        (["--restarts", "0"], ["--restarts 0 must"]),
        (["--max-steps", "0"], ["--max-steps 0 must"]),
        (
            ["--inference", "hmc_marginal", "--latent-dim", "3"],
            ["--inference 'hmc_marginal' integrates", "for --latent-dim of at most 2"],
        ),
        (["--seed", "-1"], ["--seed"]),
        (["--features", "a,c"], ["no column 'c'"]),
        (["--features", "a,y"], ["target 'y'"]),
        (["--drop", "c"], ["no column 'c'"]),
        (["--drop", "id,y"], ["--drop ['id', 'y']", "the target 'y'"]),
    ],
)
def test_fit_refuses_a_bad_option(options, words, data, tmp_path):
    out = ["--out", tmp_path / "m.ncai"]
    assert refused(run("fit", data, "--target", "y", *out, *options), *words)
    assert not list(tmp_path.iterdir())


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


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            KeyboardInterrupt(),
            130,
            "Stopped before anything was trained; no model was written.\n",
        ),
        (FitFailedError("all restarts failed."), 2, "Error: all restarts failed.\n"),
    ],
)
def test_a_fit_that_ends_early_leaves_nothing(
    error, code, words, data, tmp_path, monkeypatch
):
    def stop(*_):
        raise error

    monkeypatch.setattr(table_fit, "fit_table", stop)
    out = ["--out", tmp_path / "m.ncai"]
    result = run("fit", data, "--target", "y", *out, "--drop", "id", "--quiet")
    assert result.exit_code == code
    assert result.stderr == words
    assert not list(tmp_path.iterdir())


def test_a_quiet_fit_still_warns_that_time_was_short(data, tmp_path):
    result = run(
        *("fit", data, "--target", "y", "--drop", "id", "--out", tmp_path / "m.ncai"),
        *("--quiet", *QUICK, "--max-steps", 5000, "--time-limit", "0.001s"),
    )
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert "Warning: the time limit" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_amid_training_leaves_whole_files(number, data, tmp_path):
    """Ctrl-C keeps the best so far; an end from outside keeps what was there."""
    program = (
        "import sys\n"
        "from ncai.cli import app as cli\n"
        "from ncai.training import driver as optimise\n"
        "usual = optimise.Driver._record\n"
        "def record(driver, *what):\n"
        "    usual(driver, *what)\n"
        "    if driver.has_fit:\n"
        "        print('trained', file=sys.stderr, flush=True)\n"
        "optimise.Driver._record = record\n"
        "cli.main()\n"
    )
    out = tmp_path / "m.ncai"
    out.write_text("old")
    options = ["--max-steps", 10**7, "--out", out, "--force", "--drop", "id"]
    options = ["fit", data, "--target", "y", *QUICK, *options]
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        for line in child.stderr:
            if line == "trained\n":
                break
        child.send_signal(number)
        shown, told = child.communicate(timeout=120)
    assert [path.name for path in tmp_path.iterdir()] == ["m.ncai"]
    assert "Traceback" not in told
    if number == signal.SIGTERM:
        assert child.returncode == -signal.SIGTERM
        assert out.read_text() == "old"
        return
    assert child.returncode == 130, told
    assert "interrupted after" in shown
    assert f"Model: {out}" in shown
    assert run("predict", out, data).exit_code == 0


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
@pytest.mark.parametrize("slow", ["typer", "pandas"])
def test_ctrl_c_amid_imports_leaves_one_word(slow, tmp_path):
    """While the command itself is imported, and while it imports what it needs."""
    sleeping = "import time\nprint('importing', flush=True)\ntime.sleep(60)\n"
    # As a compiled module does: it hides the exception behind one of its own.
    hiding = "try:\n" + "".join(f"    {line}\n" for line in sleeping.splitlines())
    hiding += "except BaseException:\n    raise ImportError('cut off') from None\n"
    (tmp_path / f"{slow}.py").write_text(hiding)
    table = tmp_path / "t.csv"
    table.write_text("x,y\n1,2\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    options = ["fit", table, "--target", "y", "--out", tmp_path / "m.ncai"]
    with subprocess.Popen(
        [sys.executable, "-m", "ncai", *map(str, options)],
        env=os.environ | {"PYTHONPATH": path.rstrip(os.pathsep)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout.readline() == "importing\n"
        child.send_signal(signal.SIGINT)
        shown, told = child.communicate(timeout=60)
    assert (shown, told, child.returncode) == ("", "Stopped.\n", 130)


def test_names_do_not_steer_the_terminal(table, tmp_path):
    evil = "a\x1b]0;owned\x07\x1b[2J\u202e"
    frame = table.rename(columns={"a": evil}).assign(note=["\x1b[8m"] * 60)
    frame.to_csv(tmp_path / "t.csv", index=False)
    out, steps = tmp_path / "m.ncai", ("--max-steps", 1, "--restarts", 1)
    fit = ("fit", tmp_path / "t.csv", "--target", "y", *QUICK, *steps, "--out", out)
    for arguments in (
        fit,
        ("inspect", out),
        ("predict", out, tmp_path / "t.csv", "--out", tmp_path / "p.csv"),
        ("fit", tmp_path / "t.csv", "--target", "none", "--out", tmp_path / "n.ncai"),
    ):
        result = run(*arguments)
        shown = result.stdout + result.stderr
        assert not set(shown) & set("\x1b\x07\u202e"), shown
        assert result.exit_code == (2 if "none" in arguments else 0), shown
    assert r"a\x1b]0;owned" in run("inspect", out).stdout
    assert json.loads(run("inspect", out, "--json").stdout)["columns"][evil]
