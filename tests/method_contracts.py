"""What every method must do, as checks of a method by its name.

`tests/inference/test_contracts.py` runs them on all methods of the package, and
`tests/inference/test_registry.py` on one that is registered from outside.
"""

import re
from dataclasses import replace

import jax
import numpy as np
from sklearn.base import clone

from ncai import BNNLVRegressor
from ncai.estimators._latents import latents_of
from ncai.fitting.holdout import to_data
from ncai.inference.base import Training
from ncai.inference.posterior import GaussianPosterior
from ncai.inference.registry import METHODS
from ncai.types import RawRows
from small_fits import data, fit, fitted, tiny


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
    assert (changed.n_weight_draws, method.n_weight_draws) == (7, 1024)
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
