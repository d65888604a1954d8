"""Reconstruction MSE (the paper's measure of how well z repeats the data)."""

import jax.numpy as jnp
import numpy as np

from ncai.latent_inference import LatentPosterior, reconstruction_error
from ncai.model import Model, PriorState, Variance
from ncai.networks import MLP, FlatNetwork
from ncai.posterior import GaussianPosterior
from ncai.types import Data, Unknowns


def test_matches_the_closed_form_of_a_linear_network():
    # f = b z with b ~ N(m, s^2) independent of z ~ N(u, v^2):
    # E(y - b z)^2 = (y - m u)^2 + Var(b z),
    # Var(b z) = s^2 v^2 + s^2 u^2 + m^2 v^2.
    rng = np.random.default_rng(0)
    rows, m, s = 40, 1.5, 0.2
    u, v = rng.normal(size=(rows, 1)), rng.uniform(0.1, 0.5, size=(rows, 1))
    y = rng.normal(size=(rows, 1))
    network = FlatNetwork(MLP(()), 1, 1, 1)
    tree = {
        "bias": jnp.zeros(1),
        "input": jnp.zeros((1, 1)),
        "latent": jnp.ones((1, 1)),
    }
    latent_only = network.flatten([tree])
    no_latents = jnp.zeros((1, 0, 1))
    one = Variance(jnp.asarray(1.0))
    model = Model(network, one, one, Variance(jnp.ones(1)))
    posterior = GaussianPosterior(
        model,
        Unknowns(m * latent_only[None], no_latents, jnp.zeros((1, 0))),
        Unknowns(s * latent_only[None], no_latents, jnp.zeros((1, 0))),
        PriorState(jnp.ones(1), jnp.ones(1), jnp.ones((1, 1))),
        np.ones(1),
    )
    data = Data(jnp.asarray(rng.normal(size=(rows, 1))), jnp.asarray(y), jnp.ones(rows))
    found = reconstruction_error(
        posterior, data, LatentPosterior(u, v), seed=0, num_draws=20_000
    )
    exact = np.mean((y - m * u) ** 2 + s**2 * (v**2 + u**2) + m**2 * v**2)
    # The spread over draws is below 0.2, so the standard error is below 0.0015.
    np.testing.assert_allclose(found, [exact], atol=0.006)
