"""Densities along an input and at rows, against the predictive distribution's own."""

import numpy as np
import pytest

from ncai import MFVI, BNNLVRegressor
from ncai.datasets import make_dataset
from ncai.diagnostics.conditional import (
    QUANTILES,
    as_inputs,
    conditional_density,
    find_feature,
    partial_dependence,
    row_densities,
    rows_along,
)
from report_models import one_input, three_inputs


def test_rows_along_keep_the_others_at_their_median():
    inputs = np.array([[0.0, 5.0], [1.0, 7.0], [9.0, 100.0]])
    rows = rows_along(inputs, 0, [3.0, 4.0])
    np.testing.assert_array_equal(rows, [[3.0, 7.0], [4.0, 7.0]])


@pytest.mark.parametrize("transform", ["none", "log", "yeo_johnson"])
def test_row_densities_are_the_densities(transform):
    _, X, y = one_input()
    model = BNNLVRegressor(
        inference=MFVI(n_weight_draws=8),
        max_steps=5,
        n_restarts=1,
        random_state=0,
        target_transform=transform,
    ).fit(X, y - y.min() + 0.5)
    predictive = model.predict_dist(X[:3])
    values = np.array([[-1.0, 0.5, 1.0], [0.1, 2.0, 3.0], [1.0, 1.5, 9.0]])
    found = row_densities(predictive, values)
    for column in range(3):
        expected = predictive.pdf(values[:, column])
        np.testing.assert_allclose(found[:, column], expected, rtol=1e-4, atol=1e-12)


def test_conditional_density_of_an_oracle_has_its_quantiles():
    oracle = make_dataset("goldberg", seed=0, num_train=20).oracle
    x = np.array([[0.2], [0.7]])
    y = np.linspace(-8, 8, 400)
    shown = conditional_density(oracle, x, x[:, 0], y)
    np.testing.assert_allclose(shown.quantiles[:, 3], oracle.mean(x)[:, 0], atol=0.02)
    width = shown.quantiles[:, QUANTILES.index(0.975)] - shown.quantiles[:, 0]
    np.testing.assert_allclose(width, 2 * 1.96 * oracle.noise_std(x)[:, 0], atol=0.05)


def test_partial_dependence_averages_over_rows():
    model, X, _ = three_inputs()
    rows, x = X.to_numpy()[:3], np.array([-1.0, 1.0])
    y = np.linspace(-6, 6, 50)
    found = partial_dependence(model, rows, 0, x, y)
    by_hand = np.zeros((2, 50))
    for row in rows:
        moved = np.stack([row, row])
        moved[:, 0] = x
        predictive = model.predict_dist(as_inputs(model, moved))
        by_hand += np.exp(predictive.log_prob_grid(y)) / 3
    np.testing.assert_allclose(found.density, by_hand, rtol=1e-4)


def test_features_by_name_or_number():
    model, _, _ = three_inputs()
    assert find_feature(model, "idle", 3) == find_feature(model, 2, 3) == 2
    for wrong, words in (
        ("x", "must be one of"),
        (3, "from 0 to 2"),
        (None, "feature="),
    ):
        with pytest.raises(ValueError, match=words):
            find_feature(model, wrong, 3)
