"""The skpro adapter: skpro's own checks, and the numbers of our own distribution."""

import sys

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("skpro")
# skpro and its own dependencies warn of one another's versions.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def fitted():
    from ncai.interop.skpro import NCAIProbaRegressor

    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.uniform(-1, 1, 40)}, index=range(100, 140))
    y = pd.DataFrame({"load": 3 * X["x"] + rng.normal(0, 0.2, 40)})
    settings = NCAIProbaRegressor.get_test_params()[0]
    return NCAIProbaRegressor(**settings).fit(X, y), X, y


def test_skpros_own_checks_pass():
    from skpro.utils import check_estimator

    from ncai.interop.skpro import NCAIProbaRegressor

    results = check_estimator(NCAIProbaRegressor, verbose=False)
    failed = {name: found for name, found in results.items() if found != "PASSED"}
    assert not failed
    assert len(results) > 30


def test_the_distribution_says_what_ours_says(fitted):
    model, X, y = fitted
    ours = model.estimator_.predict_dist(X)
    theirs = model.predict_proba(X)
    targets = y["load"].to_numpy()
    np.testing.assert_allclose(theirs.mean()["load"], ours.mean())
    np.testing.assert_allclose(theirs.var()["load"], ours.variance())
    np.testing.assert_allclose(theirs.log_pdf(y)["load"], ours.log_prob(targets))
    np.testing.assert_allclose(theirs.cdf(y)["load"], ours.cdf(targets))
    np.testing.assert_allclose(
        theirs.quantile([0.1, 0.9]).to_numpy(), ours.quantile([0.1, 0.9])
    )
    crps = theirs.energy(y)["energy"] - 0.5 * theirs.energy()["energy"]
    np.testing.assert_allclose(crps, ours.crps(targets))


def test_energy_is_the_mean_distance_of_two_draws(fitted):
    model, X, _ = fitted
    one = model.predict_proba(X.iloc[:1])
    draws = one.sample(4000).to_numpy()[:, 0].reshape(2, -1)
    distance = np.abs(draws[0] - draws[1])
    error = distance.std() / np.sqrt(distance.size)
    assert abs(distance.mean() - one.energy().iloc[0, 0]) < 5 * error


def test_rows_are_taken_as_in_pandas(fitted):
    model, X, _ = fitted
    all_rows = model.predict_proba(X)
    some = all_rows.loc[[103, 101]]
    assert list(some.index) == [103, 101]
    np.testing.assert_array_equal(some.mean(), all_rows.mean().loc[[103, 101]])
    assert all_rows.iat[2, 0].mean() == all_rows.mean().iat[2, 0]
    assert all_rows.sample(3).shape == (120, 1)


def test_without_skpro_it_says_which_extra(monkeypatch):
    for name in [name for name in sys.modules if name == "ncai.interop.skpro"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "skpro.distributions.base", None)
    with pytest.raises(ImportError, match=r"ncai\[skpro\]"):
        import ncai.interop.skpro  # noqa: F401
