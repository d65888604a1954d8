"""Networks, outputs at all nodes of z, and the paper's theorems on this log prior.

Other weights and latents give the same function values, and so the same likelihood,
but a higher prior: the joint mode is not where the data came from.
"""

import itertools
from dataclasses import dataclass
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ncai
from helpers import regressor
from ncai.model.bnn_lv import Model, PriorState, Variance
from ncai.model.latent_grid import outputs_at_nodes
from ncai.model.log_joint import log_joint_terms
from ncai.model.networks import ACTIVATIONS, MLP, FlatNetwork, Network
from ncai.types import Data, Unknowns


def forward(weights, x, z, activation):
    """The perceptron in NumPy, with x and z as one row."""
    first, *rest = (jax.tree.map(np.asarray, layer) for layer in weights)
    out = np.append(x, z) @ np.vstack([first["input"], first["latent"]]) + first["bias"]
    for layer in rest:
        out = activation(out) @ layer["weight"] + layer["bias"]
    return out


# Compiled as a whole: one by one, its operations take longer.
START = jax.jit(FlatNetwork.init, static_argnums=0)


def leaky(a):
    return np.maximum(a, 0.01 * a)


@pytest.mark.parametrize(
    ("hidden", "latent_dim", "output_dim"),
    [
        ((), 0, 1),
        ((), 1, 2),
        ((5,), 0, 2),
        ((5,), 1, 1),
        ((5, 4), 3, 1),
        ((3, 4, 2), 0, 1),
        ((3, 4, 2), 2, 2),
    ],
)
def test_mlp_equals_matrix_products(hidden, latent_dim, output_dim):
    flat = FlatNetwork(MLP(hidden), 2, latent_dim, output_dim)
    widths = (2 + latent_dim, *hidden, output_dim)
    assert flat.num_weights == sum((a + 1) * b for a, b in pairwise(widths))
    vector = START(flat, jax.random.key(0))
    assert vector.shape == (flat.num_weights,)
    vector = vector + 0.3  # so that biases matter
    rng = np.random.default_rng(0)
    inputs, latents = rng.normal(size=(6, 2)), rng.normal(size=(6, latent_dim))
    by_row = jax.jit(flat.apply_rows)
    found = by_row(vector, jnp.asarray(inputs), jnp.asarray(latents))
    assert found.shape == (6, output_dim)
    weights = jax.jit(flat.unflatten)(vector)
    expected = [
        forward(weights, *row, leaky) for row in zip(inputs, latents, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    by_itself = jax.jit(flat.apply)
    one = by_itself(vector, jnp.asarray(inputs[2]), jnp.asarray(latents[2]))
    np.testing.assert_allclose(one, found[2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("latent_layer", ["first", "last"])
@pytest.mark.parametrize("own", [(4,), (4, 2)])
def test_layers_of_z_alone_equal_matrix_products(latent_layer, own):
    flat = FlatNetwork(MLP((5, 3), "relu", latent_layer, own), 2, 1, 1)
    weights = jax.jit(flat.unflatten)(START(flat, jax.random.key(0)) + 0.1)
    weights = jax.tree.map(np.asarray, weights)
    x, z = np.array([0.3, -1.2]), np.array([0.7])
    first, second, last = weights
    entry = first if latent_layer == "first" else second
    for layer in entry["latent_layers"]:
        z = np.tanh(z @ layer["weight"] + layer["bias"])
    moves = z @ entry["latent"]
    moved = [moves if entry is layer else 0 for layer in (first, second)]
    out = x @ first["input"] + first["bias"] + moved[0]
    out = np.maximum(out, 0) @ second["weight"] + second["bias"] + moved[1]
    expected = np.maximum(out, 0) @ last["weight"] + last["bias"]
    found = jax.jit(flat.network.apply)(weights, jnp.asarray(x), jnp.asarray([0.7]))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    widths = (1, *own)
    own_size = sum((a + 1) * b for a, b in pairwise(widths))
    into = 5 if latent_layer == "first" else 3
    plain = FlatNetwork(MLP((5, 3)), 2, 0, 1).num_weights
    assert flat.num_weights == plain + own_size + own[-1] * into


def test_without_z_there_are_no_layers_of_its_own():
    assert (
        FlatNetwork(MLP((5,), latent_hidden=(4,)), 2, 0, 1).num_weights
        == FlatNetwork(MLP((5,)), 2, 0, 1).num_weights
    )


def test_flat_vectors_and_pytrees_are_one_to_one():
    flat = FlatNetwork(MLP((3, 4)), 2, 1, 2)
    vector = jnp.arange(float(flat.num_weights))
    weights = flat.unflatten(vector)
    assert weights[0]["input"].shape == (2, 3)
    assert weights[0]["latent"].shape == (1, 3)
    assert weights[2]["weight"].shape == (4, 2)
    np.testing.assert_array_equal(flat.flatten(weights), vector)


def test_start_is_xavier_normal():
    # Variance 2 / (fan_in + fan_out); the latents are part of the fan-in.
    weights = MLP((400, 300)).init(jax.random.key(0), 90, 10, 2)
    first = np.vstack([weights[0]["input"], weights[0]["latent"]])
    for matrix in (first, weights[1]["weight"]):
        expected = np.sqrt(2 / sum(matrix.shape))
        # 40,000 numbers and more: the deviation is known to 0.4 %.
        assert matrix.std() == pytest.approx(expected, rel=0.02)
        assert abs(matrix.mean()) < 5 * expected / matrix.size**0.5
    assert not any(np.any(layer["bias"]) for layer in weights)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("leaky_relu", [-0.02, 0.0, 3.0]),
        ("relu", [0.0, 0.0, 3.0]),
        ("tanh", np.tanh([-2.0, 0.0, 3.0])),
        ("gelu", [-0.0454, 0.0, 2.9964]),
        ("silu", [-2 / (1 + np.exp(2)), 0.0, 3 / (1 + np.exp(-3))]),
        ("softplus", np.log1p(np.exp([-2.0, 0.0, 3.0]))),
        ("identity", [-2.0, 0.0, 3.0]),
    ],
)
def test_activations_by_name(name, expected):
    network = MLP((1,), name)
    weights = [
        {"input": jnp.ones((1, 1)), "latent": jnp.ones((0, 1)), "bias": jnp.zeros(1)},
        {"weight": jnp.ones((1, 1)), "bias": jnp.zeros(1)},
    ]
    found = [
        float(network.apply(weights, jnp.asarray([x]), jnp.zeros(0))[0])
        for x in (-2.0, 0.0, 3.0)
    ]
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert name in ACTIVATIONS


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match=r"activation='rulu'.*leaky_relu"):
        MLP((5,), "rulu")
    with pytest.raises(ValueError, match=r"hidden=\(5, 0\)"):
        MLP((5, 0))
    with pytest.raises(ValueError, match=r"latent_hidden=\(0,\) must hold whole"):
        MLP((5,), latent_hidden=(0,))


# ----- One compiled program for equal networks ----------------------------------------


def test_equal_networks_share_a_compiled_program():
    traces = []

    def run(network, vector, x):
        traces.append(network)
        return network.apply(vector, x, jnp.zeros(1))

    compiled = jax.jit(run, static_argnums=0)
    for hidden in ((5,), (5,), (6,)):
        flat = FlatNetwork(MLP(hidden), 1, 1, 1)
        compiled(flat, flat.init(jax.random.key(0)), jnp.ones(1))
    assert len(traces) == 2
    same, other = (FlatNetwork(MLP((5,)), 1, k, 1) for k in (1, 2))
    assert same == traces[0]
    assert hash(same) == hash(traces[0])
    assert same != other
    assert same != FlatNetwork(MLP((5,), "tanh"), 1, 1, 1)


# ----- Networks of one's own ----------------------------------------------------------


@dataclass(frozen=True)
class Residual:
    """Two residual blocks; its weights are a dict of dicts."""

    width: int = 6

    def init(self, key, input_dim, latent_dim, output_dim):
        keys = jax.random.split(key, 4)

        def layer(key, fan_in, fan_out):
            return {
                "w": jax.random.normal(key, (fan_in, fan_out)) / fan_in**0.5,
                "b": jnp.zeros(fan_out),
            }

        return {
            "embed": layer(keys[0], input_dim + latent_dim, self.width),
            "blocks": (
                layer(keys[1], self.width, self.width),
                layer(keys[2], self.width, self.width),
            ),
            "out": layer(keys[3], self.width, output_dim),
        }

    def apply(self, weights, inputs, latents):
        def through(layer, a):
            return a @ layer["w"] + layer["b"]

        state = through(weights["embed"], jnp.concatenate([inputs, latents]))
        for block in weights["blocks"]:
            state = state + jnp.tanh(through(block, state))
        return through(weights["out"], state)


@dataclass(frozen=True)
class Convolution:
    """A filter that slides along the inputs, for rows that are short series."""

    channels: int = 3
    length: int = 3

    def init(self, key, input_dim, latent_dim, output_dim):
        keys = jax.random.split(key, 3)
        return {
            "filters": 0.5 * jax.random.normal(keys[0], (self.channels, self.length)),
            "latent": 0.5 * jax.random.normal(keys[1], (latent_dim, self.channels)),
            "out": 0.5 * jax.random.normal(keys[2], (self.channels, output_dim)),
            "bias": jnp.zeros(output_dim),
        }

    def apply(self, weights, inputs, latents):
        signals = jax.vmap(lambda f: jnp.convolve(inputs, f, mode="valid"))(
            weights["filters"]
        )
        pooled = jnp.mean(jax.nn.relu(signals), axis=1) + latents @ weights["latent"]
        return pooled @ weights["out"] + weights["bias"]


@pytest.mark.parametrize(
    ("network", "input_dim", "output_dim", "settings"),
    [
        (Residual(), 2, 2, {}),
        (Convolution(), 5, 1, {"inference": "mfvi", "preset": "paper"}),
    ],
    ids=["residual", "convolution"],
)
def test_a_network_of_ones_own_fits_and_predicts(
    network, input_dim, output_dim, settings
):
    assert isinstance(network, Network)
    flat = FlatNetwork(network, input_dim, 1, output_dim)
    vector = jnp.arange(float(flat.num_weights))
    np.testing.assert_array_equal(flat.flatten(flat.unflatten(vector)), vector)

    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(48, input_dim))
    targets = inputs[:, :output_dim] + 0.1 * rng.normal(size=(48, output_dim))
    model = regressor(
        settings.get("inference"),
        network=network,
        max_steps=100,
        n_restarts=2,
        n_weight_draws=16,
        n_latent_draws=8,
        random_state=0,
        preset=settings.get("preset", "default"),
    )
    model.fit(inputs, targets if output_dim > 1 else targets[:, 0])
    shape = (5, output_dim) if output_dim > 1 else (5,)
    mean, std = model.predict(inputs[:5], return_std=True)
    assert mean.shape == std.shape == shape
    assert np.all(np.isfinite(mean))
    assert np.all(std > 0)
    # Its own weights, not those of the default perceptron, were trained.
    assert model.posterior_.mean.weights.shape[1] == flat.num_weights


def test_what_is_no_network_is_refused():
    model = ncai.BNNLVRegressor(network=object())
    with pytest.raises(ValueError, match=r"network=.*init.*apply"):
        model.fit(np.zeros((8, 1)), np.arange(8.0))


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

    @jax.jit
    def with_still_nodes(weights):
        tree = network.unflatten(weights)
        tree[0]["latent"] = tree[0]["latent"].at[0, ::2].set(0.0)
        return network.flatten(tree)

    def slope(function):
        return jax.jit(jax.grad(lambda w: jnp.sum(factors * function(w))))(weights)

    weights = with_still_nodes(weights)
    found = slope(lambda w: outputs_at_nodes(network, w, inputs, NODES))
    expected = slope(lambda w: plain(network, w, inputs))
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("activation", ["leaky_relu", "silu"])
@pytest.mark.parametrize("latent_hidden", [(), (3,)])
def test_two_latent_dimensions(activation, latent_hidden):
    network, weights, inputs, factors = setting(
        activation, latent_dim=2, latent_hidden=latent_hidden
    )
    nodes = jax.random.normal(jax.random.key(4), (9, 2))
    found, expected = (
        jax.jit(jax.value_and_grad(lambda w, f=f: jnp.sum(factors[:, :9] * f(w))))(
            weights
        )
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
    found = jax.jit(lambda w: outputs_at_nodes(network, w, inputs, NODES))(far)
    expected = jax.jit(lambda w: plain(network, w, inputs))(far)
    scale = np.abs(np.asarray(expected)).max()
    np.testing.assert_allclose(found, expected, atol=1e-6 * scale)
    weights = 1000 * weights
    gradient = jax.jit(
        jax.grad(
            lambda w: jnp.sum(factors * outputs_at_nodes(network, w, inputs, NODES))
        )
    )(weights)
    assert np.isfinite(gradient).all()


def test_an_unknown_place_of_the_latents_is_refused():
    with pytest.raises(ValueError, match="latent_layer='middle' must be"):
        MLP((5, 5), latent_layer="middle")


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
    return _OUTPUTS(network, weights, jnp.asarray(inputs), jnp.asarray(latents))


_OUTPUTS = jax.jit(jax.vmap(MLP.apply, in_axes=(None, None, 0, 0)), static_argnums=0)


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


_TERMS = jax.jit(log_joint_terms)


def log_prior_of_latents(latents, variance):
    """The term of the package's log joint, by row."""
    dims = latents.shape[1]
    network = FlatNetwork(MLP(hidden=()), 1, dims, 1)
    fixed = Variance(jnp.asarray(1.0))
    model = Model(network, fixed, fixed, Variance(jnp.ones(1)))
    empty = jnp.zeros((len(latents), 1))
    terms = _TERMS(
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
