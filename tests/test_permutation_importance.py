"""Permutation importance of a model whose formula is known."""

import numpy as np
import pytest

from ncai.importance import permutation_importance


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
