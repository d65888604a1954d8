"""The paper's theorems, on this package's own network and log prior.

Other weights and latents give the same function values, and so the same likelihood,
but a higher prior: the joint mode is not where the data came from.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncai.model.bnn_lv import Model, PriorState, Variance
from ncai.model.log_joint import log_joint_terms
from ncai.model.networks import ACTIVATIONS, MLP, FlatNetwork
from ncai.types import Data, Unknowns

finite = st.floats(-3, 3, allow_nan=False)
nonzero = st.floats(0.05, 4).flatmap(lambda c: st.sampled_from([c, -c]))


def one_node(weight):
    """f(x, z) = leaky_relu(W (x + z)): no biases, unit output weight."""
    weight = jnp.asarray([[weight]])
    zero, one = jnp.zeros(1), jnp.ones((1, 1))
    return [
        {"input": weight, "latent": weight, "bias": zero},
        {"weight": one, "bias": zero},
    ]


def outputs(weights, inputs, latents):
    """The MLP's own values at every row; its widths follow from the weights."""
    network = MLP(hidden=(weights[0]["bias"].size,))
    return jax.vmap(lambda x, z: network.apply(weights, x, z))(
        jnp.asarray(inputs), jnp.asarray(latents)
    )


def scaled_latents(factor, inputs, latents):
    return (factor - 1) * inputs + factor * latents


@settings(max_examples=25, deadline=None)
@given(weight=finite, factor=nonzero, x=finite, z=finite)
def test_scaling_one_node_changes_nothing(weight, factor, x, z):
    # x + z' = C (x + z), so (W / C) (x + z') = W (x + z): also for negative C.
    with jax.enable_x64(True):
        inputs, latents = np.array([[x]]), np.array([[z]])
        before = outputs(one_node(weight), inputs, latents)
        after = outputs(
            one_node(weight / factor), inputs, scaled_latents(factor, inputs, latents)
        )
        np.testing.assert_allclose(after, before, atol=1e-12)


def log_prior_of_latents(latents, variance):
    """The term of the package's log joint, by row."""
    dims = latents.shape[1]
    network = FlatNetwork(MLP(hidden=()), 1, dims, 1)
    fixed = Variance(jnp.asarray(1.0))
    model = Model(network, fixed, fixed, Variance(jnp.ones(1)))
    empty = jnp.zeros((len(latents), 1))
    terms = log_joint_terms(
        model,
        Data(empty, empty, jnp.ones(len(latents))),
        Unknowns(jnp.zeros(network.num_weights), jnp.asarray(latents), jnp.zeros(0)),
        PriorState(jnp.asarray(1.0), jnp.asarray(variance), jnp.ones(1)),
    )
    return float(terms["log_prior_latents"]) / len(latents)


def within_five_errors(gaps, expected):
    return abs(gaps.mean() - expected) < 5 * gaps.std() / len(gaps) ** 0.5


NUM_ROWS = 50_000


@pytest.mark.parametrize("factor", [0.2, 0.45, 0.55, 0.7, 0.95, 1.1])
def test_scaling_one_node_gains_prior_within_the_range_of_the_theorem(factor, x64):
    mean_x, var_x, var_z = 0.8, 0.86, 0.5  # E x^2 = 1.5
    rng = np.random.default_rng(0)
    x = mean_x + var_x**0.5 * rng.normal(size=(NUM_ROWS, 1))
    z = var_z**0.5 * rng.normal(size=(NUM_ROWS, 1))
    moved = scaled_latents(factor, x, z)
    gain = log_prior_of_latents(moved, var_z) - log_prior_of_latents(z, var_z)
    # E[z^2 - ((C - 1) x + C z)^2] = -(1 - C)^2 E x^2 + (1 - C^2) s_z, over 2 s_z.
    second = mean_x**2 + var_x
    limit = -((1 - factor) ** 2) * second + (1 - factor**2) * var_z
    limit /= 2 * var_z
    gaps = (z**2 - moved**2)[:, 0] / (2 * var_z)
    assert gain == pytest.approx(gaps.mean(), rel=1e-9)
    assert within_five_errors(gaps, limit)
    # Zero at C = 1 and at (E x^2 - s_z) / (E x^2 + s_z), which is 0.5 here.
    lowest = (second - var_z) / (second + var_z)
    assert lowest == pytest.approx(0.5)
    assert (gain > 0) == (lowest < factor < 1)


def one_layer(rng, dims=2, hidden=5):
    return [
        {
            "input": rng.normal(size=(dims, hidden)),
            "latent": rng.normal(size=(dims, hidden)),
            "bias": rng.normal(size=hidden),
        },
        {"weight": rng.normal(size=(hidden, 1)), "bias": rng.normal(size=1)},
    ]


def transformed(weights, inputs, latents, diagonal, mixing, shift):
    """Other weights and latents, in this package's order (rows times matrices).

    With W_z = R T:  W_x' = W_x + W_z S,  W_z' = R,  z' = T z - T S x - U and
    b' = b + R U.
    """
    first, out = weights
    w_x, w_z = first["input"].T, first["latent"].T  # [hidden, dims], as in the paper
    root = w_z @ np.linalg.inv(mixing)
    changed = {
        "input": (w_x + w_z @ np.diag(diagonal)).T,
        "latent": root.T,
        "bias": first["bias"] + root @ shift,
    }
    moved = latents @ mixing.T - inputs * diagonal @ mixing.T - shift
    return [changed, out], moved


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    diagonal=st.tuples(finite, finite),
    shift=st.tuples(finite, finite),
)
def test_transforming_one_layer_changes_nothing(seed, diagonal, shift):
    rng = np.random.default_rng(seed)
    weights = one_layer(rng)
    inputs, latents = rng.normal(size=(2, 6, 2))
    # Far from singular: a rotation times scales of 0.3 to 3.
    rotation = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    mixing = rotation * rng.uniform(0.3, 3, size=2)
    with jax.enable_x64(True):
        other, moved = transformed(
            weights, inputs, latents, np.array(diagonal), mixing, np.array(shift)
        )
        before = outputs(jax.tree.map(jnp.asarray, weights), inputs, latents)
        after = outputs(jax.tree.map(jnp.asarray, other), inputs, moved)
        np.testing.assert_allclose(after, before, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [0.5, 0.9, 1.1, 2.0])
def test_transforming_one_layer_gains_prior_for_small_t(size, x64):
    mean_x, var_x, var_z = np.array([0.5, -1.0]), np.array([1.0, 0.4]), 0.6
    # Each t_d at `size` times the bound sqrt(s_z / (E x_d^2 + s_z)), signs free.
    second = mean_x**2 + var_x
    t = size * np.sqrt(var_z / (second + var_z)) * [1, -1]
    rng = np.random.default_rng(1)
    x = mean_x + np.sqrt(var_x) * rng.normal(size=(NUM_ROWS, 2))
    z = var_z**0.5 * rng.normal(size=(NUM_ROWS, 2))
    weights = one_layer(rng)
    other, moved = transformed(weights, x, z, np.ones(2), np.diag(t), np.zeros(2))
    np.testing.assert_allclose(
        outputs(jax.tree.map(jnp.asarray, other), x[:50], moved[:50]),
        outputs(jax.tree.map(jnp.asarray, weights), x[:50], z[:50]),
        rtol=1e-9,
        atol=1e-9,
    )
    gain = log_prior_of_latents(moved, var_z) - log_prior_of_latents(z, var_z)
    # z' = t (z - x) in each dimension: E[z^2 - z'^2] = -t^2 E x^2 + (1 - t^2) s_z.
    limit = np.sum(-(t**2) * second + (1 - t**2) * var_z) / (2 * var_z)
    gaps = np.sum(z**2 - moved**2, axis=1) / (2 * var_z)
    assert gain == pytest.approx(gaps.mean(), rel=1e-9)
    assert within_five_errors(gaps, limit)
    assert (gain > 0) == (size < 1)


def test_latents_can_hold_the_targets(x64):
    # One input and one latent: all hidden nodes are g(z), and their average is g(z).
    # With z = g^-1(y) the network says y, whatever x and the true weights were.
    hidden = 7
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(2, 30, 1))
    latents = np.where(targets > 0, targets, targets / 0.01)  # inverse of the slope
    leaky = ACTIVATIONS["leaky_relu"]
    np.testing.assert_allclose(leaky(jnp.asarray(latents)), targets, rtol=1e-12)
    weights = [
        {
            "input": jnp.zeros((1, hidden)),
            "latent": jnp.ones((1, hidden)),
            "bias": jnp.zeros(hidden),
        },
        {"weight": jnp.full((hidden, 1), 1 / hidden), "bias": jnp.zeros(1)},
    ]
    np.testing.assert_allclose(outputs(weights, inputs, latents), targets, rtol=1e-12)
