"""Random draws from the predictive distribution, as opposed to its exact formulas."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, UInt

from ncai.model.quadrature import LatentNodes, latent_nodes
from ncai.predictive.row_map import (
    BLOCK_ROWS,
    Mixtures,
    chunk_rows,
    in_chunks,
    map_first,
    map_mixtures,
)
from ncai.runtime.arguments import is_number
from ncai.runtime.jax_setup import prepare_jax
from ncai.types import WeightDraws

LATENT_CHOICES = ("mean", "prior", "shared")
FEWEST_NODES = 64  # the mean of y given W averages over at least this many z
_SAMPLES_AT_ONCE = 256


def checked_seed(value: Any) -> int:
    """Return the seed of random numbers; 0 if it is None."""
    if value is None:
        return 0
    whole = is_number(value) and value % 1 == 0
    if not whole or not 0 <= value < 2**32:  # JAX uses 32 bits
        raise ValueError(
            f"seed={value!r} must be a whole number from 0 to {2**32 - 1}, or None."
        )
    return int(value)


def sample_rows(
    mixtures: Mixtures, row_ids: UInt[np.ndarray, "N"], num_samples: int, seed: int
) -> Float[np.ndarray, "N n L"]:
    """Independent draws of y: new W, new z from its prior and new noise each time."""
    prepare_jax()
    network, inputs = mixtures.network, mixtures.inputs
    draws = _cumulated(mixtures.draws)
    key = jax.random.key(seed)

    def compiled(rows, count):
        return _sample_chunk(network, num_samples, draws, key, rows, count)

    size = chunk_rows(num_samples * network.output_dim)
    return in_chunks(compiled, (inputs, row_ids), len(inputs), size)


def _cumulated(draws: WeightDraws) -> WeightDraws:
    """The draws in 32-bit numbers, with cumulative shares for random selection."""
    draws = draws._replace(
        shares=np.cumsum(draws.shares),
        noise_shares=np.cumsum(draws.noise_shares, axis=1),
    )
    return WeightDraws(*(jnp.asarray(leaf, jnp.float32) for leaf in draws))


@partial(jax.jit, static_argnames=("network", "num_samples"))
def _sample_chunk(network, num_samples, draws, key, rows, count):
    def chosen(key, edges):
        place = jax.random.uniform(key, (), jnp.float32) * edges[-1]
        return jnp.searchsorted(edges, place, side="right", method="compare_all")

    def one_sample(inputs, key):
        draw_key, width_key, latent_key, noise_key = jax.random.split(key, 4)
        index = chosen(draw_key, draws.shares)
        width = chosen(width_key, draws.noise_shares[index])
        latents = jax.random.normal(latent_key, (network.latent_dim,), jnp.float32)
        noise = jax.random.normal(noise_key, (network.output_dim,), jnp.float32)
        latents = draws.latent_std[index] * latents
        mean = network.apply(draws.weights[index], inputs, latents)
        std = draws.noise_std[index] * draws.noise_factors[index, width]
        return mean + std * noise

    at_once = min(_SAMPLES_AT_ONCE, num_samples)
    num_blocks = -(-num_samples // at_once)
    indices = jnp.arange(num_blocks * at_once).reshape(num_blocks, at_once)

    def one_row(row):
        inputs, row_id = row
        row_key = jax.random.fold_in(key, row_id)

        def some(indices):
            keys = jax.vmap(lambda index: jax.random.fold_in(row_key, index))(indices)
            return jax.vmap(lambda key: one_sample(inputs, key))(keys)

        samples = jax.lax.map(some, indices)
        return samples.reshape(-1, network.output_dim)[:num_samples]

    return map_first(partial(jax.lax.map, one_row), rows, count, BLOCK_ROWS)


def sample_functions(
    mixtures: Mixtures,
    row_ids: UInt[np.ndarray, "N"],
    num_samples: int,
    seed: int,
    latent: str,
    include_noise: bool,
) -> Float[np.ndarray, "N n L"]:
    """Draws that use one W for all rows; see `PredictiveDistribution`."""
    prepare_jax()
    network, inputs = mixtures.network, mixtures.inputs
    order = np.random.default_rng(seed).permutation(num_samples)
    draws = mixtures.draws.resampled(num_samples, seed).pick(order)
    latent_key, noise_key = jax.random.split(jax.random.key(seed))
    latent_shape = (num_samples, network.latent_dim)
    if latent == "prior":
        latents = _row_normals(latent_key, row_ids, latent_shape)
        latents = latents * np.asarray(draws.latent_std)[:, None]
        values = _map_functions(network, draws.weights, inputs, latents)
    else:
        if latent == "mean":
            # All W use the same centred values of z, so the functions differ only by W.
            num_latent = max(FEWEST_NODES, mixtures.nodes.values.shape[1])
            one = latent_nodes(1, num_latent, network.latent_dim)
            values, weights = (
                np.repeat(leaf, num_samples, axis=0)
                for leaf in (one.values, one.log_weights)
            )
            nodes = LatentNodes(values, weights, np.zeros_like(weights))
        else:
            drawn = np.asarray(jax.random.normal(latent_key, latent_shape))[:, None]
            zeros = np.zeros((num_samples, 1), np.float32)
            nodes = LatentNodes(drawn, zeros, zeros)
        values = map_mixtures(
            average_over_latents,
            Mixtures(network, draws, nodes, inputs),
            values_per_row=num_samples * network.output_dim,
        )
    if include_noise:
        noise = _row_normals(noise_key, row_ids, (num_samples, network.output_dim))
        values = values + np.asarray(draws.noise_std) * noise
    return values


def average_over_latents(components, row, shared):
    """E_z f(x, z; W_s) for every weight draw, [S, L]."""
    del row, shared
    weights = jnp.exp(components.log_weights).sum(2, keepdims=True)
    return (weights * components.means).sum(1) / weights.sum(1)


def _map_functions(network, weights, inputs, latents):
    weights = jnp.asarray(weights)

    def compiled(rows, count):
        return _functions_chunk(network, weights, rows, count)

    size = chunk_rows(weights.shape[0] * network.output_dim)
    return in_chunks(compiled, (inputs, latents), len(inputs), size)


@partial(jax.jit, static_argnames="network")
def _functions_chunk(network, weights, rows, count):
    def one_row(row):
        inputs, latents = row
        return jax.vmap(network.apply, (0, None, 0))(weights, inputs, latents)

    return map_first(partial(jax.lax.map, one_row), rows, count, BLOCK_ROWS)


def _row_normals(key, row_ids, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normals that depend on the number of a row but not on its batch."""

    def compiled(ids, count):
        return _normals_chunk(shape, key, ids, count)

    size = chunk_rows(int(np.prod(shape)))
    return in_chunks(compiled, row_ids, len(row_ids), size).astype(np.float32)


@partial(jax.jit, static_argnames="shape")
def _normals_chunk(shape, key, row_ids, count):
    def one_row(row_id):
        return jax.random.normal(jax.random.fold_in(key, row_id), shape, jnp.float32)

    return map_first(jax.vmap(one_row), row_ids, count, BLOCK_ROWS)
