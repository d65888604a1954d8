"""`ncai evaluate`: scores of the rows of a table."""

import json

import pytest

from command_line import refused, run
from ncai import MFVI, BNNLVRegressor, TableModel


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
