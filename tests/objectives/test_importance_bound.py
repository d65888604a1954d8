"""The importance-weighted bound: below the exact likelihood, rising with M."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncai import BNNLVRegressor
from ncai.model.bnn_lv import Model, NoiseMoments, Variance
from ncai.model.mean_field import MeanField, raw_scale_of
from ncai.model.networks import MLP, FlatNetwork
from ncai.model.quadrature import latent_rule, marginal_log_likelihood
from ncai.objectives.importance_bound import NegativeImportanceBound, importance_bound
from ncai.types import Data, Unknowns

RNG = np.random.default_rng(0)
NUM_ROWS = 30
DATA = Data(
    jnp.asarray(RNG.normal(size=(NUM_ROWS, 1)), jnp.float32),
    jnp.asarray(RNG.normal(size=(NUM_ROWS, 1)), jnp.float32),
    jnp.ones(NUM_ROWS, jnp.float32),
)
MODEL = Model(
    FlatNetwork(MLP((6,)), 1, 1, 1),
    Variance(jnp.asarray(1.0)),
    Variance(jnp.asarray(1.0)),
    Variance(jnp.asarray([0.3])),
)
NOISE = NoiseMoments(jnp.log(jnp.asarray([0.3])), jnp.asarray([1 / 0.3]))
WEIGHTS = MODEL.network.init(jax.random.key(1))
PRIOR_VARIANCE = jnp.asarray(1.0)


def q_of(latent_mean=0.2, latent_scale=0.8):
    point = Unknowns(WEIGHTS, jnp.full((NUM_ROWS, 1), latent_mean), jnp.zeros(0))
    raw = Unknowns(
        jnp.full_like(WEIGHTS, raw_scale_of(1e-6)),
        jnp.full((NUM_ROWS, 1), raw_scale_of(latent_scale)),
        jnp.zeros(0),
    )
    return MeanField(point, raw)


def mean_bound(num_samples, num_repeats=400):
    objective = NegativeImportanceBound(1.0, num_samples)
    q = q_of()

    @jax.jit
    @jax.vmap
    def one(key):
        normals = jax.random.normal(key, objective.num_normals(q))
        draw = objective.prepare(q, normals)
        return jnp.sum(importance_bound(MODEL, DATA, draw, NOISE, PRIOR_VARIANCE))

    found = np.asarray(one(jax.random.split(jax.random.key(0), num_repeats)))
    return found.mean(), found.std() / np.sqrt(num_repeats)


def test_the_bound_rises_with_the_samples_and_meets_the_quadrature_value():
    exact = float(
        marginal_log_likelihood(
            MODEL, DATA, latent_rule(1, 128), WEIGHTS, NOISE, PRIOR_VARIANCE
        )
    )
    means, errors = zip(*(mean_bound(m) for m in (1, 4, 16, 256)), strict=True)
    assert np.all(np.diff(means[:3]) > 2 * np.asarray(errors[:2]))
    assert all(m < exact + 3 * e for m, e in zip(means, errors, strict=True))
    assert means[-1] == pytest.approx(exact, abs=0.1)


def test_one_sample_is_the_elbo():
    q = q_of()
    scale, mean = 0.8, 0.2
    objective = NegativeImportanceBound(1.0, 1)
    normals = jax.random.normal(jax.random.key(2), objective.num_normals(q))
    draw = objective.prepare(q, normals)
    found = importance_bound(MODEL, DATA, draw, NOISE, PRIOR_VARIANCE)
    z = np.asarray(draw.latents[0, :, 0])
    outputs = np.asarray(
        MODEL.network.apply_rows(draw.weights[0], DATA.inputs, draw.latents[0])
    )[:, 0]
    from scipy.stats import norm

    expected = (
        norm.logpdf(np.asarray(DATA.targets)[:, 0], outputs, np.sqrt(0.3))
        + norm.logpdf(z)
        - norm.logpdf(z, mean, scale)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("num_samples", [1, 6])
def test_gradients_are_those_of_the_expected_bound(num_samples):
    """Doubly reparameterised ones agree on average with differences of the mean."""
    objective = NegativeImportanceBound(1.0, num_samples)
    q = q_of()
    keys = jax.random.split(jax.random.key(5), 20_000)

    def bound(latent_mean, key):
        mean = q.mean._replace(latents=q.mean.latents + latent_mean)
        moved = MeanField(mean, q.raw_scale)
        normals = jax.random.normal(key, objective.num_normals(q))
        draw = objective.prepare(moved, normals)
        return importance_bound(MODEL, DATA, draw, NOISE, PRIOR_VARIANCE)[0]

    gradients = np.asarray(jax.jit(jax.vmap(jax.grad(bound), (None, 0)))(0.0, keys))
    values = jax.jit(jax.vmap(bound, (None, 0)))
    step = 0.05
    slopes = (np.asarray(values(step, keys)) - np.asarray(values(-step, keys))) / (
        2 * step
    )
    error = np.sqrt((gradients.var() + slopes.var()) / len(keys))
    assert float(gradients.mean()) == pytest.approx(
        float(slopes.mean()), abs=4 * float(error) + 2e-3
    )


def test_three_latents_can_be_fitted_and_predict():
    x = RNG.normal(size=(40, 1))
    y = x[:, 0] + 0.3 * RNG.normal(size=40)
    model = BNNLVRegressor(
        latent_dim=3,
        inference="iwae",
        hidden=(6,),
        max_steps=60,
        n_restarts=2,
        random_state=0,
    ).fit(x, y)
    assert np.isfinite(model.log_score(x, y))
    assert model.latent_posterior_.mean.shape == (40, 3)
