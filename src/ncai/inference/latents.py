"""Infer z of labelled rows, p(z | x, y, W), from draws or a Gaussian of W."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ncai.inference.posterior import GaussianPosterior, Posterior, SamplePosterior
from ncai.model.bnn_lv import Model, NoiseMoments, Variance, squared_errors
from ncai.model.mean_field import MeanField, raw_scales_of, scale_of
from ncai.model.quadrature import LARGEST_DIM, latent_rule, node_log_joint
from ncai.objectives.elbo import NegativeElbo
from ncai.training.driver import Driver
from ncai.training.step import Stage, initial_state
from ncai.types import Data, Unknowns

ROWS_AT_ONCE = 256
LATENTS_ONLY = MeanField(
    Unknowns(0.0, 1.0, 0.0),  # pyright: ignore[reportArgumentType]
    Unknowns(0.0, 1.0, 0.0),  # pyright: ignore[reportArgumentType]
)


class LatentPosterior(NamedTuple):
    """Mean and standard deviation of z for each row, [N, K]."""

    mean: np.ndarray
    std: np.ndarray


def infer_latents(
    posterior: Posterior,
    data: Data,
    num_rows: int,
    seed: int,
    num_draws: int = 64,
    num_nodes: int | None = None,
) -> LatentPosterior:
    """Infer z of rows whose y is known.

    For one or two dimensions, the moments come from quadrature for each draw of W and
    are averaged over the draws. For more dimensions, q(z) is trained for a few hundred
    steps with q(W) fixed.
    """
    if posterior.model.network.latent_dim <= LARGEST_DIM:
        return _by_quadrature(posterior, data, num_rows, seed, num_draws, num_nodes)
    return _by_training(posterior, data, num_rows, seed)


def sample_latents(
    posterior: Posterior, data: Data, num_rows: int, seed: int, num_draws: int = 64
) -> Float[np.ndarray, "N K"]:
    """Draw z for each row whose y is known, for at most two latent dimensions.

    The draws come from the exact p(z | x, y, W), with one of the draws of W for each
    row.
    """
    posterior = _one_component(posterior)
    draws = posterior.draw(jax.random.key(seed), num_draws).resampled(num_draws, seed)
    drawn = _latents_given(posterior.model, data, draws, seed)
    rows = np.arange(num_rows)
    return drawn[rows % len(drawn), rows]


def sampled_latents(posterior: SamplePosterior, seed: int) -> Float[np.ndarray, "N K"]:
    """Draw z for each training row from the draws of a sampler over (W, z).

    All come from one chain, because z is not comparable between chains; each row takes
    the z of one draw of (W, z).
    """
    chain = np.asarray(posterior.samples.latents[int(np.argmax(posterior.shares))])
    length, rows = chain.shape[:2]
    return chain[np.random.default_rng(seed).integers(length, size=rows), range(rows)]


def _latents_given(model, data, draws, seed) -> Float[np.ndarray, "S N K"]:
    """Draw z for each draw of W and each row, by quadrature."""
    rule = _rule(model, None)
    keys = jax.random.split(jax.random.key(seed + 1), len(draws.weights))
    found = []
    for begin in range(0, data.inputs.shape[0], ROWS_AT_ONCE):
        part = jax.tree.map(lambda a, b=begin: a[b : b + ROWS_AT_ONCE], data)
        keys = jax.vmap(lambda k, b=begin: jax.random.fold_in(k, b))(keys)
        found.append(np.asarray(_drawn(model, part, rule, draws, keys)))
    return np.concatenate(found, axis=1)


@jax.jit
def _drawn(model, data, rule, draws, keys) -> Float[Array, "S N K"]:
    """Draw a node for each draw of W and each row, and move it within its cell."""
    spacing = rule.nodes[-1, -1] - rule.nodes[-2, -1]

    def one(draw_and_key):
        draw, key = draw_and_key
        node_key, place_key = jax.random.split(key)
        noise = NoiseMoments(2 * jnp.log(draw.noise_std), draw.noise_std**-2)
        log_joint = node_log_joint(
            model, data, rule, draw.weights, noise, draw.latent_std**2
        )
        chosen = jax.random.categorical(node_key, log_joint, axis=0)
        nodes = rule.nodes[chosen]
        place = jax.random.uniform(place_key, nodes.shape, minval=-0.5, maxval=0.5)
        return draw.latent_std * (nodes + spacing * place)

    return jax.lax.map(one, (jax.tree.map(jnp.asarray, draws), keys))


def _one_component(posterior: Posterior) -> Posterior:
    """Return the component with the largest share: z differs between components."""
    return posterior.select(int(np.argmax(posterior.shares)))


def _rule(model, num_nodes):
    dims = model.network.latent_dim
    return latent_rule(dims, num_nodes or (256 if dims == 1 else 48))


def _by_quadrature(
    posterior, data, num_rows, seed, num_draws, num_nodes
) -> LatentPosterior:
    model = posterior.model
    rule = _rule(model, num_nodes)
    draws = _one_component(posterior).draw(jax.random.key(seed), num_draws)
    draws = draws.resampled(num_draws, seed)
    means, seconds = [], []
    for begin in range(0, data.inputs.shape[0], ROWS_AT_ONCE):
        part = jax.tree.map(lambda a, b=begin: a[b : b + ROWS_AT_ONCE], data)
        mean, second = _moments(model, part, rule, draws)
        means.append(np.asarray(mean))
        seconds.append(np.asarray(second))
    mean = np.concatenate(means)[:num_rows]
    second = np.concatenate(seconds)[:num_rows]
    return LatentPosterior(mean, np.sqrt(np.maximum(second - mean**2, 0)))


@jax.jit
def _moments(
    model, data, rule, draws
) -> tuple[Float[Array, "N K"], Float[Array, "N K"]]:
    """Return E[z] and E[z^2] over draws of W."""

    def one(draw):
        noise = NoiseMoments(2 * jnp.log(draw.noise_std), draw.noise_std**-2)
        log_joint = node_log_joint(
            model, data, rule, draw.weights, noise, draw.latent_std**2
        )
        share = jax.nn.softmax(log_joint, axis=0).T
        nodes = draw.latent_std * rule.nodes
        return share @ nodes, share @ nodes**2

    firsts, seconds = jax.lax.map(one, jax.tree.map(jnp.asarray, draws))
    return jnp.mean(firsts, axis=0), jnp.mean(seconds, axis=0)


def _by_training(posterior, data, num_rows, seed, num_steps: int = 500):
    if not isinstance(posterior, GaussianPosterior):
        raise ValueError(
            "z of new rows with latent_dim above 2 needs a variational method; this "
            "model was sampled, and has z of its training rows only."
        )
    model = _with_variances_held(posterior.model)
    best = posterior.select(int(np.argmax(posterior.shares)))
    shape = (1, data.inputs.shape[0], model.network.latent_dim)
    std = np.sqrt(np.asarray(best.priors.latent_variance))[:, None, None]
    mean = best.mean._replace(latents=jnp.zeros(shape))
    scale = best.scale._replace(
        latents=jnp.asarray(np.broadcast_to(std, shape), jnp.result_type(float))
    )
    state = initial_state(
        MeanField(mean, raw_scales_of(scale)),
        best.priors,
        jax.random.split(jax.random.key(seed), 1),
    )
    stage = Stage(
        "latents",
        NegativeElbo(num_samples=4),
        max_steps=num_steps,
        learning_rate=0.02,
        trainable=LATENTS_ONLY,
    )
    q = Driver().run(stage, model, data, state).params
    return LatentPosterior(
        np.asarray(q.mean.latents[0, :num_rows]),
        np.asarray(scale_of(q).latents[0, :num_rows]),
    )


def _with_variances_held(model: Model) -> Model:
    """Turn empirical Bayes off, because the variances of the fit apply here too."""

    def held(variance: Variance) -> Variance:
        if variance.mode == "empirical":
            return replace(variance, mode="fixed")
        return variance

    return replace(
        model,
        weight_variance=held(model.weight_variance),
        latent_variance=held(model.latent_variance),
        noise_variance=held(model.noise_variance),
    )


def reconstruction_error(
    posterior: Posterior,
    data: Data,
    latents: LatentPosterior,
    seed: int,
    num_draws: int = 256,
) -> np.ndarray:
    """Return the mean of E_q (y_n - f(x_n, z_n; W))^2, by output (`eqn:recon`).

    W and z_n are both drawn from the posterior, so this is the error of
    *reconstructing* the training targets; a prediction draws z from the prior instead.
    For a sampler, z_n and W come from the same draw, because they depend on each other.
    """
    rows = len(latents.mean)
    part = jax.tree.map(lambda a: a[:rows], data)
    weight_key, latent_key = jax.random.split(jax.random.key(seed))
    if isinstance(posterior, SamplePosterior):
        draws = posterior.draw(weight_key, num_draws)
        pairs = posterior.draw_latents(num_draws)
        if pairs.shape[1] != rows:  # z was integrated out or is not in the model file
            pairs = _latents_given(posterior.model, part, draws, seed)
        weights = jnp.asarray(draws.weights)
        return np.asarray(_pair_errors(posterior.model, part, weights, pairs), float)
    posterior = _one_component(posterior)
    draws = posterior.draw(weight_key, num_draws)
    real = jnp.result_type(float)
    errors = _mean_errors(
        posterior.model,
        part,
        jnp.asarray(draws.weights),
        jnp.asarray(latents.mean, real),
        jnp.asarray(latents.std, real),
        jax.random.split(latent_key, num_draws),
    )
    return np.asarray(errors, float)


@jax.jit
def _mean_errors(model, data, weights, mean, std, keys) -> Float[Array, "L"]:
    def one(draw):
        flat, key = draw
        latents = mean + std * jax.random.normal(key, mean.shape)
        return squared_errors(model, data, flat, latents)

    total = jnp.mean(jax.lax.map(one, (weights, keys)), axis=0)
    return total / jnp.sum(data.row_weights)


@jax.jit
def _pair_errors(model, data, weights, latents) -> Float[Array, "L"]:
    def one(pair):
        return squared_errors(model, data, *pair)

    total = jnp.mean(jax.lax.map(one, (weights, latents)), axis=0)
    return total / jnp.sum(data.row_weights)
