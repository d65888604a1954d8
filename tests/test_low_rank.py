"""A posterior of W whose weights may move together in a few directions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncai import BNNLVRegressor
from ncai.model import Model, PriorState, Variance
from ncai.networks import MLP, FlatNetwork
from ncai.posterior import GaussianPosterior
from ncai.types import Unknowns
from ncai.variational import (
    MeanField,
    factor_kl,
    gaussian_kl,
    raw_scale_of,
    reparameterise,
    with_factor,
)

RNG = np.random.default_rng(0)
MEAN, SCALE = RNG.normal(size=6), RNG.uniform(0.2, 1.0, size=6)
FACTOR = RNG.normal(size=(6, 2))
COVARIANCE = np.diag(SCALE**2) + FACTOR @ FACTOR.T


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


def check_covariance(draws):
    error = np.abs(np.cov(np.asarray(draws).T) - COVARIANCE).max()
    assert error < 0.05 * COVARIANCE.max()


def test_draws_of_training_have_the_covariance():
    none = jnp.zeros((0, 1)), jnp.zeros(0)
    q = MeanField(
        Unknowns(jnp.asarray(MEAN), *none),
        Unknowns(raw_scale_of(jnp.asarray(SCALE)), *none),
        jnp.asarray(FACTOR),
    )
    normals = jax.random.normal(jax.random.key(0), (40_000, 8))
    draw = with_factor(q, reparameterise(q, normals[:, :6]), normals[:, 6:])
    check_covariance(draw.weights)


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
    model = BNNLVRegressor(posterior_rank=3, random_state=0, **settings).fit(x, y)
    factor = np.asarray(model.posterior_.factor)
    assert factor.shape[1:] == (model.posterior_.mean.weights.shape[1], 3)
    assert np.abs(factor).max() > 0.02  # they have moved from their start
    model.save(tmp_path / "m.ncai")
    again = BNNLVRegressor.load(tmp_path / "m.ncai")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    other = BNNLVRegressor(random_state=0, **settings).fit(x, y)
    assert other.posterior_.factor is None
