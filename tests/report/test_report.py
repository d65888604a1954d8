"""The report: what it says and may claim, and that nothing in it can run."""

import json
import re
from copy import copy
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from markupsafe import Markup
from sklearn.base import clone

from helpers import one_input, one_input_subject, plain, rival, three_inputs
from ncai import MFVI, BNNLVRegressor, TablePreparer
from ncai.comparison import ConstantNoiseLinear, MarginalDensity
from ncai.diagnostics.curves import conditional_density, restart_kinds, restart_shares
from ncai.diagnostics.latents import diagnose_latents
from ncai.preprocessing.columns.column import CYCLES, ColumnGroup
from ncai.report import ReportInputs, write_report
from ncai.report.axes import (
    MOST_LEVELS,
    Axis,
    axis_for,
    date_ticks,
    feature_axis,
    number_texts,
    round_ticks,
)
from ncai.report.densities import densities_over, ridgelines, shading
from ncai.report.sections import SECTIONS
from ncai.report.sections.answer import (
    _compared,
    _how_trustworthy,
    _what_kind,
    answer,
    badges,
    lead_over_others,
)
from ncai.report.sections.data import data, row_titles
from ncai.report.sections.latents import Latents, MethodLatents, latents
from ncai.report.sections.noise import noise
from ncai.report.sections.quality import quality, score_rows
from ncai.report.sections.split import Split, _scatter, split
from ncai.report.sections.training import _chart, _strengths, training
from ncai.report.subject import Subject
from ncai.report.svg import Chart
from ncai.report.words import cell, nice, percent
from ncai.report.write import content, render
from ncai.tables.inspect import decimals_for


class Page(HTMLParser):
    """All elements of a page, and all its text outside of style and script."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data):
        if not self.open:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def page():
    model, X, y = one_input()
    inputs = ReportInputs(
        model,
        X[:50],
        y[:50],
        X[50:],
        y[50:],
        raw_train=X[:50].set_axis(pd.RangeIndex(100, 150, name="patient")),
        target_name="answer",
        data_notes=["Nothing was done."],
        data_warnings=["column 'dose' is odd."],
        command="ncai fit data.csv",
        others={"MFVI": rival()},
    )
    text = render(inputs)
    return text, Page(text)


def test_every_section_is_there_in_order(page):
    text, parsed = page
    found = [a["id"] for tag, a in parsed.elements if tag == "section"]
    assert found == [section.name for section in SECTIONS]
    links = [a["href"] for tag, a in parsed.elements if tag == "a"]
    assert links == [f"#{name}" for name in found]
    for words in (
        *("Nothing was done.", "Column 'dose' is odd.", "ncai fit data.csv"),
        *("row 1", "Seed 0", "The target, answer, was learned as"),
    ):
        assert words in parsed.text
    assert len(text.encode()) < 1_000_000


def test_the_default_has_a_name(page):
    text, _ = page
    assert "None predicts" not in text
    assert "Marginal inference predicts" in text


def test_no_address_is_loaded(page):
    text, parsed = page
    for tag, attrs in parsed.elements:
        for name in ("src", "href", "action", "data"):
            value = attrs.get(name)
            assert value is None or value.startswith(("#", "data:image/png;base64,")), (
                tag,
                value,
            )
    assert "http" not in text.replace('http-equiv="Content', "")


def test_rows_for_the_pointer_are_the_users(page):
    text, _ = page
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', text, re.S)[1])
    rows = data["rows"]
    model, X, y = one_input()
    assert rows["names"][3] == "row 103"
    assert rows["columns"] == ["dose"]
    assert rows["y"][3] == pytest.approx(y[3], rel=1e-5)
    mean = float(model.predict(X[3:4])[0])
    assert rows["summary"][3][0] == nice(mean)
    explorer = data["explorers"]["explorer-0"]
    assert set(explorer["methods"]) == {"m0", "m1"}


def test_scores_are_those_of_the_rows_held_out(page):
    model, X, y = one_input()
    subject = Subject(ReportInputs(model, X[:50], y[:50], X[50:], y[50:]))
    found = quality(subject)
    predictive = model.predict_dist(X[50:])
    assert found.scores[0]["log_likelihood"] == pytest.approx(
        predictive.log_prob(y[50:]).mean()
    )
    lower, upper = predictive.interval(0.8)
    assert found.scores[0]["coverage_80"] == np.mean(
        (lower <= y[50:]) & (y[50:] <= upper)
    )
    assert found.mean_absolute_error == pytest.approx(
        np.abs(y[50:] - predictive.mean()).mean()
    )
    assert str(nice(found.mean_absolute_error)) in page[1].text


def test_words_of_the_user_cannot_run():
    model, X, y = three_inputs()
    evil = "</script><script>alert(2)</script><img src=x onerror=alert(3)>"
    text = render(
        ReportInputs(
            model,
            X,
            y,
            raw_train=X.assign(note=evil),
            target_name=evil,
            data_notes=[evil],
            scores=[{"name": evil, "log_likelihood": -1.0}],
            command=evil,
            title=evil,
        )
    )
    parsed = Page(text)
    tags = [tag for tag, _ in parsed.elements]
    assert tags.count("script") == 2
    assert "img" not in tags
    assert "<script>alert" not in text.replace("&lt;script&gt;alert", "")
    assert "alert(1)" in parsed.text  # shown, as the words that they are
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', text, re.S)[1])
    assert data["rows"]["cells"][0][-1].startswith("</script>")


def test_many_inputs_are_explained_one_by_one():
    model, X, y = three_inputs()
    parsed = Page(render(ReportInputs(model, X, y)))
    assert "for the spread" in parsed.text
    assert "No rows were held out" in parsed.text
    assert sum("data-explorer" in attrs for _, attrs in parsed.elements) == 3
    ticks = [t for t in parsed.words if t.strip() in ("0", "1")]
    assert len(ticks) >= 2  # the switch has two places, not a line


def test_a_model_without_latents_and_one_from_a_file(tmp_path):
    _, X, y = one_input()
    text = Page(render(ReportInputs(plain(), X, y))).text
    assert "no latent variable" in text

    model, X, y = one_input()
    model.save(tmp_path / "m.ncai")
    loaded = BNNLVRegressor.load(tmp_path / "m.ncai")
    parsed = Page(render(ReportInputs(loaded, X, y)))
    assert "no history of training" in parsed.text
    assert "MI(x; z)" in parsed.text  # z is inferred anew


def test_stored_latents_are_used_where_they_belong_to_the_rows():
    model, _, _ = one_input()
    subject = one_input_subject()
    (found,) = latents(subject).methods
    assert latents(subject).missing == ""
    expected = model.diagnose()
    assert found.diagnosis.hz == pytest.approx(expected.hz)
    assert found.diagnosis.mi_x_mean == pytest.approx(expected.mi_x_mean, abs=0.02)


def test_rows_are_predicted_once_and_not_at_all_if_predictions_are_given(monkeypatch):
    model, X, y = one_input()
    ready = model.predict_dist(X)
    predicted = []
    predict_dist = BNNLVRegressor.predict_dist

    def counted(self, rows, *more, **named):
        predicted.append(len(rows))
        return predict_dist(self, rows, *more, **named)

    monkeypatch.setattr(BNNLVRegressor, "predict_dist", counted)
    pages = []
    for given in ({}, {"train_predictions": ready}):
        predicted.clear()
        pages.append(content(ReportInputs(model, X, y, **given)))
        assert predicted.count(60) == (not given)
    assert pages[0]["data"].rows == pages[1]["data"].rows
    assert pages[0]["quality"].scores == pages[1]["quality"].scores
    predicted.clear()
    subject = Subject(
        ReportInputs(model, X[20:], y[20:], X[:20], y[:20], test_predictions=ready[:20])
    )
    assert quality(subject).scores[0]["log_likelihood"] == pytest.approx(
        ready.log_prob(y)[:20].mean()
    )
    assert predicted == []


def test_refusals(tmp_path):
    model, X, y = one_input()
    path = tmp_path / "report.html"
    with pytest.raises(ValueError, match=r"needs a fitted model"):
        write_report(path, ReportInputs(clone(model), X, y))
    with pytest.raises(ValueError, match="60 rows and train_target has 59"):
        write_report(path, ReportInputs(model, X, y[:59]))
    with pytest.raises(ValueError, match="60 rows and raw_train has 3"):
        write_report(path, ReportInputs(model, X, y, raw_train=X[:3]))
    few = ReportInputs(model, X, y, train_predictions=model.predict_dist(X[:9]))
    with pytest.raises(ValueError, match="60 rows and train_predictions has 9"):
        write_report(path, few)
    with pytest.raises(ValueError, match="together"):
        write_report(path, ReportInputs(model, X, y, test_inputs=X))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        write_report(tmp_path / "no" / "r.html", ReportInputs(model, X, y))
    network = SimpleNamespace(output_dim=2)
    two = SimpleNamespace(
        posterior_=SimpleNamespace(model=SimpleNamespace(network=network))
    )
    with pytest.raises(ValueError, match=r"one target.*predicts 2"):
        write_report(path, ReportInputs(two, X, y))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_report_survives_a_failure(tmp_path, monkeypatch):
    model, X, y = one_input()
    path = tmp_path / "report.html"
    path.write_text("old")
    monkeypatch.setattr("ncai.report.write.render", lambda inputs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(path, ReportInputs(model, X, y))
    assert path.read_text() == "old"
    monkeypatch.setattr("ncai.report.write.render", lambda inputs: "new")
    write_report(path, ReportInputs(model, X, y))
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


# ----- Words and parts ----------------------------------------------------------------


def test_lead_over_the_best_of_the_others():
    scores = [
        {"name": "NCAI", "log_likelihood": -1.0},
        {"name": "line", "log_likelihood": -1.5},
        {"name": "network", "log_likelihood": -1.2, "gain": (0.2, -0.1, 0.5)},
        {"name": "broken", "log_likelihood": float("nan")},
    ]
    lead = lead_over_others(scores)
    assert lead is not None
    assert not lead.is_clear
    assert (round(lead.amount, 6), lead.name) == (0.2, "network")
    assert (lead.low, lead.high) == (-0.1, 0.5)
    assert "network" in _compared(lead)
    assert "beats" not in _compared(lead)
    without_interval = lead_over_others(scores[:2])
    assert without_interval is not None
    assert without_interval.is_clear
    assert "beats" in _compared(without_interval)
    assert lead_over_others(scores[:1]) is None
    assert lead_over_others(scores[3:] + scores[:2]) is None


def test_score_table_marks_best_and_off():
    rows = score_rows(
        [
            {"name": "a", "log_likelihood": -1, "crps": 2.0, "coverage_95": 0.5},
            {"name": "b", "log_likelihood": -2, "crps": None, "coverage_95": 0.95},
        ],
        200,
    )
    assert [cell["best"] for cell in rows[0]["cells"]] == [True, True] + 3 * [False]
    assert rows[0]["cells"][-1] == {"text": "50\u202f%", "best": False, "off": True}
    assert rows[1]["cells"][1]["text"] == "\u2013"
    assert not rows[1]["cells"][-1]["off"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12, "12"),
        (-1234.5, "\u22121,230"),
        (0.012345, "0.0123"),
        (1e-9, "1.00e\u22129"),
        (float("nan"), "\u2013"),
    ],
)
def test_numbers_read_well(value, text):
    assert nice(value) == text


def test_percentages():
    assert percent(0.953, 1) == "95.3\u202f%"


@pytest.mark.parametrize("ends", [(0, 1), (-4.2, 4.2), (1e5, 1.3e5), (0.01, 0.017)])
def test_ticks_are_round_and_inside(ends):
    ticks = round_ticks(*ends, 6)
    assert 2 <= len(ticks) <= 6
    assert min(ticks) >= ends[0] - 1e-9
    assert max(ticks) <= ends[1] + 1e-9
    assert len(set(number_texts(ticks))) == len(ticks)


def test_axis_of_constant_values_has_a_width():
    for values in ([3.0, 3.0], [0.0], [np.nan], []):
        axis = axis_for(values, "x")
        assert axis.high > axis.low


def test_chart_puts_values_where_they_belong():
    chart = Chart(Axis(0, 10, "x"), Axis(0, 1, "y"), 200, 100)
    chart.points([0, 10], [0, 1], "data", rows=[7, 8])
    area = chart.plot_area()
    svg = chart.render()
    assert f'cx="{area["left"]:g}" cy="{area["bottom"]}" r="2.4" data-row="7"' in svg
    assert f'cx="{area["right"]}" cy="{area["top"]}"' in svg


def test_shading_is_a_picture_of_the_density():
    import base64
    from io import BytesIO

    from PIL import Image

    density = np.array([[0.0, 1.0], [0.25, 4.0], [1.0, 0.0]])  # three x, two y
    uri = shading(density, 1.0, "#ff8000")
    picture = Image.open(BytesIO(base64.b64decode(uri.split(",")[1]))).convert("RGBA")
    pixels = np.asarray(picture)
    assert pixels.shape == (2, 3, 4)
    assert (pixels[..., :3] == [255, 128, 0]).all()
    # The root of the density, y upwards, cut off at the darkest.
    assert pixels[..., 3].tolist() == [[255, 255, 0], [0, 128, 255]]


def test_notebooks_show_parameters_and_outcome():
    model, _, _ = one_input()
    shown = model._repr_html_()
    for words in ("n_restarts", "kept, the best at", "z and x", "rows,"):
        assert words in shown
    assert "z and x" not in clone(model)._repr_html_()
    assert "none: the noise" in plain()._repr_mimebundle_()["text/html"]
    assert repr(model).startswith("BNNLVRegressor(")


def test_raw_rows_of_any_kind_are_shown():
    cells = [cell(v) for v in (None, np.nan, pd.NA, True, 3, 0.25, "x" * 60)]
    assert cell(1234567890) == "1234567890"
    assert cells[:6] == ["\u2013", "\u2013", "\u2013", "yes", "3", "0.25"]
    assert len(cells[6]) == 40


def test_rows_are_counted_from_1_or_have_their_own_labels():
    model, X, y = one_input()

    def name(raw):
        return Subject(ReportInputs(model, X, y, raw_train=raw)).row_names[3]

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


def test_the_answer_names_the_share_of_noise_and_how_its_width_varies():
    subject, without_z = one_input_subject(), Latents([], "")
    wide = Split(None, Markup(), [], aleatoric_share=0.9, noise_ratio=3.0)
    assert "90\u202f%" in _what_kind(subject, wide, without_z)
    assert "3 times" in _what_kind(subject, wide, without_z)
    even = replace(wide, noise_ratio=1.1)
    assert "times" not in _what_kind(subject, even, without_z)


def test_rows_whose_parts_rest_on_few_draws_are_named():
    model, X, y = one_input()
    few = copy(model)
    few.set_params(inference=few.inference.set_params(n_weight_draws=2))
    found = split(Subject(ReportInputs(few, X, y)))
    parts = few.decompose_uncertainty(X)
    assert len(found.unstable) == parts.unstable.sum() > 0


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


def test_baselines_that_were_predicted_are_not_predicted_again(monkeypatch):
    model, X, y = one_input()
    fitted = {
        baseline.name: baseline.fit(X[20:].to_numpy(), y[20:])
        for baseline in (ConstantNoiseLinear(), MarginalDensity())
    }
    ready = {name: one.predict(X[:20].to_numpy()) for name, one in fitted.items()}
    rows = {"test_inputs": X[:20], "test_target": y[:20], "baselines": fitted}
    anew = Subject(ReportInputs(model, X[20:], y[20:], **rows))
    given = Subject(
        ReportInputs(model, X[20:], y[20:], **rows, baseline_predictions=ready)
    )
    expected = [found.crps for found in anew.on_eval.values()]

    def refuse(*_):
        raise AssertionError("predicted again")

    for kind in (ConstantNoiseLinear, MarginalDensity):
        monkeypatch.setattr(kind, "predict", refuse)
    assert [found.crps for found in given.on_eval.values()] == expected
    for one in ready.values():  # a report of many rows takes some of them
        picked = one[np.array([3, 1])]
        assert len(picked) == 2
        np.testing.assert_array_equal(
            picked.log_prob(y[[3, 1]]), one.log_prob(y[:20])[[3, 1]]
        )
    for wrong in ({"Linear": ready[ConstantNoiseLinear.name]}, {"x": y[:20]}):
        with pytest.raises(ValueError, match="belongs to no model in baselines"):
            Subject(ReportInputs(model, X, y, **rows, baseline_predictions=wrong))
    short = {name: one[:19] for name, one in ready.items()}
    with pytest.raises(ValueError, match=r"20 rows and baseline_predictions.* has 19"):
        Subject(ReportInputs(model, X, y, **rows, baseline_predictions=short))


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
