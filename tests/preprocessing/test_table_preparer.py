"""`TablePreparer`: what becomes of each kind of column, in numbers and in words."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from ncai import TablePreparer
from ncai.preprocessing.columns import booleans, dates, numbers
from ncai.preprocessing.columns.column import Surprise, surprise_sentences

N = 60


def prepare(column, name="c", **settings):
    """The preparer and the matrix of a table of this column and a plain number."""
    frame = pd.DataFrame({name: column, "plain": np.sqrt(np.arange(len(column)))})
    preparer = TablePreparer(**settings).fit(frame)
    return preparer, preparer.prepare(frame)[0]


@parametrize_with_checks([TablePreparer()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# ----- Kinds of columns ---------------------------------------------------------------


def test_numbers_stay_and_gaps_become_the_median_and_a_mark():
    values = np.arange(float(N)) ** 2
    values[[3, 5, 8]] = np.nan
    preparer, matrix = prepare(values)
    assert list(matrix) == ["c", "c missing", "plain"]
    median = np.nanmedian(values)
    np.testing.assert_array_equal(
        matrix["c"], np.where(np.isnan(values), median, values)
    )
    np.testing.assert_array_equal(matrix["c missing"], np.isnan(values))
    assert (
        f"3 missing values became the median, {median:g}, marked"
        in (preparer.notes_["c"])
    )
    # Too few for a column of their own.
    values[[3, 5]] = 1.0
    assert "c missing" not in prepare(values)[1]


@pytest.mark.parametrize(
    "column",
    [
        np.arange(N) % 3 == 0,
        ["yes" if n % 3 == 0 else "no" for n in range(N)],
        ["True" if n % 3 == 0 else "FALSE" for n in range(N)],
    ],
)
def test_booleans_are_1_and_0(column):
    _, matrix = prepare(column)
    np.testing.assert_array_equal(matrix["c"], np.arange(N) % 3 == 0)


def test_text_that_is_mostly_numbers_is_numbers():
    column = [str(n**2) for n in range(N)]
    column[10:13] = ["?", "?", "?"]
    preparer, matrix = prepare(column)
    assert matrix["c"].iloc[7] == 49
    assert matrix["c missing"].sum() == 3
    assert "3 values such as '?' taken as missing" in preparer.notes_["c"]


@pytest.mark.parametrize(
    ("mark", "numbers", "kind"),
    [
        ("-", 30, "number"),
        ("unknown", 30, "number"),
        ("own", 30, "number"),
        ("-", 2, "number"),
        ("own", 2, "category"),
        ("-", 1, "category"),
    ],
)
def test_one_repeated_mark_among_numbers_is_missing(mark, numbers, kind):
    column = [mark if n % 3 == 0 else str(n % numbers) for n in range(2 * N)]
    if numbers == 1:
        column = [mark if n % 3 == 0 else "5" for n in range(2 * N)]
    preparer, matrix = prepare(column)
    assert preparer.kinds["c"] == kind
    if kind == "number":
        assert matrix["c missing"].sum() == 40
        assert f"40 values such as '{mark}' taken as missing" in preparer.notes_["c"]


def test_many_different_words_among_numbers_are_no_marks():
    column = [f"w{n % 5}" if n % 3 == 0 else str(n) for n in range(N)]
    preparer, _ = prepare(column)
    assert "c" not in preparer.kinds


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda v: f"{v:,.1f}", "a number with ',' between thousands"),
        (lambda v: f"{v:.1f}".replace(".", ","), "a number with a decimal comma"),
        (lambda v: f"{v:.1f}%", "a number in percent"),
        (lambda v: f"{v:.1f} %".replace(".", ","), "percent with a decimal comma"),
    ],
)
def test_numbers_are_read_as_people_write_them(write, words):
    values = np.round(np.linspace(-2345.6, 23456.7, N), 1)
    preparer, matrix = prepare([write(value) for value in values])
    np.testing.assert_allclose(matrix["c"], values)
    assert words in preparer.notes_["c"]
    assert not preparer.warnings_
    # Text files must be read as they are written: 1.234 may mean a thousand.
    assert preparer.text_columns == ["c"]
    plain = json.loads(json.dumps(preparer.to_dict()))
    new = pd.DataFrame({"c": [write(5.0), write(1234.5)], "plain": [1.0, 2.0]})
    found = TablePreparer.from_dict(plain).prepare(new)[0]
    np.testing.assert_allclose(found["c"], [5.0, 1234.5])
    with pytest.raises(ValueError, match=r"'c' holds 'x' in row 1; it must hold"):
        preparer.transform(new.assign(c="x"))


def test_a_comma_with_three_digits_is_decimal_if_other_values_say_so():
    column = [f"{n + 1},345" for n in range(N)]
    assert prepare(column)[1]["c"].iloc[1] == 2345
    column[7] = "0,345"
    assert prepare(column)[1]["c"].iloc[1] == 2.345


def test_shares_are_not_taken_for_percentages():
    preparer, _ = prepare([*(f"{n}%" for n in range(N)), "-", "-"])
    new = pd.DataFrame({"c": [0.12], "plain": [1.0]})
    with pytest.raises(ValueError, match=r"'0.12' in row 1; .* such as 12%"):
        preparer.transform(new)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ([f"0{1 + n % 9}/0{1 + n // 9}/2021" for n in range(N)], "day/month or month"),
        ([f"€{n * 1.5:.2f}" for n in range(N)], "numbers with '€':"),
        ([f"{n} km" for n in range(N)], "numbers with 'km':"),
        ([f"{1 + n % 4} km" for n in range(N)], "numbers with 'km':"),
    ],
)
def test_text_says_what_it_looks_like(column, words):
    preparer, _ = prepare(column)
    assert words in preparer.notes_["c"]
    (warning,) = preparer.warnings_
    assert words in warning


def test_text_that_looks_like_nothing_gets_no_hint():
    for column in ([f"n{n}" for n in range(N)], [f"{n}-{n + 5}" for n in range(N)]):
        preparer, _ = prepare(column)
        assert preparer.notes_["c"] == "dropped: text that differs in most rows"


def test_dates_are_elapsed_days_and_places_in_cycles():
    days = pd.date_range("2020-03-01", periods=N, freq="21D")
    forms = ("%Y-%m-%d", "%d.%m.%Y", "%Y/%m/%d", "%b %d, %Y", "%d %B %Y", "%m/%d/%Y")
    for column in (days, *(days.strftime(form) for form in forms)):
        preparer, matrix = prepare(column)
        np.testing.assert_allclose(matrix["c days"], 21 * np.arange(N))
        # A weekly cycle is not seen: all are Sundays, and constants are dropped.
        assert list(matrix)[1:-1] == ["c year sin", "c year cos"]
        radius = np.hypot(matrix["c year sin"], matrix["c year cos"])
        np.testing.assert_allclose(radius, 1)
        note = "a date, as days since 2020-03-01 and its place in the year"
        assert preparer.notes_["c"] == note


def test_a_time_that_is_always_the_same_is_no_place_in_the_day():
    hours = pd.date_range("2020-03-01T08:20:00", periods=N, freq="1D")
    preparer, matrix = prepare(hours)
    assert preparer.notes_["c"].endswith("and its place in the week")
    assert not any("day sin" in name for name in matrix)


def test_a_cycle_is_left_out_until_it_was_seen_twice():
    hours = pd.date_range("2020-01-01", periods=N, freq="7h")
    _, matrix = prepare(hours)  # 17 days
    assert {name for name in matrix if "sin" in name} == {"c day sin", "c week sin"}
    np.testing.assert_allclose(matrix["c day sin"][6], np.sin(2 * np.pi * 42 / 24))


def test_dates_that_could_be_two_are_no_dates():
    preparer, _ = prepare([f"0{1 + n % 9}/0{1 + n % 7}/2021" for n in range(N)])
    assert preparer.kinds["plain"] == "number"
    assert "c" not in preparer.kinds or preparer.kinds["c"] == "category"


def test_levels_get_a_column_each_and_rare_ones_share_one():
    column = ["red"] * 30 + ["blue"] * 20 + ["green"] * 8 + ["pink", "grey"]
    preparer, matrix = prepare(column)
    assert list(matrix)[:-1] == ["c=red", "c=blue", "c=green", "c=(other)"]
    np.testing.assert_array_equal(matrix.iloc[:, :4].sum(axis=1), 1)
    assert matrix["c=(other)"].tolist() == [0] * 58 + [1, 1]
    assert "2 rare levels (2 rows) pooled" in preparer.notes_["c"]
    assert list(prepare(column, max_levels=1)[1])[:-1] == ["c=(other)"]


def test_two_levels_need_one_column_and_missing_is_a_level():
    assert list(prepare(["m", "f"] * 30)[1])[:-1] == ["c=m"]
    _, matrix = prepare(["m", "f", None] * 20)
    assert list(matrix)[:-1] == ["c=f", "c=m", "c=(missing)"]


def test_what_tells_nothing_is_dropped_and_said():
    frame = pd.DataFrame(
        {
            "a": np.sqrt(np.arange(N)),
            "twin": np.sqrt(np.arange(N)),
            "flat": 7,
            "void": np.nan,
            "name": [f"n{n}" for n in range(N)],
        }
    )
    preparer = TablePreparer().fit(frame)
    assert list(preparer.get_feature_names_out()) == ["a"]
    assert preparer.describe()[1:] == [
        "twin: dropped: the same as 'a' in every row.",
        "flat: dropped: it has the same value in every row.",
        "void: dropped: all values are missing.",
        "name: dropped: text that differs in most rows.",
    ]
    with pytest.raises(ValueError, match="no column is left"):
        TablePreparer().fit(frame[["flat", "void"]])


@pytest.mark.parametrize(
    ("name", "values", "warned"),
    [
        ("row", np.arange(N), True),
        ("customer_id", 1000 * np.random.default_rng(0).permutation(N), True),
        ("size", 1000 * np.random.default_rng(0).permutation(N), False),
        ("size", np.arange(N) / 7, False),
        ("year", 2000 + np.arange(N) % 20, False),
    ],
)
def test_id_like_columns_are_warned_about(name, values, warned):
    preparer, matrix = prepare(values, name)
    assert name in matrix
    assert any(repr(name) in text for text in preparer.warnings_) == warned


# ----- New rows -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed():
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "a": rng.normal(size=N),
            "gaps": np.where(rng.random(N) < 0.2, np.nan, rng.normal(size=N)),
            "town": rng.choice(["Ulm", "Bonn", "Kiel"], N),
            "when": pd.date_range("2020-01-01", periods=N, freq="30D").astype(str),
            "ok": rng.random(N) < 0.5,
        }
    )


def test_groups_hold_each_column_once_and_levels_are_what_rows_have(mixed):
    preparer = TablePreparer().fit(mixed)
    matrix = preparer.prepare(mixed)[0]
    groups = {group.name: group for group in preparer.groups()}
    assert sorted(name for group in groups.values() for name in group.columns) == (
        sorted(preparer.get_feature_names_out())
    )
    assert groups["gaps"].columns == ("gaps", "gaps missing")
    assert groups["when, time of year"].cycle == "year"
    assert groups["when"].source == groups["when, time of year"].source == "when"
    assert groups["when"].origin == preparer.plans_["when"].origin
    town = groups["town"]
    assert list(town.levels) == list(mixed["town"].value_counts().index)
    for level, values in town.levels.items():
        rows = matrix.loc[mixed["town"] == level, list(town.columns)]
        np.testing.assert_array_equal(rows, np.tile(values, (len(rows), 1)))
    assert groups["ok"].levels == {"false": (0.0,), "true": (1.0,)}


def test_groups_of_rare_and_missing_levels():
    column = ["a"] * 30 + ["b"] * 20 + ["c", "d"] + [None] * 8
    preparer = TablePreparer().fit(pd.DataFrame({"g": column}))
    (group,) = preparer.groups()
    assert list(group.levels) == ["a", "b", "(other)", "(missing)"]
    np.testing.assert_array_equal(list(group.levels.values()), np.eye(4))


def test_order_is_free_and_other_columns_are_ignored(mixed):
    preparer = TablePreparer().fit(mixed)
    turned = mixed[mixed.columns[::-1]].assign(extra="x")
    np.testing.assert_array_equal(preparer.transform(mixed), preparer.transform(turned))
    with pytest.raises(ValueError, match="no column 'town'"):
        preparer.transform(mixed.drop(columns="town"))


def test_a_row_does_not_depend_on_the_others(mixed):
    preparer = TablePreparer().fit(mixed)
    alone = np.concatenate(
        [preparer.transform(mixed.iloc[[row]]) for row in range(len(mixed))]
    )
    np.testing.assert_array_equal(alone, preparer.transform(mixed))


def test_what_training_did_not_have_is_filled_in_and_told(mixed):
    preparer = TablePreparer().fit(mixed)
    new = mixed.iloc[:3].astype({"town": object})
    new.loc[0, "town"], new.loc[1, "a"] = "Rom", np.nan
    with pytest.warns(UserWarning, match="training") as told:
        found = pd.DataFrame(
            preparer.transform(new), columns=preparer.get_feature_names_out()
        )
    texts = [str(warning.message) for warning in told]
    assert any("'town'" in text and "'Rom'" in text for text in texts)
    assert any("'a' has no value in 1 row" in text for text in texts)
    shares = mixed["town"].value_counts(normalize=True)
    for town, share in shares.items():
        assert found.loc[0, f"town={town}"] == pytest.approx(share)
    assert found.loc[1, "a"] == pytest.approx(mixed["a"].median())
    with pytest.raises(
        ValueError, match=r"'a' holds 'tall' in row 1; it must hold fin"
    ):
        preparer.transform(new.assign(a="tall"))


def test_dates_far_from_the_training_rows_are_told(mixed):
    preparer = TablePreparer().fit(mixed)  # 2020 to 2024: five years
    assert not preparer.prepare(mixed.assign(when="2025-06-30"))[1]
    (sentence,) = surprise_sentences(
        preparer.prepare(mixed.assign(when="2031-01-01"))[1]
    )
    assert sentence == (
        "column 'when' lies far outside its training values (2020-01-01 to "
        "2024-11-05) in 60 rows: predictions there are guesses."
    )
    again = TablePreparer.from_dict(json.loads(json.dumps(preparer.to_dict())))
    assert len(again.prepare(mixed.assign(when="2010-01-01"))[1]) == 1


def test_surprises_of_many_pieces_are_counted_together():
    pieces = [Surprise("c", "unseen", 2, ("x",)), Surprise("c", "unseen", 3, ("y",))]
    (sentence,) = surprise_sentences(pieces)
    assert "5 rows" in sentence
    assert "'x', 'y'" in sentence


# ----- As data, and in a pipeline -----------------------------------------------------


def test_plain_data_brings_back_the_same_preparer(mixed):
    preparer = TablePreparer().fit(mixed)
    again = TablePreparer.from_dict(json.loads(json.dumps(preparer.to_dict())))
    np.testing.assert_array_equal(again.transform(mixed), preparer.transform(mixed))
    assert again.describe() == preparer.describe()
    assert again.to_dict() == preparer.to_dict()


def test_in_a_pipeline(mixed):
    target = mixed["a"] + 3 * (mixed["town"] == "Ulm")
    model = make_pipeline(TablePreparer(), LinearRegression())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert clone(model).fit(mixed, target).score(mixed, target) > 0.999
    named = TablePreparer().set_output(transform="pandas").fit_transform(mixed)
    assert "town=Ulm" in named.columns


@pytest.mark.parametrize("settings", [{"max_levels": 0}, {"min_level_rows": 1.5}])
def test_bad_settings(settings):
    with pytest.raises(ValueError, match=f"{next(iter(settings))}=.* must be a whole"):
        prepare(np.arange(5), **settings)


def test_notes_tell_what_became_of_parts_that_others_have_already():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, N))
    values[:, ::4] = np.nan
    fine = np.array(list("abc"))[np.arange(N) % 3]
    frame = pd.DataFrame(
        {
            "a": values[0],
            "b": values[1],
            "c": fine,
            "e": np.where(fine == "a", "a", "-"),
        }
    )
    preparer = TablePreparer().fit(frame)
    names = list(preparer.get_feature_names_out())
    assert names[:3] == ["a", "a missing", "b"]
    assert "marked in 'a missing'" in preparer.notes_["a"]
    assert preparer.notes_["b"].endswith(", in the same rows as 'a'")
    assert preparer.notes_["e"] == "dropped: it carries the same information as 'c'"


def test_each_column_is_read_once(monkeypatch):
    read = []
    for module, name in ((numbers, "_read"), (booleans, "_parse"), (dates, "_parse")):
        usual = getattr(module, name)

        def noted(column, form, usual=usual):
            read.append(column.name)
            return usual(column, form)

        monkeypatch.setattr(module, name, noted)
    table = pd.DataFrame(
        {
            "size": ["1,5", "2,5", "7,25", "8"],
            "sold": ["yes", "no", "no", None],
            "day": ["2024-01-01", "2024-02-03", "2024-03-05", "2024-04-07"],
        }
    )
    preparer = TablePreparer()
    matrix = preparer.fit_prepare(table)
    assert read == ["size", "sold", "day"]
    again, surprises = preparer.prepare(table)
    assert read == 2 * ["size", "sold", "day"]
    assert not surprises
    pd.testing.assert_frame_equal(matrix, again)
    np.testing.assert_array_equal(TablePreparer().fit_transform(table), matrix)


# ----- What must not be lost in silence -----------------------------------------------


@pytest.mark.parametrize("far", ["9999-12-31", "0001-01-01", "1500-06-01"])
@pytest.mark.parametrize("stored", [False, True])
def test_dates_out_of_range_are_refused_by_name(far, stored):
    usual = [f"20{n % 30:02d}-03-01" for n in range(N)]
    column = pd.Series([*usual[:4], far, *usual[5:]])
    if stored:
        column = pd.Series(np.array(column, "datetime64[s]"))
    with pytest.raises(ValueError, match=r"'c' holds '.*' in row 5.* 1678 to 2261"):
        prepare(column)
    preparer, _ = prepare(pd.Series(usual))
    with pytest.raises(ValueError, match=r"'c' holds .* in row 5.* 1678 to 2261"):
        preparer.prepare(pd.DataFrame({"c": column, "plain": 1.0}))


def test_many_rare_levels_are_not_called_constant():
    preparer, _ = prepare(np.repeat([f"level {n}" for n in range(2000)], 3))
    assert preparer.notes_["c"] == (
        "dropped: all of its 2000 levels are rare, in at most 3 rows each"
    )
    assert any("'c' is not used" in one for one in preparer.warnings_)
    assert "same value" in prepare(["DE"] * N)[0].notes_["c"]


def test_a_document_in_a_cell_is_cut_in_notes_and_messages():
    document = "x" * 5_000_000
    column = [*map(str, np.arange(1.5, N + 0.5)), document]
    preparer, _ = prepare(column)
    assert len(preparer.notes_["c"]) < 200
    plain, _ = prepare(np.arange(N) + 0.5)
    with pytest.raises(ValueError, match="must hold") as error:
        plain.prepare(pd.DataFrame({"c": [document], "plain": 1.0}))
    assert len(str(error.value)) < 200
    words, _ = prepare(["u", "v", "w"] * 20)
    _, found = words.prepare(pd.DataFrame({"c": [document], "plain": 1.0}))
    assert len("".join(surprise_sentences(found))) < 300


@pytest.mark.parametrize("kind", [str, int])
def test_whole_numbers_that_lose_digits_are_a_warning(kind):
    ids = [kind(2**53 + 1 + 2 * n) for n in range(N)]
    assert any("beyond 2^53" in one for one in prepare(ids)[0].warnings_)
    even = [kind(2**60 + 2**12 * n) for n in range(N)]  # which lose none
    assert not any("2^53" in one for one in prepare(even)[0].warnings_)
    assert not any("2^53" in one for one in prepare([1e90, 2.5] * 30)[0].warnings_)


@pytest.mark.parametrize("blank", [" ", "\u00a0", "\u202f"])
def test_blanks_between_thousands_are_pointed_out(blank):
    column = [f"{1 + n % 7}{blank}{n % 5:03d}" for n in range(N)]
    (sentence,) = prepare(column)[0].warnings_
    assert "blanks between thousands" in sentence
    few = [*map(str, np.arange(N) + 0.5), f"1{blank}234", f"12{blank}345,5"]
    assert any("taken as missing" in one for one in prepare(few)[0].warnings_)
    assert not prepare(["New York", "Rio"] * 30)[0].warnings_
