"""A linear network, where everything is known in closed form.

With `MLP(hidden=())` and no latents the model is Bayesian linear regression:
y ~ N(0, s I + s_w F F') with F = [1, X], and W | y is Gaussian. With latents,
y_n | W ~ N(b + w_x x_n, s_z w_z w_z' + diag(s)).
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, stats

from ncai.inference.base import Training
from ncai.inference.hmc import HMC, HMCMarginal
from ncai.inference.map import MAP
from ncai.inference.mean_field import MFVI
from ncai.inference.posterior import GaussianPosterior
from ncai.inference.warm_start import initial_priors_of
from ncai.model.bnn_lv import Model, NoiseMoments, PriorState, Variance
from ncai.model.empirical_bayes import empirical_variance, update_priors
from ncai.model.log_joint import log_joint_terms
from ncai.model.mean_field import (
    MeanField,
    gaussian_kl,
    noise_kl,
    noise_moments,
    raw_scale_of,
    scale_of,
)
from ncai.model.networks import MLP, FlatNetwork
from ncai.model.quadrature import latent_rule, marginal_log_likelihood
from ncai.objectives.elbo import NegativeElbo, NegativeLogJoint
from ncai.objectives.penalties import Penalties
from ncai.predictive.distribution import PredictiveDistribution
from ncai.predictive.target_map import TargetMap
from ncai.types import Data, Unknowns

WEIGHT_VARIANCE, NOISE_VARIANCE = 1.5, 0.3


def fixed(value):
    return Variance(jnp.asarray(value, float))


def linear_model(input_dim, latent_dim=0, output_dim=1, latent_variance=1.0):
    return Model(
        FlatNetwork(MLP(hidden=()), input_dim, latent_dim, output_dim),
        fixed(WEIGHT_VARIANCE),
        fixed(latent_variance),
        fixed([NOISE_VARIANCE] * output_dim),
    )


def fixed_priors(model):
    return PriorState(
        *(
            jnp.asarray(v.value, float)
            for v in (
                model.weight_variance,
                model.latent_variance,
                model.noise_variance,
            )
        )
    )


def to_data(inputs, targets, weights=None):
    weights = np.ones(len(inputs)) if weights is None else weights
    return Data(*(jnp.asarray(a, float) for a in (inputs, targets, weights)))


class Regression:
    """Bayesian linear regression by hand."""

    def __init__(self, num_rows=20, orthogonal=False, seed=0):
        rng = np.random.default_rng(seed)
        self.inputs = rng.normal(size=(num_rows, 2)) @ [[1.0, 0.6], [0.0, 0.5]]
        if orthogonal:  # columns orthogonal to each other and to the bias
            centred = self.inputs - self.inputs.mean(axis=0)
            self.inputs = np.linalg.qr(centred)[0] * num_rows**0.5
        truth = np.array([0.4, 1.0, -0.7])
        self.features = np.hstack([np.ones((num_rows, 1)), self.inputs])
        noise = NOISE_VARIANCE**0.5 * rng.normal(size=num_rows)
        self.targets = (self.features @ truth + noise)[:, None]
        # The flat weights are the bias, then those of the inputs.
        precision = self.features.T @ self.features / NOISE_VARIANCE
        precision += np.eye(3) / WEIGHT_VARIANCE
        self.covariance = np.linalg.inv(precision)
        moment = self.features.T @ self.targets[:, 0] / NOISE_VARIANCE
        self.mean = self.covariance @ moment
        self.evidence = stats.multivariate_normal.logpdf(
            self.targets[:, 0],
            cov=NOISE_VARIANCE * np.eye(num_rows)
            + WEIGHT_VARIANCE * self.features @ self.features.T,
        )
        self.model = linear_model(2)
        self.data = to_data(self.inputs, self.targets)

    def divergence(self, mean, scale):
        """KL from N(mean, diag(scale^2)) to the posterior."""
        precision = np.linalg.inv(self.covariance)
        gap = mean - self.mean
        return 0.5 * (
            np.trace(precision * np.diag(scale**2))
            + gap @ precision @ gap
            - 3
            + np.linalg.slogdet(self.covariance)[1]
            - 2 * np.log(scale).sum()
        )


def exact_elbo(model, data, q):
    """The ELBO of a linear model without latents, by NegativeElbo, to rounding.

    The expected squared error is quadratic in the weights, and the points
    +- sqrt(P) e_i have the mean and the covariance of a standard normal.
    """
    num_weights = q.mean.weights.size
    corners = num_weights**0.5 * np.eye(num_weights)
    normals = jnp.asarray(np.vstack([corners, -corners]), float)
    objective = NegativeElbo(num_samples=2 * num_weights)

    @jax.jit
    def value(q):
        draw = objective.prepare(q, normals)
        return objective.value(draw, fixed_priors(model), model, data, jnp.zeros(()))[0]

    return -float(value(q))


def weights_only(mean, scale, num_rows):
    none, empty = jnp.zeros((num_rows, 0)), jnp.zeros(0)
    return MeanField(
        Unknowns(jnp.asarray(mean, float), none, empty),
        Unknowns(raw_scale_of(jnp.asarray(scale, float)), none, empty),
    )


# ----- No latents: Bayesian linear regression -----------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_elbo_is_the_evidence_less_the_divergence(seed, x64):
    problem = Regression()
    rng = np.random.default_rng(seed)
    mean = problem.mean + 0.3 * rng.normal(size=3)
    scale = rng.uniform(0.05, 1.0, size=3)
    found = exact_elbo(problem.model, problem.data, weights_only(mean, scale, 20))
    gap = problem.divergence(mean, scale)
    assert gap > 0
    assert found == pytest.approx(problem.evidence - gap, rel=1e-9)
    assert found <= problem.evidence


def test_elbo_of_the_exact_posterior_is_the_evidence(x64):
    problem = Regression(orthogonal=True)
    scale = np.sqrt(np.diag(problem.covariance))
    np.testing.assert_allclose(problem.covariance, np.diag(scale**2), atol=1e-12)
    q = weights_only(problem.mean, scale, 20)
    found = exact_elbo(problem.model, problem.data, q)
    assert found == pytest.approx(problem.evidence, rel=1e-9)
    # And by what training does: the average over random normals.
    objective = NegativeElbo(num_samples=20_000)
    normals = jax.random.normal(jax.random.key(0), objective.num_normals(q))
    draw = objective.prepare(q, normals)
    value, report = objective.value(
        draw, fixed_priors(problem.model), problem.model, problem.data, jnp.zeros(())
    )
    outputs = draw.weights @ problem.features.T
    errors = jnp.sum((problem.targets[:, 0] - outputs) ** 2, axis=1)
    standard_error = float(errors.std()) / (2 * NOISE_VARIANCE) / 20_000**0.5
    assert -float(value) == pytest.approx(problem.evidence, abs=4 * standard_error)
    assert float(report.squared_error[0]) == pytest.approx(float(errors.mean()))


def test_trained_mean_field_reaches_the_evidence():
    problem = Regression(orthogonal=True)
    method = MFVI(n_mc_samples=32, plateau=True, rate_drops=2).resolved("paper")
    training = Training(num_restarts=2, max_steps=3000)
    fit = method.fit(jax.random.key(1), problem.model, problem.data, training)
    std = np.sqrt(np.diag(problem.covariance))
    for i in range(2):
        mean = np.asarray(fit.posterior.mean.weights[i], float)
        scale = np.asarray(fit.posterior.scale.weights[i], float)
        # Adam still shakes a little at its last rate; in units of the posterior:
        assert np.abs(mean - problem.mean).max() < 0.25 * std.min()
        np.testing.assert_allclose(scale, std, rtol=0.1)
        q = weights_only(mean, scale, 20)
        found = exact_elbo(problem.model, problem.data, q)
        assert problem.evidence - 0.1 < found < problem.evidence + 1e-3


def test_prediction_of_the_exact_posterior():
    problem = Regression(orthogonal=True)
    std = np.sqrt(np.diag(problem.covariance))
    posterior = GaussianPosterior(
        problem.model,
        Unknowns(problem.mean[None], np.zeros((1, 20, 0)), np.zeros((1, 0))),
        Unknowns(std[None], np.zeros((1, 20, 0)), np.zeros((1, 0))),
        jax.tree.map(lambda a: np.asarray(a)[None], fixed_priors(problem.model)),
        np.ones(1),
    )
    inputs = np.array([[0.0, 0.0], [1.0, -2.0], [4.0, 3.0]])
    features = np.hstack([np.ones((3, 1)), inputs])
    mean = features @ problem.mean
    variance = np.sum(features @ problem.covariance * features, axis=1)
    variance += NOISE_VARIANCE
    targets = mean + np.array([0.3, -1.0, 1.5])
    predictive = PredictiveDistribution(
        network=problem.model.network,
        inputs=inputs,
        draws=posterior.draw(jax.random.key(0), 4000),
        target_map=TargetMap.linear(0.0, 1.0),
        num_latent_draws=1,
        single_output=True,
    )
    # 4000 draws: the mean to 4 std / sqrt(4000), the density to about 4 %.
    expected = stats.norm.logpdf(targets, mean, np.sqrt(variance))
    np.testing.assert_allclose(predictive.log_prob(targets), expected, atol=0.04)
    np.testing.assert_allclose(predictive.mean(), mean, atol=0.06)
    np.testing.assert_allclose(predictive.std() ** 2, variance, rtol=0.08)


def test_map_is_ridge_regression():
    problem = Regression()
    method = MAP(learning_rate=0.02).resolved("paper")
    training = Training(num_restarts=2, max_steps=2000)
    fit = method.fit(jax.random.key(0), problem.model, problem.data, training)
    for i in range(2):
        np.testing.assert_allclose(
            fit.posterior.mean.weights[i], problem.mean, atol=1e-3
        )
    assert not np.any(fit.posterior.scale.weights)
    # The log joint there is the evidence times the height of the posterior.
    height = stats.multivariate_normal.logpdf(
        problem.mean, problem.mean, problem.covariance
    )
    assert -fit.history["value"][-1][0] == pytest.approx(
        problem.evidence + height, abs=1e-2
    )


# ----- The log joint ------------------------------------------------------------------


@pytest.mark.parametrize("noise_mode", ["fixed", "empirical", "map"])
def test_log_joint_terms_equal_scipy(noise_mode, x64):
    rng = np.random.default_rng(0)
    num_rows, weight_s, latent_s, noise_s = 6, 0.7, 0.4, np.array([0.2, 0.9])
    network = FlatNetwork(MLP(hidden=()), 2, 1, 2)
    model = Model(
        network,
        Variance(jnp.asarray(1.0), "empirical", 3.0, 0.5),
        fixed(latent_s),
        Variance(jnp.ones(2), noise_mode, 2.0, 0.3),
    )
    w_x, w_z = rng.normal(size=(2, 2)), rng.normal(size=(1, 2))
    bias = rng.normal(size=2)
    flat = network.flatten([{"input": w_x, "latent": w_z, "bias": bias}])
    inputs, targets = rng.normal(size=(2, num_rows, 2))
    latents = rng.normal(size=(num_rows, 1))
    is_unknown = noise_mode == "map"
    unknowns = Unknowns(
        flat,
        jnp.asarray(latents),
        jnp.log(jnp.asarray(noise_s)) if is_unknown else jnp.zeros(0),
    )
    priors = PriorState(
        jnp.asarray(weight_s),
        jnp.asarray(latent_s),
        jnp.ones(2) if is_unknown else jnp.asarray(noise_s),
    )
    data = to_data(inputs, targets)
    terms = jax.jit(log_joint_terms)(model, data, unknowns, priors)

    outputs = inputs @ w_x + latents @ w_z + bias
    all_weights = np.concatenate([w_x.ravel(), w_z.ravel(), bias])
    hyper = stats.invgamma.logpdf(weight_s, 3.0, scale=0.5)
    of_noise = stats.invgamma.logpdf(noise_s, 2.0, scale=0.3)
    expected = {
        "log_likelihood": stats.norm.logpdf(targets, outputs, noise_s**0.5).sum(),
        "log_prior_weights": stats.norm.logpdf(all_weights, 0, weight_s**0.5).sum(),
        "log_prior_latents": stats.norm.logpdf(latents, 0, latent_s**0.5).sum(),
        "log_hyperprior": hyper,
    }
    if noise_mode == "empirical":
        expected["log_hyperprior"] += of_noise.sum()
    if is_unknown:  # a density of log s: that of s, times s
        expected["log_prior_noise"] = np.sum(of_noise + np.log(noise_s))
    assert terms.keys() == expected.keys()
    for name, value in expected.items():
        assert float(terms[name]) == pytest.approx(value, rel=1e-9), name


# ----- With latents: quadrature and NUTS ----------------------------------------------


@pytest.mark.parametrize(("latent_dim", "output_dim"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_quadrature_equals_the_marginal_gaussian(latent_dim, output_dim, x64):
    rng = np.random.default_rng(latent_dim + 2 * output_dim)
    latent_s, noise_s = 0.8, np.array([0.15, 0.4])[:output_dim]
    model = linear_model(2, latent_dim, output_dim)
    w_x = rng.normal(size=(2, output_dim))
    w_z = rng.uniform(0.3, 1.0, size=(latent_dim, output_dim))
    bias = rng.normal(size=output_dim)
    flat = model.network.flatten([{"input": w_x, "latent": w_z, "bias": bias}])
    inputs = rng.normal(size=(7, 2))
    targets = inputs @ w_x + bias + rng.normal(size=(7, output_dim))
    weights = np.array([1.0, 2.0, 0.0, 1.0, 1.0, 3.0, 1.0])
    found = jax.jit(marginal_log_likelihood)(
        model,
        to_data(inputs, targets, weights),
        latent_rule(latent_dim),
        flat,
        NoiseMoments(jnp.log(jnp.asarray(noise_s)), jnp.asarray(1 / noise_s)),
        jnp.asarray(latent_s),
    )
    covariance = latent_s * w_z.T @ w_z + np.diag(noise_s)
    by_row = stats.multivariate_normal.logpdf(
        targets - inputs @ w_x - bias, cov=covariance
    )
    # What lies beyond 5 prior deviations: 6e-7 of the prior, more of a far row.
    assert float(found) == pytest.approx(weights @ by_row, abs=1e-4)


def test_quadrature_without_latents_is_the_plain_likelihood(x64):
    problem = Regression()
    found = marginal_log_likelihood(
        problem.model,
        problem.data,
        latent_rule(0),
        jnp.asarray(problem.mean),
        NoiseMoments(jnp.log(jnp.asarray([0.3])), 1 / jnp.asarray([0.3])),
        jnp.asarray(1.0),
    )
    outputs = problem.features @ problem.mean
    expected = stats.norm.logpdf(problem.targets[:, 0], outputs, 0.3**0.5).sum()
    assert float(found) == pytest.approx(expected, rel=1e-10)


def test_three_latents_are_refused():
    with pytest.raises(ValueError, match="latent_dim=3"):
        latent_rule(3)


def latent_line():
    """Rows of y = b + w_x x + w_z z + eps, and the posterior of W on a grid."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=12)
    y = 0.3 + 0.8 * x + 0.9 * rng.normal(size=12) + 0.5 * rng.normal(size=12)
    spread = np.linspace(0, 4, 81)
    # Given w_z, (b, w_x) is a linear regression with the noise w_z^2 + s; so only w_z
    # takes a grid, w_z >= 0 by symmetry.
    features = np.stack([np.ones(12), x], axis=1)
    log_density, means, seconds = [], [], []
    for w_z in spread:
        variance = w_z**2 + NOISE_VARIANCE
        covariance = np.linalg.inv(
            features.T @ features / variance + np.eye(2) / WEIGHT_VARIANCE
        )
        mean = covariance @ features.T @ y / variance
        log_density.append(
            stats.multivariate_normal.logpdf(
                y,
                cov=variance * np.eye(12) + WEIGHT_VARIANCE * features @ features.T,
            )
            + stats.norm.logpdf(w_z, 0, WEIGHT_VARIANCE**0.5)
        )
        means.append(mean)
        seconds.append(np.diag(covariance) + mean**2)
    share = np.exp(np.array(log_density) - max(log_density))
    share[0] /= 2  # trapezoid
    share /= share.sum()
    first = np.append(share @ means, share @ spread)
    second = np.append(share @ seconds, share @ spread**2)
    return x[:, None], y[:, None], first, np.sqrt(second - first**2)


@pytest.mark.parametrize("sampler", [HMC, HMCMarginal])
@pytest.mark.filterwarnings("ignore:.*chains have NOT mixed")
def test_nuts_finds_the_posterior_moments(sampler):
    inputs, targets, mean, std = latent_line()
    model = linear_model(1, 1)
    extra = ((0, 4), (0, 0))  # padding, as the estimators add it
    data = to_data(
        np.pad(inputs, extra), np.pad(targets, extra), np.repeat([1.0, 0.0], [12, 4])
    )
    method = sampler(n_chains=2, n_warmup=200, n_draws=500).resolved("paper")
    training = Training(max_steps=50)
    fit = method.fit(jax.random.key(0), model, data, training)
    samples = np.asarray(fit.posterior.samples.weights, float)
    assert samples.shape == (2, 500, 3)
    found = samples.reshape(-1, 3) * [1, 1, 0]
    found[:, 2] = np.abs(samples.reshape(-1, 3)[:, 2])  # the sign of w_z is free
    # At least 100 independent draws of the 1000: 4 standard errors are 0.4 deviations.
    assert np.all(np.abs(found.mean(axis=0) - mean) < 0.4 * std)
    np.testing.assert_allclose(found.std(axis=0), std, rtol=0.3)
    assert fit.sampler.num_divergences < 20
    # The rows that only pad must not make trajectories long, nor wander off.
    assert fit.sampler.mean_leapfrogs < 60
    latents = np.asarray(fit.posterior.samples.latents)
    samples_latents = sampler.supports.row_latents
    assert latents.shape == (2, 500, 16 if samples_latents else 0, 1)
    if samples_latents:
        np.testing.assert_allclose(latents[:, :, 12:].std(axis=(0, 1)), 1.0, atol=0.3)


# ----- Empirical Bayes ----------------------------------------------------------------


def test_exact_variance_minimises_the_divergence(x64):
    rng = np.random.default_rng(0)
    mean, scale = rng.normal(size=(9, 2)), rng.uniform(0.1, 1, size=(9, 2))
    alpha, beta = 2.5, 0.7

    def objective(log_s):  # KL[q(Z) || p(Z | s)] - log p(s)
        s = np.exp(log_s)
        divergence = 0.5 * np.sum((scale**2 + mean**2) / s - 1 - np.log(scale**2 / s))
        return divergence - stats.invgamma.logpdf(s, alpha, scale=beta)

    best = optimize.minimize_scalar(
        objective, bounds=(-5, 5), method="bounded", options={"xatol": 1e-10}
    )
    prior = Variance(jnp.asarray(1.0), "empirical", alpha, beta, "exact")
    found = empirical_variance(prior, np.sum(mean**2 + scale**2), 9, 2)
    assert found == pytest.approx(np.exp(best.x), rel=1e-6)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_paper_variance_is_a_conditional_mean_with_fixed_point_a_quarter(dims):
    prior = Variance(jnp.asarray(1.0), "empirical", 3.0, 0.5, "paper")
    # One row of `dims` values with the average sum of squares 4.2 / 7:
    # s | z ~ IG(alpha + dims / 2, beta + z'z / 2).
    conditional = stats.invgamma(3.0 + dims / 2, scale=0.5 + 4.2 / 7 / 2)
    found = empirical_variance(prior, 4.2, 7, dims)
    assert found == pytest.approx(conditional.mean(), rel=1e-12)
    # With E z'z = dims s: s = (2 beta + dims s) / (dims + 2 alpha - 2) has the solution
    # beta / (alpha - 1), whatever the dimension.
    s = 1.0
    for _ in range(500):
        s = empirical_variance(prior, 7 * dims * s, 7, dims)
    assert s == pytest.approx(0.25, rel=1e-9)


def test_update_priors_leaves_fixed_variances_alone(x64):
    model = linear_model(2, 1)
    priors = fixed_priors(model)
    sums = (jnp.asarray(3.0), jnp.asarray(4.0), jnp.asarray([5.0]), jnp.asarray(8.0))
    assert update_priors(model, priors, *sums) == priors
    noise = Variance(jnp.asarray([0.3]), "empirical", 2.0, 0.5)
    moved = update_priors(replace(model, noise_variance=noise), priors, *sums)
    # A tenth of the way from 0.3 to (2 * 0.5 + 5) / (8 + 2 * 2 + 2).
    assert float(moved.noise_variance[0]) == pytest.approx(0.27 + 0.6 / 14, rel=1e-12)


def test_the_weights_are_one_row_of_as_many_values_as_there_are_weights(x64):
    prior = Variance(jnp.asarray(1.0), "empirical", 3.0, 0.5, "paper")
    model = replace(linear_model(2, 1), weight_variance=prior)
    sums = (jnp.asarray(6.0), jnp.asarray(4.0), jnp.asarray([5.0]), jnp.asarray(8.0))
    moved = update_priors(model, fixed_priors(model), *sums)
    # (2 * 0.5 + 6) / (num_weights + 2 * 3 - 2), however many rows there are.
    denominator = model.network.num_weights + 4
    assert float(moved.weight_variance) == pytest.approx(7 / denominator, rel=1e-12)


def test_empirical_variances_start_at_draws_from_the_hyper_prior():
    prior = Variance(jnp.asarray(1.0), "empirical", 3.0, 0.5)
    model = replace(
        linear_model(2, 1), weight_variance=prior, noise_variance=Variance(jnp.ones(1))
    )
    model = replace(model, latent_variance=prior)
    first = initial_priors_of(jax.random.split(jax.random.key(0), 4_000), model)
    hyper_prior = stats.invgamma(3.0, scale=0.5)
    for drawn in (first.weight_variance, first.latent_variance):
        assert stats.kstest(np.asarray(drawn), hyper_prior.cdf).pvalue > 1e-3
    both = np.asarray([first.weight_variance, first.latent_variance])
    assert abs(stats.spearmanr(*both).statistic) < 0.06  # two draws, not one
    assert np.all(np.asarray(first.noise_variance) == 1)  # a fixed variance stays


# ----- Divergences --------------------------------------------------------------------


def test_gaussian_kl_equals_its_integral(x64):
    mean, scale, prior = np.array([0.4, -1.3]), np.array([0.6, 1.7]), 0.8
    counts = np.array([1.0, 3.0])

    def one(m, s):
        q, p = stats.norm(m, s), stats.norm(0, prior**0.5)
        return integrate.quad(
            lambda z: q.pdf(z) * (q.logpdf(z) - p.logpdf(z)), m - 12 * s, m + 12 * s
        )[0]

    expected = sum(c * one(m, s) for c, m, s in zip(counts, mean, scale, strict=True))
    found = gaussian_kl(
        jnp.asarray(mean), jnp.asarray(scale), prior, jnp.asarray(counts)
    )
    assert float(found) == pytest.approx(expected, rel=1e-8)


def noise_model(mode):
    noise = Variance(jnp.ones(2), mode, 1.7, 0.4)
    return replace(linear_model(1, 0, 2), noise_variance=noise)


def noise_unknowns(values):
    return Unknowns(jnp.zeros(0), jnp.zeros((0, 0)), jnp.asarray(values))


def test_variational_noise_equals_monte_carlo(x64):
    log_mean, log_std = np.array([-1.0, 0.3]), np.array([0.5, 0.2])
    model = noise_model("variational")
    draws = log_mean + log_std * np.random.default_rng(0).normal(size=(200_000, 2))
    error = 5 / 200_000**0.5  # five standard errors, in deviations

    moments = noise_moments(
        model, fixed_priors(model), noise_unknowns(log_mean), noise_unknowns(log_std)
    )
    precision = np.exp(-draws)
    assert np.all(
        np.abs(moments.log_variance - draws.mean(axis=0)) < error * draws.std(axis=0)
    )
    assert np.all(
        np.abs(moments.precision - precision.mean(axis=0))
        < error * precision.std(axis=0)
    )

    # KL of densities of log s: the prior's is that of s, times s.
    gaps = stats.norm.logpdf(draws, log_mean, log_std)
    gaps -= stats.invgamma.logpdf(np.exp(draws), 1.7, scale=0.4) + draws
    gaps = gaps.sum(axis=1)
    found = noise_kl(model, noise_unknowns(log_mean), noise_unknowns(log_std))
    assert float(found) == pytest.approx(gaps.mean(), abs=error * gaps.std())


def test_map_noise_pays_its_negative_log_prior(x64):
    log_s = np.array([-1.0, 0.3])
    found = noise_kl(noise_model("map"), noise_unknowns(log_s), noise_unknowns([]))
    expected = -np.sum(stats.invgamma.logpdf(np.exp(log_s), 1.7, scale=0.4) + log_s)
    assert float(found) == pytest.approx(expected, rel=1e-10)


def test_raw_scale_is_the_inverse_of_softplus(x64):
    scale = jnp.asarray([1e-6, 0.05, 1.0, 30.0])
    raw = noise_unknowns(raw_scale_of(scale))
    found = scale_of(MeanField(raw, raw)).log_noise_var
    np.testing.assert_allclose(found, scale, rtol=1e-9)


# ----- Row weights --------------------------------------------------------------------


def weighted_problem(noise_mode):
    """Rows with counts, among them 0, and the same rows repeated."""
    rng = np.random.default_rng(0)
    counts = np.array([1, 2, 0, 3, 1, 1, 2, 1, 0, 1])
    again = np.repeat(np.arange(10), counts)
    empirical = Variance(jnp.asarray(0.7), "empirical", 3.0, 0.5)
    model = Model(
        FlatNetwork(MLP((4,), "tanh"), 2, 2, 2),
        empirical,
        replace(empirical, form="exact"),
        Variance(jnp.asarray([0.2, 0.4]), noise_mode, 2.0, 0.3),
    )
    inputs, targets, latents = rng.normal(size=(3, 10, 2))
    latents[:, 0] += inputs[:, 0]
    scale = rng.uniform(0.1, 0.8, size=(10, 2))
    size = model.network.num_weights
    weights, weight_scale = rng.normal(size=size), rng.uniform(0.1, 0.5, size=size)
    weight_normals = rng.normal(size=(3, size))
    latent_normals = rng.normal(size=(3, 10, 2))
    noise = rng.normal(size=2 if noise_mode in ("map", "variational") else 0)
    noise_scale = np.full(2 if noise_mode == "variational" else 0, 0.3)

    def arranged(rows, row_weights):
        mean = Unknowns(weights, latents[rows], noise)
        spread = Unknowns(weight_scale, scale[rows], noise_scale)
        q = MeanField(
            jax.tree.map(jnp.asarray, mean),
            jax.tree.map(lambda a: raw_scale_of(jnp.asarray(a)), spread),
        )
        normals = np.hstack([weight_normals, latent_normals[:, rows].reshape(3, -1)])
        return to_data(inputs[rows], targets[rows], row_weights), q, normals

    priors = PriorState(*(jnp.asarray(a) for a in (0.7, 0.5, [0.2, 0.4])))
    weighted = arranged(np.arange(10), counts.astype(float))
    return model, priors, weighted, arranged(again, np.ones(len(again)))


def assert_same(first, second):
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("noise_mode", "on"), [("empirical", "means"), ("variational", "samples")]
)
def test_a_weighted_row_counts_like_repeated_rows_in_the_elbo(noise_mode, on, x64):
    model, priors, *arrangements = weighted_problem(noise_mode)
    objective = NegativeElbo(3, Penalties(hz_tolerance=0.1, on=on), ramp_steps=4.0)

    @jax.jit
    def everything(data, q, normals):
        draw = objective.prepare(q, normals)
        value, report = objective.value(draw, priors, model, data, jnp.asarray(2.0))
        moved = objective.update_priors(draw, priors, model, data, report)
        return value, report, moved

    assert_same(*(everything(*arrangement) for arrangement in arrangements))


@pytest.mark.parametrize("noise_mode", ["empirical", "map"])
def test_a_weighted_row_counts_like_repeated_rows_in_the_log_joint(noise_mode, x64):
    model, priors, *arrangements = weighted_problem(noise_mode)
    objective = NegativeLogJoint()
    results = []

    @jax.jit
    def everything(data, point):
        value, report = objective.value(point, priors, model, data, jnp.zeros(()))
        moved = objective.update_priors(point, priors, model, data, report)
        return value, report, moved

    for data, q, _ in arrangements:
        results.append(everything(data, q.mean))
    assert_same(*results)
