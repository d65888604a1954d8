"""Draws for ArviZ, scores for active learning, the warning about memory, and skpro."""

import copy
import importlib.util
import inspect
import sys
from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest

from ncai import HMC, NCAI, BNNLVRegressor, HMCMarginal, Marginal, acquisition
from ncai.estimators import _memory as memory
from ncai.estimators import bnn_lv as estimators
from ncai.inference.posterior import SamplePosterior
from ncai.interop.arviz import to_arviz
from ncai.model.networks import MLP, FlatNetwork
from ncai.types import Unknowns

QUICK = {
    "inference": NCAI(n_weight_draws=16, n_latent_draws=4),
    "max_steps": 20,
    "n_restarts": 2,
    "hidden": (4,),
    "random_state": 0,
}
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (40, 2))
Y = X[:, 0] + RNG.normal(0, 0.1, 40)


@pytest.fixture(scope="module")
def model():
    return BNNLVRegressor(**QUICK).fit(X, Y)


def test_arviz_has_the_draws_of_the_posterior(model):
    pytest.importorskip("arviz")
    found = to_arviz(model, n_draws=4000).posterior
    mean = np.asarray(model.posterior_.mean.weights[0])
    scale = np.asarray(model.posterior_.scale.weights[0])
    weights = found["W"].to_numpy()
    assert weights.shape == (1, 4000, len(mean))
    error = np.abs(weights[0].mean(0) - mean) / (scale / np.sqrt(4000))
    assert error.max() < 5
    latents = found["z"]
    assert latents.dims == ("chain", "draw", "row", "latent")
    assert list(latents["row"].to_numpy()) == list(model.train_index_)
    np.testing.assert_allclose(
        latents.std(("chain", "draw")).to_numpy(), model.latent_posterior_.std, rtol=0.1
    )
    assert found["noise_std"].shape == (1, 4000, 1)
    assert found.attrs["inference"] == "ncai"


def test_arviz_has_a_samplers_chains_as_they_are(model):
    pytest.importorskip("arviz")
    one = model.posterior_
    num_rows, num_weights = len(model.training_rows_), one.mean.weights.shape[1]
    samples = Unknowns(
        RNG.normal(size=(2, 6, num_weights)),
        RNG.normal(size=(2, 6, num_rows, 1)),
        RNG.normal(size=(2, 6, 1)),
    )
    priors = jax.tree.map(lambda a: np.repeat(np.asarray(a), 2, axis=0), one.priors)
    sampled = copy.copy(model)
    sampled.posterior_ = SamplePosterior(one.model, samples, priors, np.ones(2) / 2)
    sampled.settings_ = replace(model.settings_, method=HMC())
    data = to_arviz(sampled)
    np.testing.assert_array_equal(data.posterior["W"], samples.weights)
    np.testing.assert_array_equal(data.posterior["z"], samples.latents)
    np.testing.assert_allclose(
        data.posterior["noise_std"] ** 2, np.exp(samples.log_noise_var)
    )
    assert data.posterior["latent_std"].shape == (2, 6)
    assert data.observed_data["y"].shape == (num_rows, 1)
    # With z integrated out of training there are no joint draws of it.
    sampled.settings_ = replace(model.settings_, method=HMCMarginal())
    assert "z" not in to_arviz(sampled).posterior


def test_z_is_left_out_where_there_is_none_to_give(model, tmp_path):
    pytest.importorskip("arviz")
    several = BNNLVRegressor(**QUICK, keep="equal").fit(X, Y)
    assert "z" not in to_arviz(several, n_draws=5).posterior
    model.save(tmp_path / "m.ncai")
    loaded = to_arviz(BNNLVRegressor.load(tmp_path / "m.ncai"), n_draws=5)
    assert "z" not in loaded.posterior
    assert "observed_data" not in loaded.groups()


def test_without_arviz_it_says_which_extra(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"ncai\[arviz\]"):
        to_arviz(model)


# ----- Active learning ----------------------------------------------------------------


def test_scores_are_the_parts_of_the_split(model):
    parts = model.decompose_uncertainty(X[:6])
    np.testing.assert_array_equal(acquisition(model, X[:6]), parts.epistemic)
    np.testing.assert_array_equal(acquisition(model, X[:6], "total"), parts.total)
    np.testing.assert_allclose(
        acquisition(model, X[:6], "total", measure="entropy"),
        model.decompose_uncertainty(X[:6], "entropy").total,
    )


@pytest.mark.parametrize("transform", ["none", "log"])
def test_units_of_several_outputs_do_not_matter(transform):
    targets = np.exp(np.stack([Y, RNG.normal(size=40)], axis=1))
    settings = QUICK | {"target_transform": transform}
    small = BNNLVRegressor(**settings).fit(X, targets)
    large = BNNLVRegressor(**settings).fit(X, targets * [1.0, 1024.0])
    scores = acquisition(small, X[:5])
    assert scores.shape == (5,)
    np.testing.assert_allclose(scores, acquisition(large, X[:5]), rtol=1e-3)


def test_an_unknown_kind_is_refused(model):
    with pytest.raises(ValueError, match=r"kind='best' must be one of"):
        acquisition(model, X, kind="best")


# ----- Memory -------------------------------------------------------------------------


def test_free_memory_is_read(tmp_path):
    (tmp_path / "meminfo").write_text("MemFree: 7 kB\nMemAvailable:  3 kB\n")
    assert memory.available_memory(tmp_path / "meminfo") == 3072
    found = memory.available_memory(tmp_path / "none")
    assert found is None or found > 0


def test_estimates_grow_as_the_work_does():
    network = FlatNetwork(MLP((50,)), 3, 1, 1)

    def fit_bytes(method, rows):
        given = BNNLVRegressor(inference=method, n_restarts=10)
        return memory.fit_bytes(given.resolved_settings(), network, rows)

    none, small, large = (fit_bytes(NCAI(), rows) for rows in (0, 1_000, 1_000_000))
    assert (large - none) == 1_000 * (small - none)
    # At least the hidden values of one pass of ten restarts.
    assert small - none > 4 * 1_000 * 50 * 10
    # "marginal" goes through rows in blocks, so z on a grid does not multiply them.
    assert fit_bytes(Marginal(), 100_000) < 1.1 * fit_bytes(NCAI(), 100_000)
    # The draws of z alone.
    sampler = HMC(n_chains=4, n_draws=1000)
    assert fit_bytes(sampler, 10_000) > 4 * 4 * 1000 * 10_000
    # Predictions run in blocks: a row adds little more than itself.
    added = memory.prediction_bytes(network, 10**6, 256, 32) - memory.prediction_bytes(
        network, 0, 256, 32
    )
    assert added == 10**6 * 4 * (3 * 3 + 4)


def test_a_fit_that_would_not_fit_warns(model, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 1_000)
    with pytest.warns(UserWarning, match=r"This fit needs about .* is free"):
        BNNLVRegressor(**QUICK).fit(X, Y)
    # A warning counts frames to find its caller: none may be those of type checks.
    for owner, name in (
        (estimators, "warn_if_large"),
        (BNNLVRegressor, "predict_dist"),
    ):
        monkeypatch.setattr(owner, name, inspect.unwrap(getattr(owner, name)))
    with pytest.warns(UserWarning, match=r"This prediction needs about") as caught:
        model.predict_dist(X)
    assert caught[0].filename == __file__


def test_no_warning_where_nothing_is_known(model, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    assert len(model.predict_dist(X)) == 40
    assert estimators.warn_if_large is memory.warn_if_large


def with_skpro(test):
    """Where it is installed; it and its dependencies warn of one another's versions."""
    test = pytest.mark.filterwarnings("ignore")(test)
    missing = importlib.util.find_spec("skpro") is None
    return pytest.mark.skipif(missing, reason="skpro is not installed")(test)


@pytest.fixture(scope="module")
def fitted_skpro():
    from ncai.interop.skpro import NCAIProbaRegressor

    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.uniform(-1, 1, 40)}, index=range(100, 140))
    y = pd.DataFrame({"load": 3 * X["x"] + rng.normal(0, 0.2, 40)})
    settings = NCAIProbaRegressor.get_test_params()[0]
    # Samples draw z anew; the density averages over these, so there must be many.
    settings["estimator"].set_params(inference__n_latent_draws=512)
    return NCAIProbaRegressor(**settings).fit(X, y), X, y


@with_skpro
def test_skpros_own_checks_pass(monkeypatch):
    from skpro.utils import check_estimator

    from ncai.interop.skpro import NCAIProbaRegressor

    # skpro reads the arguments of the constructor itself, not of what wraps it here.
    constructor = inspect.unwrap(NCAIProbaRegressor.__init__)
    monkeypatch.setattr(NCAIProbaRegressor, "__init__", constructor)
    results = check_estimator(NCAIProbaRegressor, verbose=False)
    failed = {name: found for name, found in results.items() if found != "PASSED"}
    assert not failed
    assert len(results) > 30


@with_skpro
def test_the_distribution_says_what_ours_says(fitted_skpro):
    model, X, y = fitted_skpro
    ours = model.estimator_.predict_dist(X)
    theirs = model.predict_proba(X)
    targets = y["load"].to_numpy()
    np.testing.assert_allclose(theirs.mean()["load"], ours.mean())
    np.testing.assert_allclose(theirs.var()["load"], ours.variance())
    np.testing.assert_allclose(theirs.log_pdf(y)["load"], ours.log_prob(targets))
    np.testing.assert_allclose(theirs.cdf(y)["load"], ours.cdf(targets))
    np.testing.assert_allclose(
        theirs.quantile([0.1, 0.9]).to_numpy(), ours.quantile([0.1, 0.9])
    )
    crps = theirs.energy(y)["energy"] - 0.5 * theirs.energy()["energy"]
    np.testing.assert_allclose(crps, ours.crps(targets))


@with_skpro
def test_energy_is_the_mean_distance_of_two_draws(fitted_skpro):
    model, X, _ = fitted_skpro
    one = model.predict_proba(X.iloc[:1])
    draws = one.sample(4000).to_numpy()[:, 0].reshape(2, -1)
    distance = np.abs(draws[0] - draws[1])
    error = distance.std() / np.sqrt(distance.size)
    assert abs(distance.mean() - one.energy().iloc[0, 0]) < 5 * error


@with_skpro
def test_rows_are_taken_as_in_pandas(fitted_skpro):
    model, X, _ = fitted_skpro
    all_rows = model.predict_proba(X)
    some = all_rows.loc[[103, 101]]
    assert list(some.index) == [103, 101]
    np.testing.assert_array_equal(some.mean(), all_rows.mean().loc[[103, 101]])
    assert all_rows.iat[2, 0].mean() == all_rows.mean().iat[2, 0]
    assert all_rows.sample(3).shape == (120, 1)


@with_skpro
def test_without_skpro_it_says_which_extra(monkeypatch):
    for name in [name for name in sys.modules if name == "ncai.interop.skpro"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "skpro.distributions.base", None)
    with pytest.raises(ImportError, match=r"ncai\[skpro\]"):
        import ncai.interop.skpro  # noqa: F401
