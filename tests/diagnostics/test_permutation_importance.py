"""Permutation importance of a model whose formula is known."""

import numpy as np
import pytest

from ncai.diagnostics.permutation_importance import Importance, permutation_importance
from ncai.report.sections.noise import importance_rows


class Known:
    """Mean is 2 a, spread is exp(b); c is not looked at."""

    n_features_in_ = 3

    def predict(self, X, return_std=False):
        assert return_std
        X = np.asarray(X)
        return 2 * X[:, 0], np.exp(X[:, 1])


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 3)) * [1.0, 0.5, 1.0]
    return X, 2 * X[:, 0] + np.exp(X[:, 1]) * rng.standard_normal(4000)


def test_mean_and_spread_need_what_they_are_made_of(rows):
    found = permutation_importance(Known(), *rows, max_rows=4000)
    # Shuffling a adds 4 Var(a - a') = 8 to the error E exp(2 b) = exp(0.5).
    before = np.exp(0.5)
    assert found.mean[0] == pytest.approx(
        np.sqrt(before + 8) - np.sqrt(before), rel=0.08
    )
    np.testing.assert_allclose(found.mean[1:], 0, atol=1e-12)
    # E exp(2 (b - b')) / 2 - 1/2, with b - b' of variance 0.5: (e - 1) / 2.
    assert found.spread[1] == pytest.approx((np.e - 1) / 2, rel=0.3)
    np.testing.assert_allclose(found.spread[[0, 2]], 0, atol=1e-12)
    assert found.order().tolist()[2] == 2
    assert list(found.to_frame().index) == ["x0", "x1", "x2"]


def test_what_matters_is_clear_and_named(rows):
    found = permutation_importance(Known(), *rows)
    mean_clear, spread_clear = found.is_clear()
    assert mean_clear.tolist() == [True, False, False]
    assert spread_clear.tolist() == [False, True, False]
    assert found.first() == "x0"
    assert found.order().tolist() == [0, 1, 2]


class Overfitted(Known):
    """Mean and spread follow columns that have nothing to do with y."""

    def predict(self, X, return_std=False):
        X = np.asarray(X)
        return 0.3 * X[:, 0] - 0.2 * X[:, 1], np.exp(0.15 * X[:, 2])


def test_noise_on_few_rows_is_not_named():
    named = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((18, 3)), rng.standard_normal(18)
        found = permutation_importance(Overfitted(), X, y, n_repeats=3)
        named += found.first() is not None
    assert named <= 15


def test_an_error_is_what_the_importance_scatters_by():
    rng = np.random.default_rng(0)
    found = []
    for seed in range(100):
        X = rng.standard_normal((200, 3)) * [1.0, 0.5, 1.0]
        y = 2 * X[:, 0] + np.exp(X[:, 1]) * rng.standard_normal(200)
        found.append(permutation_importance(Known(), X, y, random_state=seed))
    scatter = np.std([one.mean[0] for one in found])
    assert np.median([one.mean_error[0] for one in found]) == pytest.approx(
        scatter, rel=0.3
    )
    scatter = np.std([one.spread[1] for one in found])
    assert np.median([one.spread_error[1] for one in found]) == pytest.approx(
        scatter, rel=0.5
    )


def test_a_lone_small_spread_neither_leads_nor_fills_a_bar():
    found = Importance(
        ["size", "noise"],
        mean=np.array([20.0, -4.1]),
        mean_std=np.zeros(2),
        spread=np.array([-0.2, 0.024]),
        spread_std=np.zeros(2),
        mean_error=np.array([4.0, 3.0]),
        spread_error=np.array([0.1, 0.002]),
        rmse=25.0,
    )
    assert found.first() == "size"
    assert found.order().tolist() == [0, 1]
    rows = importance_rows(found)
    assert [row["name"] for row in rows] == ["size", "noise"]
    assert [row["mean"]["share"] for row in rows] == [100, 0]
    assert [row["spread"]["share"] for row in rows] == [0, 48]
    assert [row["spread"]["counts"] for row in rows] == [False, True]
    doubtful = found._replace(spread_error=np.array([0.1, 0.02]))
    assert [row["spread"]["share"] for row in importance_rows(doubtful)] == [0, 0]
    assert found._replace(mean=np.array([0.1, -4.1])).first() is None


def test_repeats_with_its_seed(rows):
    X, y = rows
    first, again, other = (
        permutation_importance(Known(), X, y, max_rows=100, random_state=seed).mean
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert first[0] != other[0]


def test_columns_of_a_group_are_shuffled_together(rows):
    X, y = rows
    twice = np.concatenate([X, X[:, :1]], axis=1)

    class Doubled(Known):
        n_features_in_ = 4

        def predict(self, X, return_std=False):
            # Only rows whose two copies of a agree make sense.
            assert np.array_equal(X[:, 0], X[:, 3])
            return super().predict(X, return_std)

    groups = {"a": [0, "x3"], "b": ["x1"], "c": [2]}
    found = permutation_importance(Doubled(), twice, y, max_rows=4000, groups=groups)
    alone = permutation_importance(Known(), X, y, max_rows=4000)
    assert found.names == ["a", "b", "c"]
    np.testing.assert_array_equal(found.mean, alone.mean)
    np.testing.assert_array_equal(found.spread, alone.spread)


def test_refusals(rows):
    X, y = rows
    with pytest.raises(ValueError, match="feature='x9'"):
        permutation_importance(Known(), X, y, groups={"a": ["x9"]})
    with pytest.raises(ValueError, match=r"\[N, D\] and \[N\]"):
        permutation_importance(Known(), X, y[:5])
    with pytest.raises(ValueError, match="n_repeats=0"):
        permutation_importance(Known(), X, y, n_repeats=0)


class TwinInputs:
    """y = 10 a, by a model that wildly extrapolates where b and c are not equal."""

    n_features_in_ = 3

    def predict(self, X, return_std=False):
        a, b, c = np.asarray(X).T
        mean = 10 * a + 1000 * (b - c)
        return (mean, np.ones(len(mean))) if return_std else mean


def test_guesses_far_outside_of_all_targets_do_not_make_an_input_important():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, size=(2, 200))
    found = permutation_importance(TwinInputs(), np.stack([a, b, b], axis=1), 10 * a)
    assert found.mean.max() < 20  # the range of y
    assert (found.mean > 5).all()
