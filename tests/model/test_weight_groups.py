"""A prior variance for each group of weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncai import BNNLVRegressor
from ncai.model.bnn_lv import Model, Variance
from ncai.model.empirical_bayes import (
    empirical_variance,
    initial_priors,
    log_hyperprior,
    update_priors,
)
from ncai.model.networks import MLP, FlatNetwork

NETWORK = FlatNetwork(MLP((4, 3), latent_layer="last"), 2, 1, 1)


def make_model(groups):
    empirical = Variance(jnp.asarray(1.0), "empirical")
    fixed = Variance(jnp.asarray(1.0))
    return Model(
        NETWORK, empirical, fixed, Variance(jnp.asarray([0.1])), weight_groups=groups
    )


def test_blocks_follow_the_leaves_and_the_inputs():
    # bias 4, input 2x4; bias 3, latent 1x3, weight 4x3; bias 1, weight 3.
    assert NETWORK.blocks() == (4, 8, 3, 3, 12, 1, 3)
    assert NETWORK.blocks(by_input=True) == (4, 4, 4, 3, 3, 12, 1, 3)
    assert sum(NETWORK.blocks()) == NETWORK.num_weights


@pytest.mark.parametrize("groups", ["layer", "input"])
def test_each_group_has_the_closed_form_of_its_own_weights(groups):
    model = make_model(groups)
    squares = jnp.asarray(np.random.default_rng(0).uniform(size=NETWORK.num_weights))
    priors = initial_priors(jax.random.key(0), model)
    moved = update_priors(
        model, priors, squares, jnp.zeros(()), jnp.zeros(1), jnp.asarray(5.0)
    )
    start = 0
    for size in NETWORK.blocks(by_input=groups == "input"):
        part = np.asarray(squares[start : start + size])
        expected = empirical_variance(model.weight_variance, part.sum(), 1.0, size)
        found = np.asarray(moved.weight_variance[start : start + size])
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        start += size


def test_the_hyperprior_counts_a_group_once():
    one, grouped = make_model("all"), make_model("layer")
    single = initial_priors(jax.random.key(0), one)
    equal = single._replace(
        weight_variance=jnp.full(NETWORK.num_weights, single.weight_variance)
    )
    assert float(log_hyperprior(grouped, equal)) == pytest.approx(
        7 * float(log_hyperprior(one, single)), rel=1e-5
    )


@pytest.mark.parametrize(("inference", "groups"), [("mfvi", 6), ("marginal", 8)])
def test_groups_are_fitted_saved_and_loaded(tmp_path, inference, groups):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    model = BNNLVRegressor(
        inference=inference,
        weight_groups="input",
        hidden=(5,),
        max_steps=60,
        n_restarts=2,
        latent_hidden=(4,) if inference == "marginal" else (),
        random_state=0,
    ).fit(x, x[:, 0])
    variances = np.asarray(model.posterior_.priors.weight_variance)
    assert variances.shape[1] == model.posterior_.model.network.num_weights
    # The layer of z alone makes two more: its biases and weights.
    assert len(np.unique(variances[0])) == groups
    model.save(tmp_path / "m.ncai")
    again = BNNLVRegressor.load(tmp_path / "m.ncai")
    np.testing.assert_array_equal(again.predict(x[:3]), model.predict(x[:3]))


def test_unknown_groups_are_refused():
    with pytest.raises(ValueError, match="weight_groups='node' must be one of"):
        BNNLVRegressor(weight_groups="node").fit([[0.0], [1.0]], [0.0, 1.0])
