"""Counts with zeros under a logarithm: every value that flows has one unit."""

import json

import numpy as np
import pandas as pd
import pytest

from helpers import refused, run
from ncai import BNNLVRegressor
from ncai.preprocessing.rounding import Lattice
from ncai.types import RawRows
from small_fits import regressor

TINY = {"hidden": (6,), "max_steps": 60, "n_restarts": 2, "n_folds": 2}
TINY |= {"latent_hidden": (4,), "n_weight_draws": 32}


def counts(seed, num_rows=80):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(num_rows, 1))
    y = rng.poisson(np.exp(0.7 + x[:, 0])).astype(float)
    assert (y == 0).sum() > 3
    return x, y


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("transform", ["log", "auto"])
def test_counts_fit_and_everything_after_a_fit_works(transform, seed, tmp_path):
    x, y = counts(seed)
    model = regressor(
        "marginal", target_transform=transform, random_state=seed, **TINY
    ).fit(x, y)
    assert model.settings_.rounding_steps == (1.0,)
    if transform == "log":
        assert model.settings_.target_transform == "log"
    assert np.isfinite(model.training_rows_.targets).all()
    assert np.isfinite(model.latent_posterior_.mean).all()
    assert (model.latent_posterior_.std > 0).all()
    assert np.isfinite(model.reconstruction_mse())
    assert np.isfinite(model.held_out_score_)
    model.save(tmp_path / "m.ncai", include_training=True)
    for one in (model, BNNLVRegressor.load(tmp_path / "m.ncai")):
        diagnosis = one.diagnose(num_permutations=20)
        assert np.isfinite(diagnosis.hz)
        assert np.isfinite(one.predict(x)).all()
        assert (one.predict(x) >= 0).all()
        assert np.isfinite(one.predict_dist(x).log_prob(y)).all()
        found = one.latent_posterior(x, y)  # zeros among them
        assert np.isfinite(found.mean).all()
        np.testing.assert_array_equal(found.mean, model.latent_posterior(x, y).mean)


@pytest.mark.parametrize("valid", [False, True])
def test_a_negative_number_is_refused_as_the_user_gave_it(valid):
    x, y = counts(0)
    wrong = np.where(np.arange(80) == 5, -2.0, y)
    model = regressor("marginal", target_transform="log", random_state=0, **TINY)
    arguments = {"X_valid": x, "y_valid": wrong} if valid else {}
    with pytest.raises(ValueError, match=r"'log'.*'yeo_johnson'") as error:
        model.fit(x, y if valid else wrong, **arguments)
    assert "is -2:" in str(error.value)
    assert ("y_valid" in str(error.value)) == valid


def test_zeros_that_are_not_rounded_have_no_logarithm():
    x, y = counts(0)
    model = regressor("marginal", target_transform="log", rounding="ignore", **TINY)
    with pytest.raises(ValueError, match=r"needs a positive y.* is 0:"):
        model.fit(x, y)


@pytest.mark.usefixtures("short_fits")
def test_the_command_line_fits_scores_and_reports(tmp_path):
    x, y = counts(3, 90)
    table = pd.DataFrame({"dose": x[:, 0], "events": y.astype(int)})
    table.to_csv(tmp_path / "t.csv", index=False)
    given = ("--target", "events", "--transform", "log", "--out", tmp_path / "m.ncai")
    effort = ("--hidden", 6)
    result = run(
        *("fit", tmp_path / "t.csv", *given, *effort, "--json"),
        *("--report", tmp_path / "r.html"),
    )
    assert result.exit_code == 0, (result.stderr, result.exception)
    scores = json.dumps(json.loads(result.stdout)["scores"], allow_nan=False)
    assert len(scores) > 10
    assert "null" not in scores
    assert "events" in (tmp_path / "r.html").read_text()
    loaded = BNNLVRegressor.load(tmp_path / "m.ncai")
    assert loaded.settings_.target_transform == "log"
    table["events"] -= 1
    table.to_csv(tmp_path / "t.csv", index=False)
    result = run("fit", tmp_path / "t.csv", *given, *effort, "--force", "--quiet")
    assert refused(result, "log", "-1")


def test_zero_is_drawn_from_the_part_of_its_cell_above_zero():
    y = np.repeat([0.0, 1.0, 2.0, 3.0], 500)[:, None]
    rows = RawRows(np.zeros_like(y), y, np.ones(len(y)))
    for step in (1.0, 0.25):
        scaled = RawRows(rows.inputs, step * y, rows.weights)
        lattice = Lattice.learn(scaled.targets)
        assert lattice.step == step
        plain = lattice.dequantise(scaled, seed=4).targets
        positive = lattice.dequantise(scaled, seed=4, positive=True).targets
        zero = y == 0
        np.testing.assert_array_equal(positive[~zero], plain[~zero])
        drawn = positive[zero] / step
        assert ((drawn > 0) & (drawn < 0.5)).all()
        # Uniformly: quartiles to five standard errors of 500 draws.
        np.testing.assert_allclose(
            np.quantile(drawn, [0.25, 0.5, 0.75]), [0.125, 0.25, 0.375], atol=0.055
        )
        assert (np.abs(plain - step * y) <= 0.5 * step).all()
        np.testing.assert_array_equal(lattice.nearest(positive), step * y)
