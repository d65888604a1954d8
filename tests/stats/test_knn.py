"""KSG mutual information and kNN entropy against closed forms and brute force."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma
from sklearn.feature_selection import mutual_info_regression

from ncai.stats import knn


def gaussian(num_rows, dim, seed=0):
    return np.random.default_rng(seed).normal(size=(num_rows, dim))


# ----- Mutual information -------------------------------------------------------------


def correlated(num_rows, rho, seed=0):
    a, noise = gaussian(num_rows, 2, seed).T
    return a, rho * a + np.sqrt(1 - rho**2) * noise


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.95])
def test_mutual_information_of_gaussians(rho):
    # Over 30 seeds the bias was at most 0.010 and the deviation 0.023; three of them.
    found = knn.mutual_information(*correlated(2000, rho))
    assert found == pytest.approx(-0.5 * np.log(1 - rho**2), abs=0.08)


def test_mutual_information_of_gaussian_vectors():
    # x in R^3, z in R^2 with each z_j = (x_j + noise) / sqrt(2): 2 * log(2) / 2 nats.
    x, noise = gaussian(3000, 3), gaussian(3000, 2, seed=1)
    z = (x[:, :2] + noise) / np.sqrt(2)
    # Over 20 seeds the bias was at most 0.021 and the deviation 0.015; four of them.
    assert knn.mutual_information(x, z) == pytest.approx(np.log(2), abs=0.08)
    assert knn.mutual_information(x, z[:, 0]) == pytest.approx(np.log(2) / 2, abs=0.08)


def test_mutual_information_equals_scikit_learn_for_two_columns():
    a, b = correlated(400, 0.7)
    reference = mutual_info_regression(a[:, None], b, n_neighbors=5, random_state=0)[0]
    assert knn.mutual_information(a, b) == pytest.approx(reference, abs=1e-9)


def test_mutual_information_counts_by_brute_force():
    a, b = gaussian(60, 2), gaussian(60, 1, seed=1)
    a_scaled, b_scaled = stats.zscore(a), stats.zscore(b)
    total = 0.0
    for i in range(60):
        in_a = np.abs(a_scaled - a_scaled[i]).max(axis=1)
        in_b = np.abs(b_scaled - b_scaled[i]).max(axis=1)
        radius = np.sort(np.maximum(in_a, in_b))[5]
        total += digamma(np.sum(in_a < radius)) + digamma(np.sum(in_b < radius))
    expected = digamma(5) + digamma(60) - total / 60
    assert knn.mutual_information(a, b) == pytest.approx(expected, abs=1e-12)


def test_mutual_information_does_not_depend_on_units_and_survives_ties():
    a, b = correlated(300, 0.8)
    found = knn.mutual_information(a, b)
    assert knn.mutual_information(1e-8 * a + 5, 1e6 * b) == pytest.approx(
        found, abs=1e-6
    )
    rounded = knn.mutual_information(np.round(a), b)
    assert 0.1 < rounded < found


def test_mutual_information_with_constant_columns():
    a, b = correlated(300, 0.8)
    with_constant = np.c_[np.full(300, 0.1), a]
    # The noise that breaks ties differs, which may move a count or two.
    assert knn.mutual_information(with_constant, b) == pytest.approx(
        knn.mutual_information(a, b), abs=1e-3
    )
    assert knn.mutual_information(np.full(300, 0.1), b) == 0.0
    assert not knn.permuted_mutual_information(np.ones(300), b, 3).any()


def test_mutual_information_refuses_too_few_rows():
    with pytest.raises(ValueError, match="k=5"):
        knn.mutual_information(np.arange(5.0), np.arange(5.0))
    with pytest.raises(ValueError, match="rows"):
        knn.mutual_information(np.arange(9.0), np.arange(8.0))


@pytest.mark.parametrize("most_pairs", [0, 10**6])
@pytest.mark.parametrize("list_length", [8, 256])
@pytest.mark.parametrize(("dim_a", "dim_b"), [(1, 1), (7, 1), (1, 3)])
def test_permuted_information_is_that_of_permuted_rows(
    dim_a, dim_b, list_length, most_pairs, monkeypatch
):
    monkeypatch.setattr(knn, "_MOST_PAIRS", most_pairs)
    monkeypatch.setattr(knn, "_NEIGHBOUR_LIST", list_length)
    a, b = gaussian(200, dim_a), gaussian(200, dim_b, seed=1)
    found = knn.permuted_mutual_information(a, b, num_permutations=3, seed=4)
    rng = np.random.default_rng(4)
    for value in found:
        order = rng.permutation(200)
        if dim_b > dim_a:  # the other side is shuffled
            expected = knn.mutual_information(a[order], b)
        else:
            expected = knn.mutual_information(a, b[order])
        assert value == pytest.approx(expected, abs=1e-9)


# ----- Entropy ------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_entropy_of_gaussians(dim):
    mixing = gaussian(dim, dim, seed=1)
    samples = gaussian(4000, dim) @ mixing
    exact = dim / 2 * np.log(2 * np.pi * np.e) + np.linalg.slogdet(mixing)[1]
    # The log density has variance dim / 2, the neighbours add psi'(5) = 0.22: deviation
    # sqrt((dim / 2 + 0.22) / 4000) <= 0.021. Three of them, and the bias of 0.03 that
    # three dimensions have here (it was seen to fall with N).
    assert knn.knn_entropy(samples) == pytest.approx(exact, abs=0.093)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_entropy_of_a_uniform_law_is_right_for_any_k(k):
    samples = np.random.default_rng(0).random(20_000)
    # Deviation sqrt(psi'(k) / 20000) <= 0.009.
    assert knn.knn_entropy(samples, k=k) == pytest.approx(0, abs=0.03)


def test_entropy_of_scaled_and_of_equal_samples():
    samples = gaussian(200, 2)
    shifted = knn.knn_entropy(1e-6 * samples) - knn.knn_entropy(samples)
    assert shifted == pytest.approx(2 * np.log(1e-6), abs=1e-4)
    assert np.isfinite(knn.knn_entropy(np.repeat(samples, 10, axis=0)))
    assert knn.knn_entropy(np.full(20, 0.1)) == -np.inf


def test_the_sorted_entropy_of_numbers_equals_the_general_one():
    samples = np.random.default_rng(0).normal(size=(3, 200))
    expected = [knn.knn_entropy(group[:, None], k=5) for group in samples]
    np.testing.assert_allclose(knn.sorted_knn_entropy(samples, 5), expected)
