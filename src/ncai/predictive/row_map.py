"""Run a function on the predictive mixture of every row, in bounded memory.

Whatever the number of rows, the compiled program is the same and so is every row's
arithmetic: a row's result does not depend, in a single bit, on the rows around it.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from ncai.model.latent_nodes import latent_nodes, tail_nodes
from ncai.model.networks import FlatNetwork
from ncai.runtime.jax_setup import num_threads, prepare_jax
from ncai.types import WeightDraws

# Rows go through the network eight at a time. Fewer would waste time on many small
# matrix products; a multiple of eight means that the kernels of those products, which
# work on 4 or 8 rows at once, treat every row in the same way.
BLOCK_ROWS = 8
# A block's hidden values for this many components take some tens of megabytes.
BLOCK_COMPONENTS = 16384
# Values that one compiled call hands back at most, unless one block already has more.
CHUNK_VALUES = 2**22
MAX_CHUNK_ROWS = 1024
# A density that rests on fewer components than this (or, where there are few, on a
# smaller share of them) is computed again with TAIL_NODES values of z for each W.
FEWEST_COMPONENTS, LEAST_SHARE = 30, 0.01
TAIL_NODES = 64
TAIL_PARTS = 8  # of the draws of W, one after another, to save memory


@dataclass(frozen=True, eq=False)
class Mixtures:
    """The predictive mixtures of N rows, on the scale of training.

    A row has one Gaussian for each weight draw and each value of z that goes with it,
    all with the same weight.

    Args:
        network: f(x, z; W).
        draws: S weight draws with their noise.
        nodes: standard-normal values of z, [S, M, K]; `latent_std` of the draws scales
            them.
        inputs: rows, [N, D], in 32-bit numbers.
    """

    network: FlatNetwork
    draws: WeightDraws
    nodes: np.ndarray
    inputs: np.ndarray

    @classmethod
    def of(
        cls,
        network: FlatNetwork,
        draws: WeightDraws,
        num_latent: int,
        inputs: ArrayLike,
    ) -> "Mixtures":
        """With `num_latent` evenly spread values of z for each weight draw."""
        nodes = latent_nodes(len(draws.weights), num_latent, network.latent_dim)
        return cls(network, draws, nodes, _checked_inputs(inputs, network.input_dim))

    def __len__(self) -> int:
        return len(self.inputs)

    def pick(self, rows) -> "Mixtures":
        """Only these rows."""
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

    The innermost `vmap` is over latents alone, so the first layer's work on the inputs
    is done once per row and weight draw.
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


def map_first(function: Callable, rows, count: Int[Array, ""], block_rows: int):
    """Apply `function` to blocks of rows until the first `count` rows are done.

    Later rows of the result are zero: a part-filled chunk costs no more than its rows.
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


@partial(jax.jit, static_argnames=("statistic", "network"))
def _mixture_chunk(statistic, network, draws, latents, rows, shared, count):
    def block(taken):
        inputs, arguments = taken
        means = component_means(network, draws.weights, latents, inputs)
        # One row at a time: iterative statistics stop when *this* row is done.
        return jax.lax.map(
            lambda row: statistic(row[0], draws.noise_std, row[1], shared),
            (means, arguments),
        )

    return map_first(block, rows, count, BLOCK_ROWS)


def chunk_rows(values_per_row: int) -> int:
    """Rows for each compiled call; depends on the size of a row's result only."""
    rows = min(MAX_CHUNK_ROWS, CHUNK_VALUES // max(values_per_row, 1))
    return max(BLOCK_ROWS, rows // BLOCK_ROWS * BLOCK_ROWS)


def in_chunks(compiled: Callable, rows, num_rows: int, size: int):
    """Call `compiled(chunk_of_rows, count)` on padded chunks; gather as float64.

    Chunks after the first, which compiles, are run side by side: one call keeps little
    more than one core busy.
    """

    def one(start):
        count = min(size, num_rows - start)
        chunk = jax.tree.map(lambda leaf: _slice(leaf, start, count, size), rows)
        return jax.device_get(compiled(chunk, np.int32(count)))

    def put(start, result):
        # Into arrays made once: results may fill the memory, a second copy would not
        # fit.
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
    """`statistic(means, noise_std, row_arguments, shared)` for every row.

    Args:
        statistic: a module-level function (it is a static argument of the compiled
            program) of one row's means [S, M, L] and noise_std [S, L].
        mixtures: the mixture of each row.
        arguments: pytree of arrays with one leading entry per row.
        shared: pytree of arrays that all rows share.
        values_per_row: about how many numbers a row's result has.

    Returns:
        The results stacked over rows, in NumPy float64.
    """
    prepare_jax()
    network, inputs = mixtures.network, mixtures.inputs
    draws = WeightDraws(*(jnp.asarray(leaf, jnp.float32) for leaf in mixtures.draws))
    latents = jnp.asarray(mixtures.nodes, jnp.float32)
    latents = latents * draws.latent_std[:, None, None]

    def compiled(rows, count):
        return _mixture_chunk(statistic, network, draws, latents, rows, shared, count)

    size = chunk_rows(values_per_row)
    return in_chunks(compiled, (inputs, arguments), len(inputs), size)


def map_log_probabilities(
    plain: Callable, weighted: Callable, mixtures: Mixtures, arguments, shared=()
) -> Float[np.ndarray, "N"]:
    """A log probability or density for each row, accurate in far tails.

    Where only a few components matter, the values of z of the mixture do not reach far
    enough; with K = 1 the row is then computed again with values that do.

    Args:
        plain: a statistic that gives the logarithm and the effective number of
            components behind it.
        weighted: the same statistic for components with log weights, which come after
            `shared`; it gives the logarithm alone.
        mixtures: the mixture of each row.
        arguments: as for `map_mixtures`.
        shared: as for `map_mixtures`.
    """
    found, count = map_mixtures(plain, mixtures, arguments, shared)
    num_draws, num_latent, latent_dim = mixtures.nodes.shape
    few = count < min(FEWEST_COMPONENTS, LEAST_SHARE * num_draws * num_latent)
    if latent_dim != 1 or not few.any():
        return found
    nodes, log_weights = tail_nodes(num_draws, TAIL_NODES)
    inputs = mixtures.inputs[few]
    arguments = jax.tree.map(lambda a: a[few], arguments)
    # In parts: the hidden nodes of all draws at once would fill the memory.
    parts = []
    for first in range(min(TAIL_PARTS, num_draws)):
        picked = slice(first, None, TAIL_PARTS)
        draws = WeightDraws(*(leaf[picked] for leaf in mixtures.draws))
        part = Mixtures(mixtures.network, draws, nodes[picked], inputs)
        weights = (shared, log_weights[picked])
        parts.append(map_mixtures(weighted, part, arguments, weights))
    found[few] = logsumexp(parts, axis=0)
    return found
