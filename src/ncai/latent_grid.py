"""f(x_n, z_m; W) for every row and every node of z at once, and its gradient.

Any network can be evaluated node by node. For the most common one, whose one latent
enters the last hidden layer and which is piecewise linear in it, the gradient needs no
pass over rows x nodes x hidden: in z each hidden node is off on one side of a threshold
and on at the other, so sums over nodes are differences of running sums. That makes
sampling from p(W | D) with z integrated out several times cheaper.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ncai.networks import MLP, FlatNetwork

# Slope below 0 of the activations that are linear on both sides.
SLOPE_BELOW = {"leaky_relu": 0.01, "relu": 0.0}


def outputs_at_nodes(
    network: FlatNetwork,
    weights: Float[Array, "P"],
    inputs: Float[Array, "N D"],
    latents: Float[Array, "M K"],
) -> Float[Array, "L M N"]:
    """Outputs at every pair of row and node.

    With one latent dimension the nodes must be equispaced and ascending.
    """
    tree = network.unflatten(weights)
    slope = _slope_below(network)
    if slope is None:
        by_row = jax.vmap(
            lambda x: jax.vmap(lambda z: network.network.apply(tree, x, z))(latents)
        )(inputs)
        return jnp.moveaxis(by_row, (0, 1, 2), (2, 1, 0))
    inner = network.network
    assert isinstance(inner, MLP)
    entry, last = tree[-2:]
    offsets = inner.before_latents(tree, inputs).T
    outputs = _one_layer_grid(
        slope,
        offsets,
        entry["latent"][0],
        last["weight"],
        latents[:, 0],
    )
    return outputs + last["bias"][:, None, None]


def _slope_below(network: FlatNetwork) -> float | None:
    """Of a network that is piecewise linear in one latent; None for any other."""
    inner = network.network
    if type(inner) is MLP and inner.hidden and network.latent_dim == 1:
        if inner.latent_entry == len(inner.hidden) - 1:
            return SLOPE_BELOW.get(inner.activation)
    return None


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
    slope: float,
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
        # A node that z does not move is on or off for every z.
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
    # A scan over rows of N: far quicker on a CPU than jnp.cumsum's tree.
    def add(total, row):
        total = total + row
        return total, total

    start = jnp.zeros(summands.shape[1], summands.dtype)
    _, sums = jax.lax.scan(add, start, summands)
    return jnp.concatenate([start[None], sums])


_one_layer_grid.defvjp(_grid_saved, _grid_backward)
