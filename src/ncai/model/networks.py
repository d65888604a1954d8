"""The function f(x, z; W): a small protocol, and the multilayer perceptron.

A network is written for *one* row: `vmap` adds rows, latent draws and weight draws.
It takes inputs and latents as separate arguments, so that a prediction over many latent
draws computes only once what depends only on the inputs.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

Weights = Any
"""Any pytree of float arrays."""

ACTIVATIONS = {
    "leaky_relu": lambda a: jnp.where(a > 0, a, 0.01 * a),  # the paper's slope
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "identity": lambda a: a,
}


AUTO = "auto"
# The choices of latent_hidden="auto"; the first is used if no rows can choose.
LATENT_LAYERS: tuple[tuple[int, ...], ...] = ((20,), ())


@runtime_checkable
class Network(Protocol):
    """The interface of a network. It must be hashable, such as a frozen dataclass."""

    def init(
        self, key: PRNGKeyArray, input_dim: int, latent_dim: int, output_dim: int
    ) -> Weights:
        """Random starting weights for these sizes, as a pytree of float arrays."""
        ...

    def apply(
        self, weights: Weights, inputs: Float[Array, "D"], latents: Float[Array, "K"]
    ) -> Float[Array, "L"]:
        """The L outputs at one row of D inputs and K latents (K may be 0)."""
        ...


@dataclass(frozen=True)
class MLP:
    """A multilayer perceptron; `hidden=()` is a linear map.

    Args:
        hidden: number of nodes in each hidden layer.
        activation: name of the hidden activation, a key of `ACTIVATIONS`. Stored by
            name so that a network can be compared, hashed and written to a file.
        latent_layer: which hidden layer z enters: the "first", together with x as in
            the paper, or the "last". With one hidden layer they are the same. With
            more, "last" makes integrals over z far cheaper, because the earlier layers
            depend only on x.
        latent_hidden: nodes of hidden layers for z alone, which z passes through before
            it enters. They make steps in z possible (noise with two peaks) and cost
            almost nothing, because they depend only on z. Their activation is always
            tanh, so the effect of a rare z stays bounded; otherwise f would continue as
            a straight line beyond the z of all rows. With "auto", held-out rows choose
            (see `choices`).
    """

    # The user may give a whole number or any sequence of them; stored as tuples.
    hidden: tuple[int, ...] | Any = (50,)
    activation: str = "leaky_relu"
    latent_layer: str = "first"
    latent_hidden: tuple[int, ...] | str | Any = ()

    def __post_init__(self):
        if str(self.activation) not in ACTIVATIONS:
            raise ValueError(
                f"activation={self.activation!r} is not known; "
                f"choose one of {sorted(ACTIVATIONS)}."
            )
        if self.latent_layer not in ("first", "last"):
            raise ValueError(
                f"latent_layer={self.latent_layer!r} must be 'first' or 'last'."
            )
        for name in ("hidden", "latent_hidden"):
            if name == "latent_hidden" and self.latent_hidden == AUTO:
                continue
            other = f", or {AUTO!r}" if name == "latent_hidden" else ""
            widths = layer_widths(name, getattr(self, name), other)
            if any(width < 1 for width in widths):
                raise ValueError(
                    f"{name}={widths!r} must hold whole numbers of at least 1."
                )
            object.__setattr__(self, name, widths)  # hashable, whatever was given

    def choices(self) -> "tuple[MLP, ...]":
        """Return the networks that held-out rows choose among, the usual one first."""
        if self.latent_hidden != AUTO:
            return (self,)
        return tuple(replace(self, latent_hidden=own) for own in LATENT_LAYERS)

    def init(
        self, key: PRNGKeyArray, input_dim: int, latent_dim: int, output_dim: int
    ) -> Weights:
        """Xavier-normal weights with gain 1 (the paper's start), zero biases."""
        if isinstance(self.latent_hidden, str):
            raise ValueError(
                f"latent_hidden={self.latent_hidden!r} leaves the network open: take "
                "one of its choices()."
            )
        entry = self.latent_entry
        own = self.latent_hidden if latent_dim else ()
        latent_widths = (latent_dim, *own)
        fans_in = [input_dim, *self.hidden]
        fans_in[entry] += latent_widths[-1]
        fans_out = [*self.hidden, output_dim]
        keys = jax.random.split(key, len(fans_out))
        layers: list[dict[str, Any]] = [
            _xavier(*sizes) for sizes in zip(keys, fans_in, fans_out, strict=True)
        ]
        joint = layers[entry].pop("weight")
        split = fans_in[entry] - latent_widths[-1]
        layers[entry] |= {"weight": joint[:split], "latent": joint[split:]}
        if own:
            own_keys = jax.random.split(jax.random.fold_in(key, 1), len(own))
            layers[entry]["latent_layers"] = [
                _xavier(*sizes)
                for sizes in zip(own_keys, latent_widths, own, strict=False)
            ]
        layers[0]["input"] = layers[0].pop("weight")
        return layers

    @property
    def latent_entry(self) -> int:
        """The number of the layer that z enters."""
        return max(len(self.hidden) - 1, 0) if self.latent_layer == "last" else 0

    def before_latents(
        self, weights: Weights, inputs: Float[Array | np.ndarray, "*N D"]
    ) -> Float[Array, "*N H"]:
        """Return the sums of the layer that z enters, without the part of z."""
        activation = ACTIVATIONS[self.activation]
        first, *rest = weights[: self.latent_entry + 1]
        out = inputs @ first["input"] + first["bias"]
        for layer in rest:
            out = activation(out) @ layer["weight"] + layer["bias"]
        return out

    def latent_part(
        self, weights: Weights, latents: Float[Array, "*M K"]
    ) -> Float[Array, "*M H"]:
        """Return the part of z in the sums of the layer that it enters."""
        layer = weights[self.latent_entry]
        for own in layer.get("latent_layers", ()):
            latents = jnp.tanh(latents @ own["weight"] + own["bias"])
        return latents @ layer["latent"]

    def apply(
        self, weights: Weights, inputs: Float[Array, "D"], latents: Float[Array, "K"]
    ) -> Float[Array, "L"]:
        """Forward pass for one row."""
        activation = ACTIVATIONS[self.activation]
        out = self.before_latents(weights, inputs)
        if latents.shape[-1]:
            out = out + self.latent_part(weights, latents)
        for layer in weights[self.latent_entry + 1 :]:
            out = activation(out) @ layer["weight"] + layer["bias"]
        return out


def _xavier(key: PRNGKeyArray, fan_in: int, fan_out: int) -> dict[str, Array]:
    std = (2.0 / max(fan_in + fan_out, 1)) ** 0.5
    return {
        "weight": std * jax.random.normal(key, (fan_in, fan_out)),
        "bias": jnp.zeros(fan_out),
    }


def _check_network(network, shapes, input_dim: int, latent_dim: int, output_dim: int):
    """Reject a network that does not satisfy `Network`, before it is trained."""
    name = type(network).__name__
    try:
        hash(network)
    except TypeError:
        raise ValueError(
            f"network={name} must be hashable, as a frozen dataclass is."
        ) from None
    for leaf in jax.tree.leaves(shapes):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"network={name} has weights of type {leaf.dtype}; all must be floats."
            )
    one = jax.eval_shape(
        network.apply, shapes, jnp.zeros(input_dim), jnp.zeros(latent_dim)
    )
    found = getattr(one, "shape", None)
    if found != (output_dim,):
        raise ValueError(
            f"network={name} gives outputs of shape {found} for one row; it must be "
            f"({output_dim},), a number for each column of y."
        )


def layer_widths(name: str, value: Any, otherwise: str = "") -> tuple[int, ...]:
    """Nodes of hidden layers, from a whole number or a list of them."""
    widths = np.atleast_1d(np.asarray(value, object))
    if widths.ndim > 1 or not all(
        isinstance(width, int | np.integer) and not isinstance(width, bool)
        for width in widths
    ):
        raise ValueError(
            f"{name}={value!r} must be a list of whole numbers{otherwise}."
        )
    return tuple(int(width) for width in widths)


@dataclass(frozen=True)
class FlatNetwork:
    """A network seen through one flat weight vector, as inference uses it.

    Hashable by its parts, so that it can be a static argument of a compiled function.
    """

    network: Network
    input_dim: int
    latent_dim: int
    output_dim: int
    num_weights: int = field(init=False, compare=False)
    # Derived values.
    _treedef: Any = field(init=False, compare=False, repr=False)
    _shapes: tuple[tuple[int, ...], ...] = field(init=False, compare=False, repr=False)
    _sizes: tuple[int, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self):
        sizes = self.input_dim, self.latent_dim, self.output_dim
        shapes = jax.eval_shape(lambda: self.network.init(jax.random.key(0), *sizes))
        _check_network(self.network, shapes, *sizes)
        leaves, treedef = jax.tree.flatten(shapes)
        known = {
            "_treedef": treedef,
            "_shapes": tuple(leaf.shape for leaf in leaves),
            "_sizes": tuple(int(leaf.size) for leaf in leaves),
        }
        known["num_weights"] = sum(known["_sizes"])
        for name, value in known.items():  # the class is frozen
            object.__setattr__(self, name, value)

    def init(self, key: PRNGKeyArray) -> Float[Array, "P"]:
        """Random starting weights as one vector."""
        return self.flatten(
            self.network.init(key, self.input_dim, self.latent_dim, self.output_dim)
        )

    def flatten(self, weights: Weights) -> Float[Array, "P"]:
        """One vector from the network's own pytree of weights."""
        leaves = self._treedef.flatten_up_to(weights)
        return jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])

    def unflatten(self, flat: Float[Array | np.ndarray, "P"]) -> Weights:
        """The network's own pytree of weights from one vector."""
        leaves, start = [], 0
        for shape, size in zip(self._shapes, self._sizes, strict=True):
            leaves.append(flat[start : start + size].reshape(shape))
            start += size
        return jax.tree.unflatten(self._treedef, leaves)

    def apply(
        self,
        flat: Float[Array, "P"],
        inputs: Float[Array, "D"],
        latents: Float[Array, "K"],
    ) -> Float[Array, "L"]:
        """f(x, z; W) for one row."""
        return self.network.apply(self.unflatten(flat), inputs, latents)

    def apply_rows(
        self,
        flat: Float[Array | np.ndarray, "P"],
        inputs: Float[Array | np.ndarray, "N D"],
        latents: Float[Array | np.ndarray, "N K"],
    ) -> Float[Array, "N L"]:
        """f(x_n, z_n; W) for every row, each with its own latent."""
        weights = self.unflatten(flat)
        return jax.vmap(lambda x, z: self.network.apply(weights, x, z))(inputs, latents)


def networks_to_try(
    network: Network, input_dim: int, latent_dim: int, output_dim: int
) -> list[FlatNetwork]:
    """Return the networks to choose among: only this one unless it offers choices."""
    choices = network.choices() if isinstance(network, MLP) else (network,)
    if not latent_dim:
        choices = choices[:1]
    return [FlatNetwork(one, input_dim, latent_dim, output_dim) for one in choices]
