"""What the report may claim, on rows of any kind: no more than the rows show."""

import re
from copy import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from markupsafe import Markup

from ncai import MFVI, BNNLVRegressor, TablePreparer
from ncai.comparison import ConstantNoiseLinear, MarginalDensity
from ncai.diagnostics.conditional import conditional_density
from ncai.diagnostics.latents import diagnose_latents
from ncai.diagnostics.training_curves import restart_kinds, restart_shares
from ncai.preprocessing.columns.column import CYCLES, ColumnGroup
from ncai.report import ReportInputs
from ncai.report.axes import MOST_LEVELS, Axis, date_ticks, feature_axis
from ncai.report.densities import densities_over, ridgelines
from ncai.report.sections.answer import _how_trustworthy, _what_kind, answer, badges
from ncai.report.sections.data import data, row_titles
from ncai.report.sections.latents import Latents, MethodLatents, latents
from ncai.report.sections.noise import noise
from ncai.report.sections.quality import quality
from ncai.report.sections.split import Split, _scatter, split
from ncai.report.sections.training import _chart, _strengths, training
from ncai.report.subject import Subject
from ncai.report.words import nice, percent
from ncai.report.write import render
from ncai.tables.inspect import decimals_for
from small_fits import one_input, one_input_subject


def test_rows_are_counted_from_1_or_have_their_own_labels():
    model, X, y = one_input()

    def name(raw):
        return Subject(ReportInputs(model, X, y, raw_train=raw)).row_name(3)

    assert name(None) == "row 4"
    assert name(X) == "row 4"
    assert name(X.set_axis([f"P{i}" for i in range(60)])) == "row P3"
    assert name(X.set_axis(pd.Index(range(60), name="patient"))) == "row 3"


def test_one_row_reads_the_same_wherever_it_is_shown():
    subject = one_input_subject()
    listed = split(subject).lists[0]["rows"][0]
    rows, place = data(subject).rows, listed["place"]
    assert rows["names"][place] == listed["name"]
    assert rows["y_text"][place] == listed["y"]
    assert rows["summary"][place][0] == listed["mean"]
    hint = row_titles(subject)[place]
    assert hint.startswith(f"{listed['name']}: ")
    assert hint.endswith(f" = {listed['y']}")


def test_variances_of_rare_draws_are_called_rough():
    subject = one_input_subject()
    parts = {"aleatoric_share": 0.9, "noise_ratio": 3.0}
    usual = Split(None, Markup(), [], **parts, rare_share=0.05)
    rough = Split(None, Markup(), [], **parts, rare_share=0.4)
    without_z = Latents([], "")
    assert "3 times" in _what_kind(subject, usual, without_z)
    told = _what_kind(subject, rough, without_z)
    assert "40\u202f% of the rows" in told
    assert "3 times" not in told


def test_densities_of_chosen_rows_are_of_new_rows_where_there_are_any():
    model, X, y = one_input()
    held_out = X.iloc[:10] + 0.05
    drawn = ridgelines(Subject(ReportInputs(model, X, y, held_out, y[:10])))
    lowest = nice(float(held_out["dose"].min()), 2)
    assert f"dose = {lowest}" in drawn
    assert drawn != ridgelines(one_input_subject())


def test_few_or_known_rows_do_not_prove_that_probabilities_are_right():
    model, X, y = one_input()
    rng = np.random.default_rng(1)
    many = pd.concat([X] * 2, ignore_index=True)
    drawn = np.asarray(model.predict_dist(many).sample(1, rng.integers(99))).reshape(-1)

    def said(X_test, y_test):
        inputs = ReportInputs(model, X, y, X_test, y_test)
        subject = Subject(inputs)
        found = quality(subject)
        badge = badges(subject, found, Latents([], ""))[0]
        return badge["state"], _how_trustworthy(subject, found)

    state, text = said(many, drawn)
    assert state == "good"
    assert "but" not in text
    state, text = said(many[:10], drawn[:10])
    assert state == "open"
    assert "10 rows" in text
    state, text = said(None, None)
    assert state == "open"
    assert "training rows" in text


def test_what_is_not_told_apart_is_neither_good_nor_bad():
    model, X, y = one_input()
    table = [
        {"name": "NCAI", "log_likelihood": -3.59},
        {"name": "line", "log_likelihood": -3.16, "gain": (-0.43, -1.2, 0.3)},
    ]
    subject = Subject(ReportInputs(model, X, y, scores=table))
    badge = badges(subject, quality(subject), Latents([], ""))[1]
    assert badge["state"] == "open"
    assert "line" in badge["text"]
    table[1]["gain"] = (-0.43, -0.6, -0.2)
    badge = badges(subject, quality(subject), Latents([], ""))[1]
    assert badge["state"] == "bad"


def test_a_hint_that_z_follows_x_is_neither_good_nor_bad():
    subject = one_input_subject()
    parts = Split(None, Markup(), [], aleatoric_share=0.9, noise_ratio=1.0)

    def said(pc_x):
        rng = np.random.default_rng(0)
        x, z = rng.normal(size=(2, 300, 1))
        found = diagnose_latents(x, x, z, np.full_like(z, 0.1), 1.0)
        found = replace(found, pc_x=pc_x)
        seen = Latents([MethodLatents(subject.main, found, [], [])], "")
        badge = badges(subject, quality(subject), seen)[-1]
        return badge["state"], _what_kind(subject, parts, seen)

    state, text = said(0.0)
    assert state == "good"
    assert "hint" not in text
    state, text = said(0.5)
    assert state == "open"
    assert "a hint that it depends on x" in text


def test_a_training_cut_short_is_told_first_of_all():
    model, X, y = one_input()
    assert answer(one_input_subject()).cut_short is None
    cut = copy(model)
    cut.stop_reasons_ = [
        "trial marginal: plateau",
        "marginal: time limit after 9 steps",
    ]
    found = answer(Subject(ReportInputs(cut, X, y)))
    assert "9" in found.cut_short
    assert {"state": "bad", "text": "training cut short"} in found.badges
    cut.stop_reasons_, cut.interrupted_ = [], True
    assert answer(Subject(ReportInputs(cut, X, y))).cut_short is not None


def test_restarts_show_what_they_count():
    model, _, _ = one_input()
    found = training(one_input_subject())
    shares = restart_shares(model)
    assert shares.sum() == pytest.approx(1)
    np.testing.assert_array_equal(
        np.sort(shares[shares > 0]), np.sort(model.posterior_.shares)
    )
    kinds = restart_kinds(model)
    assert kinds == ["main"] * 2 + ["trial"] * (len(shares) - 2)
    assert [row["kind"] for row in found.restarts] == kinds
    assert [row["share"] for row in found.restarts] == [percent(s, 1) for s in shares]
    whole = found.kinds[0]["share"], found.kinds[1]["share"]
    assert whole == (percent(shares[:2].sum()), percent(shares[2:].sum()))


def test_restarts_of_a_trial_alone_are_not_called_main():
    model = SimpleNamespace(
        restart_scores_=np.zeros(3),
        settings_=SimpleNamespace(n_restarts=16),
        stop_reasons_=["trial marginal: time limit after 250 steps"],
    )
    assert restart_kinds(model) == ["trial"] * 3


def test_lines_are_the_stronger_the_more_a_restart_counts():
    values = np.zeros((3, 4))
    found = _strengths(values, None, np.array([0.2, 0.0, 0.4, 0.1, 0.3]))
    np.testing.assert_allclose(found, [0.5, 0, 1, 0.25])
    assert _strengths(values, 1, None).tolist() == [0, 1, 0, 0]
    assert not _strengths(values, 4, None).any()  # a trial, which is not drawn
    history = {
        "step": np.arange(1, 41),
        "stage": ["a"] * 40,
        "value": np.linspace(1, 0, 160).reshape(40, 4),
    }
    history["value"][0] = 1e6
    svg = _chart(history, found, "value", history["value"])["svg"]
    opacities = re.findall(r'class="line shared" stroke-opacity="([\d.]+)"', svg)
    assert [float(o) for o in opacities] == [0.44, 0.62, 1.0]
    assert svg.count('"line restart"') == 1
    # What is off the scale leaves the frame, and does not run along its edge.
    heights = [float(h) for h in re.findall(r"M[\d.]+ (-?[\d.]+)L", svg)]
    assert min(heights) < -1000


def test_white_noise_may_depend_on_y():
    (found,) = latents(one_input_subject()).methods
    over_x, over_y, _ = (chart["caption"] for chart in found.charts)
    assert "no pattern" in over_x
    assert "no pattern" not in over_y


def test_names_of_columns_are_told_as_they_are():
    values = np.arange(20.0) ** 2
    name = 'the town\'s "name"'
    preparer = TablePreparer().fit(pd.DataFrame({name: values, "again": values}))
    assert f"again: dropped: the same as '{name}' in every row." in preparer.describe()


def test_one_bin_is_no_picture():
    model, X, y = one_input()
    few = Subject(ReportInputs(model, X, y, X[:10], y[:10]))
    titles = [
        [chart["title"] for chart in quality(subject).charts]
        for subject in (one_input_subject(), few)
    ]
    assert "Coverage by bin" in titles[0]
    assert titles[1] == [name for name in titles[0] if name != "Coverage by bin"]


def test_rows_uncertain_in_both_ways_have_a_mark_of_their_own():
    aleatoric, epistemic = np.arange(60.0), np.roll(np.arange(60.0), 4)
    svg = _scatter(one_input_subject(), aleatoric, epistemic)
    marked = {
        kind: sorted(map(int, re.findall(r'data-row="(\d+)"', dots)))
        for kind, dots in re.findall(r'<g class="dots (\w+)">(.*?)</g>', svg)
    }
    # The last ten by one, and by the other the last six and the first four.
    assert marked == {
        "aleatoric": list(range(50, 54)),
        "both": list(range(54, 60)),
        "epistemic": list(range(4)),
    }


def test_baselines_are_drawn_and_switched():
    model, X, y = one_input()
    fitted = {
        baseline.name: baseline.fit(X.to_numpy(), y)
        for baseline in (ConstantNoiseLinear(), MarginalDensity())
    }
    subject = Subject(ReportInputs(model, X, y, baselines=fitted))
    assert [row["name"] for row in quality(subject).scores][1:] == list(fitted)
    calibration = quality(subject).charts[0]["svg"]
    methods = noise(subject).explorers[0]["data"]["methods"]
    for key, name in zip(("m1", "m2"), fitted, strict=True):
        assert f'class="line" data-method="{key}"' in calibration
        assert methods[key]["name"] == name
    # What is drawn over x is the density: at the first place, of the line's Gaussian.
    rows, grid = np.array([[-1.0], [1.5]]), np.linspace(-8, 8, 400)
    line = conditional_density(fitted["Linear, constant noise"], rows, [0, 1], grid)
    np.testing.assert_allclose(np.trapezoid(line.density, grid), 1, atol=1e-6)
    np.testing.assert_allclose(
        np.trapezoid(line.density * grid, grid), line.mean, atol=1e-6
    )
    np.testing.assert_allclose(line.quantiles[:, 3], line.mean)
    # They have no z, and no picture of their own beside the model's.
    assert len(latents(subject).methods) == 1
    assert noise(subject).thumbnails == []
    many = {str(i): fitted["Density of y alone"] for i in range(6)}
    with pytest.raises(ValueError, match="others and baselines hold 6 models"):
        Subject(ReportInputs(model, X, y, baselines=many))


@pytest.mark.parametrize(
    ("values", "decimals"),
    [([1234.0, 2], 0), ([20.5, 9], 2), ([0.86, None], 3), ([0.0551], 4), ([3e-4], 6)],
)
def test_columns_of_numbers_have_the_decimals_that_their_largest_needs(
    values, decimals
):
    assert decimals_for(values) == decimals


def test_counts_have_no_ticks_between_whole_numbers():
    marks = Axis(0, 11, "rows", whole=True).marks(5)
    assert [text for _, text in marks] == ["0", "5", "10"]


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
