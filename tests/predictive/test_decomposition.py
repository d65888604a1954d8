"""The split of uncertainty: closed forms, sampling, stability, standard errors."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from ncai import MFVI, Marginal
from ncai.inference.posterior import NoiseSpread, draws_of_members
from ncai.model.networks import MLP, FlatNetwork
from ncai.predictive.distribution import PredictiveDistribution
from ncai.predictive.target_map import TargetMap
from ncai.preprocessing.rounding import Lattice
from ncai.preprocessing.target_transforms import TargetTransform
from ncai.types import WeightDraws

ROOT_PI = np.sqrt(np.pi)


def biases(
    values, noise=0.3, latent=0.0, shares=None, members=None, steps=0, target_map=None
) -> PredictiveDistribution:
    """One row, y = bias + latent * z + noise; the biases are the draws of W."""
    network = FlatNetwork(MLP(hidden=()), 1, 1, 1)
    values = np.atleast_1d(np.asarray(values, float))
    flats = [
        network.flatten(
            [
                {
                    "input": np.zeros((1, 1)),
                    "latent": np.full((1, 1), latent),
                    "bias": np.full(1, value),
                }
            ]
        )
        for value in values
    ]
    count = len(values)
    draws = WeightDraws.equal(
        np.asarray(flats, np.float32),
        np.full((count, 1), noise, np.float32),
        np.ones(count, np.float32),
    )
    spread = NoiseSpread(np.full(count, steps), np.full(count, 0.25))
    factors, of_noise = spread.widths()
    draws = draws._replace(noise_factors=factors, noise_shares=of_noise)
    if shares is not None:
        draws = draws._replace(shares=np.asarray(shares, float))
    if members is not None:
        draws = draws._replace(members=np.asarray(members))
    return PredictiveDistribution(
        network=network,
        inputs=np.zeros((1, 1)),
        draws=draws,
        target_map=target_map or TargetMap.linear(0.0, 1.0),
        num_latent_draws=16,
        single_output=True,
    )


def two_outputs(members) -> PredictiveDistribution:
    """One row of two outputs; the members lie 30 apart in the first."""
    network = FlatNetwork(MLP(hidden=()), 1, 1, 2)
    zeros = np.zeros((1, 2))
    flats = [
        network.flatten(
            [{"input": zeros, "latent": zeros, "bias": np.array([30.0 * one, 0.0])}]
        )
        for one in members
    ]
    count = len(flats)
    draws = WeightDraws.equal(
        np.asarray(flats, np.float32),
        np.full((count, 2), 0.5, np.float32),
        np.ones(count, np.float32),
    )
    return PredictiveDistribution(
        network=network,
        inputs=np.zeros((1, 1)),
        draws=draws._replace(members=np.asarray(members)),
        target_map=TargetMap.linear(np.zeros(2), np.ones(2)),
        num_latent_draws=4,
        single_output=False,
    )


def mean_absolute(mean, std):
    """E|X| of X ~ N(mean, std^2)."""
    return 2 * std * stats.norm.pdf(mean / std) + mean * (
        2 * stats.norm.cdf(mean / std) - 1
    )


@pytest.mark.parametrize("measure", ["crps", "variance", "entropy"])
def test_one_draw_of_the_weights_has_no_epistemic_part(measure):
    parts = biases([1.7], latent=0.8).decompose(measure)
    assert parts.epistemic[0] == pytest.approx(0, abs=1e-3)
    assert parts.total[0] == pytest.approx(parts.aleatoric[0], abs=1e-3)


@pytest.mark.parametrize("noise", [0.01, 1.0, 30.0])
def test_crps_of_a_gaussian(noise):
    parts = biases([5.0], noise=noise).decompose()
    assert parts.measure == "crps"
    assert parts.total[0] == pytest.approx(noise / ROOT_PI, rel=5e-4)


def test_crps_with_a_latent_is_that_of_the_sum():
    parts = biases([0.0], noise=0.3, latent=0.4).decompose()
    assert parts.total[0] == pytest.approx(0.5 / ROOT_PI, rel=2e-3)


@pytest.mark.parametrize("shares", [None, [0.1, 0.2, 0.7]])
def test_crps_of_a_mixture_of_gaussians(shares):
    centres, noise = np.array([0.0, 0.5, 3.0]), 0.4
    parts = biases(centres, noise, shares=shares).decompose()
    weights = np.full(3, 1 / 3) if shares is None else np.array(shares)
    pairs = mean_absolute(centres[:, None] - centres, np.sqrt(2) * noise)
    assert parts.total[0] == pytest.approx(0.5 * weights @ pairs @ weights, rel=1e-3)
    assert parts.aleatoric[0] == pytest.approx(noise / ROOT_PI, rel=1e-3)
    assert parts.epistemic[0] == pytest.approx(
        parts.total[0] - parts.aleatoric[0], rel=1e-4
    )


def test_variance_of_a_mixture_of_gaussians():
    centres, weights = np.array([0.0, 0.5, 3.0]), np.array([0.1, 0.2, 0.7])
    parts = biases(centres, 0.4, shares=weights).decompose("variance")
    mean = weights @ centres
    assert parts.aleatoric[0] == pytest.approx(0.16, rel=1e-5)
    assert parts.epistemic[0] == pytest.approx(
        weights @ (centres - mean) ** 2, rel=1e-5
    )


def test_entropy_of_draws_far_apart():
    parts = biases([0.0, 100.0], 0.5, shares=[0.25, 0.75]).decompose("entropy")
    information = -0.25 * np.log(0.25) - 0.75 * np.log(0.75)
    assert parts.epistemic[0] == pytest.approx(information, abs=0.02)
    assert parts.aleatoric[0] == pytest.approx(stats.norm(0, 0.5).entropy(), abs=2e-3)


@pytest.mark.parametrize("factor", [1e-6, 3.0, 1e8])
@pytest.mark.parametrize(("measure", "power"), [("crps", 1), ("variance", 2)])
def test_parts_have_units(factor, measure, power):
    centres = np.linspace(-1, 2, 7)
    one = biases(centres).decompose(measure)
    moved = TargetMap.linear(17.0 * factor, factor)
    other = biases(centres, target_map=moved).decompose(measure)
    for part in ("total", "aleatoric", "epistemic"):
        found, expected = getattr(other, part), getattr(one, part)
        np.testing.assert_allclose(found, factor**power * expected, rtol=1e-5)


def log_map(upper=np.inf) -> TargetMap:
    transform = TargetTransform("log", np.ones(1), -np.inf, upper)
    return TargetMap(np.array([1.0]), np.array([0.8]), transform, Lattice.none(1))


def test_parts_of_a_log_normal():
    """Closed forms: E|y - y'| / 2 = exp(m + s^2 / 2) erf(s / 2), and the variance."""
    predictive = biases([0.3], noise=0.9, target_map=log_map())
    location, scale = 1 + 0.8 * 0.3, 0.8 * 0.9
    mean = np.exp(location + scale**2 / 2)
    half = mean * (2 * stats.norm.cdf(scale / np.sqrt(2)) - 1)
    assert predictive.decompose("crps").total[0] == pytest.approx(half, rel=5e-3)
    variance = mean**2 * np.expm1(scale**2)
    assert predictive.decompose("variance").total[0] == pytest.approx(
        variance, rel=0.01
    )
    entropy = stats.lognorm(scale, scale=np.exp(location)).entropy()
    assert predictive.decompose("entropy").total[0] == pytest.approx(entropy, abs=5e-3)


def test_crps_of_the_split_agrees_with_samples():
    centres = np.random.default_rng(0).normal(size=40)
    predictive = biases(centres, 0.5, latent=0.7, steps=2, target_map=log_map(30.0))
    total = predictive.decompose().total[0]
    sample = predictive.sample(200_000, seed=0)[:, 0]
    apart = 0.5 * np.abs(sample[::2] - sample[1::2])
    assert total == pytest.approx(apart.mean(), abs=4 * apart.std() / len(apart) ** 0.5)


@pytest.mark.parametrize("measure", ["crps", "variance", "entropy"])
def test_a_spread_of_noise_widths_is_aleatoric(measure):
    """Every draw has the same scale mixture: nothing differs between draws of W."""
    spread = biases(np.zeros(6), steps=2).decompose(measure)
    plain = biases(np.zeros(6), steps=0).decompose(measure)
    assert spread.epistemic[0] == pytest.approx(0, abs=1e-3)
    assert spread.aleatoric[0] > plain.aleatoric[0]


def test_a_scale_mixture_has_the_density_and_the_moments_of_its_widths():
    predictive = biases([0.0], noise=0.3, steps=3)
    factors, weights = NoiseSpread(np.array([3.0]), np.array([0.25])).widths()
    widths = 0.3 * factors[0]
    y = np.array([0.7])
    expected = weights[0] @ stats.norm.pdf(0.7, 0, widths)
    assert predictive.pdf(y)[0] == pytest.approx(expected, rel=1e-5)
    assert predictive.variance()[0] == pytest.approx(weights[0] @ widths**2, rel=1e-5)
    sample = predictive.sample(100_000, seed=1)[:, 0]
    inside = np.mean(np.abs(sample) < 0.7)
    held = 1 - 2 * predictive.cdf(-y)[0]
    assert inside == pytest.approx(held, abs=4 * (held * (1 - held) / 1e5) ** 0.5)


@pytest.mark.parametrize("measure", ["crps", "variance"])
def test_standard_errors_are_those_of_repeated_draws(measure):
    rng = np.random.default_rng(0)
    found = [biases(rng.normal(size=64), 0.5).decompose(measure) for _ in range(150)]
    for part in ("total", "aleatoric", "epistemic"):
        spread = np.std([getattr(parts, part)[0] for parts in found])
        error = np.mean([getattr(p.standard_error, part)[0] for p in found])
        assert error == pytest.approx(spread, rel=0.25, abs=1e-4)


def test_members_are_not_random():
    """Draws within a member agree, so nothing is random although members differ."""
    values = np.repeat([0.0, 1.0, 5.0], 4)
    parts = biases(values, members=np.repeat([0, 1, 2], 4)).decompose()
    assert parts.epistemic[0] > 0.1
    assert parts.standard_error.total[0] == pytest.approx(0, abs=1e-6)
    assert not parts.unstable[0]
    few = biases([0.0, 1.0, 5.0], members=[0, 0, 0]).decompose()
    assert few.unstable[0]


# ----- Parts given the ensemble member ------------------------------------------------

POOLED_CENTRES = np.array([-2.0, -1.2, 0.3, 0.9, 1.4, 3.0])
POOLED_SHARES = np.array([0.05, 0.1, 0.15, 0.2, 0.25, 0.25])
POOLED_MEMBERS = np.array([0, 0, 1, 1, 1, 2])


def half_mean_absolute_difference(centres, noise, shares):
    apart = mean_absolute(np.subtract.outer(centres, centres), noise * 2**0.5)
    return 0.5 * shares @ apart @ shares


def variance_of_mixture(centres, noise, shares):
    return noise**2 + shares @ (centres - shares @ centres) ** 2


def entropy_of_mixture(centres, noise, shares):
    y = np.linspace(-8, 9, 20_001)
    density = stats.norm.pdf(y[:, None], centres, noise) @ shares
    return -np.trapezoid(density * np.log(np.maximum(density, 1e-300)), y)


@pytest.mark.parametrize(
    ("measure", "of_mixture"),
    [
        ("crps", half_mean_absolute_difference),
        ("variance", variance_of_mixture),
        ("entropy", entropy_of_mixture),
    ],
)
def test_parts_given_the_member_are_those_of_pooled_draws(measure, of_mixture):
    predictive = biases(
        POOLED_CENTRES, 0.4, shares=POOLED_SHARES, members=POOLED_MEMBERS
    )
    parts = predictive.decomposed_given("member").decompose(measure)
    total = of_mixture(POOLED_CENTRES, 0.4, POOLED_SHARES)
    aleatoric = 0.0
    for member in range(3):
        own = POOLED_MEMBERS == member
        share = POOLED_SHARES[own].sum()
        given = of_mixture(POOLED_CENTRES[own], 0.4, POOLED_SHARES[own] / share)
        aleatoric += share * given
    assert parts.total[0] == pytest.approx(total, rel=3e-3)
    assert parts.aleatoric[0] == pytest.approx(aleatoric, rel=3e-3)
    assert parts.epistemic[0] == pytest.approx(total - aleatoric, rel=0.01)
    # Pooling changes what the parts are given, and never the density or the total.
    plain = predictive.decompose(measure)
    assert plain.total[0] == pytest.approx(parts.total[0], rel=1e-5)
    assert plain.epistemic[0] > parts.epistemic[0]


@pytest.mark.parametrize("measure", ["crps", "variance", "entropy"])
def test_one_member_has_no_epistemic_part(measure):
    predictive = biases(POOLED_CENTRES, 0.4).decomposed_given("member")
    parts = predictive.decompose(measure)
    assert parts.epistemic[0] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("measure", ["crps", "variance", "entropy"])
def test_standard_errors_given_the_member_are_those_of_repeated_draws(measure):
    rng = np.random.default_rng(0)
    members = np.repeat([0, 1, 2], 32)
    centres = np.array([0.0, 0.8, 2.0])[members]
    spread = np.array([0.3, 0.6, 0.1])[members]
    found = [
        biases(centres + spread * rng.normal(size=96), 0.5, members=members)
        .decomposed_given("member")
        .decompose(measure)
        for _ in range(150)
    ]
    for part in ("total", "aleatoric", "epistemic"):
        expected = np.std([getattr(parts, part)[0] for parts in found])
        error = np.mean([getattr(p.standard_error, part)[0] for p in found])
        assert error == pytest.approx(expected, rel=0.25, abs=1e-4)


def test_entropies_given_the_member_by_neighbours_and_of_several_outputs():
    predictive = biases(
        np.repeat([0.0, 0.5, 40.0], [8, 8, 16]), 0.5, members=np.repeat([0, 1], 16)
    ).decomposed_given("member")
    exact = predictive.decompose("entropy")
    neighbours = predictive.decompose("entropy", "nearest_neighbour", 64)
    for part in ("total", "aleatoric", "epistemic"):
        assert getattr(neighbours, part)[0] == pytest.approx(
            getattr(exact, part)[0], abs=0.06
        )
    assert exact.epistemic[0] == pytest.approx(np.log(2), abs=0.01)
    several = two_outputs(np.repeat([0, 1], 8)).decomposed_given("member")
    assert several.decompose("entropy").epistemic[0] == pytest.approx(
        np.log(2), abs=0.02
    )


def test_cold_members_are_pooled_and_other_draws_are_not():
    cold = Marginal(temperature=(0.001, 0.1)).resolved("default")
    warm = Marginal(temperature=(0.1, 1.0)).resolved("default")
    assert cold.decomposed_given() == "member"
    assert warm.decomposed_given() == MFVI().decomposed_given() == "weights"
    with pytest.raises(ValueError, match=r"given.*'w'"):
        biases([0.0]).decomposed_given("w")


def test_several_outputs_have_parts_of_their_own():
    one = biases([0.0, 2.0])
    parts = replace(one.decompose(), standard_error=None)
    assert not parts.unstable.any()
    stds = one.decompose("variance").as_stds()
    np.testing.assert_allclose(stds.total**2, one.variance(), rtol=1e-5)


def test_every_member_has_two_draws_if_there_are_enough():
    assert draws_of_members(10, [0.97, 0.02, 0.01]).tolist() == [6, 2, 2]
    assert draws_of_members(3, [0.9, 0.1]).sum() == 3
    assert draws_of_members(1, [0.9, 0.1]).tolist() == [1, 0]


@pytest.mark.parametrize("name", ["none", "log"])
def test_doubling_the_draws_hardly_moves_any_part(name):
    """By at most 5 % of the total in 99 % of rows, heavy tails and log y included."""
    rng = np.random.default_rng(0)
    network = FlatNetwork(MLP(hidden=(8,), activation="silu"), 2, 1, 1)
    centre = rng.normal(size=network.num_weights)
    weights = centre + 0.1 * rng.normal(size=(1024, centre.size))
    draws = WeightDraws.equal(
        weights.astype(np.float32), np.full((1024, 1), 0.2), np.ones(1024)
    )
    spread = NoiseSpread(np.full(1024, 2.0), np.full(1024, 0.25)).widths()
    draws = draws._replace(noise_factors=spread[0], noise_shares=spread[1])
    target_map = log_map(30.0) if name == "log" else TargetMap.linear(2.0, 3.0)
    inputs = rng.normal(size=(24, 2))

    def parts(num_draws, num_latent):
        return PredictiveDistribution(
            network=network,
            inputs=inputs,
            draws=draws.pick(slice(num_draws)),
            target_map=target_map,
            num_latent_draws=num_latent,
            single_output=True,
        ).decompose("crps")

    usual = parts(512, 16)
    for more in (parts(1024, 16), parts(512, 32)):
        for part in ("total", "aleatoric", "epistemic"):
            moved = np.abs(getattr(more, part) - getattr(usual, part)) / usual.total
            assert moved.max() < 0.05, part
