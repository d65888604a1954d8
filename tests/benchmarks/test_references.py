"""The reference sampler of benchmarks/references: densities, coordinates, draws."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from benchmarks.references.chain import Chain, log_norm_density, rescale
from benchmarks.references.gibbs import (
    draw_latents,
    draw_outputs,
    slice_nodes,
    sweep,
)
from benchmarks.references.leaky import Frame, LeakyDensity
from ncai.inference.nuts import Target
from ncai.model.bnn_lv import Model, Variance
from ncai.model.empirical_bayes import initial_priors
from ncai.model.networks import MLP, FlatNetwork
from ncai.model.quadrature import latent_rule
from ncai.study.engine import Cell
from ncai.study.experiments.hmc_draws import (
    FOLDER,
    committed_draws,
    digest_of_file,
    digest_of_problem,
    posterior_from_file,
    reference_draws,
    reference_problem,
)
from ncai.types import Data, Unknowns

HIDDEN, NODES = 7, 48
RNG = np.random.default_rng(0)
X, Y = 3 * RNG.standard_normal(37), 2 * RNG.standard_normal(37)
WEIGHTS = 1.5 * RNG.standard_normal(4 * HIDDEN + 1)


def plain_density(x, y, hidden, num_nodes):
    """The package's own density of W, up to the same constant."""
    data = Data(jnp.asarray(x)[:, None], jnp.asarray(y)[:, None], jnp.ones(len(x)))
    network = FlatNetwork(MLP((hidden,)), 1, 1, 1)
    variances = (jnp.asarray(10.0), jnp.asarray(1.0), jnp.asarray([0.1]))
    model = Model(network, *map(Variance, variances))
    priors = initial_priors(jax.random.key(0), model)
    target = Target(model, data, priors, latent_rule(1, num_nodes))
    size = network.num_weights
    constant = len(x) * np.log(2 * np.pi * 0.1) + size * np.log(2 * np.pi * 10)

    def density(weights):
        nothing = jnp.zeros((0, 1))
        position = Unknowns(weights, nothing, nothing[:, 0])
        return target.log_density(position) + 0.5 * constant

    return density


def framed(density, powers=(3, 2), strength=300.0):
    values = Frame(density, powers).components(WEIGHTS) + 0.3
    return Frame(density, powers, values, strength)


@pytest.mark.parametrize("without", [None, "input weight", "latent weight"])
def test_the_compiled_density_is_the_package_s(without):
    weights = WEIGHTS.copy()
    if without:
        weights[(HIDDEN if without == "input weight" else 2 * HIDDEN) + 3] = 0.0
    value, gradient = LeakyDensity(X, Y, HIDDEN, rule=(NODES, 5.0)).value_and_gradient(
        weights
    )
    with jax.enable_x64(True):
        density = plain_density(X, Y, HIDDEN, NODES)
        wanted, slope = jax.value_and_grad(density)(jnp.asarray(weights))
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    # Right at a kink any slope between those of both sides is right.
    right = np.ones(len(slope), bool)
    if without:
        right[np.arange(4 * HIDDEN + 1) % HIDDEN == 3] = False
    np.testing.assert_allclose(
        gradient[right], slope[right], atol=1e-5 * np.abs(slope).max()
    )


def test_the_volume_of_the_frame_is_the_determinant_of_its_jacobian():
    density = LeakyDensity(X, Y, HIDDEN, rule=(NODES, 5.0))
    frame = framed(density)
    position = frame.to_position(WEIGHTS)
    np.testing.assert_allclose(frame.to_weights(position), WEIGHTS, atol=1e-8)
    step = 1e-5
    moves = step * np.eye(len(position))
    jacobian = [
        frame.to_weights(position + m) - frame.to_weights(position - m) for m in moves
    ]
    volume = np.linalg.slogdet(np.array(jacobian) / (2 * step))[1]
    found = frame.value_and_gradient(position)[0]
    wanted = density.value_and_gradient(WEIGHTS)[0] + volume
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-3)
    assert volume < -5  # the check would notice a missing volume


def test_the_frame_whitens_what_rows_tell_of_its_components():
    frame = framed(LeakyDensity(X, Y, HIDDEN, rule=(NODES, 5.0)))
    products = frame.products(WEIGHTS)
    matrix = frame.matrix(products)
    precision = np.eye(HIDDEN + 1) + frame.strength * products @ products.T
    np.testing.assert_allclose(
        matrix.T @ precision @ matrix, np.eye(HIDDEN + 1), atol=1e-8
    )


def test_gradient_of_the_frame_by_autodiff():
    density = LeakyDensity(X, Y, HIDDEN, rule=(NODES, 5.0))
    frame = framed(density)
    position = frame.to_position(WEIGHTS)

    def products(w):
        b, a, c = jnp.split(w[: 3 * HIDDEN], 3)
        before = b + jnp.outer(frame.x, a) + jnp.outer(frame.z, c)
        after = jnp.maximum(before, 0.01 * before)
        ones = jnp.ones((len(after), 1))
        return jnp.concatenate([ones, after], 1).T @ frame.basis / len(after)

    def density_of(q):
        found, start = products(q), 3 * HIDDEN
        matrix = jnp.eye(HIDDEN + 1)
        for product in found.T:
            e = matrix.T @ product
            scale = (1 + frame.strength * e @ e) ** -0.5 - 1
            matrix = matrix + scale / (e @ e) * jnp.outer(matrix @ e, e)
        mean = frame.strength * matrix @ matrix.T @ found @ frame.values
        weights = jnp.concatenate([q[:start], matrix @ q[start:] + mean])
        plain = plain_density(X, Y, HIDDEN, NODES)(weights)
        return plain + jnp.linalg.slogdet(matrix)[1]

    value, gradient = frame.value_and_gradient(position)
    with jax.enable_x64(True):
        wanted, slope = jax.value_and_grad(density_of)(jnp.asarray(position))
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    np.testing.assert_allclose(gradient, slope, atol=2e-5 * np.abs(slope).max())


def test_the_norms_of_a_node_integrate_to_a_bessel_function():
    grid = np.linspace(-12, 6, 20_001)
    for product in (0.3, 4.0, -20.0):
        density = np.exp(log_norm_density(grid, product, 10.0))
        found = density.sum() * (grid[1] - grid[0])
        size = abs(product)
        np.testing.assert_allclose(found, size * special.kv(1, size / 10), rtol=1e-6)


def test_rescaling_keeps_the_function_and_the_prior():
    density = LeakyDensity(X, Y, HIDDEN, rule=(NODES, 5.0))
    rng = np.random.default_rng(1)
    before = np.sqrt(10) * rng.standard_normal((2_000, density.size))
    after = np.array([rescale(rng, density, w) for w in before])
    for values in (density.unpack(after[0])[-1], after[:, -1], after[:, 0]):
        assert np.isfinite(values).all()
    assert stats.kstest(after[:, -3:].ravel(), "norm", (0, 10**0.5)).pvalue > 1e-3
    assert stats.kstest(after[:, :3].ravel(), "norm", (0, 10**0.5)).pvalue > 1e-3
    # Nearly all norms have moved, and no function has.
    assert np.mean(np.abs(after[:, -1] / before[:, -1] - 1) > 1e-3) > 0.95
    network = FlatNetwork(MLP((HIDDEN,)), 1, 1, 1)
    x, z = jnp.asarray(X)[:, None], jnp.asarray(Y)[:, None]
    outputs = [network.apply_rows(jnp.asarray(w[0]), x, z) for w in (before, after)]
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-3)


def test_a_chain_in_a_frame_finds_the_prior_where_rows_say_nothing():
    """Weights are N(0, 10 I) then; a wrong volume or metric would change v."""
    density = LeakyDensity(X, Y, 2, (1e9, 10.0), (16, 5.0))
    cheap = LeakyDensity(X, Y, 2, (1e9, 12.0), (16, 5.0))  # the accept step corrects
    rng = np.random.default_rng(2)
    chain = Chain(
        density, cheap, (2, 1), 12, 0, 3.0 * rng.standard_normal(density.size)
    )
    chain.frame, chain.log_step = Frame(cheap, (2, 1), [1.0, 0.5, -0.5], 0.3), -0.7
    found = chain.draw(rng, 6_000)
    assert found["acceptance"].mean() > 0.6
    variances = (found["weights"] ** 2).mean(axis=0)
    np.testing.assert_allclose(variances, 10, rtol=0.15)
    np.testing.assert_allclose(found["weights"].mean(axis=0), 0, atol=0.3)


# ----- Gibbs moves --------------------------------------------------------------------


def network_outputs(weights, x, z):
    b, a, c, d, v = weights
    before = b + np.outer(x, a) + np.outer(z, c)
    return np.maximum(before, 0.01 * before) @ v + d


def test_latents_given_weights_follow_their_density():
    rng = np.random.default_rng(3)
    weights = LeakyDensity(X, Y, HIDDEN).unpack(WEIGHTS)
    grid = np.linspace(-6, 6, 24_001)
    for x, y in zip(X[:6], Y[:6], strict=True):
        repeated = np.full((2, 2_000), [[x], [y]])
        draws = draw_latents(rng, *repeated, WEIGHTS, 0.1)
        error = y - network_outputs(weights, np.full(len(grid), x), grid)
        log_density = -0.5 * grid**2 - 0.5 * error**2 / 0.1
        mass = np.cumsum(np.exp(log_density - log_density.max()))
        places = np.interp(draws, grid, mass / mass[-1])
        assert stats.kstest(places, "uniform").pvalue > 1e-3


def test_hidden_nodes_follow_their_density_without_the_outputs():
    """One node and three rows: slices against the density on a grid of one weight."""
    rng, variances = np.random.default_rng(5), (0.5, 2.0)
    x, z, y = rng.standard_normal((3, 3))
    weights, found = np.zeros(5), []
    for _ in range(20_000):
        weights, gram, moment = slice_nodes(rng, x, z, y, weights, variances)
        found.append(weights[:3])
    b, a, c = np.array(found)[500:].T
    before = b[-1] + a[-1] * x + c[-1] * z
    features = np.stack([np.ones(3), np.maximum(before, 0.01 * before)])
    np.testing.assert_allclose(gram, features @ features.T, rtol=1e-9)
    np.testing.assert_allclose(moment, features @ y, rtol=1e-9)

    # Draws of the prior, weighted by p(y | hidden nodes, z), have the same moments.
    prior = np.sqrt(2.0) * rng.standard_normal((200_000, 3, 1))
    before = prior[:, 0] + prior[:, 1] * x + prior[:, 2] * z
    after = np.maximum(before, 0.01 * before)
    covariance = 0.5 * np.eye(3) + 2.0 * (1 + after[:, :, None] * after[:, None, :])
    solved = np.linalg.solve(covariance, np.broadcast_to(y[:, None], (200_000, 3, 1)))
    log_share = -0.5 * (solved[..., 0] @ y + np.linalg.slogdet(covariance)[1])
    share = np.exp(log_share - log_share.max())
    share /= share.sum()
    for drawn, weighted in zip((b, a, c), prior[..., 0].T, strict=True):
        np.testing.assert_allclose(drawn.mean(), share @ weighted, atol=0.08)
        np.testing.assert_allclose((drawn**2).mean(), share @ weighted**2, rtol=0.06)


def test_outputs_given_features_are_ridge_regression():
    rng, variances = np.random.default_rng(6), (0.5, 2.0)
    features, y = rng.standard_normal((2, 20)), rng.standard_normal(20)
    gram, moment = features @ features.T, features @ y
    draws = [draw_outputs(rng, gram, moment, variances) for _ in range(20_000)]
    covariance = np.linalg.inv(gram / 0.5 + np.eye(2) / 2.0)
    np.testing.assert_allclose(np.mean(draws, 0), covariance @ moment / 0.5, atol=0.01)
    np.testing.assert_allclose(np.cov(np.transpose(draws)), covariance, atol=1e-3)


def test_sweeps_keep_the_prior_where_targets_follow_it():
    """Weights from the prior and targets from them: a sweep leaves both as they are."""
    rng, found = np.random.default_rng(4), []
    x = 2 * rng.standard_normal(8)
    for _ in range(1_500):
        weights = np.sqrt(10) * rng.standard_normal(9)
        parts = np.split(weights, [2, 4, 6, 7])
        noise = np.sqrt(0.5) * rng.standard_normal(8)
        y = network_outputs(parts, x, rng.standard_normal(8)) + noise
        for _ in range(2):
            weights = sweep(rng, x, y, weights, (0.5, 10.0))
        found.append(weights)
    for values in np.array(found).T:
        assert stats.kstest(values, "norm", (0, 10**0.5)).pvalue > 1e-3


# ----- The committed draws ------------------------------------------------------------


@pytest.fixture(params=[10, 50])
def committed(request):
    path = FOLDER / f"depeweg_{request.param}.npz"
    with np.load(path) as found:
        return request.param, path, dict(found)


def test_committed_draws_belong_to_the_problem(committed):
    hidden, path, found = committed
    problem = reference_problem(hidden)
    assert str(found["problem"]) == digest_of_problem(problem)
    chains, draws, size = found["weights"].shape
    assert (chains * draws, size) == (512, 4 * hidden + 1)
    assert found["weights"].dtype == np.float32
    assert path.stat().st_size < 600_000
    # The density that was stored with them is the package's, by a fine rule.
    rows = (np.asarray(a)[:, 0] for a in (problem.data.inputs, problem.data.targets))
    density = plain_density(*rows, hidden, 1_008)
    for chain in range(chains):
        value = density(jnp.asarray(found["weights"][chain, -1]))
        np.testing.assert_allclose(value, found["log_density"][chain, -1], atol=0.2)
    assert np.ptp(found["log_density"]) < 200


def test_the_report_is_of_the_committed_draws(committed):
    hidden, path, _ = committed
    report = json.loads(path.with_suffix(".json").read_text())
    assert report["sha256"] == digest_of_file(path)
    assert report["mixed"] == (report["max_rhat"] <= 1.05 and report["min_ess"] >= 400)
    draws, row = reference_draws(
        Cell.of("decomposition", kept=64, draws_file=path.name),
        reference_problem(hidden),
    )
    assert draws.weights.shape == (64, 4 * hidden + 1)
    assert row["source"] == committed_draws(hidden)
    assert row["max_rhat"] == report["max_rhat"]
    assert row["num_draws"] == report["num_draws"]
    assert report["quadrature_error"]["of_the_density"]["largest"] < 0.1


def test_the_small_problem_has_mixed():
    path = FOLDER / "depeweg_10.npz"
    assert json.loads(path.with_suffix(".json").read_text())["mixed"]
    # Thinned draws are fewer, but their chains agree too.
    _, thinned = posterior_from_file(path, reference_problem(10))
    assert thinned.max_rhat < 1.06


def test_the_rule_of_the_chains_agrees_with_a_fine_one(committed):
    hidden, _, found = committed
    problem = reference_problem(hidden)
    rows = problem.data.inputs[:, 0], problem.data.targets[:, 0]
    coarse = LeakyDensity(*rows, hidden, rule=(512, 5.0))
    draws = found["weights"][:, ::16].reshape(-1, 4 * hidden + 1)
    values = [coarse.value_and_gradient(w)[0] for w in draws]
    error = np.array(values) - found["log_density"][:, ::16].ravel()
    assert np.abs(error).max() < 0.1
