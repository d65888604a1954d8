"""Reconstruction MSE (the paper's measure of how well z repeats the data)."""

import jax.numpy as jnp
import numpy as np

from ncai.inference.latents import (
    LatentPosterior,
    infer_latents,
    reconstruction_error,
    sample_latents,
    sampled_latents,
)
from ncai.inference.posterior import GaussianPosterior, SamplePosterior
from ncai.model.bnn_lv import Model, PriorState, Variance
from ncai.model.networks import MLP, FlatNetwork
from ncai.types import Data, Unknowns


def times_z(noise_variance):
    """The model f = b z, and its weights where b is 1."""
    network = FlatNetwork(MLP(()), 1, 1, 1)
    tree = {
        "bias": jnp.zeros(1),
        "input": jnp.zeros((1, 1)),
        "latent": jnp.ones((1, 1)),
    }
    one = Variance(jnp.asarray(1.0))
    model = Model(network, one, one, Variance(jnp.full(1, noise_variance)))
    return model, network.flatten([tree])


def test_matches_the_closed_form_of_a_linear_network():
    # f = b z with b ~ N(m, s^2) independent of z ~ N(u, v^2):
    # E(y - b z)^2 = (y - m u)^2 + Var(b z),
    # Var(b z) = s^2 v^2 + s^2 u^2 + m^2 v^2.
    rng = np.random.default_rng(0)
    rows, m, s = 40, 1.5, 0.2
    u, v = rng.normal(size=(rows, 1)), rng.uniform(0.1, 0.5, size=(rows, 1))
    y = rng.normal(size=(rows, 1))
    model, latent_only = times_z(noise_variance=1.0)
    no_latents = jnp.zeros((1, 0, 1))
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


# ----- Chains in which z has another sign ---------------------------------------------

NOISE_VARIANCE = 0.01


def flipped_chains(with_latents=True):
    """Draws of f = b z with b about 1 in one chain, about -1 in the other; and y.

    z is drawn from p(z | y, b), a Gaussian: exact draws of the posterior given b.
    """
    rng = np.random.default_rng(0)
    rows, length = 30, 200
    y = rng.normal(size=(rows, 1))
    slope = rng.uniform(0.8, 1.2, size=(2, length)) * [[1], [-1]]
    precision = (1 + slope**2 / NOISE_VARIANCE)[..., None, None]
    mean = (slope / NOISE_VARIANCE)[..., None, None] * y / precision
    latents = mean + rng.normal(size=mean.shape) / np.sqrt(precision)
    model, latent_only = times_z(NOISE_VARIANCE)
    samples = Unknowns(
        jnp.asarray(slope[..., None] * np.asarray(latent_only), jnp.float32),
        jnp.asarray(latents if with_latents else latents[:, :, :0], jnp.float32),
        jnp.zeros((2, length, 0)),
    )
    noise = jnp.full((2, 1), NOISE_VARIANCE)
    priors = PriorState(jnp.ones(2), jnp.ones(2), noise)
    posterior = SamplePosterior(model, samples, priors, np.full(2, 0.5))
    data = Data(jnp.zeros((rows, 1)), jnp.asarray(y, jnp.float32), jnp.ones(rows))
    errors = np.mean((y - slope[..., None, None] * latents) ** 2)
    return posterior, data, latents, errors


def test_moments_and_draws_of_z_are_those_of_one_chain():
    posterior, _, latents, _ = flipped_chains()
    assert np.corrcoef(*latents.mean(axis=1)[..., 0])[0, 1] < -0.99
    mean, std = posterior.latent_moments()
    np.testing.assert_allclose(mean, latents[0].mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(std, latents[0].std(axis=0), rtol=1e-4)
    found = sampled_latents(posterior, seed=0)
    np.testing.assert_array_less(np.abs(found - mean), 5 * np.asarray(std))
    # Each row is a draw of its own, of another W.
    steps = np.abs(np.asarray(posterior.samples.latents)[0] - found)[..., 0]
    assert (steps.min(axis=0) == 0).all()
    assert len(np.unique(steps.argmin(axis=0))) > 15


def test_inferred_z_is_that_of_one_chain():
    posterior, data, latents, _ = flipped_chains(with_latents=False)
    rows = latents.shape[2]
    found = infer_latents(posterior, data, rows, seed=0)
    # 64 of the 200 draws.
    np.testing.assert_allclose(found.mean, latents[0].mean(axis=0), atol=0.05)
    np.testing.assert_allclose(found.std, latents[0].std(axis=0), atol=0.05)
    drawn = sample_latents(posterior, data, rows, seed=0)
    np.testing.assert_array_less(np.abs(drawn - found.mean), 5 * found.std)


def test_a_sampler_reconstructs_with_each_w_and_the_z_drawn_beside_it():
    posterior, data, _, exact = flipped_chains()
    moments = LatentPosterior(*(np.asarray(a) for a in posterior.latent_moments()))
    found = reconstruction_error(posterior, data, moments, seed=0, num_draws=400)
    np.testing.assert_allclose(found, [exact], rtol=1e-4)
    # Where z was integrated out, it is drawn given each W: the same up to chance, which
    # is sqrt(2 / 12,000) of the error.
    posterior, data, _, _ = flipped_chains(with_latents=False)
    found = reconstruction_error(posterior, data, moments, seed=0, num_draws=400)
    np.testing.assert_allclose(found, [exact], rtol=0.08)
