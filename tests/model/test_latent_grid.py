"""Outputs at every node: the special case against the network, value and gradient."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncai.model.latent_grid import outputs_at_nodes
from ncai.model.networks import MLP, FlatNetwork

NODES = jnp.linspace(-4.0, 4.0, 33)[:, None]


def setting(
    activation="leaky_relu", hidden=(7,), outputs=2, latent_dim=1, latent_hidden=()
):
    mlp = MLP(hidden, activation, latent_hidden=latent_hidden)
    network = FlatNetwork(mlp, 3, latent_dim, outputs)
    keys = jax.random.split(jax.random.key(0), 3)
    inputs = jax.random.normal(keys[0], (11, 3))
    weights = jax.random.normal(keys[1], (network.num_weights,))
    factors = jax.random.normal(keys[2], (outputs, len(NODES), 11))
    return network, weights, inputs, factors


def plain(network, weights, inputs, nodes=NODES):
    by_row = jax.vmap(
        lambda x: jax.vmap(lambda z: network.apply(weights, x, z))(nodes)
    )(inputs)
    return jnp.moveaxis(by_row, (0, 1, 2), (2, 1, 0))


@pytest.mark.parametrize(
    ("activation", "hidden", "latent_hidden"),
    [
        *itertools.product(
            ("leaky_relu", "relu", "silu", "tanh"), ((7,), (5, 4)), ((),)
        ),
        ("silu", (7,), (3,)),
        ("silu", (5, 4), (3, 2)),
        ("leaky_relu", (7,), (3,)),
    ],
)
def test_values_and_gradients_are_those_of_the_network(
    activation, hidden, latent_hidden
):
    network, weights, inputs, factors = setting(
        activation, hidden, latent_hidden=latent_hidden
    )

    def through(function):
        value = jax.value_and_grad(
            lambda w, x: jnp.sum(factors * function(network, w, x)), argnums=(0, 1)
        )
        return jax.jit(value)(weights, inputs)

    found = through(lambda n, w, x: outputs_at_nodes(n, w, x, NODES))
    expected = through(plain)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4)
    for got, want in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)


def test_hidden_nodes_that_z_does_not_move():
    network, weights, inputs, factors = setting()
    tree = network.unflatten(weights)
    tree[0]["latent"] = tree[0]["latent"].at[0, ::2].set(0.0)
    weights = network.flatten(tree)
    found = jax.grad(
        lambda w: jnp.sum(factors * outputs_at_nodes(network, w, inputs, NODES))
    )(weights)
    expected = jax.grad(lambda w: jnp.sum(factors * plain(network, w, inputs)))(weights)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("activation", ["leaky_relu", "silu"])
@pytest.mark.parametrize("latent_hidden", [(), (3,)])
def test_two_latent_dimensions(activation, latent_hidden):
    network, weights, inputs, factors = setting(
        activation, latent_dim=2, latent_hidden=latent_hidden
    )
    nodes = jax.random.normal(jax.random.key(4), (9, 2))
    found, expected = (
        jax.value_and_grad(lambda w, f=f: jnp.sum(factors[:, :9] * f(w)))(weights)
        for f in (
            lambda w: outputs_at_nodes(network, w, inputs, nodes),
            lambda w: plain(network, w, inputs, nodes),
        )
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4)
    np.testing.assert_allclose(found[1], expected[1], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("activation", ["leaky_relu", "silu"])
def test_latents_that_enter_the_last_layer_are_as_those_of_any_network(activation):
    network = FlatNetwork(MLP((5, 4), activation, latent_layer="last"), 2, 1, 1)
    weights = network.init(jax.random.key(1))
    inputs = jax.random.normal(jax.random.key(2), (6, 2))
    factors = jax.random.normal(jax.random.key(3), (1, len(NODES), len(inputs)))

    def through(function):
        def total(w):
            outputs = function(network, w, inputs, NODES)
            return jnp.sum(factors * outputs), outputs

        return jax.jit(jax.grad(total, has_aux=True))(weights)

    found, expected = through(outputs_at_nodes), through(plain)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-5)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-4)


def test_silu_of_sums_beyond_what_exp_can_hold():
    """Its limits, 0 and the sum itself, and finite gradients."""
    network, weights, inputs, factors = setting("silu")
    far = 50 * weights  # sums of several hundred, whose parts cancel here and there
    found = outputs_at_nodes(network, far, inputs, NODES)
    expected = plain(network, far, inputs)
    scale = np.abs(np.asarray(expected)).max()
    np.testing.assert_allclose(found, expected, atol=1e-6 * scale)
    weights = 1000 * weights
    gradient = jax.grad(
        lambda w: jnp.sum(factors * outputs_at_nodes(network, w, inputs, NODES))
    )(weights)
    assert np.isfinite(gradient).all()


def test_an_unknown_place_of_the_latents_is_refused():
    with pytest.raises(ValueError, match="latent_layer='middle' must be"):
        MLP((5, 5), latent_layer="middle")
