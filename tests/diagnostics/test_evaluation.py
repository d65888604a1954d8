"""Scores, baselines and the distributions of peers, against independent references."""

import numpy as np
import pytest
from scipy import integrate, stats

from ncai.comparison.baselines import (
    ConstantNoiseLinear,
    ConstantNoiseNetwork,
    MarginalDensity,
    default_baselines,
)
from ncai.comparison.peers import PEERS, installed_peers, missing_sentence
from ncai.diagnostics.evaluation import (
    bootstrap_intervals,
    evaluate_rows,
    paired_difference,
    row_scores,
)
from ncai.predictive.simple import GaussianPredictions, QuantilePredictions


def crps_by_integration(cdf, y, low, high):
    below, above = np.linspace(low, y, 5001), np.linspace(y, high, 5001)
    left = integrate.trapezoid(cdf(below) ** 2, below)
    return left + integrate.trapezoid((1 - cdf(above)) ** 2, above)


def test_gaussian_predictions():
    found = GaussianPredictions([1.0, -2.0], [0.5, 3.0])
    y = np.array([1.7, -6.0])
    laws = stats.norm([1.0, -2.0], [0.5, 3.0])
    np.testing.assert_allclose(found.log_prob(y), laws.logpdf(y))
    np.testing.assert_allclose(found.quantile([0.1, 0.9]).T[1], laws.ppf(0.9))
    for row, (mean, std) in enumerate([(1.0, 0.5), (-2.0, 3.0)]):
        law = stats.norm(mean, std)
        wanted = crps_by_integration(law.cdf, y[row], -40, 40)
        assert found.crps(y)[row] == pytest.approx(wanted, abs=1e-3)


def test_quantile_predictions_of_a_gaussian_come_near_it():
    levels = (np.arange(400) + 0.5) / 400
    law = stats.norm(2.0, 1.5)
    found = QuantilePredictions(np.tile(law.ppf(levels), (3, 1)), 1e-3)
    y = np.array([0.0, 2.0, 4.5])
    np.testing.assert_allclose(found.log_prob(y), law.logpdf(y), atol=0.08)
    np.testing.assert_allclose(found.cdf(y), law.cdf(y), atol=0.02)
    np.testing.assert_allclose(found.quantile([0.1, 0.5])[0], law.ppf([0.1, 0.5]), 1e-3)
    exact = GaussianPredictions(np.full(3, 2.0), 1.5).crps(y)
    np.testing.assert_allclose(found.crps(y), exact, rtol=0.01)
    # Quantiles that are all the same still have a density.
    assert np.isfinite(QuantilePredictions(np.ones((1, 50)), 1e-3).log_prob([1.0]))


def test_marginal_density_integrates_to_one_and_has_its_own_quantiles():
    y = np.random.default_rng(0).exponential(size=5000)
    found = MarginalDensity().fit(np.zeros((5000, 1)), y).predict(np.zeros((7, 1)))
    grid = np.linspace(-30, 60, 6001)
    assert integrate.trapezoid(np.exp(found.log_prob(grid)), grid) == pytest.approx(1)
    quantiles = found.quantile([0.1, 0.5, 0.95])
    assert quantiles.shape == (7, 3)
    np.testing.assert_allclose(found.cdf(quantiles[0]), [0.1, 0.5, 0.95], atol=1e-9)
    np.testing.assert_allclose(quantiles[0], np.quantile(y, [0.1, 0.5, 0.95]), atol=0.1)
    wanted = crps_by_integration(found.cdf, 2.0, -30, 60)
    assert found.crps([2.0])[0] == pytest.approx(wanted, abs=1e-3)
    assert np.isfinite(found.log_prob([100.0]))


@pytest.mark.parametrize("baseline", [ConstantNoiseLinear(), ConstantNoiseNetwork()])
def test_constant_noise_is_found(baseline):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 2))
    y = 5 + x @ [3.0, -1.0] + rng.normal(scale=0.7, size=600)
    found = baseline.fit(x[:500], y[:500]).predict(x[500:])
    rows = row_scores(found, y[500:])
    best = stats.norm.logpdf(rng.normal(size=10_000)).mean() - np.log(0.7)
    assert rows["log_likelihood"].mean() == pytest.approx(best, abs=0.25)
    assert 0.65 < rows["coverage_80"].mean() < 0.92


def test_scores_are_what_they_are_called():
    rng = np.random.default_rng(0)
    y = rng.normal(size=4000)
    rows = row_scores(GaussianPredictions(np.zeros(4000), 1.0), y)
    found = evaluate_rows(rows, num_resamples=200)
    metrics = found["metrics"]
    assert metrics["rmse"]["value"] == pytest.approx(np.sqrt(np.mean(y**2)))
    assert metrics["mae"]["value"] == pytest.approx(np.mean(np.abs(y)))
    for level in (50, 80, 95):
        one = metrics[f"coverage_{level}"]
        assert one["lower_95"] <= one["value"] <= one["upper_95"]
        assert one["value"] == pytest.approx(level / 100, abs=0.03)
        width = 2 * stats.norm.ppf(0.5 + level / 200)
        assert metrics[f"width_{level}"]["value"] == pytest.approx(width)
    assert found["calibration"]["p_value"] > 0.01
    narrow = row_scores(GaussianPredictions(np.zeros(4000), 0.5), y)
    assert evaluate_rows(narrow, 20)["calibration"]["p_value"] < 1e-6


def test_bootstrap_intervals_have_the_width_of_theory():
    values = np.random.default_rng(0).normal(size=900)
    rows = {"crps": values, "squared_error": values**2, "pit": values}
    low, high = bootstrap_intervals(rows, 2000)["crps"]
    error = values.std() / 30
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.1)
    assert "pit" not in bootstrap_intervals(rows, 20)
    gain, low, high = paired_difference(values + 0.5, values)
    assert (gain, low, high) == pytest.approx((0.5, 0.5, 0.5))


def test_peers_that_are_missing_are_named(monkeypatch):
    monkeypatch.setattr("ncai.comparison.peers.find_spec", lambda name: None)
    peers, missing = installed_peers()
    assert (peers, missing) == ([], ["NGBoost", "CatBoost", "Quantile forest"])
    assert "ncai[compare]" in missing_sentence(missing)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_peers_find_a_noise_that_grows(peer):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, size=(400, 1))
    y = 10 + 5 * x[:, 0] + (0.1 + x[:, 0]) * rng.normal(size=400)
    found = peer(num_trees=100).fit(x, y).predict(np.array([[0.05], [0.95]]))
    low, high = found.quantile([0.1, 0.9]).T
    assert (high - low)[1] > 2 * (high - low)[0]
    assert np.isfinite(found.log_prob([10.2, 14.9])).all()


def test_there_are_three_baselines():
    assert len({type(one) for one in default_baselines((5,), 0)}) == 3
