"""What tests of several packages share: the command, real data sets, small fits.

`tests/inference/test_contracts.py` runs the checks on all methods of the package, and
`tests/inference/test_registry.py` on one that is registered from outside. Models are
cached, so a session fits each of them once.
"""

import hashlib
import os
import re
import tempfile
import warnings
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

from ncai import MFVI, MLP, BNNLVRegressor, BNNRegressor, Marginal
from ncai.cli import app as cli
from ncai.datasets.registry import RealSet
from ncai.estimators._latents import latents_of
from ncai.fitting.holdout import to_data
from ncai.inference.base import Training
from ncai.inference.posterior import GaussianPosterior
from ncai.inference.registry import METHODS, open_method
from ncai.report import ReportInputs
from ncai.report.subject import Subject
from ncai.types import RawRows

# Settings that compile one stage of training; the demo runs all those of ncai.
QUICK = ("--max-steps", 100, "--restarts", 2, "--inference", "mfvi")
QUICK = (*QUICK, "--preset", "paper")


def run(*arguments, **options):
    return CliRunner().invoke(cli.app, [str(one) for one in arguments], **options)


def refused(result, *words):
    """Exit code 2, and one sentence with these words; nothing on standard output."""
    assert result.exit_code == 2, (result.exit_code, result.stderr, result.exception)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr
    return True


FOLDER = os.environ.get("NCAI_DATA_DIR", "")


def real_data(test):
    """For a test that needs the files."""
    reason = "the real data sets are not here: NCAI_DATA_DIR names no folder"
    missing = not FOLDER or not Path(FOLDER).is_dir()
    return pytest.mark.real_data(pytest.mark.skipif(missing, reason=reason)(test))


TOY = "kind,size,price\na,1.50,10\nb,2,11.5\na,0.25,9\n"


def toy(text=TOY, **changes):
    """A set like the real ones, of three rows."""
    rows = [line.split(",") for line in text.splitlines()[1:]]
    plain = "".join(f"{k},{float(s):.6g},{float(p):.6g}\n" for k, s, p in rows)
    fields = {
        "name": "toy",
        "title": "Toy",
        "columns": ("kind", "size", "price"),
        "rows": len(rows),
        "digest": hashlib.sha256(plain.encode()).hexdigest(),
        "target_mean": float(np.mean([float(row[-1]) for row in rows])),
        "licence": "CC0",
        "reference": "nobody",
        "openml_id": 7,
        "one_hot": (("kind", ("a", "b")),),
        "paper_rows": 2,
    }
    return RealSet(**{**fields, **changes})


# ----- Model files --------------------------------------------------------------------


@cache
def _old_files():
    folder = tempfile.TemporaryDirectory()  # it is removed when the tests end
    with zipfile.ZipFile(Path(__file__).with_name("files_0_1.zip")) as archive:
        archive.extractall(folder.name)
    return folder


def old_file(name):
    """A model file that version 0.1 wrote."""
    return Path(_old_files().name) / f"{name}-0.1.ncai"


# ----- Small fits -------------------------------------------------------------------

# Equal sizes wherever the size does not matter: compiled programs are then shared.
TINY = {
    "hidden": (8,),
    "max_steps": 300,
    "n_restarts": 2,
    "n_chains": 2,
    "n_warmup": 25,
    "n_draws": 25,
    "max_doublings": 5,
    "n_weight_draws": 32,
    "n_latent_draws": 8,
    "random_state": 0,
}
NUM_WEIGHTS = 33  # of 1 input, 1 latent, 8 hidden nodes, 1 output


def data(num_rows=40, seed=0):
    """Rows whose noise grows with x."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(num_rows, 1))
    return x, 10 + 3 * x[:, 0] + (1 + x[:, 0]) * rng.normal(size=num_rows)


def regressor(inference=None, *, cls=BNNLVRegressor, **settings):
    """An estimator from settings of its own, of its method and of its network alike.

    One dict of settings may serve several methods: a setting that this method does not
    have, but another does, is left out.
    """
    method = open_method(inference, settings.get("preset", "default"))
    own = cls._get_param_names()
    of_network = {
        name: settings.pop(name)
        for name in ("latent_layer", "latent_hidden")
        if name in settings
    }
    given = {name: value for name, value in settings.items() if name in own}
    of_method = {name: value for name, value in settings.items() if name not in own}
    known = {name for other in METHODS.values() for name in other().get_params()}
    assert of_method.keys() <= known, of_method.keys() - known
    if of_network:
        network = method.presets[given.get("preset", "default")].network
        hidden = given.pop("hidden", network.hidden)
        given["network"] = replace(network, hidden=hidden, **of_network)
    has = method.get_params()
    changed = {name: value for name, value in of_method.items() if name in has}
    return cls(inference=method.set_params(**changed), **given)


def tiny(inference="mfvi", **changes):
    """An estimator of the shared sizes."""
    layer = {}
    if inference == "marginal" and "network" not in changes:
        layer = {"latent_hidden": (20,)}  # one network to compile in place of two
    return regressor(inference, **(TINY | layer | changes))


def tiny_plain(**changes):
    """The same without a latent input."""
    return regressor("mfvi", cls=BNNRegressor, **(TINY | changes))


def fit(model, x, y, **arguments):
    """Fit; that chains this short have not mixed is known."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*NOT mixed.*")
        return model.fit(x, y, **arguments)


@cache
def fitted(inference="mfvi", num_rows=40, **changes):
    """A fit that several tests look at, and none may change."""
    return fit(tiny(inference, **changes), *data(num_rows))


@cache
def fitted_plain():
    """The same without a latent input."""
    return tiny_plain().fit(*data())


_EFFORT = {"max_steps": 40, "n_restarts": 2, "random_state": 0}
_DRAWS = {"n_weight_draws": 16}


@cache
def one_input() -> tuple[BNNLVRegressor, pd.DataFrame, np.ndarray]:
    """A model with a latent variable and one input, its rows and targets."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, 60))
    y = x + (0.2 + 0.3 * np.abs(x)) * rng.standard_normal(60)
    frame = pd.DataFrame({"dose": x})
    network = MLP((20,), latent_hidden=(20,))
    model = BNNLVRegressor(inference=Marginal(**_DRAWS), network=network, **_EFFORT)
    return model.fit(frame, y), frame, y


@cache
def one_input_subject() -> Subject:
    """A report on the model of `one_input`, without held-out rows."""
    return Subject(ReportInputs(*one_input()))


@cache
def rival() -> BNNLVRegressor:
    """Another model of the same rows, with the same network."""
    _, frame, y = one_input()
    return BNNLVRegressor(inference=MFVI(**_DRAWS), **_EFFORT).fit(frame, y)


@cache
def plain() -> BNNRegressor:
    """A model of the same rows without a latent variable."""
    _, frame, y = one_input()
    return BNNRegressor(MFVI(**_DRAWS), **_EFFORT).fit(frame, y)


@cache
def three_inputs() -> tuple[BNNLVRegressor, pd.DataFrame, np.ndarray]:
    """Three inputs: a number, a switch, and one with a name that is code."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "<script>alert(1)</script>": rng.uniform(-2, 2, 50),
            "switch": rng.integers(0, 2, 50).astype(float),
            "idle": rng.standard_normal(50),
        }
    )
    y = frame.iloc[:, 0].to_numpy() + 0.2 * rng.standard_normal(50)
    return BNNLVRegressor(inference=MFVI(**_DRAWS), **_EFFORT).fit(frame, y), frame, y


def fits_and_predicts(name):
    model = fitted(name)
    x, y = data()
    mean, std = model.predict(x, return_std=True)
    assert mean.shape == std.shape == (40,)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()
    log_prob = model.predict_dist(x).log_prob(y)
    assert np.isfinite(log_prob).all()
    np.testing.assert_allclose(model.log_score(x, y), log_prob.mean(), rtol=1e-6)
    # Even a short fit beats the scale of y: mean 10, spread 2.
    assert abs(mean.mean() - y.mean()) < 1
    draws = model.posterior_.draw(jax.random.key(0), 10)
    assert draws.weights.shape == (10, model.posterior_.model.network.num_weights)
    assert draws.noise_std.shape == (10, 1)
    assert draws.latent_std.shape == (10,)


def reports_how_it_went(name):
    model = fitted(name)
    settings = model.settings_
    assert model.stop_reasons_
    assert all(re.fullmatch(r"[\w -]+: .+", reason) for reason in model.stop_reasons_)
    # With folds the restarts of the trial fit may predict too, and come last.
    with_trial = settings.has_folds and settings.keep == "weighted"
    assert model.restart_scores_.shape == (4 if with_trial else 2,)
    assert np.isfinite(model.restart_scores_).all()
    assert model.restarts_lost_ == 0
    assert model.n_iter_ >= 50
    assert model.fit_seconds_ > 0
    assert len(model.history_["value"]) == len(model.history_["stage"])
    assert (model.sampler_report_ is not None) == settings.method.supports.sampling


def has_latents_of_the_training_rows(name):
    latents = fitted(name).latent_posterior_
    assert latents.mean.shape == latents.std.shape == (40, 1)
    assert np.isfinite(latents.mean).all()
    assert (latents.std >= 0).all()


def repeats_bit_for_bit_with_the_same_seed(name):
    x, y = data()
    model, again = fitted(name), fit(tiny(name), x, y)
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    np.testing.assert_array_equal(
        again.predict_dist(x).log_prob(y), model.predict_dist(x).log_prob(y)
    )
    np.testing.assert_array_equal(
        again.latent_posterior_.mean, model.latent_posterior_.mean
    )


def differs_with_another_seed(name):
    x = data()[0]
    other = fitted(name, random_state=1)
    assert np.abs(other.predict(x) - fitted(name).predict(x)).max() > 1e-3


def saves_and_loads_to_bit_equal_predictions(name, tmp_path):
    x, y = data()
    model = fitted(name)
    model.save(tmp_path / "model", include_training=True)
    loaded = BNNLVRegressor.load(tmp_path / "model")
    for one, other in zip(
        model.predict(x, return_std=True),
        loaded.predict(x, return_std=True),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(
        model.predict_dist(x).log_prob(y), loaded.predict_dist(x).log_prob(y)
    )
    assert loaded.stop_reasons_ == model.stop_reasons_
    np.testing.assert_array_equal(loaded.restart_scores_, model.restart_scores_)
    assert loaded.settings_ == model.settings_
    assert loaded.get_params() == model.get_params()


def predicts_a_row_alike_whatever_is_around_it(name):
    model = fitted(name)
    x = data()[0]
    whole = np.stack(model.predict(x, return_std=True))
    alone = np.stack(model.predict(x[7:8], return_std=True))
    np.testing.assert_array_equal(alone[:, 0], whole[:, 7])
    turned = np.stack(model.predict(x[::-1], return_std=True))
    np.testing.assert_array_equal(turned[:, ::-1], whole)


def infers_latents_of_new_rows(name):
    x, y = data(5, seed=9)
    latents = fitted(name).latent_posterior(x, y)
    assert latents.mean.shape == latents.std.shape == (5, 1)
    assert np.isfinite(latents.mean).all()
    assert (latents.std > 0).all()


def continues_with_more_rows(name):
    model = fitted(name)
    method, posterior = model.settings_.method, model.posterior_
    if isinstance(posterior, GaussianPosterior):
        posterior = posterior.select(np.zeros(2, int))  # two restarts, both the best
    # As if the last 8 of the 40 rows were new.
    part = "mean" if isinstance(posterior, GaussianPosterior) else "samples"
    if getattr(posterior, part).latents.shape[-2]:
        posterior = _without_last_latents(posterior, 8)
    x, y = data()
    rows = model.scaling_.prepare(RawRows(x, y[:, None], np.ones(40)), model.seed_)
    settings = model.settings_
    training = Training.of(
        settings.n_restarts, settings.max_steps, folded=settings.has_folds
    )
    found = method.continue_from(
        jax.random.key(3), posterior.model, to_data(rows), posterior, training
    )
    after = found.posterior
    assert after.num_components == posterior.num_components == len(found.alive)
    for leaf in jax.tree.leaves(getattr(after, part)):
        assert np.isfinite(leaf).all()
    assert getattr(after, part).weights.shape[0] == 2
    latents = latents_of(after, rows, seed=0)
    assert latents.mean.shape == (40, 1)
    assert np.isfinite(latents.mean).all()
    # Training went on: the weights are others than before.
    before, now = (np.asarray(getattr(p, part).weights) for p in (posterior, after))
    assert now.shape == before.shape
    assert np.abs(now - before).max() > 1e-4


def _without_last_latents(posterior, number):
    parts = ["mean", "scale"]
    if not isinstance(posterior, GaussianPosterior):
        parts = ["samples"]
    cut = {
        part: getattr(posterior, part)._replace(
            latents=np.asarray(getattr(posterior, part).latents)[..., :-number, :]
        )
        for part in parts
    }
    return replace(posterior, **cut)


def has_parameters_as_scikit_learn_wants_them(name):
    method = METHODS[name]()
    assert METHODS[name](**method.get_params()) == method
    assert clone(method) == method
    changed = method.set_params(n_weight_draws=7)
    assert changed.n_weight_draws == 7 < method.n_weight_draws
    assert "n_weight_draws=7" in repr(changed)
    estimator = BNNLVRegressor(inference=name).set_params(inference__n_weight_draws=5)
    assert estimator.get_params()["inference__n_weight_draws"] == 5
    assert estimator.resolved_settings().method.label == METHODS[name].label
    for preset in ("default", "paper"):
        filled = method.resolved(preset).get_params()
        # A start of None is a value: the method's own.
        assert [key for key, value in filled.items() if value is None] in (
            [],
            ["start"],
        )


CONTRACTS = (
    fits_and_predicts,
    reports_how_it_went,
    has_latents_of_the_training_rows,
    repeats_bit_for_bit_with_the_same_seed,
    differs_with_another_seed,
    saves_and_loads_to_bit_equal_predictions,
    predicts_a_row_alike_whatever_is_around_it,
    infers_latents_of_new_rows,
    continues_with_more_rows,
    has_parameters_as_scikit_learn_wants_them,
)


def check(contract, name, tmp_path):
    """Run one of them."""
    with_file = contract is saves_and_loads_to_bit_equal_predictions
    contract(name, tmp_path) if with_file else contract(name)
