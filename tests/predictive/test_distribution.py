"""The predictive distribution: known answers, brute force, properties, independence."""

import os
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from ncai.model.networks import MLP, FlatNetwork
from ncai.model.quadrature import latent_nodes
from ncai.predictive import intervals, mixture
from ncai.predictive.distribution import PredictiveDistribution
from ncai.predictive.mixture import Mixture
from ncai.predictive.row_map import picks_by_weight
from ncai.predictive.target_map import TargetMap
from ncai.stats import scores as metrics
from ncai.types import WeightDraws

SHIFT, SCALE = 3.0, 2.0


@cache
def make(
    num_draws=16,
    num_latent=32,
    num_rows=20,
    input_dim=2,
    latent_dim=1,
    output_dim=1,
    hidden=(8,),
    noise_std=0.2,
    spread=0.2,
    seed=0,
):
    """A network with weights scattered around random ones, as a posterior would be."""
    network = FlatNetwork(
        MLP(hidden=hidden, activation="tanh"), input_dim, latent_dim, output_dim
    )
    rng = np.random.default_rng(seed)
    centre = 0.6 * rng.normal(size=network.num_weights)
    weights = centre + spread * rng.normal(size=(num_draws, centre.size))
    draws = WeightDraws.equal(
        weights.astype(np.float32),
        noise_std * rng.uniform(0.7, 1.3, (num_draws, output_dim)).astype(np.float32),
        rng.uniform(0.8, 1.2, num_draws).astype(np.float32),
    )
    return PredictiveDistribution(
        network=network,
        inputs=rng.normal(size=(num_rows, input_dim)),
        draws=draws,
        target_map=TargetMap.linear(
            np.full(output_dim, SHIFT), np.full(output_dim, SCALE)
        ),
        num_latent_draws=num_latent,
        single_output=output_dim == 1,
    )


def linear(num_latent=4096, slope=1.5, latent_slope=0.6, latent_std=0.8, noise=0.3):
    """y = 2 (slope x + latent_slope z + 0.1 + eps) + 3: exactly Gaussian given x."""
    network = FlatNetwork(MLP(hidden=()), 1, 1, 1)
    tree = [
        {
            "input": np.full((1, 1), slope),
            "latent": np.full((1, 1), latent_slope),
            "bias": np.full(1, 0.1),
        }
    ]
    draws = WeightDraws.equal(
        np.asarray(network.flatten(tree), np.float32)[None],
        np.full((1, 1), noise, np.float32),
        np.full(1, latent_std, np.float32),
    )
    inputs = np.linspace(-2, 2, 9)[:, None]
    predictive = PredictiveDistribution(
        network=network,
        inputs=inputs,
        draws=draws,
        num_latent_draws=num_latent,
        target_map=TargetMap.linear(SHIFT, SCALE),
        single_output=True,
    )
    std = SCALE * np.hypot(latent_slope * latent_std, noise)
    return predictive, stats.norm(SHIFT + SCALE * (slope * inputs[:, 0] + 0.1), std)


def components(predictive):
    """Means and widths [N, S, M, L] and weights [S, M], in units of y and float64."""
    network, draws = predictive.network, predictive.mixtures.draws
    nodes = latent_nodes(
        len(draws.weights), predictive.num_latent_draws, network.latent_dim
    )
    means = []
    for flat, std, node in zip(
        draws.weights, draws.latent_std, nodes.values, strict=True
    ):
        *first, last = (
            jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), layer)
            for layer in network.unflatten(flat)
        )
        (first,) = first
        hidden = (
            predictive.mixtures.inputs.astype(np.float64) @ first["input"]
            + first["bias"]
        )
        hidden = hidden[:, None] + std * node @ first["latent"]
        means.append(np.tanh(hidden) @ last["weight"] + last["bias"])
    means = SHIFT + SCALE * np.stack(means, 1)
    noise = SCALE * np.asarray(draws.noise_std, np.float64)[:, None]
    stds = np.broadcast_to(noise, means.shape)
    if nodes.blur.any():
        away = np.abs(np.diff(means, axis=2))
        nearer = np.minimum(
            np.concatenate([away[:, :, :1], away], axis=2),
            np.concatenate([away, away[:, :, -1:]], axis=2),
        )
        stds = np.hypot(noise, nodes.blur[:, :, None] * nearer)
    weights = np.exp(nodes.log_weights.astype(np.float64)) / len(draws.weights)
    return means, stds, weights / weights.sum()


# ----- Nodes --------------------------------------------------------------------------


@pytest.mark.parametrize("num_latent", [3, 8, 16, 40])
@pytest.mark.parametrize("latent_dim", [1, 2, 3])
def test_nodes_have_the_moments_of_a_standard_normal(latent_dim, num_latent):
    nodes = latent_nodes(50, num_latent, latent_dim)
    assert nodes.values.dtype == np.float32
    flat = nodes.values.reshape(-1, latent_dim)
    assert len(np.unique(flat, axis=0)) == len(flat)
    weights = np.exp(nodes.log_weights.astype(np.float64))
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
    weights = weights.ravel() / len(weights)
    np.testing.assert_allclose(weights @ flat, 0, atol=0.01)
    second = (weights[:, None] * flat).T @ flat
    if nodes.blur.any():  # each node stands for the z around it
        gaps = np.diff(nodes.values[..., 0], axis=1)
        nearer = np.minimum(
            np.concatenate([gaps[:, :1], gaps], 1),
            np.concatenate([gaps, gaps[:, -1:]], 1),
        )
        second = second + weights @ (nodes.blur * nearer).ravel() ** 2
    atol = 0.06 if num_latent == 8 else 0.03  # as few as the rule can have
    np.testing.assert_allclose(second, np.eye(latent_dim), atol=atol)


def test_nodes_of_one_latent_have_the_density_of_the_normal_for_every_draw():
    nodes = latent_nodes(50, 16, 1)
    z, weights = nodes.values[..., 0], np.exp(nodes.log_weights)
    gaps = np.diff(z, axis=1)
    nearer = np.minimum(
        np.concatenate([gaps[:, :1], gaps], 1), np.concatenate([gaps, gaps[:, -1:]], 1)
    )
    y = np.linspace(-5, 5, 401)
    parts = stats.norm.pdf(y[:, None, None], z, nodes.blur * nearer) * weights
    given = parts.sum(2)
    middle = np.abs(y) < 1
    exact = stats.norm.pdf(y[middle, None])
    assert np.abs(given[middle] / exact - 1).max() < 0.05
    together = np.log(given.mean(1)) - stats.norm.logpdf(y)
    assert np.abs(together).max() < 0.06
    assert np.abs(z).max() > 5


def test_nodes_without_a_latent_are_one_empty_value():
    assert latent_nodes(3, 7, 0).values.shape == (3, 1, 0)


def test_nodes_need_positive_counts():
    with pytest.raises(ValueError, match="num_latent=0"):
        latent_nodes(3, 0, 1)


# ----- Known answers ------------------------------------------------------------------


def test_linear_network_is_exactly_gaussian():
    predictive, exact = linear()
    std = exact.std()
    np.testing.assert_allclose(predictive.mean(), exact.mean(), rtol=1e-5)
    np.testing.assert_allclose(predictive.std(), std, rtol=1e-3)
    np.testing.assert_allclose(predictive.variance(), std**2, rtol=2e-3)
    for offset in (-2.5, 0.0, 1.0):
        y = exact.mean() + offset * std
        np.testing.assert_allclose(predictive.log_prob(y), exact.logpdf(y), atol=5e-3)
        np.testing.assert_allclose(predictive.pdf(y), exact.pdf(y), rtol=5e-3)
        np.testing.assert_allclose(predictive.cdf(y), exact.cdf(y), atol=5e-4)
        z = offset
        crps = std * (
            z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - np.pi**-0.5
        )
        np.testing.assert_allclose(predictive.crps(y), crps, atol=1e-3 * std[0])
    levels = np.array([0.001, 0.025, 0.3, 0.5, 0.9, 0.999])
    expected = exact.mean()[:, None] + std[:, None] * stats.norm.ppf(levels)
    found = predictive.quantile(levels)
    np.testing.assert_allclose(found, expected, atol=5e-3 * std[0])
    np.testing.assert_array_equal(found[:, 3], predictive.median())


@pytest.mark.parametrize("method", ["quadrature", "nearest_neighbour"])
def test_entropy_of_a_gaussian(method):
    predictive, exact = linear()
    parts = predictive.decompose("entropy", method, num_samples=2000)
    tolerance = 2e-3 if method == "quadrature" else 0.1
    np.testing.assert_allclose(parts.total, exact.entropy(), atol=tolerance)
    # With one weight draw nothing is left to learn.
    np.testing.assert_allclose(parts.epistemic, 0, atol=1e-3)


def test_draws_that_differ_in_their_mean_are_epistemic():
    predictive = two_modes(distance=3.0)
    parts = predictive.decompose("variance")
    np.testing.assert_allclose(parts.epistemic, 0.015**2, rtol=1e-4)
    np.testing.assert_allclose(parts.aleatoric, 0.01**2, rtol=1e-4)


# ----- Brute force --------------------------------------------------------------------


@pytest.mark.parametrize(("latent_dim", "output_dim"), [(1, 1), (0, 1), (2, 2)])
def test_densities_match_a_sum_over_components(latent_dim, output_dim):
    predictive = make(latent_dim=latent_dim, output_dim=output_dim)
    means, stds, weights = components(predictive)
    rng = np.random.default_rng(1)
    y = SHIFT + 1.5 * rng.normal(size=(len(predictive), output_dim))
    each = stats.norm(means, stds)
    log_parts = each.logpdf(y[:, None, None]).sum(-1) + np.log(weights)
    expected = logsumexp(log_parts, (1, 2))
    given_y = y[:, 0] if output_dim == 1 else y
    np.testing.assert_allclose(
        predictive.log_prob(given_y), expected, rtol=1e-5, atol=1e-4
    )
    cdf = np.einsum("sm,nsml->nl", weights, each.cdf(y[:, None, None]))
    shape = (len(y), output_dim)
    np.testing.assert_allclose(predictive.cdf(given_y).reshape(shape), cdf, atol=2e-6)
    above = predictive.prob_above(given_y).reshape(shape)
    np.testing.assert_allclose(above, 1 - cdf, atol=2e-6)
    mean = np.einsum("sm,nsml->nl", weights, means)
    np.testing.assert_allclose(
        predictive.mean().reshape(shape), mean, rtol=1e-5, atol=1e-6
    )
    squares = (means - mean[:, None, None]) ** 2 + stds**2
    variance = np.einsum("sm,nsml->nl", weights, squares)
    np.testing.assert_allclose(
        predictive.std().reshape(shape), variance**0.5, rtol=1e-5
    )


def test_crps_matches_the_sum_over_pairs_of_components():
    predictive = make(num_rows=6, noise_std=0.05)
    means, std, weights = (part.reshape(-1, 512) for part in components(predictive))
    flat, weights = means, weights[0]
    y = predictive.mean() + np.array([-9.0, -1, 0, 0.3, 1, 9])

    def absolute(mean, std):
        return 2 * std * stats.norm.pdf(mean / std) + mean * (
            2 * stats.norm.cdf(mean / std) - 1
        )

    pairs = absolute(
        flat[:, :, None] - flat[:, None], np.hypot(std[:, :, None], std[:, None])
    )
    half = 0.5 * np.einsum("nab,a,b->n", pairs, weights, weights)
    expected = absolute(y[:, None] - flat, std) @ weights - half
    error = np.abs(predictive.crps(y) - expected) / predictive.std()
    assert error.max() < 1e-3
    # The total of the decomposition is the same double sum.
    total = predictive.decompose("crps").total
    np.testing.assert_allclose(total, half, rtol=1e-3)


def test_density_on_a_grid_is_the_density_at_each_value():
    predictive = make(num_rows=3)
    values = np.linspace(0, 6, 31)
    grid = predictive.log_prob_grid(values)
    for column in range(len(values)):
        expected = predictive.log_prob(np.full(3, values[column]))
        np.testing.assert_allclose(grid[:, column], expected, rtol=1e-5)
    own = np.stack([values, values + 0.1, values - 0.2])
    found = predictive.log_prob_grid(own)
    for row in range(3):
        expected = predictive[row].log_prob_grid(own[row])[0]
        np.testing.assert_allclose(found[row], expected, rtol=1e-5, atol=1e-5)
    fine = np.linspace(-10, 16, 4001)
    mass = np.trapezoid(np.exp(predictive.log_prob_grid(fine)), fine, axis=1)
    np.testing.assert_allclose(mass, 1, atol=1e-4)


def test_grid_and_intervals_take_one_output_of_several():
    predictive = make(output_dim=2, num_rows=3)
    values = np.array([2.0, 3.0])
    assert predictive.log_prob_grid(values, output=1).shape == (3, 2)
    lower, upper = predictive.interval()
    assert lower.shape == upper.shape == (3, 2)
    one, _ = predictive.interval(output=1)
    np.testing.assert_array_equal(one, lower[:, 1])
    assert len(predictive.interval(kind="highest_density", output=1)) == 3
    with pytest.raises(ValueError, match="output=None"):
        predictive.interval(kind="highest_density")
    with pytest.raises(ValueError, match="output=2"):
        predictive.log_prob_grid(values, output=2)


@pytest.mark.parametrize("noise_std", [0.02, 0.3])
def test_entropies_match_adaptive_integration(noise_std):
    predictive = make(num_draws=6, num_rows=2, noise_std=noise_std)
    parts = predictive.decompose("entropy")
    many = make(num_draws=6, num_latent=2048, num_rows=2, noise_std=noise_std)
    means, stds, weights = components(many)

    def entropy(density, grid):
        return np.trapezoid(-density * np.log(np.maximum(density, 1e-300)), grid)

    for row in range(2):
        centres, std = means[row, :, :, 0], stds[row, :, :, 0]
        # A step of a third of a width: the trapezoid rule is as good as exact.
        low, high = (centres - 6 * std).min(), (centres + 6 * std).max()
        grid = np.arange(low, high, std.min() / 3)
        densities = [
            sum(6 * w * stats.norm.pdf(grid, m, s) for m, s, w in zip(*of, strict=True))
            for of in zip(centres, std, weights, strict=True)
        ]
        total = entropy(np.mean(densities, axis=0), grid)
        given = [entropy(density, grid) for density in densities]
        assert parts.total[row] == pytest.approx(total, abs=5e-3)
        assert parts.aleatoric[row] == pytest.approx(np.mean(given), abs=5e-3)
        assert parts.epistemic[row] == pytest.approx(
            parts.total[row] - parts.aleatoric[row], abs=1e-6
        )


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.3])
def test_entropy_given_weights_where_the_noise_is_small(noise):
    """Values of z, of which there are some only, are no spikes of the density."""
    predictive, _ = linear(num_latent=16, latent_slope=1.0, latent_std=1.0, noise=noise)
    parts = predictive.decompose("entropy")
    expected = 0.5 * np.log(2 * np.pi * np.e * SCALE**2 * (1 + noise**2))
    np.testing.assert_allclose(parts.aleatoric, expected, atol=0.02)
    np.testing.assert_allclose(parts.epistemic, 0, atol=0.02)


def equal_mixture(means, std) -> Mixture:
    """Equally weighted components of one width."""
    means = jnp.asarray(means, jnp.float32).ravel()
    return Mixture(
        means, jnp.full_like(means, std), jnp.full_like(means, 1 / means.size)
    )


@pytest.mark.parametrize("distance", [1e4, 1e6])
def test_one_wild_component_hides_no_other(distance):
    """One of 512 far away: the entropy and the set of highest density stay."""
    rng = np.random.default_rng(0)
    means = jnp.asarray(rng.normal(size=512), jnp.float32).at[7].set(distance)
    wild = equal_mixture(means, 0.3)
    tame = equal_mixture(means.at[7].set(0.0), 0.3)
    picks = picks_by_weight(np.full((1, 512, 1), 1 / 512), 128)
    few = equal_mixture(wild.means[picks], 0.3)
    entropy = jax.jit(mixture.entropy)
    usual = entropy(tame, few)
    # A share of 1/512 lies somewhere in a wide gap.
    atol = np.log(distance) / 512 + 0.05
    np.testing.assert_allclose(entropy(wild, few), usual, atol=atol)
    points, density, level = map(
        np.asarray,
        jax.jit(mixture.highest_density_level)(
            wild, few, jnp.asarray(0.9, jnp.float32)
        ),
    )
    inside = points[density >= level]
    cdf = jax.jit(mixture.cdf)
    held = cdf(wild, inside.max()) - cdf(wild, inside.min())
    np.testing.assert_allclose(held, 0.9, atol=0.02)


def test_entropy_far_from_zero():
    two = equal_mixture(jnp.asarray([1e8, 1e8 + 16], jnp.float32), 0.5)
    expected = 0.5 * np.log(2 * np.pi * np.e * 0.25) + np.log(2)
    found = jax.jit(mixture.entropy)(two, two)
    np.testing.assert_allclose(found, expected, atol=0.01)


def test_entropy_estimates_agree_for_two_outputs():
    predictive = make(num_rows=3, output_dim=2, noise_std=0.4)
    exact = predictive.decompose("entropy")
    neighbour = predictive.decompose("entropy", "nearest_neighbour")
    assert exact.total.shape == (3,)
    np.testing.assert_allclose(neighbour.total, exact.total, atol=0.15)
    np.testing.assert_allclose(neighbour.aleatoric, exact.aleatoric, atol=0.2)
    assert (exact.epistemic > 0).all()


# ----- Quantiles and intervals --------------------------------------------------------


@pytest.mark.parametrize("noise_std", [0.001, 0.2])
def test_quantile_inverts_cdf(noise_std):
    predictive = make(noise_std=noise_std, num_rows=40)
    levels = np.array([1e-4, 0.025, 0.31, 0.5, 0.8, 0.975, 0.9999])
    found = predictive.quantile(levels)
    assert found.shape == (40, 7)
    for column, level in enumerate(levels):
        missed = np.abs(predictive.cdf(found[:, column]) - level)
        nearby = found[:, column, None] + 1e-5 * predictive.std()[:, None] * [-1, 1]
        around = [predictive.cdf(nearby[:, side]) for side in (0, 1)]
        close = (missed < 1e-5) | ((around[0] <= level) & (level <= around[1]))
        assert close.all()


def two_modes(distance=100.0):
    """Two weight draws that disagree: modes at 0 and `distance` noise deviations."""
    network = FlatNetwork(MLP(hidden=()), 1, 0, 1)
    trees = [
        [{"input": np.zeros((1, 1)), "latent": np.zeros((0, 1)), "bias": np.full(1, b)}]
        for b in (0.0, distance * 0.01)
    ]
    weights = np.stack([np.asarray(network.flatten(tree)) for tree in trees])
    return PredictiveDistribution(
        network=network,
        inputs=np.zeros((2, 1)),
        draws=WeightDraws.equal(
            weights.astype(np.float32),
            np.full((2, 1), 0.01, np.float32),
            np.ones(2, np.float32),
        ),
        num_latent_draws=4,
        target_map=TargetMap.linear(0.0, 1.0),
        single_output=True,
    )


def test_modes_far_apart_have_two_intervals_and_quantiles_in_both():
    predictive = two_modes()
    for found in predictive.interval(0.9, kind="highest_density"):
        half = 0.01 * stats.norm.ppf(0.95)
        expected = [[-half, half], [1 - half, 1 + half]]
        np.testing.assert_allclose(found, expected, atol=5e-4)
    low, middle, high = predictive.quantile([0.25, 0.5, 0.75])[0]
    assert low == pytest.approx(0, abs=1e-6)
    assert high == pytest.approx(1, abs=1e-6)
    assert 0.02 < middle < 0.98


@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize("noise_std", [0.05, 0.2])
def test_highest_density_has_its_probability_and_is_shorter(level, noise_std):
    predictive = make(noise_std=noise_std, num_rows=12)
    lower, upper = predictive.interval(level)
    sets = predictive.interval(level, kind="highest_density")
    for row, found in enumerate(sets):
        one = predictive[row]
        mass = sum(float((one.cdf([b]) - one.cdf([a]))[0]) for a, b in found)
        assert mass == pytest.approx(level, abs=0.005)
        length = np.diff(found, axis=1).sum()
        assert length <= 1.01 * (upper[row] - lower[row])


def test_ripples_are_no_humps():
    points = np.linspace(-4, 4, 2001)
    ripple = stats.norm.pdf(points) * (1 + 0.1 * np.sin(60 * points))
    share = ripple * np.gradient(points) / (ripple * np.gradient(points)).sum()
    heights = np.sort(ripple)[::-1]
    filled = np.cumsum(share[np.argsort(-ripple)])
    threshold = heights[np.searchsorted(filled, 0.9)]
    assert len(intervals.intervals_above(points, ripple, threshold)) > 1
    (ends,) = intervals.highest_density_set(points, ripple, threshold, 0.9)
    assert np.diff(stats.norm.cdf(ends)) == pytest.approx(0.9, abs=0.01)


# ----- Properties ---------------------------------------------------------------------


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**16),
    noise_std=st.floats(0.01, 2),
    spread=st.floats(0, 2),
    levels=st.lists(st.floats(0.01, 0.99), min_size=3, max_size=3, unique=True),
)
def test_properties_of_any_mixture(seed, noise_std, spread, levels):
    predictive = make(num_rows=3, noise_std=noise_std, spread=spread, seed=seed)
    quantiles = predictive.quantile(np.sort(levels))
    slack = 1e-5 * predictive.std()[:, None]
    assert (np.diff(quantiles, axis=1) >= -slack).all()
    for measure in ("variance", "crps"):
        own = predictive.decompose(measure)
        np.testing.assert_allclose(own.total, own.aleatoric + own.epistemic, rtol=1e-5)
        assert (own.epistemic >= 0).all()
        assert (own.aleatoric > 0).all()
    total = predictive.decompose("variance").total
    np.testing.assert_allclose(total, predictive.variance(), rtol=1e-5)
    near = predictive.crps(predictive.median())
    assert (near > 0).all()
    assert (near <= predictive.crps(predictive.median() + 3 * predictive.std())).all()


# ----- Rows do not depend on each other -----------------------------------------------


@pytest.mark.parametrize(
    ("latent_dim", "num_latent", "num_draws", "output_dim"),
    [(1, 5, 7, 1), (0, 1, 9, 1), (2, 8, 4, 2)],
)
def test_a_row_alone_gives_the_same_bits(latent_dim, num_latent, num_draws, output_dim):
    predictive = make(
        num_draws=num_draws,
        num_latent=num_latent,
        latent_dim=latent_dim,
        output_dim=output_dim,
        num_rows=1030,
        hidden=(7, 5),
    )
    y = predictive.mean()
    whole = {
        "log_prob": predictive.log_prob(y),
        "quantile": predictive.quantile([0.1, 0.6]),
        "std": predictive.std(),
        "sample": predictive.sample(3, seed=1).swapaxes(0, 1),
    }
    order = np.random.default_rng(0).permutation(len(predictive))
    for rows in ([0], [13], [1029], np.arange(3, 20), order):
        part = predictive[rows]
        again = {
            "log_prob": part.log_prob(y[rows]),
            "quantile": part.quantile([0.1, 0.6]),
            "std": part.std(),
            "sample": part.sample(3, seed=1).swapaxes(0, 1),
        }
        for name, values in whole.items():
            np.testing.assert_array_equal(again[name], values[rows], err_msg=name)


def test_no_rows_give_empty_results():
    empty = make()[:0]
    assert len(empty) == 0
    assert empty.mean().shape == (0,)
    assert empty.quantile([0.1, 0.9]).shape == (0, 2)
    assert empty.interval(kind="highest_density") == []


# ----- Samples ------------------------------------------------------------------------


def test_samples_have_the_moments_of_the_mixture():
    predictive = make(num_rows=4)
    samples = predictive.sample(20_000, seed=3)
    assert samples.shape == (20_000, 4)
    std = predictive.std()
    # Five standard errors; the variance of a variance is taken as for kurtosis 6.
    np.testing.assert_allclose(
        samples.mean(0), predictive.mean(), atol=5 * std.max() / 20_000**0.5
    )
    np.testing.assert_allclose(samples.std(0), std, rtol=5 * (5 / 4 / 20_000) ** 0.5)
    np.testing.assert_array_equal(samples, predictive.sample(20_000, seed=3))
    np.testing.assert_array_equal(samples[:7], predictive.sample(7, seed=3))
    # Without a seed it is 0.
    np.testing.assert_array_equal(predictive.sample(7), predictive.sample(7, seed=0))
    assert abs(np.corrcoef(samples.T)[0, 1]) < 0.05
    same_row = predictive[np.zeros(2000, int)]
    uniform = same_row.cdf(samples[:2000, 0])
    assert stats.kstest(uniform, "uniform").pvalue > 1e-3


def test_functions_use_one_weight_draw_for_all_rows():
    predictive = make(num_rows=5, num_latent=1024)
    functions = predictive.sample_functions(16, seed=0)
    np.testing.assert_array_equal(predictive.sample_functions(16), functions)
    assert functions.shape == (16, 5)
    means, _, weights = components(predictive)
    by_draw = np.einsum("sm,nsm->sn", 16 * weights, means[..., 0])
    # Each function is one of the 16 draws at every row, and each draw comes once.
    distance = np.abs(functions[:, None] - by_draw[None]).max(2)
    assert distance.min(1).max() < 0.01
    assert sorted(distance.argmin(1)) == list(range(16))


def test_functions_with_latents_and_noise():
    predictive = make(num_rows=4, num_draws=3)
    noisy = predictive.sample_functions(
        6000, seed=0, latent="prior", include_noise=True
    )
    np.testing.assert_allclose(noisy.std(0), predictive.std(), rtol=0.06)
    same_inputs = predictive[[0, 0, 0]]
    shared = same_inputs.sample_functions(50, seed=0, latent="shared")
    np.testing.assert_array_equal(shared[:, 0], shared[:, 1])
    assert shared.std() > 0
    part = predictive[1:3].sample_functions(5, seed=0, latent="prior")
    whole = predictive.sample_functions(5, seed=0, latent="prior")
    np.testing.assert_array_equal(part, whole[:, 1:3])


# ----- Enough draws, far tails, memory ------------------------------------------------


def test_doubling_draws_hardly_changes_the_log_density():
    kept = {}
    many = make(num_draws=512, num_rows=200, hidden=(20,), noise_std=0.3)
    y = many.sample(1, seed=0)[0]
    for num_draws, num_latent in ((256, 16), (512, 32)):
        draws = many.mixtures.draws.pick(slice(num_draws))
        kept[num_draws] = PredictiveDistribution(
            network=many.network,
            inputs=many.mixtures.inputs,
            draws=draws,
            num_latent_draws=num_latent,
            target_map=many.target_map,
            single_output=True,
        ).log_prob(y)
    assert abs(kept[256].mean() - kept[512].mean()) < 0.005


def test_far_tails_are_finite():
    predictive = make(noise_std=0.01)
    for y in (1e6, -1e6):
        assert np.isfinite(predictive.log_prob(np.full(20, y))).all()
        assert np.isfinite(predictive.crps(np.full(20, y))).all()
    assert (predictive.prob_above(1e6) < 1e-30).all()
    assert (predictive.prob_above(-1e6) == 1).all()


@pytest.mark.skipif(
    not Path("/proc/self/status").is_file(), reason="reads its memory from /proc"
)
def test_hundred_thousand_rows_need_little_memory():
    script = """
        import re, numpy as np, jax
        from ncai.model.networks import MLP, FlatNetwork
        from ncai.predictive.distribution import PredictiveDistribution
        from ncai.predictive.target_map import TargetMap
        from ncai.types import WeightDraws
        network = FlatNetwork(MLP(hidden=(3,)), 4, 1, 1)
        rng = np.random.default_rng(0)
        weights = rng.normal(size=(50, network.num_weights)).astype(np.float32)
        draws = WeightDraws.equal(weights, np.ones((50, 1)), np.ones(50))
        predictive = PredictiveDistribution(
            network=network, inputs=rng.normal(size=(100_000, 4)), draws=draws,
            target_map=TargetMap.linear(0.0, 1.0), num_latent_draws=20,
            single_output=True)
        assert np.isfinite(predictive.log_prob(np.zeros(100_000))).all()
        # Samples of 400 MB: they are held once.
        assert predictive.sample(500).shape == (500, 100_000)
        # The peak of this program alone; getrusage carries over that of its parent.
        status = open("/proc/self/status").read()
        print(int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) // 1024)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0"},  # it takes long
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(result.stdout) < 1000


# ----- Messages -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.log_prob(np.zeros(3)), r"y has shape \[3\].*\[20\]"),
        (lambda p: p.cdf(np.full(20, np.nan)), "y holds NaN"),
        (lambda p: p.quantile(1.0), "q=1.0"),
        (lambda p: p.quantile([0.5, np.nan]), "q=.*strictly between 0 and 1"),
        (lambda p: p.quantile("half"), "q='half' must be a number"),
        (lambda p: p.interval(95), "level=95.*strictly between 0 and 1"),
        (lambda p: p.interval("most"), "level='most' must be a number"),
        (lambda p: p.prob_above("x"), "threshold='x' must be a number"),
        (lambda p: p.interval(kind="hdr"), "kind='hdr'"),
        (lambda p: p.decompose("range"), "measure='range'"),
        (lambda p: p.decompose(method="guess"), "method='guess'"),
        (lambda p: p.decompose(num_samples=0), "num_samples=0"),
        (lambda p: p.decompose("entropy", "nearest_neighbour", k=0), "k=0"),
        (lambda p: p.sample(0, seed=0), "n=0"),
        (lambda p: p.sample("a"), "n='a'"),
        (lambda p: p.sample(2, seed="a"), "seed='a' must be a whole number"),
        (lambda p: p.sample_functions(2, seed=-1), "seed=-1 must be a whole number"),
        (lambda p: p.decompose("entropy", seed=0.5), "seed=0.5"),
        (lambda p: p.sample_functions(2, seed=0, latent="none"), "latent='none'"),
        (lambda p: p.log_prob_grid(1.0), "values has shape"),
    ],
)
@pytest.mark.usefixtures("any_types")
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(make())


@pytest.mark.usefixtures("any_types")
def test_wrong_parts_are_named():
    good = make(output_dim=2)
    parts = {
        "network": good.network,
        "inputs": good.mixtures.inputs,
        "draws": good.mixtures.draws,
        "target_map": TargetMap.linear([0.0, 0.0], [1.0, 1.0]),
        "num_latent_draws": 4,
        "single_output": False,
    }
    for change, message in (
        ({"inputs": np.zeros((3, 5))}, "inputs has shape"),
        ({"single_output": True}, "single_output=True"),
        ({"target_map": TargetMap.linear(0.0, 1.0)}, "target_map has 1 outputs"),
    ):
        with pytest.raises(ValueError, match=message):
            PredictiveDistribution(**(parts | change))
    for scale in ([1.0], [1.0, 0.0]):
        with pytest.raises(ValueError, match="scale"):
            TargetMap.linear([0.0, 0.0], scale)


def test_repr_and_length():
    predictive = make()
    assert len(predictive) == 20
    assert len(predictive[3]) == 1
    assert len(predictive[np.arange(20) < 4]) == 4
    assert repr(predictive) == (
        "PredictiveDistribution(rows=20, outputs=1, weight_draws=16, latent_draws=32)"
    )


@pytest.mark.parametrize("degrees", [1.2, 2.0, 30.0])
def test_crps_is_right_where_tails_are_heavy(degrees):
    rng = np.random.default_rng(0)
    means = rng.standard_t(degrees, size=2048).astype(np.float32)
    whole = equal_mixture(means, 0.1)
    found = float(jax.jit(mixture.crps)(whole, whole, jnp.float32(0.3)))
    expected = metrics.crps_gaussian_mixture(
        means.reshape(1, -1).astype(float), 0.1, None, [0.3]
    )
    assert float(found) == pytest.approx(float(expected), rel=2e-3)


# ----- Far out, where few values of z reach -------------------------------------------


def steep(num_draws=256, num_latent=8, noise_std=0.01):
    """y = z exactly but for a narrow noise, with W all alike: N(0, 1 + noise^2)."""
    network = FlatNetwork(MLP(hidden=()), 1, 1, 1)
    weights = {
        "input": np.zeros((1, 1)),
        "latent": np.ones((1, 1)),
        "bias": np.zeros(1),
    }
    flat = np.asarray(network.flatten([weights]), np.float32)
    draws = WeightDraws.equal(
        np.tile(flat, (num_draws, 1)),
        np.full((num_draws, 1), noise_std, np.float32),
        np.ones(num_draws, np.float32),
    )
    return PredictiveDistribution(
        network=network,
        inputs=np.zeros((4, 1)),
        draws=draws,
        num_latent_draws=num_latent,
        target_map=TargetMap.linear(0.0, 1.0),
        single_output=True,
    )


def test_tails_are_those_of_z_however_narrow_the_noise():
    y = np.array([0.0, 3.2, -4.0, 5.0])
    found = steep().log_prob(y)
    np.testing.assert_allclose(found, stats.norm.logpdf(y), atol=0.05)


def test_the_density_is_the_slope_of_the_cdf_in_far_tails():
    """Down to tail probabilities of 1e-6, with quantiles that agree with both."""
    for predictive in (steep()[0], make(num_draws=64, num_latent=16)[0]):
        for tail in (1e-6, 1e-4, 1e-2):
            for level, side in (
                (tail, predictive.cdf),
                (1 - tail, predictive.prob_above),
            ):
                y = predictive.quantile(level)
                assert side(y)[0] == pytest.approx(tail, rel=0.02)
                step = 1e-3 * predictive.std()
                slope = (side(y + step) - side(y - step)) / (2 * step)
                assert abs(slope[0]) == pytest.approx(predictive.pdf(y)[0], rel=0.05)


def test_a_row_far_out_has_the_same_density_in_any_batch():
    y = np.array([0.0, 3.2, -4.0, 5.0])
    whole = steep().log_prob(y)
    np.testing.assert_allclose(steep()[2:].log_prob(y[2:]), whole[2:], rtol=1e-6)
