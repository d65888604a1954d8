"""Which transform of y is taken, and counts with zeros under a logarithm."""

import json

import numpy as np
import pandas as pd
import pytest

from helpers import refused, run
from ncai import BNNLVRegressor
from ncai.fitting import search
from ncai.fitting.fit import Result
from ncai.fitting.search import Search
from ncai.fitting.stacking import HeldOut
from ncai.fitting.transform_choice import Trial, worth_a_whole_fit
from ncai.inference.posterior import Fit
from ncai.model.networks import MLP, FlatNetwork
from ncai.preprocessing.rounding import Lattice
from ncai.preprocessing.scaling import Scaling
from ncai.types import ContinuousRows, RawRows
from small_fits import regressor

RNG = np.random.default_rng(0)
NUM_ROWS = 100
ARRAYS = (
    RNG.normal(size=(NUM_ROWS, 1)),
    np.exp(RNG.normal(size=(NUM_ROWS, 1))),
    np.ones(NUM_ROWS),
)
ROWS, SMOOTH = RawRows(*ARRAYS), ContinuousRows(*ARRAYS)  # they are not rounded
NETWORK = FlatNetwork(MLP(), 1, 1, 1)
OTHER = FlatNetwork(MLP((7,)), 1, 1, 1)
NOISE = RNG.normal(size=NUM_ROWS)
NOISE -= NOISE.mean()


def result(log_probs, interrupted=False, num_steps=1):
    """A fit of which nothing is known but its held-out rows."""
    nothing: dict = {"posterior": None, "score_name": "", "seconds": 0.0}
    nothing |= dict.fromkeys(("train_index", "scores", "kept"))
    fit = Fit(None, {}, np.ones(1, bool), [], num_steps, interrupted)  # pyright: ignore
    return Result(fit=fit, held_out=HeldOut(np.arange(NUM_ROWS), log_probs), **nothing)


class FakeFits:
    """In place of `fit_rows`: in turn, fits with these scores in the units of y.

    They take y as it is and its logarithm by turns, but for what `names` tells.
    """

    def __init__(self, *scores, interrupted_at=None, names=(), steps_of_whole=400):
        self.scores, self.interrupted_at = scores, interrupted_at
        self.steps_of_whole = steps_of_whole
        self.names = names or ("none", "log") * len(scores)
        self.calls, self.networks = [], []

    def __call__(self, task, rows, valid):
        assert valid is None
        number, settings = len(self.calls), task.settings
        self.calls.append((settings.max_steps, settings.time_limit))
        self.networks.append(task.network)
        # Were y learned as it is, or as its logarithm? Their units differ.
        name = self.names[number]
        scaling = Scaling.learn(SMOOTH, True, name)
        np.testing.assert_allclose(rows.targets, scaling.apply(SMOOTH).targets)
        in_units_of_y = self.scores[number] + NOISE * (0.5 if name == "log" else 1.0)
        shifts = scaling.log_density_shifts(SMOOTH)
        steps = self.steps_of_whole if settings.max_steps == 400 else 100
        steps += task.trial.num_steps if task.trial else 0
        return result(in_units_of_y - shifts, number == self.interrupted_at, steps)


def fit_with(monkeypatch, fits, networks=(NETWORK,), **changes):
    monkeypatch.setattr(search, "fit_rows", fits)
    given = {"target_transform": "auto", "rounding": "ignore", "max_steps": 400}
    settings = regressor("marginal", **(given | changes)).resolved_settings()
    found = Search(settings, networks, 0).run(ROWS)
    return found.candidate.scaling, found.result


def test_a_clear_trial_decides_alone(monkeypatch):
    fits = FakeFits(0.0, -1.0, 0.5)
    scaling, found = fit_with(monkeypatch, fits)
    assert scaling.transform.name == "none"
    assert [steps for steps, _ in fits.calls] == [100, 100, 400]
    assert found.held_out_score == pytest.approx(0.5, abs=1e-6)


def test_whole_fits_decide_where_trials_are_close(monkeypatch):
    # The trial of y as it is leads by little, the whole one of its logarithm wins.
    fits = FakeFits(0.01, 0.0, 0.2, 0.4)
    scaling, found = fit_with(monkeypatch, fits)
    assert [steps for steps, _ in fits.calls] == [100, 100, 400, 400]
    assert scaling.transform.name == "log"
    assert found.held_out_score == pytest.approx(0.4, abs=1e-6)


def test_with_a_time_limit_trials_decide(monkeypatch):
    fits = FakeFits(0.01, 0.0, 0.2)
    scaling, _ = fit_with(monkeypatch, fits, time_limit=60)
    assert scaling.transform.name == "none"
    assert len(fits.calls) == 3
    assert all(0 < limit < 60 for _, limit in fits.calls)


@pytest.mark.parametrize("interrupted_at", [None, 2])
def test_where_no_time_is_left_the_trial_predicts_alone(monkeypatch, interrupted_at):
    """Restarts that were never trained would be random functions in the mixture."""
    stopped = {"interrupted_at": interrupted_at, "steps_of_whole": 0}
    fits = FakeFits(0.5, 0.0, -9.0, **stopped)
    _, found = fit_with(monkeypatch, fits, time_limit=60)
    assert len(fits.calls) == 3
    assert found.held_out_score == pytest.approx(0.5, abs=1e-6)
    assert found.fit.num_steps == 100
    assert found.fit.interrupted == (interrupted_at is not None)


def test_ctrl_c_in_the_second_whole_fit_keeps_the_first(monkeypatch):
    fits = FakeFits(0.01, 0.0, 0.2, 0.4, interrupted_at=3)
    scaling, found = fit_with(monkeypatch, fits)
    assert scaling.transform.name == "none"
    assert found.fit.interrupted


def test_ctrl_c_in_a_trial_ends_it_all(monkeypatch):
    fits = FakeFits(0.01, 0.0, interrupted_at=0)
    scaling, found = fit_with(monkeypatch, fits)
    assert scaling.transform.name == "none"
    assert found.fit.interrupted
    assert len(fits.calls) == 1


def test_a_network_that_is_no_better_is_tried_once(monkeypatch):
    fits = FakeFits(0.0, -1.0, -0.1, 0.5, names=("none", "log", "none", "none"))
    fit_with(monkeypatch, fits, networks=(NETWORK, OTHER))
    assert [steps for steps, _ in fits.calls] == [100, 100, 100, 400]
    assert fits.networks == [NETWORK, NETWORK, OTHER, NETWORK]


def test_a_better_network_is_tried_with_every_close_transform(monkeypatch):
    names = ("none", "log", "none", "log", "log", "none")
    fits = FakeFits(0.01, 0.0, 0.1, 0.2, 0.3, 0.4, names=names)
    scaling, _ = fit_with(monkeypatch, fits, networks=(NETWORK, OTHER))
    assert [steps for steps, _ in fits.calls] == [100] * 4 + [400] * 2
    assert fits.networks == [NETWORK] * 2 + [OTHER] * 4
    assert scaling.transform.name == "none"


def test_where_no_row_is_held_out_there_is_one_network(monkeypatch):
    fits = FakeFits(0.0)
    changes = {"n_folds": 0, "validation_fraction": 0.0, "keep": "best"}
    fit_with(monkeypatch, fits, networks=(NETWORK, OTHER), **changes)
    assert fits.networks == [NETWORK]


def test_ctrl_c_while_another_network_is_tried_keeps_the_best_before(monkeypatch):
    names = ("none", "log", "log")
    fits = FakeFits(0.0, 0.5, 0.9, interrupted_at=2, names=names)
    scaling, found = fit_with(monkeypatch, fits, networks=(NETWORK, OTHER))
    assert scaling.transform.name == "log"
    assert found.fit.interrupted
    assert found.held_out_score == pytest.approx(0.5, abs=1e-6)
    assert len(fits.calls) == 3


def test_closeness_is_measured_in_standard_errors():
    def trial(log_probs, num_steps=1):
        found = result(log_probs, num_steps=num_steps)
        weights = np.ones(NUM_ROWS)
        return Trial(None, None, found, log_probs, weights)  # pyright: ignore

    best = trial(NOISE)
    error = 1 / np.sqrt(NUM_ROWS)
    steps = np.where(np.arange(NUM_ROWS) % 2, 1.0, -1.0)  # of mean 0 and variance 1
    near, far = trial(NOISE + steps - 2 * error), trial(NOISE + steps - 4 * error)
    assert worth_a_whole_fit([near, best]) == [best, near]
    assert worth_a_whole_fit([far, best]) == [best]
    assert worth_a_whole_fit([best, trial(None)]) == [best]
    assert worth_a_whole_fit([trial(NOISE + 9, num_steps=0), far])[0] is far


TINY = {"hidden": (3,), "max_steps": 8, "n_restarts": 2, "n_folds": 2}
TINY |= {"target_transform": "none", "random_state": 0}


@pytest.mark.parametrize("layer", [(20,), ()])
def test_a_start_by_value_says_which_layer_z_has(layer):
    network = FlatNetwork(MLP((3,), latent_hidden=layer), 1, 1, 1)
    model = regressor(
        "marginal",
        start={"weights": np.zeros(network.num_weights)},
        **TINY,
    ).fit(ROWS.inputs, ROWS.targets[:, 0])
    assert model.settings_.network.latent_hidden == layer


@pytest.mark.parametrize("rows_are_held_out", [True, False])
def test_the_layer_of_z_is_reported_and_saved(tmp_path, rows_are_held_out):
    held_out = {} if rows_are_held_out else {"n_folds": 0, "validation_fraction": 0.0}
    model = regressor("marginal", **(TINY | held_out))
    model.fit(ROWS.inputs, ROWS.targets[:, 0])
    layer = model.settings_.network.latent_hidden
    assert layer in ((20,), ()) if rows_are_held_out else layer == (20,)
    assert model.posterior_.model.network.network.latent_hidden == layer
    assert model.network is None  # "auto" by default
    model.save(tmp_path / "m.ncai")
    again = BNNLVRegressor.load(tmp_path / "m.ncai")
    assert again.settings_.network.latent_hidden == layer
    np.testing.assert_array_equal(
        again.predict(ROWS.inputs), model.predict(ROWS.inputs)
    )


SHORT = {"hidden": (6,), "max_steps": 60, "n_restarts": 2, "n_folds": 2}
SHORT |= {"latent_hidden": (4,), "n_weight_draws": 32}


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
        "marginal", target_transform=transform, random_state=seed, **SHORT
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
    model = regressor("marginal", target_transform="log", random_state=0, **SHORT)
    arguments = {"X_valid": x, "y_valid": wrong} if valid else {}
    with pytest.raises(ValueError, match=r"'log'.*'yeo_johnson'") as error:
        model.fit(x, y if valid else wrong, **arguments)
    assert "is -2:" in str(error.value)
    assert ("y_valid" in str(error.value)) == valid


def test_zeros_that_are_not_rounded_have_no_logarithm():
    x, y = counts(0)
    model = regressor("marginal", target_transform="log", rounding="ignore", **SHORT)
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
