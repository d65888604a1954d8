"""Run a function on the predictive mixture of every row, in bounded memory.

The compiled program and the arithmetic of a row are the same for any number of rows.
The result of a row therefore does not depend on the rows around it, not even in one
bit.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from ncai.model.networks import FlatNetwork
from ncai.model.quadrature import LatentNodes, latent_nodes
from ncai.predictive.components import NUM_SOME, Components
from ncai.runtime.jax_setup import num_threads, prepare_jax
from ncai.types import WeightDraws

# Rows go through the network eight at a time. Fewer rows would waste time on many small
# matrix products. The kernels of these products work on 4 or 8 rows at once, so with a
# multiple of eight they treat every row in the same way.
BLOCK_ROWS = 8
# The hidden values of a block with this many components take some tens of megabytes.
BLOCK_COMPONENTS = 16384
# The most values that one compiled call returns, unless one block already has more.
CHUNK_VALUES = 2**22
MAX_CHUNK_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Mixtures:
    """The predictive mixtures of N rows, on the scale of training.

    A row has one Gaussian for each weight draw, each value of z for this draw, and each
    width of its noise.

    Args:
        network: f(x, z; W).
        draws: S weight draws with their noise.
        nodes: values of z for each draw; `latent_std` of the draws scales them.
        inputs: rows, [N, D], in 32-bit numbers.
    """

    network: FlatNetwork
    draws: WeightDraws
    nodes: LatentNodes
    inputs: np.ndarray

    @classmethod
    def of(
        cls,
        network: FlatNetwork,
        draws: WeightDraws,
        num_latent: int,
        inputs: ArrayLike,
    ) -> "Mixtures":
        """Create mixtures with `num_latent` nodes of z for each weight draw."""
        nodes = latent_nodes(len(draws.weights), num_latent, network.latent_dim)
        return cls(network, draws, nodes, _checked_inputs(inputs, network.input_dim))

    def __len__(self) -> int:
        return len(self.inputs)

    def pick(self, rows) -> "Mixtures":
        """Return the mixtures of these rows only."""
        return Mixtures(self.network, self.draws, self.nodes, self.inputs[rows])


def _checked_inputs(inputs: ArrayLike, input_dim: int) -> Float[np.ndarray, "N D"]:
    with np.errstate(over="ignore"):  # refused below
        rows = np.asarray(inputs, np.float32)
    if rows.ndim != 2 or rows.shape[1] != input_dim:
        raise ValueError(
            f"inputs has shape {rows.shape}; it must be [rows, {input_dim}]."
        )
    if not np.isfinite(rows).all():
        row = int(np.argmin(np.isfinite(rows).all(axis=1)))
        raise ValueError(
            f"row {row} of the inputs (the first is 0) holds NaN, or a value too far "
            "from the training rows for 32-bit numbers (3e38 of their standard "
            "deviations)."
        )
    return rows


def component_means(
    network: FlatNetwork,
    weights: Float[Array, "S P"],
    latents: Float[Array, "S M K"],
    inputs: Float[Array, "N D"],
) -> Float[Array, "N S M L"]:
    """f(x_n, z_sm; W_s) for every row, weight draw and latent draw.

    The innermost `vmap` is over latents alone, so the first layer processes the inputs
    only once for each row and weight draw.
    """

    def one_draw(draw):
        flat, nodes = draw
        tree = network.unflatten(flat)
        over_latents = jax.vmap(network.network.apply, (None, None, 0))
        return jax.vmap(over_latents, (None, 0, None))(tree, inputs, nodes)

    num_draws, num_latent, _ = latents.shape
    at_once = max(1, BLOCK_COMPONENTS // num_latent)
    if num_draws <= at_once:
        means = jax.vmap(one_draw)((weights, latents))
    else:
        means = jax.lax.map(one_draw, (weights, latents), batch_size=at_once)
    return jnp.swapaxes(means, 0, 1)


def blur_of(
    means: Float[Array, "N S M L"], shares: Float[Array, "S M"]
) -> Float[Array, "N S M L"]:
    """How much components are widened: a share of the distance to the nearer neighbour.

    Where the noise is smaller than the distances between components, the mixture would
    have spikes, which the density of y does not have. Gaps between modes stay empty,
    because the distance is measured to the nearer neighbour.
    """
    if means.shape[-2] < 2:
        return jnp.zeros_like(means)
    away = jnp.abs(jnp.diff(means, axis=-2))
    below = jnp.concatenate([away[..., :1, :], away], axis=-2)
    above = jnp.concatenate([away, away[..., -1:, :]], axis=-2)
    return shares[..., None] * jnp.minimum(below, above)


def map_first(function: Callable, rows, count: Int[Array, ""], block_rows: int):
    """Apply `function` to blocks of rows until the first `count` rows are done.

    Later rows of the result are zero, so a partly filled chunk costs no more than its
    rows.
    """

    def block(start):
        taken = jax.tree.map(
            lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, block_rows), rows
        )
        return function(taken)

    num_rows = jax.tree.leaves(rows)[0].shape[0]
    shapes = jax.eval_shape(block, 0)
    results = jax.tree.map(
        lambda leaf: jnp.zeros((num_rows, *leaf.shape[1:]), leaf.dtype), shapes
    )

    def step(index, results):
        start = index * block_rows
        return jax.tree.map(
            lambda whole, part: jax.lax.dynamic_update_slice_in_dim(
                whole, part, start, 0
            ),
            results,
            block(start),
        )

    return jax.lax.fori_loop(0, (count + block_rows - 1) // block_rows, step, results)


class _Shared(NamedTuple):
    """The parts that the mixtures of all rows share."""

    weights: Float[Array, "S P"]
    latents: Float[Array, "S M K"]
    blur: Float[Array, "S M"]
    noise_std: Float[Array, "S L"]
    noise_factors: Float[Array, "S J"]
    log_weights: Float[Array, "S M J"]
    few: Int[Array, "F"]


@partial(jax.jit, static_argnames=("statistic", "network"))
def _mixture_chunk(statistic, network, of_all, rows, shared, count):
    def block(taken):
        inputs, arguments = taken
        means = component_means(network, of_all.weights, of_all.latents, inputs)
        # One row at a time: iterative statistics stop when *this* row is done.
        return jax.lax.map(
            lambda row: statistic(Components(*row[:2], *of_all[3:]), row[2], shared),
            (means, blur_of(means, of_all.blur), arguments),
        )

    return map_first(block, rows, count, BLOCK_ROWS)


def _in_common(mixtures: Mixtures) -> _Shared:
    """Return the parts that the mixtures of all rows share, in 32-bit numbers."""
    draws, nodes = mixtures.draws, mixtures.nodes
    shares = np.asarray(draws.shares)[:, None, None]
    of_noise = np.asarray(draws.noise_shares)[:, None, :]
    weights = shares * np.exp(nodes.log_weights, dtype=np.float64)[..., None] * of_noise
    scales = np.asarray(draws.latent_std)[:, None, None]
    few = jnp.asarray(picks_by_weight(weights, NUM_SOME))

    def in_32_bits(array) -> Array:
        return jnp.asarray(array, jnp.float32)

    return _Shared(
        in_32_bits(draws.weights),
        in_32_bits(nodes.values * scales),
        in_32_bits(nodes.blur),
        in_32_bits(draws.noise_std),
        in_32_bits(draws.noise_factors),
        in_32_bits(np.log(weights)),
        few,
    )


def picks_by_weight(
    weights: Float[np.ndarray, "S M J"], size: int
) -> Int[np.ndarray, "size"]:
    """Pick components in proportion to their weights, and return their numbers.

    Golden-ratio steps visit all weight draws evenly and favour no value of z, whereas
    steps of a fixed length could favour some. The first steps alone are even, too.
    Components of the same noise width are next to each other, so each width gets its
    share of the steps.
    """
    order = np.moveaxis(np.arange(weights.size).reshape(weights.shape), -1, 0).ravel()
    edges = np.cumsum(weights.ravel()[order], dtype=np.float64)
    places = np.arange(size) * (np.sqrt(5) - 1) / 2 % 1.0
    found = np.searchsorted(edges / edges[-1], places, side="right")
    return order[np.minimum(found, len(order) - 1)].astype(np.int32)


def chunk_rows(values_per_row: int) -> int:
    """Number of rows in a compiled call, from the size of the result of a row."""
    rows = min(MAX_CHUNK_ROWS, CHUNK_VALUES // max(values_per_row, 1))
    return max(BLOCK_ROWS, rows // BLOCK_ROWS * BLOCK_ROWS)


def in_chunks(compiled: Callable, rows, num_rows: int, size: int):
    """Call `compiled(chunk_of_rows, count)` on padded chunks; gather as float64.

    The first chunk compiles the program. The others then run in parallel, because one
    call keeps little more than one core busy.
    """

    def one(start):
        count = min(size, num_rows - start)
        chunk = jax.tree.map(lambda leaf: _slice(leaf, start, count, size), rows)
        return jax.device_get(compiled(chunk, np.int32(count)))

    def put(start, result):
        # Write into arrays that exist already: results may fill the memory, so a second
        # copy would not fit.
        count = min(size, num_rows - start)
        for whole, part in zip(leaves, jax.tree.leaves(result), strict=True):
            whole[start : start + count] = part[:count]

    starts = range(0, max(num_rows, 1), size)
    first = one(starts[0])
    parts, structure = jax.tree.flatten(first)
    leaves = [np.empty((num_rows, *part.shape[1:]), np.float64) for part in parts]
    put(starts[0], first)
    if len(starts) > 1:
        with ThreadPoolExecutor(min(num_threads(), len(starts) - 1)) as pool:
            for _ in pool.map(lambda start: put(start, one(start)), starts[1:]):
                pass
    return jax.tree.unflatten(structure, leaves)


def _slice(leaf: np.ndarray, start: int, count: int, size: int) -> np.ndarray:
    padding = [(0, size - count)] + [(0, 0)] * (leaf.ndim - 1)
    return np.pad(leaf[start : start + count], padding)


def map_mixtures(
    statistic: Callable, mixtures: Mixtures, arguments=(), shared=(), values_per_row=1
):
    """Compute `statistic(components, row_arguments, shared)` for every row.

    Args:
        statistic: a function of the `Components` of one row; define it at the top of a
            module, because it is a static argument of the compiled program.
        mixtures: the mixture of each row.
        arguments: pytree of arrays whose first axis is the axis of rows.
        shared: pytree of arrays that all rows share.
        values_per_row: approximate number of values in the result of a row.

    Returns:
        The results stacked over rows, in NumPy float64.
    """
    prepare_jax()
    network, inputs = mixtures.network, mixtures.inputs
    of_all = _in_common(mixtures)

    def compiled(rows, count):
        return _mixture_chunk(statistic, network, of_all, rows, shared, count)

    size = chunk_rows(values_per_row)
    return in_chunks(compiled, (inputs, arguments), len(inputs), size)
