"""Compute f(x_n, z_m; W) for all rows and all nodes of z, and its gradient.

Any network can be evaluated node by node. If z enters the last hidden layer, the sum of
hidden node h is offset[h, n] + move[h, m], where the first term depends only on x and
the second only on z. This makes both passes several times cheaper for two kinds of
activation:

- Piecewise linear, for a single z without layers of its own: each hidden node is off on
  one side of a threshold of z and on at the other side. Sums over nodes of z are then
  differences of running sums, and the gradient needs no pass over rows x nodes x hidden
  nodes.
- Silu: exp(-(offset + move)) is a product of two, each of which needs few exponentials.
  Hidden nodes are processed one after the other, and again for the gradient, so that
  everything stays in the cache.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ncai.model.networks import MLP, FlatNetwork

# Slope below 0 of the activations that are linear on both sides.
SLOPE_BELOW = {"leaky_relu": 0.01, "relu": 0.0}


def outputs_at_nodes(
    network: FlatNetwork,
    weights: Float[Array, "P"],
    inputs: Float[Array | np.ndarray, "N D"],
    latents: Float[Array, "M K"],
) -> Float[Array, "L M N"]:
    """Outputs at every pair of row and node.

    With one latent dimension the nodes must be equispaced and ascending.
    """
    tree = network.unflatten(weights)
    inner = network.network
    if not _latent_enters_last(network):
        by_row = jax.vmap(
            lambda x: jax.vmap(lambda z: inner.apply(tree, x, z))(latents)
        )(inputs)
        return jnp.moveaxis(by_row, (0, 1, 2), (2, 1, 0))
    assert isinstance(inner, MLP)
    entry, last = tree[-2:]
    offsets = inner.before_latents(tree, inputs).T
    if inner.activation == "silu":
        moves = inner.latent_part(tree, latents).T
        outputs = _silu_grid(offsets, moves, last["weight"])
    else:
        parts = offsets, entry["latent"][0], last["weight"], latents[:, 0]
        outputs = _one_layer_grid(SLOPE_BELOW[inner.activation], *parts)
    return outputs + last["bias"][:, None, None]


def _latent_enters_last(network: FlatNetwork) -> bool:
    """Return whether one of the two fast forms applies to this network."""
    inner = network.network
    if type(inner) is not MLP or not inner.hidden or not network.latent_dim:
        return False
    if inner.latent_entry < len(inner.hidden) - 1:
        return False
    as_it_is = network.latent_dim == 1 and not inner.latent_hidden
    return inner.activation == "silu" or (as_it_is and inner.activation in SLOPE_BELOW)


def _grid_forward(slope, offsets, latent_weights, last, nodes):
    """Sum over hidden nodes h of last[h, l] * activation(offsets[h, n] + b[h] z[m])."""
    num_outputs = last.shape[1]

    def add_hidden_node(total, node):
        offset, latent_weight, out = node
        before = offset[None, :] + latent_weight * nodes[:, None]
        after = jnp.maximum(before, slope * before)
        return total + out[:, None, None] * after, None

    zeros = jnp.zeros((num_outputs, len(nodes), offsets.shape[1]), offsets.dtype)
    return jax.lax.scan(add_hidden_node, zeros, (offsets, latent_weights, last))[0]


@jax.custom_vjp
def _one_layer_grid(
    slope: float | Float[Array, ""],
    offsets: Float[Array, "H N"],
    latent_weights: Float[Array, "H"],
    last: Float[Array, "H L"],
    nodes: Float[Array, "M"],
) -> Float[Array, "L M N"]:
    return _grid_forward(slope, offsets, latent_weights, last, nodes)


def _grid_saved(slope, offsets, latent_weights, last, nodes):
    outputs = _grid_forward(slope, offsets, latent_weights, last, nodes)
    return outputs, (slope, offsets, latent_weights, last, nodes)


def _grid_backward(saved, gradient):
    slope, offsets, latent_weights, last, nodes = saved
    spacing = nodes[1] - nodes[0]
    safe = jnp.where(latent_weights == 0, 1e-30, latent_weights)
    thresholds = -offsets / safe[:, None]
    # Nodes before `first` lie below the threshold.
    first = jnp.clip(jnp.ceil((thresholds - nodes[0]) / spacing), 0, len(nodes))
    first = first.astype(jnp.int32)
    rises = (latent_weights > 0)[:, None]

    def sums_where_on(summands):
        """Sum over nodes of summands[m, n] times the slope of hidden node h: [h, n]."""
        running = _running_sums(summands)
        below = jnp.take_along_axis(running, first, axis=0)
        total = running[-1]
        flat = jnp.where(latent_weights == 0, 1.0, 0.0)[:, None]
        on = jnp.where(rises, total - below, below)
        # A hidden node with weight 0 for z is on or off for every z.
        on = on * (1 - flat) + flat * jnp.where(offsets > 0, total, 0.0)
        return slope * total + (1 - slope) * on

    plain = jax.vmap(sums_where_on)(gradient)  # [L, H, N]
    by_node = jax.vmap(sums_where_on)(gradient * nodes[:, None])
    by_node = jnp.sum(by_node, axis=2)  # [L, H]
    to_offsets = jnp.einsum("hl,lhn->hn", last, plain)
    to_latent = jnp.einsum("hl,lh->h", last, by_node)
    to_last = jnp.einsum("hn,lhn->hl", offsets, plain)
    to_last += latent_weights[:, None] * by_node.T
    return None, to_offsets, to_latent, to_last, None


def _running_sums(summands: Float[Array, "M N"]) -> Float[Array, "M+1 N"]:
    # A scan over rows is much faster on a CPU than the tree of jnp.cumsum.
    def add(total, row):
        total = total + row
        return total, total

    start = jnp.zeros(summands.shape[1], summands.dtype)
    _, sums = jax.lax.scan(add, start, summands)
    return jnp.concatenate([start[None], sums])


_one_layer_grid.defvjp(_grid_saved, _grid_backward)


# In float32, exp of this is finite, and exp of its negative is not yet 0.
LARGEST_EXPONENT = 87.0


def _silu_of_hidden_node(offset, move):
    """Return the sums of one hidden node and their logistic, at nodes x rows.

    The product uses fourth roots, so that the parts of a sum may differ by four times
    the largest exponent. A sum that is too large or too small for a float gives the
    correct limits of the logistic, 0 and 1.
    """
    by_row, by_node = (
        jnp.exp(jnp.clip(-0.25 * part, -LARGEST_EXPONENT, LARGEST_EXPONENT))
        for part in (offset, move)
    )
    root = by_row[None, :] * by_node[:, None]
    square = root * root
    return offset[None, :] + move[:, None], 1 / (1 + square * square)


def _silu_forward(offsets, moves, last):
    """Sum over hidden nodes h of last[h, l] * silu(offsets[h, n] + moves[h, m])."""

    def add_hidden_node(total, node):
        offset, move, out = node
        before, logistic = _silu_of_hidden_node(offset, move)
        return total + out[:, None, None] * (before * logistic), None

    zeros = jnp.zeros((last.shape[1], moves.shape[1], offsets.shape[1]), offsets.dtype)
    return jax.lax.scan(add_hidden_node, zeros, (offsets, moves, last))[0]


@jax.custom_vjp
def _silu_grid(
    offsets: Float[Array, "H N"],
    moves: Float[Array, "H M"],
    last: Float[Array, "H L"],
) -> Float[Array, "L M N"]:
    return _silu_forward(offsets, moves, last)


def _silu_saved(offsets, moves, last):
    return _silu_forward(offsets, moves, last), (offsets, moves, last)


def _silu_backward(saved, gradient):
    offsets, moves, last = saved

    def of_hidden_node(_, node):
        offset, move, out = node
        before, logistic = _silu_of_hidden_node(offset, move)
        after = before * logistic
        slope = logistic + after * (1 - logistic)
        to_before = jnp.tensordot(out, gradient, 1) * slope
        return None, (
            jnp.sum(to_before, axis=0),
            jnp.sum(to_before, axis=1),
            jnp.sum(gradient * after, axis=(1, 2)),
        )

    _, found = jax.lax.scan(of_hidden_node, None, (offsets, moves, last))
    return found


_silu_grid.defvjp(_silu_saved, _silu_backward)
