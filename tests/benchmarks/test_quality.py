"""The judge of quality: splits, scores, who is best, what targets say."""

import importlib.util
import math
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.quality import methods, problems, report, targets
from benchmarks.quality import run as scores
from benchmarks.quality.methods import ALL_LEADS, METHOD_GROUPS, METHODS, OURS
from benchmarks.quality.results import Results
from ncai.stats.scores import crps_from_samples, crps_gaussian_mixture
from real_sets import real_data


def load_protocol():
    path = methods.PEER_FOLDER / "protocol.py"
    spec = importlib.util.spec_from_file_location("quality_protocol", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["quality_protocol"] = module
    spec.loader.exec_module(module)
    return module


protocol = load_protocol()

# ----- Splits -------------------------------------------------------------------------


def test_splits_are_the_published_ones():
    train, test = problems.split_rows(308, 0)
    order = np.random.default_rng(0).permutation(308)
    np.testing.assert_array_equal(np.concatenate([train, test]), order)
    assert (len(train), len(test)) == (277, 31)
    assert len({tuple(problems.split_rows(308, s)[1]) for s in range(20)}) == 20


@real_data
def test_dequantised_sets_have_the_same_rows_and_half_a_step_of_noise():
    plain = problems.load_problem("wine_red", 3)
    noisy = problems.load_problem("wine_red_dequantised", 3)
    again = problems.load_problem("wine_red_dequantised", 3)
    np.testing.assert_array_equal(plain.test[0], noisy.test[0])
    np.testing.assert_array_equal(again.test[1], noisy.test[1])
    noise = noisy.train[1] - plain.train[1]
    assert np.abs(noise).max() <= 0.5
    assert abs(noise.std() - math.sqrt(1 / 12)) < 0.02


def test_leads_are_run_only_by_name():
    assert not set(METHOD_GROUPS["all"]) & set(ALL_LEADS)
    assert set(METHOD_GROUPS["all"]) | set(ALL_LEADS) == set(METHODS)
    network = OURS["quarter"]["network"] | {"hidden": [100, 100]}
    assert OURS["wide"] == {"max_steps": 1000, "network": network}


def test_names_may_be_groups_and_unknown_ones_are_refused():
    groups = {"all": ("a", "b", "c"), "two": ("b", "c")}
    assert problems.chosen("two, a,b", groups, "--sets") == ["b", "c", "a"]
    with pytest.raises(ValueError, match="--sets 'd' is not known"):
        problems.chosen("d", groups, "--sets")


# ----- Scores of a mixture, as the peers compute them ---------------------------------


def test_a_peers_mixture_is_scored_as_ours_is():
    rng = np.random.default_rng(0)
    means, stds = rng.normal(size=(7, 3)), rng.uniform(0.2, 2, size=(7, 3))
    weights = rng.dirichlet(np.ones(3), size=7)
    targets_ = rng.normal(size=7)
    found = protocol.Prediction(means, stds, weights)
    density = (weights * stats.norm.pdf(targets_[:, None], means, stds)).sum(axis=1)
    np.testing.assert_allclose(found.log_density(targets_), np.log(density))
    expected = crps_gaussian_mixture(means, stds, weights, targets_)
    np.testing.assert_allclose(found.crps(targets_).mean(), expected)
    lower, upper = found.interval()
    for bound, level in ((lower, 0.025), (upper, 0.975)):
        cdf = (weights * stats.norm.cdf(bound[:, None], means, stds)).sum(axis=1)
        np.testing.assert_allclose(cdf, level, atol=1e-9)


def test_points_give_crps_mean_and_interval():
    rng = np.random.default_rng(1)
    points, targets_ = rng.normal(size=(4, 50)), rng.normal(size=4)
    found = protocol.Prediction(points, np.full((4, 1), 0.3), points=points)
    expected = crps_from_samples(points.T, targets_)
    np.testing.assert_allclose(found.crps(targets_).mean(), expected)
    np.testing.assert_allclose(found.mean(), points.mean(axis=1))


def test_one_training_serves_all_points_that_share_it():
    rows = protocol.Rows(np.zeros((5, 1)), np.zeros(5))
    valid = protocol.Rows(np.zeros((3, 1)), np.array([2.0, 2.1, 1.9]))
    trained = []

    def train(_, settings, seed):
        trained.append(settings["centre"])
        return lambda inputs: np.full((len(inputs), 1), settings["centre"])

    def finish(means, settings):
        return protocol.Prediction(means, np.full_like(means, settings["width"]))

    centres = [{"centre": c} for c in (0.0, 2.0, 9.0)]
    widths = [{"width": w} for w in (3.0, 0.1)]
    chosen, found = protocol.tune_nested(train, finish, centres, widths, rows, valid, 0)
    assert trained == [0.0, 2.0, 9.0]
    assert chosen == {"centre": 2.0, "width": 0.1}
    grid = [centre | width for centre in centres for width in widths]
    plain, expected = protocol.tune_on_grid(
        lambda rows, point, seed, _: (
            lambda inputs: finish(train(rows, point, seed)(inputs), point)
        ),
        grid,
        rows,
        valid,
        0,
    )
    assert plain == chosen
    np.testing.assert_allclose(found, expected)


def test_scores_of_a_split_are_in_raw_units(tmp_path):
    rng = np.random.default_rng(2)
    inputs, y = rng.normal(size=(50, 2)), 100 + 30 * rng.normal(size=50)
    problem = problems.Problem((inputs[:40], y[:40]), (inputs[40:], y[40:]), None, -2.0)
    problem.save(tmp_path / "0.npz")
    seen = protocol.Problem(tmp_path / "0.npz")
    assert abs(seen.train.targets.std() - 1) < 1e-12
    # The marginal normal of the training rows.
    predicted = protocol.Prediction(np.zeros((10, 1)), np.ones((10, 1)))
    said = seen.scores(predicted) | {"split": 0, "seconds": 1.0, "cpu_seconds": 1.0}
    row = scores.score_split(said, problem)
    centre, width = y[:40].mean(), y[:40].std()
    expected = -stats.norm.logpdf(y[40:], centre, width).mean()
    assert math.isclose(row["nll"], expected, rel_tol=1e-9)
    assert math.isclose(row["gap"], expected - 2.0, rel_tol=1e-9)
    assert math.isclose(row["width"], 2 * stats.norm.ppf(0.975) * width, rel_tol=1e-6)
    error = math.sqrt(np.mean((y[40:] - centre) ** 2))
    assert math.isclose(row["rmse"], error, rel_tol=1e-9)


def test_a_worker_that_says_nonsense_is_refused():
    rows = (np.zeros((2, 1)), np.zeros(2))
    said = {name: [0.0, math.nan] for name in ("log_density", "crps", "mean")}
    said |= {"split": 4, "lower": [0.0, 0.0], "upper": [1.0, 1.0]}
    with pytest.raises(ValueError, match="of split 4 is not a number a row"):
        scores.score_split(said, problems.Problem(rows, rows))


# ----- Means and who is best ----------------------------------------------------------


def results_of(values, metric="nll", dataset="goldberg"):
    """From {method: values of splits}."""
    blank = {"nll": 0.0, "gap": 0.0, "crps": 0.0, "rmse": 0.0, "coverage": 0.95}
    blank |= {"width": 1.0, "seconds": 1.0, "cpu_seconds": 1.0}
    rows = [
        blank | {metric: v, "split": s, "method": method, "dataset": dataset}
        for method, found in values.items()
        for s, v in enumerate(found)
    ]
    return Results(pd.DataFrame(rows), 3)


def test_leaders_by_paired_differences():
    results = results_of(
        {
            "best": [1.0, 5.0, 9.0],
            # 0.1 worse in every split: far more than the error of the difference.
            "always_worse": [1.1, 5.1, 9.1],
            # 0.1 worse on average, with differences of either sign.
            "as_good": [0.0, 5.0, 10.3],
            # Better, with a split missing: it does not compete.
            "part": [0.0, 0.0],
        }
    )
    names = results.methods()
    assert results.best("goldberg", "nll", names) == "best"
    assert results.leaders("goldberg", "nll", names) == {"best", "as_good"}
    entry = results.entry("goldberg", "best", "nll")
    assert entry is not None
    assert (entry.mean, entry.count, entry.complete) == (5.0, 3, True)
    assert math.isclose(entry.error, 4 / math.sqrt(3))
    assert str(replace(entry, mean=1.5, error=0.25)) == "1.500 ± 0.250"
    assert str(replace(entry, mean=1.5, error=math.nan)) == "1.500"
    assert results.entry("goldberg", "nobody", "nll") is None


def test_targets_are_met_or_not():
    close, far = [0.05, 0.06, 0.07], [0.05, 0.06, 0.2]
    for gaps, met in ((close, True), (far, False), (close[:2], None)):
        lines = targets.check_targets(results_of({"default": gaps}, "gap"), "default")
        line = next(line for line in lines if line.target.startswith("goldberg"))
        assert line.met is met


def test_coverage_is_judged_with_noise_on_y_too():
    whole = results_of({"default": [0.99] * 3}, "coverage", "wine_red").rows
    noisy = results_of({"default": [0.95] * 3}, "coverage", "wine_red_dequantised").rows
    lines = targets.check_targets(Results(pd.concat([whole, noisy]), 3), "default")
    met = {
        line.target.split(":")[0]: line.met for line in lines if "cover" in line.target
    }
    assert (met["wine_red"], met["wine_red_dequantised"]) == (False, True)
    assert met["boston_dequantised"] is None  # not run


def test_the_slowest_set_counts_and_none_twice():
    quick = results_of({"default": [50.0, 55.0, 70.0]}, "seconds", "wine_red").rows
    slow = results_of({"default": [99.0] * 3}, "seconds", "wine_red_dequantised").rows
    line = targets.check_targets(Results(pd.concat([quick, slow]), 3), "default")[-1]
    assert (line.found, line.met) == ("55 s on wine_red, the slowest", True)


def test_fits_that_shared_the_machine_are_not_timed_by_the_clock():
    alone = [50.0, math.nan, 70.0]
    results = results_of({"default": alone}, "seconds", "wine_red")
    line = targets.check_targets(results, "default")[-1]
    assert (line.found, line.met) == ("60 s on wine_red, the slowest", False)
    assert results.entry("wine_red", "default", "seconds").mean == 60.0
    assert results.entry("wine_red", "default", "seconds").count == 2
    shared = results_of({"default": [math.nan] * 3}, "seconds", "wine_red")
    line = targets.check_targets(shared, "default")[-1]
    assert (line.found, line.met) == ("not run", None)


def test_the_count_of_sets_led():
    parts = []
    for index, name in enumerate(problems.REAL):
        ours = [1.0, 1.1, 1.2] if index < 5 else [3.0, 3.0, 3.0]
        values = {"default": ours, "ngboost": [2.0, 2.1, 2.2]}
        parts.append(results_of(values, "nll", name).rows)
    lines = targets.check_targets(Results(pd.concat(parts), 3), "default")
    plain, dequantised = (line for line in lines if "best NLL" in line.target)
    assert plain.met is True
    assert plain.found.startswith("5: yacht yes (-1.000")
    assert dequantised.met is None  # three sets are not run


def test_peers_beside_print():
    table = pd.DataFrame(
        {
            "method": ["a", "b"],
            "dataset": "goldberg",
            "nll": [2.1, 4.0],
            "standard_error": [math.nan, 0.01],
            "source": "a paper",
        }
    )
    results = results_of({"a": [1.8, 2.0, 2.2], "b": [1.8, 2.0, 2.2]})
    first, second = targets.check_published(results, table)
    assert first.verdict == "agrees"
    assert second.verdict == "better by 2.00"


def test_numbers_in_print_are_of_known_peers_and_sets():
    table = report.published_table()
    assert set(table["method"]) <= set(methods.PEERS)
    assert set(table["dataset"]) <= set(problems.REAL)
