"""Reports on tables with categories and dates: pictures over what people know."""

import numpy as np
import pandas as pd
import pytest

from ncai import MFVI, BNNLVRegressor, TablePreparer
from ncai.preprocessing.columns.groups import CYCLES, ColumnGroup
from ncai.report import ReportInputs
from ncai.report.draw.axes import MOST_LEVELS, date_ticks, feature_axis
from ncai.report.draw.densities import densities_over
from ncai.report.sections.data import data
from ncai.report.sections.noise import noise
from ncai.report.subject import Subject
from ncai.report.write import render


@pytest.fixture(scope="module")
def inputs():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "town": rng.choice(["Ulm", "Bonn", "Kiel"], 80, p=[0.2, 0.5, 0.3]),
            "size": rng.uniform(20, 120, 80),
            "when": pd.date_range("2020-01-01", periods=80, freq="11D").astype(str),
            "lift": rng.choice(["yes", "no"], 80),
        }
    )
    y = table["size"] + 40 * (table["town"] == "Kiel") + rng.standard_normal(80)
    preparer = TablePreparer().fit(table)
    matrix = preparer.prepare(table)[0]
    method = MFVI(n_weight_draws=16)
    model = BNNLVRegressor(
        inference=method, max_steps=40, n_restarts=2, random_state=0
    ).fit(matrix, y)
    groups = preparer.groups()
    return ReportInputs(model, matrix, y.to_numpy(), raw_train=table, groups=groups)


@pytest.fixture(scope="module")
def subject(inputs):
    return Subject(inputs)


def group(subject, name):
    return next(one for one in subject.groups if one.name == name)


def test_the_typical_row_is_of_one_level_and_of_one_day(subject):
    typical = dict(zip(subject.names, subject.typical, strict=True))
    assert [typical[f"town={town}"] for town in ("Bonn", "Kiel", "Ulm")] == [1, 0, 0]
    assert typical["size"] == np.median(subject.inputs.raw_train["size"])
    place = typical["when year sin"] ** 2 + typical["when year cos"] ** 2
    assert place == pytest.approx(1.0)


def test_pictures_are_asked_for_rows_that_can_be(subject):
    for number, one in enumerate(subject.groups):
        across = densities_over(subject, number).across
        rows = np.tile(subject.typical, (len(across.places), 1))
        rows[:, subject.columns(one)] = across.settings
        towns = rows[:, [n.startswith("town=") for n in subject.names]]
        np.testing.assert_array_equal(towns.sum(axis=1), 1)


def test_levels_stand_side_by_side_by_name(subject):
    across = subject.axis_of(group(subject, "town"), 5)
    assert across.labels == ["Bonn", "Kiel", "Ulm"]
    assert across.discrete
    towns = subject.train[:, subject.columns(group(subject, "town"))]
    expected = [across.labels.index(t) for t in subject.inputs.raw_train["town"]]
    np.testing.assert_array_equal(np.round(across.place(towns)), expected)


def test_of_many_levels_the_most_frequent_are_shown():
    names = tuple(f"g={level}" for level in "abcdefghijk")
    levels = dict(zip("abcdefghijk", map(tuple, np.eye(11)), strict=True))
    many = ColumnGroup("g", names, "g", levels)
    across = feature_axis(many, np.eye(11), np.eye(11)[0], 5)
    assert len(across.places) == MOST_LEVELS
    assert "of 11 levels" in across.axis.label
    places = across.place(np.eye(11))
    assert np.isfinite(places[:MOST_LEVELS]).all()
    assert np.isnan(places[MOST_LEVELS:]).all()


@pytest.mark.parametrize("cycle", CYCLES)
def test_the_place_in_a_cycle_comes_back(cycle):
    one = ColumnGroup("t", ("t sin", "t cos"), "t", cycle=cycle)
    across = feature_axis(one, np.zeros((1, 2)), np.zeros(2), 48)
    np.testing.assert_allclose(across.place(across.settings), across.places)
    assert np.isnan(across.place(np.zeros((1, 2)))).all()
    assert len(across.labels) == 48


def test_days_have_their_names():
    def label_of(moment, cycle, num):
        days = pd.Timestamp(moment).timestamp() / 86400
        place = days % CYCLES[cycle]
        one = ColumnGroup("t", ("s", "c"), "t", cycle=cycle)
        across = feature_axis(one, np.zeros((1, 2)), np.zeros(2), num)
        return across.labels[int(np.abs(across.places - place).argmin())]

    assert label_of("2026-11-16 12:00", "week", 7) == "Mon"
    assert label_of("2001-05-03 12:00", "year", 365).endswith("May")
    assert label_of("2001-05-03 18:31:30", "day", 1440) == "18:31"


def test_dates_are_shown_as_dates(subject):
    across = subject.axis_of(group(subject, "when"), 50)
    assert across.axis.label == "when"
    first, last = across.labels[0], across.labels[-1]
    assert "2019-12-10" < first < "2020-01-10" < "2022-05-01" < last < "2022-06-15"
    # The number of days of 1 July 2020 stands where that day is.
    ticks = {text: place for place, text in across.axis.ticks}
    assert ticks["Jul 2020"] == (pd.Timestamp("2020-07-01") - pd.Timestamp(0)).days - (
        group(subject, "when").origin
    )
    row = next(r for r in data(subject).columns if r["name"] == "when")
    assert (row["low"], row["high"]) == ("2020-01-01", "2022-05-19")


@pytest.mark.parametrize("days", [0.2, 3, 20, 70, 300, 1000, 4000, 40_000])
def test_dates_along_an_axis_are_few_and_in_order(days):
    ticks = date_ticks(0.3, 0.3 + days, 17_540.0)
    assert len(ticks) <= 5
    assert len({text for _, text in ticks}) == len(ticks)
    assert all(0.3 <= place <= 0.3 + days for place, _ in ticks)
    assert len(ticks) >= 2 or days < 1


def test_the_report_speaks_of_the_users_columns(inputs, subject):
    found = noise(subject)
    names = [row["name"] for row in found.importance]
    assert {"town", "size", "lift"} <= set(names)
    assert not any("=" in name for name in names)
    town = next(one for one in found.explorers if one["name"] == "town")
    assert town["data"]["labels"] == ["Bonn", "Kiel", "Ulm"]
    page = render(inputs)
    assert "4 inputs" in page
    assert "town = Bonn" in page


def test_groups_must_hold_every_column_once(inputs):
    wrong = ReportInputs(
        inputs.model, inputs.train_inputs, inputs.train_target, groups=inputs.groups[1:]
    )
    with pytest.raises(ValueError, match="groups holds"):
        Subject(wrong)
