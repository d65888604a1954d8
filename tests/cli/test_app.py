"""The command line: what a person sees, and what they find on disk afterwards."""

import gzip
import io
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from command_line import QUICK, refused, run
from ncai import BNNLVRegressor, TableModel, __version__
from ncai.cli import _options as table_options
from ncai.tables import fit as table_fit
from ncai.tables import predict as table_predict
from ncai.tables import write as table_output
from ncai.training.driver import FitFailedError

COMMANDS = ("demo", "fit", "predict", "evaluate", "diagnose", "inspect", "compare")
COMMANDS = (*COMMANDS, "datasets", "datasets list", "datasets get", "bench")
COMMANDS = (*COMMANDS, "bench quality", "study", "study run", "study status")
COMMANDS = (*COMMANDS, "study tables", "study figures", "study report")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, size=(2, 60))
    y = 10 + a + (1.2 + a) * rng.exponential(0.5, size=60)
    return pd.DataFrame({"id": np.arange(60), "a": a, "b": b, "y": y})


@pytest.fixture(scope="module")
def data(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.csv"
    table.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def trained(data):
    """Folder with data.csv and the model fitted to it, and what `fit` printed."""
    folder = data.parent
    result = run(
        *("fit", folder / "data.csv", "--target", "y", "--drop", "id"),
        *("--out", folder / "m.ncai", *QUICK),
    )
    assert result.exit_code == 0, result.stderr
    return folder, result


def predictions(text):
    return pd.read_csv(io.StringIO(text))


# ----- Help and start -----------------------------------------------------------------


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


# ----- Fit and predict ----------------------------------------------------------------


def test_fit_tells_what_it_did(trained):
    folder, result = trained
    assert (folder / "m.ncai").is_file()
    for text in (
        *("2 inputs", "a number, used as it is", "45 trained on"),
        *("5 to choose", "10 held out", "step limit", "Latent", "Verdict"),
        *("Linear, constant noise", "Network, constant noise", "Density of y alone"),
    ):
        assert text in result.stdout
    assert f"Model: {folder / 'm.ncai'}" in result.stdout
    assert result.stderr == ""


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
        *("q05", "q50", "q97.5", "aleatoric", "epistemic"),
    ]
    np.testing.assert_allclose(found["q05"], found["lower_90"], rtol=1e-5)
    total = np.hypot(found["aleatoric"], found["epistemic"])
    np.testing.assert_allclose(total, found["std"], rtol=0.05)


@pytest.mark.parametrize(
    ("share", "name"),
    [
        *((0.05, "05"), (0.5, "50"), (0.95, "95"), (0.975, "97.5"), (0.001, "00.1")),
        *((0.9999, "99.99"), (0.0001, "00.01"), (1e-7, "00.00001"), (0.07, "07")),
        *((0.1234567, "12.34567"), (0.12345678, "12.345678")),
    ],
)
def test_columns_of_levels_are_named_to_the_last_digit(share, name):
    assert table_predict._percent(share) == name


def test_fine_levels_have_columns_of_their_own(trained):
    folder, _ = trained
    options = ("--level", 0.9999, "--quantiles", "0.0001,0.1234567,0.12345678,0.9999")
    found = run("predict", folder / "m.ncai", folder / "data.csv", *options)
    assert list(predictions(found.stdout).columns[2:]) == [
        *("lower_99.99", "upper_99.99"),
        *("q00.01", "q12.34567", "q12.345678", "q99.99"),
    ]


# ----- Refusals -----------------------------------------------------------------------

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
        ["'y'", "'1,5' in row 1", "numbers with a decimal comma: write 1234.5"],
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
        (["--valid", "0.99"], ["--valid 0.99 holds out", "5 at least"]),
        (["--valid", "0.001"], ["--valid 0.001 holds out 0 of", "5 at least"]),
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
        (["--drop", "id,y"], ["--drop ['id', 'y'] holds the target 'y'"]),
    ],
)
def test_fit_refuses_a_bad_option(options, words, data, tmp_path):
    out = ["--out", tmp_path / "m.ncai"]
    assert refused(run("fit", data, "--target", "y", *out, *options), *words)
    assert not list(tmp_path.iterdir())


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
    monkeypatch.setattr(table_options.Path, "touch", forbid)
    result = run("fit", "none.csv", "--target", "y", "--out", "m.ncai")
    sentence = f"cannot write m.ncai: the folder {tmp_path} is not yours to change."
    assert refused(result, sentence)


def test_places_and_lists_that_cannot_be_are_told(data, tmp_path, monkeypatch):
    there = tmp_path / "there.json"
    there.write_text("mine")
    demo = run("demo", "--out", there)
    assert refused(demo, "there.json is a file; name a folder.")
    fit = run("fit", data, "--target", "y", "--out", "-")
    assert refused(fit, "--out - is no file")
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


def test_usage_errors_exit_with_2():
    result = run("fit", "data.csv")
    assert result.exit_code == 2
    assert "--target" in result.stderr


# ----- Stops --------------------------------------------------------------------------


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


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pd.DataFrame, "to_csv", stop)
    with pytest.raises(KeyboardInterrupt):
        table_output.write_table(pd.DataFrame({"a": [1]}), tmp_path / "p.csv")
    assert not list(tmp_path.iterdir())


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


# ----- Options -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"), [(None, None), ("90", 90), ("60s", 60), ("1.5m", 90)]
)
def test_durations(text, seconds):
    assert table_options.parse_duration(text) == seconds


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
    assert table_options.parse_names(text) == names


def test_a_name_with_a_comma_can_be_given(table, tmp_path):
    table.rename(columns={"b": "b, old"}).to_csv(tmp_path / "t.csv", index=False)
    usual = ("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m.ncai")
    # Found, since what is refused is only the target.
    assert refused(run(*usual, "--features", 'a,"b, old",y'), "holds the target 'y'")
    assert refused(run(*usual, "--drop", '"b, old",y'), "--drop", "the target 'y'")
    assert refused(run(*usual, "--drop", '"b, old'), "must be names between commas")
