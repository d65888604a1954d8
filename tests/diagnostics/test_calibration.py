"""Coverage curves, bands and bins against counts made by hand."""

import numpy as np
import pytest
from scipy import stats

from ncai.diagnostics.calibration import (
    binomial_band,
    coverage_by_bin,
    coverage_curve,
    wilson_interval,
)


def test_coverage_is_what_one_counts():
    pit = [0.5, 0.3, 0.05, 0.99]
    # Distances from one half: 0, 0.2, 0.45, 0.49.
    np.testing.assert_allclose(
        coverage_curve(pit, [0.0, 0.4, 0.5, 0.9, 0.98, 1.0]),
        [0.25, 0.5, 0.5, 0.75, 1.0, 1.0],
    )


def test_band_holds_right_models_as_often_as_it_says():
    rng = np.random.default_rng(0)
    low, high = binomial_band([0.8], 200)
    inside = [
        low[0] <= coverage_curve(rng.uniform(size=200), [0.8])[0] <= high[0]
        for _ in range(400)
    ]
    # Discreteness makes it a little more than 95 %; 3 standard errors are 3.3 %.
    assert 0.92 < np.mean(inside) < 1.0


def test_wilson_interval_solves_its_equation():
    low, high = wilson_interval(0.9, 50)
    for end in (low, high):
        deviation = abs(0.9 - end) / np.sqrt(end * (1 - end) / 50)
        assert deviation == pytest.approx(stats.norm.ppf(0.975))
    assert wilson_interval(1.0, 10)[1] == pytest.approx(1.0)


def test_bins_split_by_value_and_keep_equal_values_together():
    by = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2.0])
    pit = np.array([0.5] * 4 + [0.999] * 4 + [0.5, 0.5, 0.999, 0.001])
    bins = coverage_by_bin(pit, by, 0.95, 3)
    assert [part.num_rows for part in bins] == [4, 4, 4]
    assert [part.coverage for part in bins] == [1.0, 0.0, 0.5]
    assert [(part.low, part.high) for part in bins] == [(0, 0), (1, 1), (2, 2)]
    assert [part.num_rows for part in coverage_by_bin(pit, by, 0.95, 6)] == [4, 4, 4]
    assert [b.num_rows for b in coverage_by_bin(pit, np.arange(12), 0.95, 3)] == 3 * [4]
    (one,) = coverage_by_bin(pit, np.ones(12), 0.95, 3)
    assert one.num_rows == 12


def test_refusals():
    with pytest.raises(ValueError, match="between 0 and 1"):
        coverage_curve([0.2, 1.2], [0.5])
    with pytest.raises(ValueError, match=r"by has shape \(2,\)"):
        coverage_by_bin([0.5], [1.0, 2.0], 0.95)
