"""The command itself, its options, the demo and the comparison of methods."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers import refused, run
from ncai import __version__
from ncai.cli import _options as options
from ncai.cli import demo
from ncai.cli._options import without_infinity
from ncai.cli.demo import PICTURE, REPORT
from ncai.tables import compare

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
    assert refused(run(*usual, "--features", 'a,"b, old",y'), "holds the target 'y'")
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
