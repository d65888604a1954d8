"""The bound with z integrated out, and reconstruction by latents of known rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from helpers import regressor
from ncai.inference.base import Training
from ncai.inference.latents import (
    LatentPosterior,
    infer_latents,
    reconstruction_error,
    sample_latents,
    sampled_latents,
)
from ncai.inference.marginal import (
    NODES,
    REACH,
    Marginal,
    even_batches,
    in_batches,
)
from ncai.inference.posterior import GaussianPosterior, SamplePosterior
from ncai.inference.warm_start import initial_priors, mean_field_at
from ncai.model.bnn_lv import Model, NoiseMoments, PriorState, Variance
from ncai.model.mean_field import MeanField, raw_scale_of
from ncai.model.networks import MLP, FlatNetwork
from ncai.model.quadrature import latent_rule, marginal_log_likelihood
from ncai.objectives.elbo import NegativeElbo
from ncai.objectives.marginal_elbo import (
    NegativeMarginalElbo,
    limited_rise,
    smoothed_log_likelihood,
)
from ncai.types import Data, Unknowns

NUM_ROWS = 20
RNG = np.random.default_rng(0)
DATA = Data(
    jnp.asarray(RNG.normal(size=(NUM_ROWS, 1)), jnp.float32),
    jnp.asarray(RNG.normal(size=(NUM_ROWS, 1)), jnp.float32),
    jnp.ones(NUM_ROWS, jnp.float32),
)

SMOOTHED = jax.jit(smoothed_log_likelihood)


def make_model(hidden=(), noise="fixed"):
    return Model(
        FlatNetwork(MLP(hidden), 1, 1, 1),
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray([0.3]), noise),
    )


def values_at(objective, model, q, normals):
    """One for each of the first axis of normals."""
    priors = initial_priors(jax.random.key(0), model)

    def value(normals):
        prepared = objective.prepare(q, normals)
        return objective.value(prepared, priors, model, DATA, jnp.zeros(()))

    return jax.jit(jax.vmap(value))(normals)


def value_at(objective, model, q, normals):
    return jax.tree.map(lambda a: a[0], values_at(objective, model, q, normals[None]))


def q_at(weights, scale, num_rows=0):
    point = Unknowns(weights, jnp.zeros((num_rows, 1)), jnp.zeros(0))
    raw = jax.tree.map(lambda a: jnp.full_like(a, raw_scale_of(scale)), point)
    return MeanField(point, raw)


def test_likelihood_of_a_linear_network_is_the_closed_form():
    model = make_model()
    tree = [
        {
            "input": jnp.asarray([[0.7]]),
            "latent": jnp.asarray([[1.3]]),
            "bias": jnp.asarray([0.2]),
        }
    ]
    q = q_at(model.network.flatten(tree), 1e-6)
    objective = NegativeMarginalElbo(latent_rule(1, NODES, REACH).nodes)
    mean = 0.7 * np.asarray(DATA.inputs) + 0.2
    expected = norm.logpdf(DATA.targets, mean, np.sqrt(1.3**2 + 0.3)).sum()
    for shift in (-1.5, 0.0, 0.4):  # wherever the nodes are shifted to
        normals = jnp.zeros((1, 4)).at[0, 3].set(shift)
        _, report = value_at(objective, model, q, normals)
        found = float(report.terms["expected_log_likelihood"])
        assert found == pytest.approx(expected, rel=1e-4)


def test_temperature_scales_what_the_prior_says():
    model = make_model()
    q = q_at(jnp.asarray([0.4, -0.3, 0.9]), 0.1)
    nodes = latent_rule(1, NODES, REACH).nodes
    normals = jnp.zeros((1, 4))
    warm, report = value_at(NegativeMarginalElbo(nodes, 1.0), model, q, normals)
    cold, _ = value_at(NegativeMarginalElbo(nodes, 0.25), model, q, normals)
    assert float(warm) == pytest.approx(-float(report.terms["elbo"]), rel=1e-5)
    assert float(warm - cold) == pytest.approx(
        0.75 * float(report.terms["kl_weights"]), rel=1e-4
    )


def test_it_bounds_the_elbo_of_any_q_of_z_from_above():
    model = make_model((5,))
    weights = model.network.init(jax.random.key(3))
    key = jax.random.key(4)
    for scale in (0.1, 1.0):
        q = q_at(weights, 1e-5, NUM_ROWS)
        raw = q.raw_scale._replace(latents=jnp.full((NUM_ROWS, 1), raw_scale_of(scale)))
        q = MeanField(q.mean, raw)
        normals = jax.random.normal(key, (200, *NegativeElbo().num_normals(q)))
        elbos = values_at(NegativeElbo(), model, q, normals)[1].terms["elbo"]
        nodes = latent_rule(1, NODES, REACH).nodes
        normals = jnp.zeros((1, weights.size + 1))
        _, report = value_at(
            NegativeMarginalElbo(nodes), model, q_at(weights, 1e-5), normals
        )
        error = np.std(elbos) / np.sqrt(len(elbos))
        assert np.mean(elbos) < float(report.terms["elbo"]) + 3 * error


def test_restarts_have_temperatures_of_their_own():
    training = Training(num_restarts=3, max_steps=60)
    model = make_model((6,), "variational")
    method = Marginal(schedule="cosine", temperature=(1.0, 0.01)).resolved("paper")
    fit = method.fit(jax.random.key(0), model, DATA, training)
    spreads = np.asarray(fit.posterior.scale.weights).mean(axis=1)
    assert spreads[1] < spreads[0]  # the cold one is narrower
    assert spreads[1] < spreads[2]
    assert fit.posterior.mean.latents.shape == (3, 0, 1)  # z has no q of its own
    again = method.continue_from(
        jax.random.key(1), model, DATA, fit.posterior, training
    )
    assert again.posterior.mean.latents.shape == (3, 0, 1)


def test_a_start_is_narrow_around_given_values():
    model = make_model((4,))
    point = Unknowns(
        model.network.init(jax.random.key(0)), jnp.zeros((0, 1)), jnp.zeros(0)
    )
    q = mean_field_at(jax.random.key(1), model, point)
    assert q.mean.latents.shape == (0, 1)


# ----- Nodes that stand for narrow Gaussians ------------------------------------------


def linear_weights(model, latent_weight):
    return model.network.flatten(
        [
            {
                "input": jnp.asarray([[0.7]]),
                "latent": jnp.asarray([[latent_weight]]),
                "bias": jnp.asarray([0.2]),
            }
        ]
    )


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 0.3])
def test_smoothed_likelihood_is_exact_for_a_line_however_small_the_noise(noise):
    model = make_model()
    nodes = latent_rule(1, 16, REACH).nodes
    found = SMOOTHED(
        model,
        DATA,
        nodes,
        linear_weights(model, 1.3),
        NoiseMoments(jnp.log(jnp.asarray([noise])), jnp.asarray([1 / noise])),
        jnp.asarray(1.0),
    )
    mean = 0.7 * np.asarray(DATA.inputs) + 0.2
    expected = norm.logpdf(DATA.targets, mean, np.sqrt(1.3**2 + noise)).sum()
    # The ripple is up to 1.4 % of a density, either way.
    assert float(found) == pytest.approx(expected, abs=0.004 * NUM_ROWS)


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_smoothed_likelihood_bounds_the_average_over_uncertain_noise(spread):
    # q(log s) = N(log 0.3, spread^2): E[log p(Y | W, s)] is an integral over one s.
    model = make_model((6,))
    weights = model.network.init(jax.random.key(5))
    nodes = latent_rule(1, 16, REACH).nodes
    centre = jnp.log(jnp.asarray([0.3]))

    @jax.jit
    def value(moments):
        return smoothed_log_likelihood(
            model, DATA, nodes, weights, moments, jnp.asarray(1.0)
        )

    points, shares = np.polynomial.hermite_e.hermegauss(41)
    exact = sum(
        share
        * float(value(NoiseMoments(centre + spread * x, jnp.exp(-centre - spread * x))))
        for x, share in zip(points, shares / shares.sum(), strict=True)
    )
    bound = float(value(NoiseMoments(centre, jnp.exp(-centre + 0.5 * spread**2))))
    assert bound <= exact + 1e-3
    if spread < 0.5:
        assert bound == pytest.approx(exact, abs=0.1)


@pytest.mark.usefixtures("well_compiled")
def test_noise_that_rows_determine_has_a_narrow_posterior():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (200, 1))
    y = x[:, 0] + 0.3 * rng.normal(size=200)
    model = regressor(
        "marginal",
        keep="best",
        max_steps=600,
        n_restarts=2,
        target_transform="none",
        latent_hidden=(20,),
        temperature=1.0,
        random_state=0,
    ).fit(x, y)
    # Of the log variance of n Gaussian errors the posterior is about sqrt(2/n) wide.
    found = float(model.posterior_.scale.log_noise_var[0, 0])
    assert found == pytest.approx(np.sqrt(2 / 180), rel=0.6)


def test_plain_nodes_have_gaps_that_small_noise_falls_into():
    model = make_model()
    weights, noise = linear_weights(model, 1.3), 1e-3
    moments = NoiseMoments(jnp.log(jnp.asarray([noise])), jnp.asarray([1 / noise]))
    plain = marginal_log_likelihood(
        model, DATA, latent_rule(1, 16, REACH), weights, moments, jnp.asarray(1.0)
    )
    mean = 0.7 * np.asarray(DATA.inputs) + 0.2
    expected = norm.logpdf(DATA.targets, mean, np.sqrt(1.3**2 + noise)).sum()
    assert float(plain) < expected - 50


def test_gradient_of_the_smoothed_likelihood_is_that_of_differences(x64):
    model = make_model((4,))
    data = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), DATA)
    weights = model.network.init(jax.random.key(5)).astype(jnp.float64)
    moments = NoiseMoments(jnp.log(jnp.asarray([0.05])), jnp.asarray([20.0]))
    nodes = jnp.asarray(latent_rule(1, 16, REACH).nodes, jnp.float64)

    @jax.jit
    def value(w):
        return smoothed_log_likelihood(model, data, nodes, w, moments, jnp.asarray(1.0))

    gradient = np.asarray(jax.jit(jax.grad(value))(weights))
    for i in range(len(weights)):
        step = jnp.zeros_like(weights).at[i].set(1e-6)
        slope = (value(weights + step) - value(weights - step)) / 2e-6
        assert gradient[i] == pytest.approx(float(slope), rel=1e-4, abs=1e-4)


def test_rise_at_a_node():
    left = jnp.asarray([1.0, 1.0, 1.0, 1.0, -2.0, -0.1, 0.0])
    right = jnp.asarray([1.0, 3.0, 20.0, 0.0, -4.0, -20.0, 0.0])
    # A line, a bend, the foot of a step, its end, a falling bend, a falling step, none.
    expected = [1.0, 2.0, 2.0, 0.0, -3.0, -0.2, 0.0]
    np.testing.assert_allclose(limited_rise(left, right), expected, rtol=1e-6)
    np.testing.assert_allclose(limited_rise(right, left), expected, rtol=1e-6)
    slopes = jax.grad(lambda a: jnp.sum(limited_rise(a, right)))(left)
    assert np.isfinite(slopes).all()
    peak = limited_rise(jnp.asarray([1.0, -1.0]), jnp.asarray([-3.0, 0.5]))
    np.testing.assert_array_equal(peak, [0.0, 0.0])


def test_a_step_in_z_gives_two_humps_that_do_not_run_into_each_other():
    # f = tanh(200 z): y is -1 or 1, and only the noise is added to that.
    model = Model(
        FlatNetwork(MLP((1,), "tanh"), 1, 1, 1),
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray([0.01])),
    )
    tree = [
        {
            "input": jnp.zeros((1, 1)),
            "latent": jnp.full((1, 1), 200.0),
            "bias": jnp.zeros(1),
        },
        {"weight": jnp.ones((1, 1)), "bias": jnp.zeros(1)},
    ]
    targets = np.repeat([-1.1, 0.0, 1.0], [8, 4, 8])[:, None]
    data = DATA._replace(targets=jnp.asarray(targets, jnp.float32))
    noise = NoiseMoments(jnp.log(jnp.asarray([0.01])), jnp.asarray([100.0]))
    found = [
        SMOOTHED(
            model,
            data._replace(row_weights=jnp.asarray(targets[:, 0] == y, float)),
            latent_rule(1, NODES, REACH).nodes,
            model.network.flatten(tree),
            noise,
            jnp.asarray(1.0),
        )
        / np.sum(targets == y)
        for y in (-1.1, 0.0, 1.0)
    ]
    humps = np.logaddexp(norm.logpdf(targets, -1, 0.1), norm.logpdf(targets, 1, 0.1))
    expected = humps[[0, 8, 12], 0] - np.log(2)
    np.testing.assert_allclose(found, expected, atol=0.01)


# ----- Blocks of rows -----------------------------------------------------------------


def test_blocks_of_rows_add_up_to_all_of_them():
    model = make_model((5,))
    q = q_at(model.network.init(jax.random.key(3)), 0.1)
    nodes = latent_rule(1, 16, REACH).nodes
    batches = in_batches(DATA, 8)  # 20 rows: 3 blocks, the last with 4 of weight 0
    assert batches.inputs.shape == (24, 1)
    priors = initial_priors(jax.random.key(0), model)
    normals = jnp.zeros((1, q.mean.weights.size + 1))

    def likelihood(objective, data, step):
        prepared = jax.jit(objective.prepare)(q, normals)
        _, report = jax.jit(objective.value)(prepared, priors, model, data, step)
        return float(report.terms["expected_log_likelihood"])

    whole = likelihood(NegativeMarginalElbo(nodes), DATA, 0.0)
    blocks = NegativeMarginalElbo(nodes, batch_rows=8)
    parts = [likelihood(blocks, batches, float(step)) for step in range(3)]
    assert np.mean(parts) == pytest.approx(whole, rel=1e-4)
    assert len({round(part, 3) for part in parts}) == 3
    assert likelihood(blocks, batches, 3.0) == pytest.approx(parts[0])


def test_several_outputs_of_a_linear_network_have_their_joint_density():
    model = Model(
        FlatNetwork(MLP(()), 1, 1, 2),
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray([0.3, 0.001])),
    )
    slopes = np.array([1.3, -0.6])
    tree = [
        {
            "input": jnp.asarray([[0.7, 0.1]]),
            "latent": jnp.asarray(slopes[None]),
            "bias": jnp.asarray([0.2, 0.0]),
        }
    ]
    variances = np.array([0.3, 0.001])  # far narrower than the gaps between nodes
    targets = (
        RNG.multivariate_normal(
            [0, 0], np.outer(slopes, slopes) + np.diag(variances), NUM_ROWS
        )
        + np.asarray(DATA.inputs) * [0.7, 0.1]
        + [0.2, 0.0]
    )
    data = DATA._replace(targets=jnp.asarray(targets, jnp.float32))
    noise = NoiseMoments(jnp.log(jnp.asarray(variances)), 1 / jnp.asarray(variances))
    nodes = latent_rule(1, NODES, REACH).nodes
    found = SMOOTHED(
        model, data, nodes, model.network.flatten(tree), noise, jnp.asarray(1.0)
    )
    expected = multivariate_normal.logpdf(
        targets - np.asarray(DATA.inputs) * [0.7, 0.1] - [0.2, 0.0],
        [0, 0],
        np.outer(slopes, slopes) + np.diag(variances),
    ).sum()
    assert float(found) == pytest.approx(expected, abs=NUM_ROWS * 0.014)  # the ripple


@pytest.mark.parametrize(("rows", "most", "size"), [(100, 256, 100), (622, 256, 208)])
def test_batches_are_equally_full(rows, most, size):
    assert even_batches(rows, most) == size


def times_z(noise_variance):
    """The model f = b z, and its weights where b is 1."""
    network = FlatNetwork(MLP(()), 1, 1, 1)
    tree = {
        "bias": jnp.zeros(1),
        "input": jnp.zeros((1, 1)),
        "latent": jnp.ones((1, 1)),
    }
    one = Variance(jnp.asarray(1.0))
    model = Model(network, one, one, Variance(jnp.full(1, noise_variance)))
    return model, network.flatten([tree])


def test_matches_the_closed_form_of_a_linear_network():
    # f = b z with b ~ N(m, s^2) independent of z ~ N(u, v^2):
    # E(y - b z)^2 = (y - m u)^2 + Var(b z),
    # Var(b z) = s^2 v^2 + s^2 u^2 + m^2 v^2.
    rng = np.random.default_rng(0)
    rows, m, s = 40, 1.5, 0.2
    u, v = rng.normal(size=(rows, 1)), rng.uniform(0.1, 0.5, size=(rows, 1))
    y = rng.normal(size=(rows, 1))
    model, latent_only = times_z(noise_variance=1.0)
    no_latents = jnp.zeros((1, 0, 1))
    posterior = GaussianPosterior(
        model,
        Unknowns(m * latent_only[None], no_latents, jnp.zeros((1, 0))),
        Unknowns(s * latent_only[None], no_latents, jnp.zeros((1, 0))),
        PriorState(jnp.ones(1), jnp.ones(1), jnp.ones((1, 1))),
        np.ones(1),
    )
    data = Data(jnp.asarray(rng.normal(size=(rows, 1))), jnp.asarray(y), jnp.ones(rows))
    found = reconstruction_error(
        posterior, data, LatentPosterior(u, v), seed=0, num_draws=20_000
    )
    exact = np.mean((y - m * u) ** 2 + s**2 * (v**2 + u**2) + m**2 * v**2)
    # The spread over draws is below 0.2, so the standard error is below 0.0015.
    np.testing.assert_allclose(found, [exact], atol=0.006)


# ----- Chains in which z has another sign ---------------------------------------------

NOISE_VARIANCE = 0.01


def flipped_chains(with_latents=True):
    """Draws of f = b z with b about 1 in one chain, about -1 in the other; and y.

    z is drawn from p(z | y, b), a Gaussian: exact draws of the posterior given b.
    """
    rng = np.random.default_rng(0)
    rows, length = 30, 200
    y = rng.normal(size=(rows, 1))
    slope = rng.uniform(0.8, 1.2, size=(2, length)) * [[1], [-1]]
    precision = (1 + slope**2 / NOISE_VARIANCE)[..., None, None]
    mean = (slope / NOISE_VARIANCE)[..., None, None] * y / precision
    latents = mean + rng.normal(size=mean.shape) / np.sqrt(precision)
    model, latent_only = times_z(NOISE_VARIANCE)
    samples = Unknowns(
        jnp.asarray(slope[..., None] * np.asarray(latent_only), jnp.float32),
        jnp.asarray(latents if with_latents else latents[:, :, :0], jnp.float32),
        jnp.zeros((2, length, 0)),
    )
    noise = jnp.full((2, 1), NOISE_VARIANCE)
    priors = PriorState(jnp.ones(2), jnp.ones(2), noise)
    posterior = SamplePosterior(model, samples, priors, np.full(2, 0.5))
    data = Data(jnp.zeros((rows, 1)), jnp.asarray(y, jnp.float32), jnp.ones(rows))
    errors = np.mean((y - slope[..., None, None] * latents) ** 2)
    return posterior, data, latents, errors


def test_moments_and_draws_of_z_are_those_of_one_chain():
    posterior, _, latents, _ = flipped_chains()
    assert np.corrcoef(*latents.mean(axis=1)[..., 0])[0, 1] < -0.99
    mean, std = posterior.latent_moments()
    np.testing.assert_allclose(mean, latents[0].mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(std, latents[0].std(axis=0), rtol=1e-4)
    found = sampled_latents(posterior, seed=0)
    np.testing.assert_array_less(np.abs(found - mean), 5 * np.asarray(std))
    # Each row is a draw of its own, of another W.
    steps = np.abs(np.asarray(posterior.samples.latents)[0] - found)[..., 0]
    assert (steps.min(axis=0) == 0).all()
    assert len(np.unique(steps.argmin(axis=0))) > 15


def test_inferred_z_is_that_of_one_chain():
    posterior, data, latents, _ = flipped_chains(with_latents=False)
    rows = latents.shape[2]
    found = infer_latents(posterior, data, rows, seed=0)
    # 64 of the 200 draws.
    np.testing.assert_allclose(found.mean, latents[0].mean(axis=0), atol=0.05)
    np.testing.assert_allclose(found.std, latents[0].std(axis=0), atol=0.05)
    drawn = sample_latents(posterior, data, rows, seed=0)
    np.testing.assert_array_less(np.abs(drawn - found.mean), 5 * found.std)


def test_a_sampler_reconstructs_with_each_w_and_the_z_drawn_beside_it():
    posterior, data, _, exact = flipped_chains()
    moments = LatentPosterior(*(np.asarray(a) for a in posterior.latent_moments()))
    found = reconstruction_error(posterior, data, moments, seed=0, num_draws=400)
    np.testing.assert_allclose(found, [exact], rtol=1e-4)
    # Where z was integrated out, it is drawn given each W: the same up to chance, which
    # is sqrt(2 / 12,000) of the error.
    posterior, data, _, _ = flipped_chains(with_latents=False)
    found = reconstruction_error(posterior, data, moments, seed=0, num_draws=400)
    np.testing.assert_allclose(found, [exact], rtol=0.08)
