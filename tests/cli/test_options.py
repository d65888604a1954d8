"""Options: what they mean, and which files they may write."""

import pytest

from command_line import refused, run
from ncai.cli import _options as options


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
