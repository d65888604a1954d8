"""A posterior of W whose weights may move together in a few directions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncai import BNNLVRegressor
from ncai.inference.posterior import GaussianPosterior
from ncai.model.bnn_lv import Model, PriorState, Variance
from ncai.model.mean_field import (
    MeanField,
    factor_kl,
    gaussian_kl,
    log_det,
    raw_scale_of,
    reparameterise,
    with_factor,
)
from ncai.model.networks import MLP, FlatNetwork
from ncai.types import Unknowns

RNG = np.random.default_rng(0)
MEAN, SCALE = RNG.normal(size=6), RNG.uniform(0.2, 1.0, size=6)
FACTOR = RNG.normal(size=(6, 2))
COVARIANCE = np.diag(SCALE**2) + FACTOR @ FACTOR.T
LAST = FACTOR[2:]  # of the last four of six weights
LAST_COVARIANCE = np.diag(SCALE**2)
LAST_COVARIANCE[2:, 2:] += LAST @ LAST.T


def dense_kl(prior):
    """KL[N(MEAN, COVARIANCE) || N(0, diag(prior))], from the textbook."""
    inverse = np.diag(1 / prior)
    return 0.5 * (
        np.trace(inverse @ COVARIANCE)
        + MEAN @ inverse @ MEAN
        - len(MEAN)
        + np.log(prior).sum()
        - np.linalg.slogdet(COVARIANCE)[1]
    )


@pytest.mark.parametrize("prior", [np.array(0.7), RNG.uniform(0.3, 2.0, size=6)])
def test_kl_is_that_of_the_dense_gaussian(x64, prior):
    found = gaussian_kl(MEAN, SCALE, prior) + factor_kl(
        jnp.asarray(FACTOR), jnp.asarray(SCALE), jnp.asarray(prior)
    )
    expected = dense_kl(np.broadcast_to(prior, 6))
    assert float(found) == pytest.approx(expected, rel=1e-10)


def test_gradient_of_the_kl_is_that_of_differences(x64):
    def value(factor):
        return factor_kl(factor, jnp.asarray(SCALE), jnp.asarray(0.7))

    slope = jax.grad(value)(jnp.asarray(FACTOR))
    h = 1e-6
    for index in ((0, 0), (3, 1)):
        step = np.zeros_like(FACTOR)
        step[index] = h
        expected = (value(FACTOR + step) - value(FACTOR - step)) / (2 * h)
        assert float(slope[index]) == pytest.approx(float(expected), rel=1e-6)


def check_covariance(draws, covariance=COVARIANCE):
    error = np.abs(np.cov(np.asarray(draws).T) - covariance).max()
    assert error < 0.05 * covariance.max()


@pytest.mark.parametrize(
    ("factor", "covariance"), [(FACTOR, COVARIANCE), (LAST, LAST_COVARIANCE)]
)
def test_draws_of_training_have_the_covariance(factor, covariance):
    none = jnp.zeros((0, 1)), jnp.zeros(0)
    q = MeanField(
        Unknowns(jnp.asarray(MEAN), *none),
        Unknowns(raw_scale_of(jnp.asarray(SCALE)), *none),
        jnp.asarray(factor / SCALE[-len(factor) :, None]),
    )
    normals = jax.random.normal(jax.random.key(0), (40_000, 8))
    draw = with_factor(q, reparameterise(q, normals[:, :6]), normals[:, 6:])
    check_covariance(draw.weights, covariance)


def test_draws_of_predictions_have_the_covariance():
    one = Variance(jnp.asarray(1.0))
    network = FlatNetwork(MLP(hidden=()), 4, 1, 1)  # four inputs, z and a bias
    model = Model(network, one, one, Variance(jnp.asarray([0.1])))
    none = np.zeros((1, 0, 1)), np.zeros((1, 0))
    posterior = GaussianPosterior(
        model,
        Unknowns(MEAN[None], *none),
        Unknowns(SCALE[None], *none),
        PriorState(jnp.ones(1), jnp.ones(1), jnp.full((1, 1), 0.1)),
        np.ones(1),
        FACTOR[None],
    )
    draws = posterior.select([0]).draw(jax.random.key(1), 40_000)
    check_covariance(draws.weights)


def test_a_fit_uses_them_and_is_saved(tmp_path):
    x = RNG.uniform(-1, 1, size=(60, 1))
    y = x[:, 0] + 0.2 * RNG.normal(size=60)
    settings = {"hidden": (6,), "max_steps": 60, "n_restarts": 4, "n_folds": 2}
    settings |= {"latent_hidden": (), "target_transform": "none", "keep": "equal"}
    model = BNNLVRegressor(posterior_rank=3, random_state=0, **settings).fit(x, y)
    factor = np.asarray(model.posterior_.factor)
    assert factor.shape[1:] == (model.posterior_.mean.weights.shape[1], 3)
    assert np.abs(factor).max() > 0.02  # they have moved from their start
    model.save(tmp_path / "m.ncai")
    again = BNNLVRegressor.load(tmp_path / "m.ncai")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


@pytest.mark.parametrize("rank", [3, "last_layer"])
def test_they_do_no_harm(rank):
    # Were they trained in steps of the weights' own size, they would drown the weights.
    x = RNG.uniform(-2, 2, size=(120, 1))
    y = np.sin(2 * x[:, 0]) + 0.1 * RNG.normal(size=120)
    settings = {"max_steps": 300, "n_restarts": 4, "n_folds": 2, "temperature": 0.01}
    settings |= {"latent_hidden": (), "target_transform": "none", "keep": "equal"}
    settings |= {"random_state": 0}
    plain = BNNLVRegressor(**settings).fit(x, y)
    assert plain.posterior_.factor is None
    model = BNNLVRegressor(posterior_rank=rank, **settings).fit(x, y)
    assert model.held_out_score_ > plain.held_out_score_ - 0.3


@pytest.mark.parametrize("size", [1, 4, 30])
def test_log_determinants_are_those_of_numpy(x64, size):
    root = RNG.normal(size=(size, size + 3))
    matrix = root @ root.T
    expected = np.linalg.slogdet(matrix)
    assert float(log_det(jnp.asarray(matrix))) == pytest.approx(expected[1], rel=1e-10)
    slope = jax.grad(log_det)(jnp.asarray(matrix))
    np.testing.assert_allclose(slope + slope.T, 2 * np.linalg.inv(matrix), rtol=1e-6)


# ----- A factor of the last weights alone ---------------------------------------------


@pytest.mark.parametrize("prior", [np.array(0.7), RNG.uniform(0.3, 2.0, size=6)])
def test_kl_of_a_factor_of_the_last_weights_is_that_with_zeros_before(x64, prior):
    with_zeros = np.concatenate([np.zeros((2, 2)), LAST])
    scale, prior = jnp.asarray(SCALE), jnp.asarray(prior)
    found = factor_kl(jnp.asarray(LAST), scale, prior)
    expected = factor_kl(jnp.asarray(with_zeros), scale, prior)
    assert float(found) == pytest.approx(float(expected), rel=1e-12)


def test_the_last_layer_of_a_network_is_found():
    deep = FlatNetwork(MLP(hidden=(5, 4)), 3, 1, 2)
    assert deep.num_last_weights == 4 * 2 + 2
    last = deep.unflatten(jnp.arange(deep.num_weights, dtype=float))[-1]
    numbers = np.sort(np.concatenate([np.ravel(part) for part in last.values()]))
    assert numbers.tolist() == list(range(deep.num_weights - 10, deep.num_weights))
    assert FlatNetwork(MLP(hidden=()), 3, 1, 2).num_last_weights == 10  # the only one


def test_a_fit_with_a_full_covariance_of_the_last_layer_is_saved(tmp_path):
    x = RNG.uniform(-1, 1, size=(60, 1))
    y = x[:, 0] + 0.2 * RNG.normal(size=60)
    settings = {"hidden": (50,), "max_steps": 60, "n_restarts": 4, "n_folds": 2}
    settings |= {"latent_hidden": (), "target_transform": "none", "keep": "equal"}
    model = BNNLVRegressor(posterior_rank="last_layer", random_state=0, **settings)
    model.fit(x, y)
    factor = np.asarray(model.posterior_.factor)
    assert factor.shape[1:] == (51, 51)
    assert np.abs(factor).max() > 0.02
    model.save(tmp_path / "m.ncai")
    again = BNNLVRegressor.load(tmp_path / "m.ncai")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


@pytest.mark.parametrize("rank", [-1, 0.5, "first_layer", None])
def test_an_impossible_rank_is_refused(rank):
    x = np.linspace(0, 1, 20)[:, None]
    with pytest.raises(ValueError, match=r"posterior_rank=.*or 'last_layer'"):
        BNNLVRegressor(posterior_rank=rank).fit(x, x[:, 0])
