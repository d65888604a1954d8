"""`ncai compare`: several methods on the same folds."""

import json

import numpy as np
import pandas as pd
import pytest

from command_line import refused, run
from ncai.tables import compare


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
