"""What holds for every method and setting of the estimators, on fits of a second."""

import copy
from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp
from sklearn.exceptions import NotFittedError

from helpers import (
    CONTRACTS,
    NUM_WEIGHTS,
    TINY,
    check,
    data,
    fit,
    fitted,
    fitted_plain,
    regressor,
    tiny,
)
from ncai import HMC, BNNLVRegressor, BNNRegressor, FitFailedError, make_dataset
from ncai.estimators import bnn_lv as estimators
from ncai.estimators._validation import validation_rows
from ncai.fitting.holdout import hold_out, padded_size
from ncai.fitting.noise_recalibration import score_rows
from ncai.fitting.stacking import stacking_weights
from ncai.inference import hmc, nuts
from ncai.inference.latents import LatentPosterior, infer_latents, sample_latents
from ncai.inference.posterior import (
    GaussianPosterior,
    SamplePosterior,
    _normals,
    split_draws,
)
from ncai.inference.registry import METHODS, PRESET_METHODS
from ncai.model.bnn_lv import Model, PriorState, Variance
from ncai.model.networks import MLP, FlatNetwork
from ncai.model.quadrature import latent_rule
from ncai.training import step as restart_groups
from ncai.types import Data, Unknowns

TRAINED = [name for name, method in METHODS.items() if not method.supports.sampling]
SAMPLED = [name for name, method in METHODS.items() if method.supports.sampling]


# ----- Every method -------------------------------------------------------------------


def test_the_list_of_methods_is_complete():
    assert TRAINED == ["map", "mfvi", "ncai0", "ncai", "marginal", "iwae"]
    assert SAMPLED == ["hmc", "hmc_marginal"]


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", list(METHODS))
@pytest.mark.filterwarnings("ignore:.*NOT mixed")
def test_every_method(name, contract, tmp_path):
    check(contract, name, tmp_path)


def test_widths_of_latents_are_positive_but_for_map():
    for name in METHODS:
        widths = fitted(name).latent_posterior_.std
        assert (widths == 0).all() if name == "map" else (widths > 0).all()


@pytest.mark.parametrize("method", TRAINED)
def test_other_numbers_compile_nothing(method):
    fitted(method)
    before = restart_groups.run_chunk._cache_size()
    changes = {
        "learning_rate": 0.003,
        "max_steps": 280,
        "noise_prior": (2.0, 0.1),
        "variance_prior": (4.0, 1.0),
        "latent_variance": 0.5,
        "hz_weight": 0.3,
        "offdiagonal_weight": 2.0,
        "input_tolerance": 0.7,
        "random_state": 5,
    }
    fit(tiny(method, **changes), *data(40, seed=1))
    fit(tiny(method), *data(38, seed=1))  # rows are padded to 40
    assert restart_groups.run_chunk._cache_size() == before


@pytest.mark.parametrize("method", SAMPLED)
def test_other_numbers_compile_nothing_of_a_sampler(method):
    fitted(method)
    programs = (
        restart_groups.run_chunk,
        nuts.warm_start,
        nuts.warmup_chunk,
        nuts.draw_chunk,
        nuts.predictive_summary,
    )
    before = [program._cache_size() for program in programs]
    assert min(before) > 0
    changes = {
        "learning_rate": 0.003,
        "max_steps": 280,
        "noise_prior": (2.0, 0.1),
        "variance_prior": (4.0, 1.0),
        "latent_variance": 0.5,
        "n_warmup": 50,
        "n_draws": 50,
        "random_state": 5,
    }
    fit(tiny(method, **changes), *data(40, seed=1))
    fit(tiny(method), *data(38, seed=1))  # rows are padded to 40
    assert [program._cache_size() for program in programs] == before


def test_other_fixed_noise_compiles_nothing():
    fit(tiny(noise_variance=0.1), *data())
    before = restart_groups.run_chunk._cache_size()
    fit(tiny(noise_variance=0.3), *data())
    assert restart_groups.run_chunk._cache_size() == before


@pytest.mark.parametrize("method", SAMPLED)
def test_chains_that_have_not_mixed_are_reported_in_words(method):
    with pytest.warns(UserWarning, match="the chains have NOT mixed") as caught:
        model = tiny(method).fit(*data())
    (message,) = [str(w.message) for w in caught if "mixed" in str(w.message)]
    assert message == str(model.sampler_report_)
    assert "2 chains x 25 draws" in message
    assert "R-hat" in message
    assert "or draw more" in message
    assert not model.sampler_report_.mixed


def test_the_fewest_draws_of_one_chain_have_a_report():
    summary = np.random.default_rng(0).normal(size=(4, 1, 3))
    report = nuts.judge_mixing(summary, nuts.DrawInfo(*np.zeros((4, 4, 1))))
    assert np.isfinite([report.max_rhat, report.min_ess]).all()
    assert not report.mixed


def test_chains_that_never_moved_have_not_mixed():
    still = np.ones((25, 2, 80))  # as many as of a fit of `TINY`
    info = nuts.DrawInfo(*np.zeros((4, 25, 2)))
    report = nuts.judge_mixing(still, info)
    assert report.max_rhat == np.inf
    assert not report.mixed
    still[:, :, 0] = np.random.default_rng(0).normal(size=(25, 2))
    assert nuts.judge_mixing(still, info).max_rhat < 2  # of the one that varies


def test_hmc_takes_no_weights_but_0_and_1():
    x, y = data()
    weights = np.ones(40)
    weights[3] = 2
    with pytest.raises(ValueError, match=r"sample_weight must be .*'hmc_marginal'"):
        tiny("hmc").fit(x, y, sample_weight=weights)
    # Without a z there is none to share.
    model = replace(
        fitted("hmc").posterior_.model, network=FlatNetwork(MLP((8,)), 1, 0, 1)
    )
    hmc._refuse_weights(model, Data(x, y[:, None], weights))
    weights[3] = 0
    model = fit(tiny("hmc"), x, y, sample_weight=weights)
    np.testing.assert_array_equal(model.train_index_, np.flatnonzero(weights))


def test_a_weight_of_2_is_the_row_twice_where_hmc_integrates_z_out():
    posterior = fitted("hmc_marginal").posterior_
    one = jax.tree.map(lambda a: a[0, 0], posterior.samples)
    priors = jax.tree.map(lambda a: a[0], posterior.priors)
    x, y = (a.astype("f4").reshape(5, 1) for a in data(5))
    rule = latent_rule(1)

    def log_density(rows, weights):
        rows = Data(x[rows], y[rows] - 10, np.asarray(weights, "f4"))
        target = nuts.Target(posterior.model, rows, priors, rule)
        return float(jax.jit(target.log_density)(one))

    weighted = log_density([0, 1, 2, 3, 4], [1, 2, 1, 0, 1])
    repeated = log_density([0, 1, 1, 2, 4], [1, 1, 1, 1, 1])
    assert weighted == pytest.approx(repeated, rel=1e-5)
    assert weighted != pytest.approx(log_density([0, 1, 2, 4], np.ones(4)), rel=1e-3)


@pytest.mark.parametrize("method", SAMPLED)
def test_a_sampler_trains_on_every_row(method):
    np.testing.assert_array_equal(fitted(method).train_index_, np.arange(40))


# ----- Presets ------------------------------------------------------------------------


def test_the_paper_preset_has_the_numbers_of_the_paper():
    settings = BNNLVRegressor(preset="paper").resolved_settings().to_dict()
    expected = {
        "inference": "ncai",
        "max_steps": 30_000,
        "learning_rate": 0.01,
        "n_restarts": 10,
        "n_mc_samples": 1,
        "hidden": (50,),
        "activation": "leaky_relu",
        "weight_variance": "empirical",
        "latent_variance": "empirical",
        "variance_prior": (3.0, 0.5),
        "variance_form": "paper",
        "noise_variance": 0.1,
        "offdiagonal_weight": 10.0,
        "hz_tolerance": 0.01,
        "input_tolerance": 0.5,
        "penalise": "means",
        "plateau": False,
    }
    assert {name: settings[name] for name in expected} == expected


@pytest.mark.parametrize("preset", PRESET_METHODS)
def test_a_preset_fills_what_is_none_and_nothing_else(preset):
    method = METHODS[PRESET_METHODS[preset]](plateau=True, n_weight_draws=9)
    given = {"max_steps": 7, "noise_variance": "map"}
    model = BNNLVRegressor(inference=method, preset=preset, **given)
    settings = model.resolved_settings()
    assert {name: getattr(settings, name) for name in given} == given
    assert settings.method.plateau is True
    assert settings.method.n_weight_draws == 9
    values = method.presets[preset]
    for name in ("n_restarts", "target_transform", "rounding", "keep", "network"):
        assert getattr(settings, name) == getattr(values, name)
        assert getattr(model, name) is None
    for name, value in values.method.items():
        if name in method.get_params() and name != "plateau":
            assert getattr(settings.method, name) == value
            assert getattr(model.inference, name) is None
    assert model.max_steps == 7


@pytest.mark.usefixtures("any_types")
def test_whole_numbers_may_come_as_floats():
    settings = BNNLVRegressor(max_steps=100.0, n_restarts=2.0).resolved_settings()
    assert isinstance(settings.max_steps, int)
    assert isinstance(settings.n_restarts, int)


# ----- Choosing among restarts --------------------------------------------------------


def test_hold_out_takes_a_fraction_or_nothing():
    train, held = hold_out(48, 1 / 6, seed=3)
    assert len(held) == 8
    np.testing.assert_array_equal(np.sort(np.r_[train, held]), np.arange(48))
    for number, fraction in [(40, 0.1), (9, 0.5), (1000, 0)]:
        train, held = hold_out(number, fraction, seed=3)
        assert len(held) == 0
        np.testing.assert_array_equal(train, np.arange(number))


def test_padding_is_at_most_an_eighth_beyond_the_smallest_sizes():
    for number in range(1, 3000):
        size = padded_size(number)
        assert number <= size < number + max(8, number / 8 + 1)
        assert padded_size(size) == size


def test_held_out_rows_choose_and_are_not_trained_on():
    model = fitted("mfvi", 48, validation_fraction=1 / 6)
    assert len(model.train_index_) == 40
    assert len(np.unique(model.train_index_)) == 40
    assert model.latent_posterior_.mean.shape == (40, 1)
    assert "held-out" in model.score_name_
    x, y = data(48)
    # The held-out rows do not move the fit: only their y is changed.
    held = np.setdiff1d(np.arange(48), model.train_index_)
    moved = y.copy()
    moved[held] += 0.1
    settings = {"standardize": False, "keep": "equal", "validation_fraction": 1 / 6}
    one, other = (tiny(**settings).fit(x, targets) for targets in (y, moved))
    np.testing.assert_array_equal(one.predict(x), other.predict(x))
    assert not np.array_equal(one.restart_scores_, other.restart_scores_)


def test_too_few_rows_to_hold_out_any():
    model = fitted("mfvi")  # a tenth of 40 rows is 4
    assert len(model.train_index_) == 40
    assert model.score_name_ == "minus the final objective"
    np.testing.assert_allclose(model.restart_scores_, -model.history_["value"][-1])


def test_given_validation_rows_take_the_place_of_held_out_ones():
    x, y = data()
    x_valid, y_valid = data(20, seed=5)
    model = fit(tiny(validation_fraction=0.5), x, y, X_valid=x_valid, y_valid=y_valid)
    assert len(model.train_index_) == 40
    assert "held-out" in model.score_name_
    # Chosen by those rows, in the units of training.
    scale = model.scaling_.target_scale[0]
    best = model.log_score(x_valid, y_valid) + np.log(scale)
    assert best == pytest.approx(model.restart_scores_.max(), abs=0.1)
    assert np.argmax(model.restart_scores_) in (0, 1)


def shares_and_scores(keep):
    x_valid, y_valid = data(20, seed=5)
    model = fit(tiny(keep=keep), *data(), X_valid=x_valid, y_valid=y_valid)
    return model, model.posterior_.shares


def test_keep_best_keeps_one():
    model, shares = shares_and_scores("best")
    np.testing.assert_array_equal(shares, [1.0])
    assert model.restart_scores_.shape == (2,)


def test_keep_equal_keeps_all_alike():
    _, shares = shares_and_scores("equal")
    np.testing.assert_array_equal(shares, [0.5, 0.5])


def test_keep_weighted_is_no_worse_than_the_best_on_held_out_rows():
    model, shares = shares_and_scores("weighted")
    assert shares.sum() == pytest.approx(1)
    assert (shares > 0).all()
    rows = validation_rows(model, *data(20, seed=5), 1)
    valid = model.scaling_.prepare(rows, seed=0)
    key = jax.random.split(jax.random.key(model.seed_), 3)[2]  # as `fit_rows` scores
    log_probs = np.stack(
        [score_rows(model.posterior_.select(i), valid, key) for i in range(len(shares))]
    )
    mixed = logsumexp(log_probs, axis=0, b=shares[:, None]).mean()
    assert mixed >= model.restart_scores_.max() - 1e-3


@pytest.mark.parametrize("shape", [(0, 3), (5, 7), (61, 97), (100, 1)])
def test_normals_of_draws_are_those_of_jax(shape):
    key = jax.random.key(4)
    expected = jax.random.normal(key, shape)
    np.testing.assert_array_equal(_normals(key, shape), expected)


def test_stacking_weights_maximise_the_mixture():
    rng = np.random.default_rng(0)
    log_probs = rng.normal(size=(3, 50)) - np.array([[0.0], [0.2], [5.0]])
    row_weights = rng.uniform(0.5, 2, size=50)
    shares = stacking_weights(log_probs, row_weights)
    assert shares.sum() == pytest.approx(1)

    def value(shares):
        return row_weights @ logsumexp(log_probs, axis=0, b=shares[:, None])

    found = value(shares)
    assert found >= (log_probs @ row_weights).max()
    for other in rng.dirichlet(np.ones(3), size=200):
        assert found >= value(other) - 1e-6


def test_a_mixture_draws_from_each_restart_by_its_share():
    np.testing.assert_array_equal(split_draws(10, [0.5, 0.25, 0.25]).sum(), 10)
    np.testing.assert_array_equal(split_draws(8, [0.5, 0.25, 0.25]), [4, 2, 2])
    np.testing.assert_array_equal(split_draws(3, [0.9, 0.1]), [3, 0])


# ----- Where a fit begins -------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "stages"),
    [
        ("random", ["elbo", "noise"]),
        ("ncai", ["warm start", "elbo", "noise"]),
        ("map", ["map", "scales", "elbo", "noise"]),
    ],
)
def test_start_by_name(start, stages):
    model = fitted("mfvi", start=start)
    assert [reason.split(":")[0] for reason in model.stop_reasons_] == stages
    assert np.isfinite(model.predict(data()[0])).all()


def given_start():
    rng = np.random.default_rng(2)
    return {
        "weights": rng.normal(size=NUM_WEIGHTS),
        "latents": rng.normal(size=(40, 1)),
    }


def test_hold_means_keeps_a_given_start_exactly():
    start = given_start()
    model = fit(tiny(start=start, hold_means=True), *data())
    mean = model.posterior_.mean
    np.testing.assert_array_equal(mean.weights[0], start["weights"].astype("f4"))
    np.testing.assert_array_equal(
        model.latent_posterior_.mean, start["latents"].astype("f4")
    )
    scale = np.asarray(model.posterior_.scale.weights[0])
    assert scale.std() > 0.01  # the widths have moved


def test_without_hold_means_the_start_is_left():
    start = given_start()
    model = fit(tiny(start=start), *data())
    assert model.stop_reasons_[0].startswith("scales")
    moved = np.asarray(model.posterior_.mean.weights[0]) - start["weights"]
    assert np.abs(moved).max() > 1e-2


def test_a_start_may_be_the_networks_own_pytree():
    start = given_start()
    network = FlatNetwork(MLP((8,)), 1, 1, 1)
    tree = network.unflatten(start["weights"])
    flat, nested = (
        fit(tiny(start=start | {"weights": w}, hold_means=True), *data())
        for w in (start["weights"], tree)
    )
    x = data()[0]
    np.testing.assert_array_equal(flat.predict(x), nested.predict(x))


def test_several_starts_share_latents():
    start = given_start()
    several = {
        "weights": np.stack([start["weights"], -start["weights"]]),
        "latents": start["latents"],
    }
    model = fit(tiny(start=several, hold_means=True, keep="equal"), *data())
    np.testing.assert_array_equal(
        model.posterior_.mean.weights, several["weights"].astype("f4")
    )
    for latents in np.asarray(model.posterior_.mean.latents):
        np.testing.assert_array_equal(latents, start["latents"].astype("f4"))


def test_map_from_a_start_beside_random_ones():
    start = given_start()
    model = fit(tiny("map", start=start, keep="equal", max_steps=1), *data())
    first = np.asarray(model.posterior_.mean.weights) - start["weights"]
    # One step of Adam moves each weight by the learning rate.
    assert np.abs(first[0]).max() <= 0.0101
    assert np.abs(first[1]).max() > 0.1


# ----- Latents ------------------------------------------------------------------------


def forward(network, flat, x, z):
    """f(x, z; W) of the MLP in NumPy."""
    first, second = jax.tree.map(np.asarray, network.unflatten(flat))
    hidden = x @ first["input"] + z @ first["latent"] + first["bias"]
    hidden = np.where(hidden > 0, hidden, 0.01 * hidden)
    return hidden @ second["weight"] + second["bias"]


@pytest.mark.parametrize("method", ["mfvi", "hmc_marginal"])
def test_latent_posterior_agrees_with_brute_force(method):
    model = fitted(method)
    x, y = data(5, seed=9)
    found = model.latent_posterior(x, y)

    network = model.posterior_.model.network
    # Across restarts and chains z has no common meaning: one of them is taken.
    one = model.posterior_.select(0)
    draws = one.draw(jax.random.key(model.seed_), 64)
    inputs = model.scaling_.inputs(x)
    targets = (y - model.scaling_.target_shift) / model.scaling_.target_scale
    z = np.linspace(-6, 6, 4001)[:, None]
    first, second = np.zeros(5), np.zeros(5)
    parts = zip(draws.weights, draws.noise_std, draws.latent_std, strict=True)
    for weights, noise_std, latent_std in parts:
        for row in range(5):
            output = forward(network, weights, inputs[row], z)[:, 0]
            log_density = stats.norm.logpdf(targets[row], output, noise_std)
            log_density += stats.norm.logpdf(z[:, 0], 0, latent_std)
            share = np.exp(log_density - logsumexp(log_density))
            first[row] += share @ z[:, 0] / 64
            second[row] += share @ z[:, 0] ** 2 / 64
    np.testing.assert_allclose(found.mean[:, 0], first, atol=2e-3)
    np.testing.assert_allclose(
        found.std[:, 0], np.sqrt(second - first**2), rtol=5e-3, atol=2e-3
    )


@pytest.mark.parametrize("latent_dim", [2, 3])
def test_latents_of_several_dimensions(latent_dim):
    model = fitted("mfvi", latent_dim=latent_dim, noise_variance=0.1)
    x, y = data(5, seed=9)
    latents = model.latent_posterior(x, y)
    assert latents.mean.shape == latents.std.shape == (5, latent_dim)
    assert np.isfinite(latents.mean).all()
    assert (latents.std > 0).all()
    assert (latents.std < 1.3).all()  # the prior is 1 wide
    assert model.latent_posterior_.mean.shape == (40, latent_dim)
    again = model.latent_posterior(x, y)
    np.testing.assert_array_equal(latents.mean, again.mean)


def test_trained_latents_of_a_linear_model_are_the_exact_ones():
    # y = a'z + noise. q(z) of the mean field: exact means, width 1 / sqrt(precision).
    slope, noise_var, latent_var = np.array([1.0, -0.5, 0.3]), 0.25, 2.0
    network = FlatNetwork(MLP(()), 1, 3, 1)
    tree = [{"input": np.zeros((1, 1)), "latent": slope[:, None], "bias": np.zeros(1)}]
    weights = np.asarray(network.flatten(tree), np.float32)[None]
    model = Model(
        network,
        Variance(np.float32(1.0)),
        # Were empirical Bayes left on, it would fit the variance to these rows.
        Variance(np.float32(1.0), mode="empirical"),
        Variance(np.full(1, noise_var, np.float32)),
    )
    none = np.zeros((1, 0), np.float32)
    posterior = GaussianPosterior(
        model,
        Unknowns(weights, np.zeros((1, 0, 3), np.float32), none),
        Unknowns(np.zeros_like(weights), np.zeros((1, 0, 3), np.float32), none),
        PriorState(
            np.ones(1, np.float32),
            np.full(1, latent_var, np.float32),
            np.full((1, 1), noise_var, np.float32),
        ),
        np.ones(1),
    )
    y = np.linspace(-2, 2, 8, dtype=np.float32)[:, None]
    rows = Data(np.zeros((8, 1), np.float32), y, np.ones(8, np.float32))
    found = infer_latents(posterior, rows, 8, seed=0)
    precision = np.eye(3) / latent_var + np.outer(slope, slope) / noise_var
    mean = y * np.linalg.solve(precision, slope / noise_var)
    np.testing.assert_allclose(found.mean, mean, atol=0.15)
    width = 1 / np.sqrt(np.diag(precision))
    np.testing.assert_allclose(found.std.mean(axis=0), width, rtol=0.1)


@pytest.mark.usefixtures("well_compiled")
def test_draws_of_the_latents_have_their_exact_distribution():
    # y = a z + noise: z given y is Gaussian, with a known mean and width.
    slope, noise_var = 1.5, 0.5
    network = FlatNetwork(MLP(()), 1, 1, 1)
    latent = np.full((1, 1), slope)
    tree = [{"input": np.zeros((1, 1)), "latent": latent, "bias": np.zeros(1)}]
    weights = np.asarray(network.flatten(tree), np.float32)[None]
    one = Variance(np.float32(1.0))
    model = Model(network, one, one, Variance(np.full(1, noise_var, np.float32)))
    none = np.zeros((1, 0, 1), np.float32), np.zeros((1, 0), np.float32)
    posterior = GaussianPosterior(
        model,
        Unknowns(weights, *none),
        Unknowns(np.zeros_like(weights), *none),
        PriorState(
            np.ones(1, np.float32),
            np.ones(1, np.float32),
            np.full((1, 1), noise_var, np.float32),
        ),
        np.ones(1),
    )
    y = np.full((4000, 1), 0.8, np.float32)
    rows = Data(np.zeros_like(y), y, np.ones(len(y), np.float32))
    found = sample_latents(posterior, rows, len(y), seed=0)
    precision = 1 + slope**2 / noise_var
    centre, width = slope * 0.8 / noise_var / precision, precision**-0.5
    assert found.mean() == pytest.approx(centre, abs=0.03)
    assert found.std() == pytest.approx(width, rel=0.04)
    assert stats.kstest(found[:, 0], "norm", (centre, width)).pvalue > 1e-3


def flipped_hmc():
    """Two chains of "hmc" that begin at the same function, with z of opposite signs."""
    first = fitted("hmc")
    samples = first.posterior_.samples
    weights, latents = (np.asarray(a[0, -1]) for a in samples[:2])
    network = first.posterior_.model.network
    layers = network.unflatten(weights)
    layers[0]["latent"] = -layers[0]["latent"]
    flipped = np.asarray(network.flatten(layers))
    start = {
        "weights": np.stack([weights, flipped]),
        "latents": np.stack([latents, -latents]),
    }
    return fit(tiny("hmc", start=start), *data())


def test_chains_of_opposite_sign_leave_one_meaning_of_z(tmp_path):
    model = flipped_hmc()
    x, y = data()
    samples = np.asarray(model.posterior_.samples.latents)
    chains = samples.mean(axis=1)[..., 0]
    assert np.corrcoef(chains)[0, 1] < -0.5  # the case is what it says
    np.testing.assert_allclose(model.latent_posterior_.mean[:, 0], chains[0], atol=1e-5)
    np.testing.assert_array_equal(
        model.latent_posterior(x, y).mean, model.latent_posterior_.mean
    )
    drawn = model.sample_latents(x, y)
    assert (samples[0] == drawn.astype("f4")).any(axis=0).all()
    # The error of the pairs (W, z), in NumPy.
    network = model.posterior_.model.network
    inputs = model.scaling_.inputs(x)
    weights = np.asarray(model.posterior_.samples.weights)
    targets = (y - model.scaling_.target_shift) / model.scaling_.target_scale
    errors = [
        np.mean((forward(network, w, inputs, z)[:, 0] - targets) ** 2)
        for w, z in zip(
            weights.reshape(-1, NUM_WEIGHTS), samples.reshape(-1, 40, 1), strict=True
        )
    ]
    exact = np.mean(errors) * model.scaling_.target_scale[0] ** 2
    # Of 256 draws: each of the 50 five or six times.
    assert model.reconstruction_mse() == pytest.approx(exact, rel=0.05)
    model.save(tmp_path / "model", include_training=True)
    loaded = BNNLVRegressor.load(tmp_path / "model")
    assert loaded.reconstruction_mse() == model.reconstruction_mse()
    np.testing.assert_array_equal(loaded.sample_latents(x, y), drawn)


def sampled_in_three_dimensions():
    """A fit by "hmc" with K = 3, its draws those of a Gaussian: NUTS takes long."""
    model = copy.copy(fitted("mfvi", latent_dim=3, noise_variance=0.1))
    one, rng = model.posterior_, np.random.default_rng(0)
    samples = jax.tree.map(
        lambda mean, scale: np.asarray(
            mean + scale * rng.normal(size=(2, 25, *mean.shape[1:])), "f4"
        ),
        one.mean,
        one.scale,
    )
    priors = jax.tree.map(lambda a: np.repeat(a, 2, axis=0), one.priors)
    model.posterior_ = SamplePosterior(one.model, samples, priors, np.ones(2) / 2)
    model.settings_ = replace(model.settings_, method=HMC().resolved("default"))
    moments = (np.asarray(a, float) for a in model.posterior_.latent_moments())
    model.latent_posterior_ = LatentPosterior(*moments)
    return model


def test_three_sampled_dimensions_of_z_are_at_hand_for_the_training_rows():
    model = sampled_in_three_dimensions()
    x, y = data()
    drawn = model.sample_latents(x, y)
    samples = np.asarray(model.posterior_.samples.latents)[0]
    assert (samples == drawn.astype("f4")).all(axis=2).any(axis=0).all()
    assert model.latent_posterior(x, y).mean.shape == (40, 3)
    assert model.diagnose(num_permutations=40).judged == "samples"
    assert np.isfinite(model.reconstruction_mse())
    for ask in (model.sample_latents, model.latent_posterior):
        with pytest.raises(
            ValueError, match=r"new rows .* latent_dim above 2 .* sampl"
        ):
            ask(x[::-1], y[::-1])


def test_z_that_is_integrated_out_is_judged_by_its_draws():
    assert fitted("marginal").diagnose(num_permutations=40).judged == "samples"
    assert fitted("mfvi").diagnose(num_permutations=40).judged == "means"


def test_diagnose_says_its_verdicts_in_words():
    diagnosis = fitted("ncai").diagnose(num_permutations=40)
    assert diagnosis.num_rows == 40
    assert diagnosis.independence_verdict.startswith("z ")
    assert "prior" in diagnosis.prior_verdict
    assert diagnosis.independence_verdict in str(diagnosis)


# ----- Predictions --------------------------------------------------------------------


def test_quantiles_and_intervals():
    model = fitted("mfvi")
    x = data()[0][:6]
    quantiles = model.predict_quantiles(x)
    assert quantiles.shape == (6, 3)
    assert (np.diff(quantiles, axis=1) > 0).all()
    interval = model.predict_interval(x, level=0.9)
    np.testing.assert_allclose(interval, quantiles[:, [0, 2]], rtol=1e-5)
    assert model.predict_quantiles(x, 0.5).shape == (6, 1)
    dist = model.predict_dist(x)
    np.testing.assert_allclose(dist.cdf(interval[:, 0]), 0.05, atol=1e-3)


def test_samples_have_the_moments_of_the_prediction():
    model = fitted("mfvi")
    x = data()[0][:6]
    samples = model.sample_y(x, 4000)
    assert samples.shape == (6, 4000)
    mean, std = model.predict(x, return_std=True)
    # Five standard errors of a mean of 4000, and as much again for the finite draws
    # of W and z behind `mean`.
    np.testing.assert_allclose(samples.mean(axis=1), mean, atol=0.16 * std.max())
    np.testing.assert_allclose(samples.std(axis=1), std, rtol=0.15)
    np.testing.assert_array_equal(samples, model.sample_y(x, 4000, random_state=0))
    other = model.sample_y(x, 3, random_state=np.random.RandomState(1))
    assert not np.array_equal(samples[:, :3], other)


def test_decomposition_adds_up():
    model = fitted("mfvi")
    x = data()[0][:6]
    for measure in ("crps", "variance", "entropy"):
        parts = model.decompose_uncertainty(x, measure)
        added = parts.aleatoric + parts.epistemic
        np.testing.assert_allclose(parts.total, added, rtol=1e-5, atol=1e-6)
        assert (parts.epistemic > 0).all()
    usual = model.decompose_uncertainty(x)
    assert usual.measure == "crps"
    assert (usual.standard_error.total < 0.1 * usual.total).all()


def test_scores():
    model = fitted("mfvi")
    x, y = data()
    residual = y - model.predict(x)
    r2 = 1 - (residual**2).sum() / ((y - y.mean()) ** 2).sum()
    assert model.score(x, y) == pytest.approx(r2)
    weights = np.arange(40.0)
    assert model.log_score(x, y, weights) == pytest.approx(
        weights @ model.predict_dist(x).log_prob(y) / weights.sum()
    )


def test_units_of_the_data_do_not_matter():
    x, y = data()
    model = fitted("mfvi")
    scaled = fit(tiny(), 1000 * x - 5, 1e-3 * y)
    np.testing.assert_allclose(
        scaled.predict(1000 * x - 5), 1e-3 * model.predict(x), rtol=1e-4
    )


def test_a_network_without_latents_says_so():
    model = fitted_plain()
    assert model.latent_posterior_ is None
    for call in (model.diagnose, lambda: model.latent_posterior(*data())):
        with pytest.raises(ValueError, match="latent_dim=0 has none"):
            call()
    parts = model.decompose_uncertainty(data()[0][:6], "variance")
    noise = model.posterior_.draw(jax.random.key(0), 4000).noise_std
    expected = (noise**2).mean() * model.scaling_.target_scale**2
    np.testing.assert_allclose(parts.aleatoric, np.repeat(expected, 6), rtol=0.1)
    same = regressor("ncai", cls=BNNRegressor, **TINY).fit(*data())
    np.testing.assert_array_equal(same.predict(data()[0]), model.predict(data()[0]))


@pytest.mark.slow
def test_default_draws_are_enough():
    part = make_dataset("heavy_tail")
    x, y = part.train.inputs, part.train.targets[:, 0]
    model = BNNLVRegressor(max_steps=3000, n_restarts=2, random_state=0).fit(x, y)
    test = part.test.inputs, part.test.targets[:, 0]
    default = model.log_score(*test)
    method = model.settings_.method
    model.set_params(
        inference__n_weight_draws=2 * method.n_weight_draws,
        inference__n_latent_draws=2 * method.n_latent_draws,
    )
    assert abs(model.log_score(*test) - default) < 0.005


# ----- What can go wrong --------------------------------------------------------------


class Interrupt:
    """`run_chunk`, with Ctrl-C at the given call."""

    def __init__(self, at_call):
        self.at_call, self.calls, self.run_chunk = at_call, 0, restart_groups.run_chunk

    def __call__(self, *arguments):
        self.calls += 1
        if self.calls == self.at_call:
            raise KeyboardInterrupt
        return self.run_chunk(*arguments)


def test_ctrl_c_in_training_keeps_the_best_so_far(monkeypatch):
    x, y = data()
    model = tiny(validation_fraction=1 / 6)
    monkeypatch.setattr(restart_groups, "run_chunk", Interrupt(at_call=2))
    with pytest.warns(UserWarning, match="Ctrl-C after 250 steps: the model is fitted"):
        model.fit(*data(48))
    assert model.stop_reasons_ == ["elbo: interrupted after 250 steps"]
    assert len(model.train_index_) == 40
    assert np.isfinite(model.predict(x)).all()
    assert np.isfinite(model.log_score(x, y))


def test_ctrl_c_in_the_warm_start_leaves_the_estimator_unfitted(monkeypatch):
    model = tiny("ncai")
    monkeypatch.setattr(restart_groups, "run_chunk", Interrupt(at_call=1))
    with pytest.raises(KeyboardInterrupt, match="the estimator is not fitted"):
        model.fit(*data())
    with pytest.raises(NotFittedError):
        model.predict(data()[0])


def test_ctrl_c_while_latents_are_inferred_leaves_the_estimator_unfitted(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    model = tiny("mfvi")
    monkeypatch.setattr(estimators, "latents_of", stop)
    with pytest.raises(KeyboardInterrupt, match="the estimator is not fitted"):
        model.fit(*data())
    with pytest.raises(NotFittedError):
        model.diagnose()


def test_a_lost_restart_is_reported_and_left_out():
    start = given_start()
    several = {
        "weights": np.stack([np.full(NUM_WEIGHTS, 1e30), start["weights"]]),
        "latents": start["latents"],
    }
    model = tiny(start=several, keep="equal")
    with pytest.warns(UserWarning, match=r"1 of 2 restarts became non-finite.*\[0\]"):
        model.fit(*data())
    assert model.restarts_lost_ == 1
    assert model.restart_scores_[0] == -np.inf
    np.testing.assert_array_equal(model.posterior_.shares, [1.0])
    assert np.isfinite(model.predict(data()[0])).all()


def test_all_restarts_lost_is_an_error():
    start = given_start() | {"weights": np.full(NUM_WEIGHTS, 1e30)}
    model = tiny(start=start)
    with pytest.raises(FitFailedError, match=r"all 2 restarts .* learning_rate"):
        model.fit(*data())
    with pytest.raises(NotFittedError):
        model.predict(data()[0])


def test_a_time_limit_stops_with_what_there_is():
    model = fit(tiny(time_limit=1e-9, max_steps=10**6), *data())
    assert model.n_iter_ <= 250
    assert np.isfinite(model.restart_scores_).all()
    assert np.isfinite(model.predict(data()[0])).all()


@pytest.mark.parametrize("columns", [80, 200])
def test_a_progress_bar_names_the_stages_and_changes_nothing(
    columns, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", str(columns))
    x, y = data()
    model = fit(tiny("ncai", progress=True), x, y)
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = [line.split() for line in shown.err.splitlines()]
    assert [line[0] for line in lines] == ["warm", "elbo", "penalties", "noise"]
    assert all("objective" in line for line in lines)
    assert ("HZ" in lines[2]) == (columns == 200)
    np.testing.assert_array_equal(model.predict(x), fitted("ncai").predict(x))
    fit(tiny("ncai"), x, y)
    assert capsys.readouterr().err == ""


# ----- Options that few fits use ------------------------------------------------------

RARE = {
    "noise by its mode": {"noise_variance": "map"},
    "noise by empirical Bayes": {"noise_variance": "empirical"},
    "exact empirical Bayes": {"variance_form": "exact", "latent_variance": "empirical"},
    "several samples a step": {"n_mc_samples": 3, "noise_variance": 0.1},
}


@pytest.mark.parametrize("changes", RARE.values(), ids=RARE)
def test_rare_options_fit_and_reload(changes, tmp_path):
    x, y = data()
    model = fitted("mfvi", **changes)
    spread = y.std()
    mean, std = model.predict(x, return_std=True)
    assert np.corrcoef(mean, 10 + 3 * x[:, 0])[0, 1] > 0.9
    assert np.all((std > 0.01 * spread) & (std < 2 * spread))
    model.save(tmp_path / "m.ncai")
    again = BNNLVRegressor.load(tmp_path / "m.ncai")
    np.testing.assert_array_equal(again.predict(x), mean)


def test_quantiles_of_several_outputs_are_those_of_each():
    x, y = data()
    # 8 values of z are too few to compare with draws of it.
    model = tiny(n_latent_draws=32).fit(x, np.stack([y, -2 * y + x[:, 0]], axis=1))
    dist = model.predict_dist(x[:3])
    levels = np.array([0.1, 0.5, 0.9])
    found = dist.quantile(levels)  # [N, L, Q]
    assert found.shape == (3, 2, 3)
    draws = dist.sample(20_000, seed=1)
    assert draws.shape == (20_000, 3, 2)
    below = (draws[..., None] <= found).mean(axis=0)
    np.testing.assert_allclose(below, np.broadcast_to(levels, below.shape), atol=0.015)
