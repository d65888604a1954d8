"""The bound with z integrated out: closed forms, the ELBO below it, temperatures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from ncai.inference.base import Training, mean_field_at
from ncai.inference.marginal import NODES, REACH, Marginal
from ncai.model import Model, Variance, initial_priors
from ncai.networks import MLP, FlatNetwork
from ncai.objectives.elbo import NegativeElbo
from ncai.objectives.marginal import NegativeMarginalElbo
from ncai.quadrature import latent_rule
from ncai.types import Data, Unknowns
from ncai.variational import MeanField, raw_scale_of

NUM_ROWS = 20
RNG = np.random.default_rng(0)
DATA = Data(
    jnp.asarray(RNG.normal(size=(NUM_ROWS, 1)), jnp.float32),
    jnp.asarray(RNG.normal(size=(NUM_ROWS, 1)), jnp.float32),
    jnp.ones(NUM_ROWS, jnp.float32),
)


def make_model(hidden=(), noise="fixed"):
    return Model(
        FlatNetwork(MLP(hidden), 1, 1, 1),
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray([0.3]), noise),
    )


def value_at(objective, model, q, normals):
    priors = initial_priors(jax.random.key(0), model)
    prepared = objective.prepare(q, normals)
    return objective.value(prepared, priors, model, DATA, jnp.zeros(()))


def q_at(weights, scale, num_rows=0):
    point = Unknowns(weights, jnp.zeros((num_rows, 1)), jnp.zeros(0))
    raw = jax.tree.map(lambda a: jnp.full_like(a, raw_scale_of(scale)), point)
    return MeanField(point, raw)


def test_likelihood_of_a_linear_network_is_the_closed_form():
    model = make_model()
    tree = [
        {
            "input": jnp.asarray([[0.7]]),
            "latent": jnp.asarray([[1.3]]),
            "bias": jnp.asarray([0.2]),
        }
    ]
    q = q_at(model.network.flatten(tree), 1e-6)
    objective = NegativeMarginalElbo(latent_rule(1, NODES[1], REACH).nodes)
    mean = 0.7 * np.asarray(DATA.inputs) + 0.2
    expected = norm.logpdf(DATA.targets, mean, np.sqrt(1.3**2 + 0.3)).sum()
    for shift in (-1.5, 0.0, 0.4):  # wherever the nodes are shifted to
        normals = jnp.zeros((1, 4)).at[0, 3].set(shift)
        _, report = value_at(objective, model, q, normals)
        found = float(report.terms["expected_log_likelihood"])
        assert found == pytest.approx(expected, rel=1e-4)


def test_temperature_scales_what_the_prior_says():
    model = make_model()
    q = q_at(jnp.asarray([0.4, -0.3, 0.9]), 0.1)
    nodes = latent_rule(1, NODES[1], REACH).nodes
    normals = jnp.zeros((1, 4))
    warm, report = value_at(NegativeMarginalElbo(nodes, 1.0), model, q, normals)
    cold, _ = value_at(NegativeMarginalElbo(nodes, 0.25), model, q, normals)
    assert float(warm) == pytest.approx(-float(report.terms["elbo"]), rel=1e-5)
    assert float(warm - cold) == pytest.approx(
        0.75 * float(report.terms["kl_weights"]), rel=1e-4
    )


def test_it_bounds_the_elbo_of_any_q_of_z_from_above():
    model = make_model((5,))
    weights = model.network.init(jax.random.key(3))
    keys = jax.random.split(jax.random.key(4), 200)
    for scale in (0.1, 1.0):
        q = q_at(weights, 1e-5, NUM_ROWS)
        raw = q.raw_scale._replace(latents=jnp.full((NUM_ROWS, 1), raw_scale_of(scale)))
        q = MeanField(q.mean, raw)
        size = NegativeElbo().num_normals(q)[1]
        elbos = [
            float(
                value_at(NegativeElbo(), model, q, jax.random.normal(k, (1, size)))[
                    1
                ].terms["elbo"]
            )
            for k in keys
        ]
        nodes = latent_rule(1, NODES[1], REACH).nodes
        normals = jnp.zeros((1, weights.size + 1))
        _, report = value_at(
            NegativeMarginalElbo(nodes), model, q_at(weights, 1e-5), normals
        )
        error = np.std(elbos) / np.sqrt(len(elbos))
        assert np.mean(elbos) < float(report.terms["elbo"]) + 3 * error


def test_restarts_have_temperatures_of_their_own_and_z_from_quadrature():
    training = Training(
        num_restarts=3, max_steps=60, warm_start_steps=20, schedule="cosine"
    )
    model = make_model((6,), "variational")
    method = Marginal(training, temperatures=(1.0, 0.01))
    fit = method.fit(jax.random.key(0), model, DATA)
    spreads = np.asarray(fit.posterior.scale.weights).mean(axis=1)
    assert spreads[1] < spreads[0]  # the cold one is narrower
    assert spreads[1] < spreads[2]
    assert fit.posterior.mean.latents.shape == (3, NUM_ROWS, 1)
    assert np.all(np.asarray(fit.posterior.scale.latents) > 0)
    assert np.all(np.asarray(fit.posterior.scale.latents) < 1.2)
    # The refit strips the latents and finds them again.
    q = MeanField(
        fit.posterior.mean,
        jax.tree.map(lambda s: raw_scale_of(jnp.maximum(s, 1e-6)), fit.posterior.scale),
    )
    from ncai.optimise import Driver

    again = method.continue_from(
        jax.random.key(1), model, DATA, q, fit.posterior.priors, Driver()
    )
    assert again.posterior.mean.latents.shape == (3, NUM_ROWS, 1)


def test_a_start_is_narrow_around_given_values():
    model = make_model((4,))
    point = Unknowns(
        model.network.init(jax.random.key(0)), jnp.zeros((0, 1)), jnp.zeros(0)
    )
    q = mean_field_at(jax.random.key(1), model, point)
    assert q.mean.latents.shape == (0, 1)
