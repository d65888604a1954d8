"""Constraints on z whose multipliers tune themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncai import BNNLVRegressor
from ncai.objectives.constraints import (
    LARGEST_PULL,
    Constraints,
    lagrangian,
    next_multiplier,
)
from ncai.objectives.penalties import hz_expected


def sample(num_rows=400, dims=2, seed=0):
    rng = np.random.default_rng(seed)
    latents = rng.normal(size=(num_rows, dims))
    inputs, targets = rng.normal(size=(num_rows, 3)), rng.normal(size=(num_rows, 1))
    return latents, inputs, targets, np.ones(num_rows)


@pytest.mark.parametrize("excess", [-3.0, -0.4, 0.0, 0.7, 4.9, 20.0])
@pytest.mark.parametrize("multiplier", [0.0, 0.5, 4.0])
def test_slope_is_the_multiplier_that_the_next_step_would_have(x64, excess, multiplier):
    slope = jax.grad(lagrangian)(jnp.asarray(excess), multiplier)
    expected = max(0.0, multiplier + min(excess, LARGEST_PULL))
    assert float(slope) == pytest.approx(expected, abs=1e-12)
    h = 1e-6
    between = (
        lagrangian(excess + h, multiplier) - lagrangian(excess - h, multiplier)
    ) / 2
    assert float(between) / h == pytest.approx(expected, abs=1e-5)


def test_a_constraint_that_holds_with_room_to_spare_costs_nothing():
    assert float(lagrangian(jnp.asarray(-2.0), 0.0)) == 0
    assert float(lagrangian(jnp.asarray(0.0), 3.0)) == 0


def test_multipliers_rise_while_broken_and_fall_to_zero_after():
    found = next_multiplier(np.array([0.0, 1.0, 1.0, 2.0]), [2.5, -0.4, -7.0, np.nan])
    np.testing.assert_allclose(found, [2.5, 0.6, 0.0, 2.0], rtol=1e-6)
    assert next_multiplier(0.0, 1e9) == LARGEST_PULL


def test_white_noise_is_at_its_level_on_average():
    samples = [sample(num_rows=200, seed=seed) for seed in range(40)]
    stacked = (jnp.stack(parts) for parts in zip(*samples, strict=True))
    values = jax.jit(jax.vmap(Constraints().values))(*stacked)
    names = ("hz_excess", "offdiagonal_excess", "dependence_excess")
    found = np.stack([values[name] for name in names], axis=1)
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0)) < 3 * error + 0.02).all()


def test_each_excess_is_that_of_its_statistic():
    latents, inputs, targets, ones = sample()
    latents[:, 1] = latents[:, 0] + 0.5 * latents[:, 1]
    inputs[:, 0] = latents[:, 0]
    values = Constraints().values(*map(jnp.asarray, (latents, inputs, targets, ones)))
    between = np.corrcoef(latents.T)[0, 1] ** 2
    assert float(values["offdiagonal_excess"]) == pytest.approx(
        400 * between - 1, rel=1e-4
    )
    cross = np.corrcoef(inputs.T, latents.T)[:3, 3:] ** 2
    assert float(values["dependence_excess"]) == pytest.approx(
        400 * cross.mean() - 1, rel=1e-4
    )
    assert float(values["hz_excess"]) == pytest.approx(
        float(values["hz"]) - hz_expected(400.0, 2), rel=1e-5
    )


def test_a_fit_meets_them():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(200, 1))
    y = np.sin(x[:, 0]) + 0.5 * rng.exponential(size=200)  # skewed noise: so is z
    settings = {"preset": "paper", "hidden": (8,), "max_steps": 4000, "n_restarts": 1}
    settings |= {"random_state": 0, "validation_fraction": 0}
    free = BNNLVRegressor(inference="ncai0", **settings).fit(x, y)
    model = BNNLVRegressor(inference="ncai", multipliers="learned", **settings)
    model.fit(x, y)
    last = {
        name: value[-4:].mean()
        for name, value in model.history_.items()
        if name != "stage"
    }
    assert abs(last["hz_excess"]) < 0.4  # at its level: no more, and no less
    assert last["dependence_excess"] < 0.5
    assert model.diagnose().hz < 0.5 * free.diagnose().hz


def test_an_unknown_choice_is_refused():
    model = BNNLVRegressor(inference="ncai", multipliers="dual")
    with pytest.raises(ValueError, match=r"multipliers='dual'.*'fixed'"):
        model.fit(np.ones((20, 1)), np.ones(20))
