"""The penalties of NCAI and the importance-weighted bound."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncai import BNNLVRegressor
from ncai.model.bnn_lv import Model, NoiseMoments, Variance
from ncai.model.mean_field import MeanField, raw_scale_of
from ncai.model.networks import MLP, FlatNetwork
from ncai.model.quadrature import latent_rule, marginal_log_likelihood
from ncai.objectives.importance_bound import NegativeImportanceBound, importance_bound
from ncai.objectives.penalties import LARGEST_EXPONENT, Penalties, smooth_exponential
from ncai.stats.henze_zirkler import henze_zirkler_statistic, henze_zirkler_test
from ncai.types import Data, Unknowns

FAST_HZ = jax.jit(henze_zirkler_statistic)
STATISTICS_OF = jax.jit(Penalties.values)
STATISTICS = ("hz", "offdiagonal", "pc_inputs", "pc_targets")


def sample(law, num_rows, dims, seed=0):
    rng = np.random.default_rng(seed)
    if law == "gaussian":
        return rng.normal(size=(num_rows, dims))
    if law == "t3":
        return rng.standard_t(3, size=(num_rows, dims))
    return rng.uniform(-1, 1, size=(num_rows, dims))


def rows(num_rows, dims, seed=0):
    """Latents that depend on the inputs and the targets, and are skewed."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(num_rows, 2))
    targets = rng.normal(size=(num_rows, 1)) + inputs[:, :1]
    mixing = rng.normal(size=(dims, dims))
    latents = np.exp(0.4 * rng.normal(size=(num_rows, dims)) @ mixing)
    latents += 0.5 * inputs[:, :1] + 0.3 * targets
    return latents, inputs, targets


def statistics(latents, inputs, targets, weights, **changes):
    arrays = (jnp.asarray(a) for a in (latents, inputs, targets, weights))
    values = STATISTICS_OF(Penalties(**changes), *arrays)
    return {name: float(value) for name, value in values.items()}


# ----- Row weights --------------------------------------------------------------------


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_weight_is_a_number_of_repetitions(dims, x64):
    latents, inputs, targets = rows(60, dims)
    counts = np.random.default_rng(5).integers(0, 4, 60)
    weighted = statistics(latents, inputs, targets, counts.astype(float))
    again = np.repeat(np.arange(60), counts)
    repeated = statistics(
        latents[again], inputs[again], targets[again], np.ones(len(again))
    )
    for name in STATISTICS:
        # The nodes of HZ are chosen by the size of the arrays: quadrature error only.
        tolerance = 1e-6 if name == "hz" else 1e-11
        assert weighted[name] == pytest.approx(repeated[name], rel=tolerance), name


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_rows_of_weight_zero_are_absent(dims, x64):
    latents, inputs, targets = rows(60, dims)
    padding = np.full((20, 3), 1e3)  # far away: any leak would show
    padded = statistics(
        np.vstack([latents, padding[:, :dims]]),
        np.vstack([inputs, padding[:, :2]]),
        np.vstack([targets, padding[:, :1]]),
        np.repeat([1.0, 0.0], [60, 20]),
    )
    plain = statistics(latents, inputs, targets, np.ones(60))
    for name in STATISTICS:
        tolerance = 1e-6 if name == "hz" else 1e-11
        assert padded[name] == pytest.approx(plain[name], rel=tolerance), name


# ----- Gradients ----------------------------------------------------------------------


def scalar_functions(inputs, targets, weights, **changes):
    penalties = Penalties(
        hz_weight=0.7,
        offdiagonal_weight=3.0,
        dependence_weight=1.3,
        hz_tolerance=0.05,
        **changes,
    )

    def pick(name):
        return lambda z: penalties.values(z, inputs, targets, weights)[name]

    def total(z):
        values = penalties.values(z, inputs, targets, weights)
        return penalties.total(values, jnp.sum(weights))

    return {name: pick(name) for name in STATISTICS} | {"total": total}


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_equal_finite_differences(dims, x64):
    latents, inputs, targets = (jnp.asarray(a) for a in rows(24, dims))
    weights = jnp.asarray(np.random.default_rng(2).integers(0, 3, 24).astype(float))
    functions = scalar_functions(inputs, targets, weights)
    values_and_gradients = jax.jit(
        lambda z: {name: jax.value_and_grad(f)(z) for name, f in functions.items()}
    )
    here = values_and_gradients(latents)
    rng = np.random.default_rng(3)
    step = 1e-5
    for _ in range(3):
        direction = jnp.asarray(rng.normal(size=latents.shape))
        up, down = (
            values_and_gradients(latents + s * direction) for s in (step, -step)
        )
        for name, (_, gradient) in here.items():
            slope = float(jnp.vdot(gradient, direction))
            difference = float(up[name][0] - down[name][0]) / (2 * step)
            # Error of the difference: step^2 times the third derivative.
            size = float(jnp.linalg.norm(gradient) * jnp.linalg.norm(direction))
            allowed = 1e-7 * size + 1e-12
            assert slope == pytest.approx(difference, rel=1e-6, abs=allowed), name
            assert size > 0 or (name, dims) == ("offdiagonal", 1)


# ----- Where they could break ---------------------------------------------------------


def edge_cases(dims):
    latents, inputs, targets = rows(96, dims)
    yield "all zero", 0 * latents, inputs, targets
    yield "all equal", 0 * latents + 3.3, inputs, targets
    yield "all equal and large", 0 * latents + 1e4, inputs, targets
    yield "tiny", 1e-6 * latents, inputs, targets
    yield "huge", 1e4 * latents, inputs, targets
    yield "constant inputs", latents, 0 * inputs + 7.7, targets
    yield "constant targets", latents, inputs, 0 * targets - 1.1
    yield "all constant", 0 * latents, 0 * inputs, 0 * targets
    yield "collinear", latents[:, :1] * np.arange(1, dims + 1), inputs, targets
    yield "one latent constant", latents * (np.arange(dims) > 0), inputs, targets
    outlier = latents.copy()
    outlier[0] = 1e5
    yield "one outlier", outlier, inputs, targets
    yield "two points", np.sign(latents - np.median(latents)), inputs, targets


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_values_and_gradients_are_finite_in_float32(dims):
    weights = jnp.ones(96)

    def all_of(z, x, y):
        functions = scalar_functions(x, y, weights)
        return {name: jax.value_and_grad(f)(z) for name, f in functions.items()}

    compiled = jax.jit(all_of)
    for case, latents, inputs, targets in edge_cases(dims):
        arrays = [jnp.asarray(a, jnp.float32) for a in (latents, inputs, targets)]
        for name, (value, gradient) in compiled(*arrays).items():
            assert np.isfinite(value), (case, name)
            assert np.all(np.isfinite(gradient)), (case, name)


def test_collinear_latents_are_finite_whatever_the_rounding():
    # The covariance has rank 1, and what float32 loses in its sums grows with the
    # number of rows and dimensions: the ridge must be larger than that.
    for seed in range(8):
        rng = np.random.default_rng(seed)
        direction = 10 * rng.normal(size=(1, 5))
        latents = rng.normal(size=(1000, 1)) * direction + 5 * (seed % 3)
        value = FAST_HZ(jnp.asarray(latents, jnp.float32), jnp.ones(1000))
        assert np.isfinite(value), seed


@pytest.mark.parametrize("narrow", [1e-2, 1e-3, 1e-4])
def test_hz_of_latents_of_very_different_width(narrow):
    """In float32: a nearly collapsed latent is Gaussian or not as a wide one is."""
    points = np.random.default_rng(0).standard_normal((750, 2))
    ones = jnp.ones(750, jnp.float32)
    statistic = jax.jit(henze_zirkler_statistic)
    alike = statistic(jnp.asarray(points, jnp.float32), ones)
    unlike = statistic(jnp.asarray(points * [1, narrow], jnp.float32), ones)
    np.testing.assert_allclose(unlike, alike, rtol=1e-2)


def test_constant_columns_correlate_with_nothing():
    latents, inputs, targets = rows(96, 1)
    found = statistics(
        np.float32(latents),
        np.float32(0 * inputs + 7.7),
        np.float32(0 * targets - 1.1),
        np.ones(96, np.float32),
    )
    assert found["pc_inputs"] == pytest.approx(0, abs=1e-6)
    assert found["pc_targets"] == pytest.approx(0, abs=1e-6)


def test_an_hz_in_the_thousands_is_finite_in_float32():
    # Two clumps: |ecf(t) - gaussian|^2 does not fade with N, so HZ grows like N.
    num_rows = 6000
    clumps = np.repeat([-1.0, 1.0], num_rows // 2)[:, None]
    clumps = clumps + 0.01 * sample("gaussian", num_rows, 1)
    zeros = jnp.zeros((num_rows, 1))
    penalties = Penalties(hz_tolerance=0.0003)

    def total(z):
        values = penalties.values(z, zeros, zeros, jnp.ones(num_rows))
        return penalties.total(values, jnp.asarray(float(num_rows))), values["hz"]

    (value, hz), gradient = jax.jit(jax.value_and_grad(total, has_aux=True))(
        jnp.asarray(clumps, jnp.float32)
    )
    assert hz > 1000
    exact = henze_zirkler_test(clumps, method="exact").statistic
    assert hz == pytest.approx(exact, rel=1e-3)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))
    assert np.any(gradient != 0)  # past the cap there is still a way back


def test_the_exponential_goes_on_as_its_tangent(x64):
    cap = LARGEST_EXPONENT
    slope = jax.grad(smooth_exponential)
    below = jnp.asarray([-3.0, 0.0, 2.5, cap - 1e-9])
    np.testing.assert_allclose(smooth_exponential(below), np.exp(below), rtol=1e-12)
    # Value and slope agree from both sides of the cap ...
    for nearby in (cap - 1e-9, cap, cap + 1e-9):
        assert smooth_exponential(nearby) == pytest.approx(np.exp(cap), rel=1e-8)
        assert slope(nearby) == pytest.approx(np.exp(cap), rel=1e-8)
    # ... and beyond it there is a straight line.
    assert smooth_exponential(cap + 3.0) == pytest.approx(4 * np.exp(cap), rel=1e-12)
    assert slope(cap + 1e6) == pytest.approx(np.exp(cap), rel=1e-12)


# ----- The total ----------------------------------------------------------------------

VALUES = {"hz": 2.0, "offdiagonal": 0.25, "pc_inputs": 0.1, "pc_targets": 0.3}
PENALTIES = Penalties(
    hz_weight=0.7,
    offdiagonal_weight=3.0,
    dependence_weight=1.3,
    hz_tolerance=0.05,
    input_tolerance=0.5,
    target_tolerance=0.2,
)


def total_of(num_rows=100, **changes):
    return replace(PENALTIES, **changes).total(
        {name: jnp.asarray(value) for name, value in VALUES.items()},
        jnp.asarray(float(num_rows)),
    )


def test_the_total_by_hand(x64):
    # HZ / (N eps_T) = 2 / 5;  PC_x / eps_x + PC_y / eps_y = 0.2 + 1.5.
    expected = 100 * (0.7 * np.exp(0.4) + 3.0 * 0.25 + 1.3 * np.exp(1.7))
    assert total_of() == pytest.approx(expected, rel=1e-12)


def test_what_is_switched_off_leaves_the_rest(x64):
    hz, off, both = 0.7 * np.exp(0.4), 3.0 * 0.25, 1.3 * np.exp(1.7)
    assert total_of(hz_weight=0.0) == pytest.approx(100 * (off + both), rel=1e-12)
    assert total_of(offdiagonal_weight=0.0) == pytest.approx(
        100 * (hz + both), rel=1e-12
    )
    assert total_of(dependence_weight=0.0) == pytest.approx(100 * (hz + off), rel=1e-12)
    # An infinite tolerance makes the factor exp(0) = 1.
    assert total_of(input_tolerance=float("inf")) == pytest.approx(
        100 * (hz + off + 1.3 * np.exp(1.5)), rel=1e-12
    )
    assert total_of(target_tolerance=float("inf")) == pytest.approx(
        100 * (hz + off + 1.3 * np.exp(0.2)), rel=1e-12
    )
    assert total_of(
        input_tolerance=float("inf"), target_tolerance=float("inf")
    ) == pytest.approx(100 * (hz + off + 1.3), rel=1e-12)


def test_an_infinite_tolerance_has_finite_gradients():
    latents, inputs, targets = (jnp.asarray(a, jnp.float32) for a in rows(32, 1))
    functions = scalar_functions(
        inputs,
        targets,
        jnp.ones(32),
        input_tolerance=float("inf"),
        target_tolerance=float("inf"),
    )
    gradient = jax.jit(jax.grad(functions["total"]))(latents)
    assert np.all(np.isfinite(gradient))


RNG = np.random.default_rng(0)
NUM_ROWS = 30
DATA = Data(
    jnp.asarray(RNG.normal(size=(NUM_ROWS, 1)), jnp.float32),
    jnp.asarray(RNG.normal(size=(NUM_ROWS, 1)), jnp.float32),
    jnp.ones(NUM_ROWS, jnp.float32),
)
MODEL = Model(
    FlatNetwork(MLP((6,)), 1, 1, 1),
    Variance(jnp.asarray(1.0)),
    Variance(jnp.asarray(1.0)),
    Variance(jnp.asarray([0.3])),
)
NOISE = NoiseMoments(jnp.log(jnp.asarray([0.3])), jnp.asarray([1 / 0.3]))
WEIGHTS = MODEL.network.init(jax.random.key(1))
PRIOR_VARIANCE = jnp.asarray(1.0)


def q_of(latent_mean=0.2, latent_scale=0.8):
    point = Unknowns(WEIGHTS, jnp.full((NUM_ROWS, 1), latent_mean), jnp.zeros(0))
    raw = Unknowns(
        jnp.full_like(WEIGHTS, raw_scale_of(1e-6)),
        jnp.full((NUM_ROWS, 1), raw_scale_of(latent_scale)),
        jnp.zeros(0),
    )
    return MeanField(point, raw)


def mean_bound(num_samples, num_repeats=400):
    objective = NegativeImportanceBound(1.0, num_samples)
    q = q_of()

    @jax.jit
    @jax.vmap
    def one(key):
        normals = jax.random.normal(key, objective.num_normals(q))
        draw = objective.prepare(q, normals)
        return jnp.sum(importance_bound(MODEL, DATA, draw, NOISE, PRIOR_VARIANCE))

    found = np.asarray(one(jax.random.split(jax.random.key(0), num_repeats)))
    return found.mean(), found.std() / np.sqrt(num_repeats)


def test_the_bound_rises_with_the_samples_and_meets_the_quadrature_value():
    by_quadrature = jax.jit(
        lambda weights: marginal_log_likelihood(
            MODEL, DATA, latent_rule(1, 128), weights, NOISE, PRIOR_VARIANCE
        )
    )
    exact = float(by_quadrature(WEIGHTS))
    means, errors = zip(*(mean_bound(m) for m in (1, 4, 16, 256)), strict=True)
    assert np.all(np.diff(means[:3]) > 2 * np.asarray(errors[:2]))
    assert all(m < exact + 3 * e for m, e in zip(means, errors, strict=True))
    assert means[-1] == pytest.approx(exact, abs=0.1)


def test_one_sample_is_the_elbo():
    q = q_of()
    scale, mean = 0.8, 0.2
    objective = NegativeImportanceBound(1.0, 1)
    normals = jax.random.normal(jax.random.key(2), objective.num_normals(q))
    draw = jax.jit(objective.prepare)(q, normals)
    found = jax.jit(importance_bound)(MODEL, DATA, draw, NOISE, PRIOR_VARIANCE)
    weights, latents = np.asarray(draw.weights[0]), np.asarray(draw.latents[0])
    z = latents[:, 0]
    by_row = jax.jit(MODEL.network.apply_rows)
    outputs = np.asarray(by_row(weights, DATA.inputs, latents))[:, 0]
    from scipy.stats import norm

    expected = (
        norm.logpdf(np.asarray(DATA.targets)[:, 0], outputs, np.sqrt(0.3))
        + norm.logpdf(z)
        - norm.logpdf(z, mean, scale)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("well_compiled")
@pytest.mark.parametrize("num_samples", [1, 6])
def test_gradients_are_those_of_the_expected_bound(num_samples):
    """Doubly reparameterised ones agree on average with differences of the mean."""
    objective = NegativeImportanceBound(1.0, num_samples)
    q = q_of()
    keys = jax.random.split(jax.random.key(5), 20_000)

    def bound(latent_mean, key):
        mean = q.mean._replace(latents=q.mean.latents + latent_mean)
        moved = MeanField(mean, q.raw_scale)
        normals = jax.random.normal(key, objective.num_normals(q))
        draw = objective.prepare(moved, normals)
        return importance_bound(MODEL, DATA, draw, NOISE, PRIOR_VARIANCE)[0]

    gradients = np.asarray(jax.jit(jax.vmap(jax.grad(bound), (None, 0)))(0.0, keys))
    values = jax.jit(jax.vmap(bound, (None, 0)))
    step = 0.05
    slopes = (np.asarray(values(step, keys)) - np.asarray(values(-step, keys))) / (
        2 * step
    )
    error = np.sqrt((gradients.var() + slopes.var()) / len(keys))
    assert float(gradients.mean()) == pytest.approx(
        float(slopes.mean()), abs=4 * float(error) + 2e-3
    )


def test_three_latents_can_be_fitted_and_predict():
    x = RNG.normal(size=(40, 1))
    y = x[:, 0] + 0.3 * RNG.normal(size=40)
    model = BNNLVRegressor(
        latent_dim=3,
        inference="iwae",
        hidden=(6,),
        max_steps=60,
        n_restarts=2,
        random_state=0,
    ).fit(x, y)
    assert np.isfinite(model.log_score(x, y))
    assert model.latent_posterior_.mean.shape == (40, 3)
