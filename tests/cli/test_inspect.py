"""`ncai inspect` and `ncai diagnose`: what a model file holds."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from command_line import refused, run
from ncai import BNNLVRegressor


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
