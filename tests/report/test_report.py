"""The report: what it says, what it stands, and that nothing in it can run."""

import json
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from ncai import BNNLVRegressor
from ncai.report import ReportInputs, write_report
from ncai.report.axes import Axis, axis_for, number_texts, round_ticks
from ncai.report.densities import shading
from ncai.report.sections import SECTIONS
from ncai.report.sections.answer import _compared, lead_over_others
from ncai.report.sections.latents import latents
from ncai.report.sections.quality import quality, score_rows
from ncai.report.subject import Subject
from ncai.report.svg import Chart
from ncai.report.words import cell, nice, percent
from ncai.report.write import content, render
from small_fits import one_input, one_input_subject, plain, rival, three_inputs


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
