"""The report in a real browser: pointer, slider, switch, phone, dark, no script."""

import shutil
from pathlib import Path

import pytest

from helpers import one_input, rival, three_inputs
from ncai.report import ReportInputs, write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no browser: install chromium to test the report in one",
)


# Of the words in charts, in pixels of the screen.
SMALLEST_TEXT = """() => Math.min(...[...document.querySelectorAll('svg.chart')]
  .flatMap(chart => [...chart.querySelectorAll('text')].map(text =>
    parseFloat(getComputedStyle(text).fontSize)
    * chart.getBoundingClientRect().width / chart.viewBox.baseVal.width)))"""


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed"
    )
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    model, X, y = one_input()
    path = tmp_path_factory.mktemp("report") / "one.html"
    raw = X.assign(patient=[f"P{i}" for i in range(len(X))])
    write_report(
        path, ReportInputs(model, X, y, raw_train=raw, others={"MFVI": rival()})
    )
    return path


@pytest.fixture(scope="module")
def wide_report(tmp_path_factory) -> Path:
    model, X, y = three_inputs()
    path = tmp_path_factory.mktemp("report") / "three.html"
    long_name = "a_name_that_is_longer_than_any_screen_of_a_phone_is_wide_" * 2
    inputs = ReportInputs(model, X, y, target_name=long_name, title=long_name)
    write_report(path, inputs)
    return path


class Visit:
    """A page with everything it said and asked for."""

    def __init__(self, browser, path, **options):
        self.complaints, self.requests = [], []
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.context.close()


def test_pointing_at_a_dot_shows_its_row_and_density(browser, report):
    with Visit(browser, report) as visit:
        page = visit.page
        assert page.locator("#row-box").is_hidden()
        dot = page.locator('#noise circle[data-row="20"]')
        dot.scroll_into_view_if_needed()
        box = dot.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        panel = page.locator("#row-box")
        panel.wait_for(state="visible")
        shown = panel.inner_text()
        number = page.locator("circle.picked").first.get_attribute("data-row")
        assert f"row {int(number) + 1}" in shown
        assert "upright mark" in shown
        assert f"P{number}" in shown  # a column that the model never saw
        assert len(panel.locator("path.profile").get_attribute("d")) > 100
        page.keyboard.press("Escape")
        assert panel.is_hidden()
        assert visit.complaints == []


def test_the_slider_moves_the_density(browser, report):
    with Visit(browser, report) as visit:
        page = visit.page
        slider = page.locator("input[type=range]")
        curve = page.locator('.explorer path.profile[data-method="m0"]')
        before = curve.get_attribute("d"), page.locator(".readout").inner_text()
        slider.focus()
        for _ in range(25):
            page.keyboard.press("ArrowRight")
        after = curve.get_attribute("d"), page.locator(".readout").inner_text()
        assert before[0] != after[0]
        assert before[1] != after[1]
        value = page.locator("output").inner_text()
        assert float(value.replace("\u2212", "-")) > 0
        assert visit.complaints == []


@pytest.mark.parametrize("script", [True, False])
def test_methods_are_switched_on_and_off(browser, report, script):
    with Visit(browser, report, java_script_enabled=script) as visit:
        page = visit.page
        shades = [page.locator(f'image[data-method="m{i}"]') for i in (0, 1)]
        assert [shade.is_visible() for shade in shades] == [True, False]
        page.check("#show-m1")
        page.uncheck("#show-m0")
        assert [shade.is_visible() for shade in shades] == [False, True]
        curves = [
            page.locator(f'#quality path.line[data-method="m{i}"]') for i in (0, 1)
        ]
        assert [curve.is_visible() for curve in curves] == [False, True]
        page.locator('.again label[for="show-m0"]').click()  # beside the pictures
        assert [shade.is_visible() for shade in shades] == [True, True]
        page.uncheck("#show-m0")
        if script:
            assert page.locator(".readout").inner_text().startswith("MFVI:")


def test_no_method_shown_is_no_error(browser, report):
    with Visit(browser, report) as visit:
        page = visit.page
        page.uncheck("#show-m0")
        assert page.locator(".readout").inner_text() == ""
        page.locator("input[type=range]").focus()
        for _ in range(3):
            page.keyboard.press("ArrowRight")
        for curve in page.locator(".explorer path.profile").all():
            assert "N" not in curve.get_attribute("d")  # of NaN
        page.check("#show-m0")
        assert page.locator(".readout").inner_text() != ""
        assert visit.complaints == []


def test_nothing_is_asked_of_the_network(browser, report, wide_report):
    for path in (report, wide_report):
        with Visit(browser, path) as visit:
            visit.page.wait_for_timeout(200)
            files = [url for url in visit.requests if not url.startswith("data:")]
            assert files == [path.as_uri()]
            assert visit.complaints == []


@pytest.mark.parametrize("width", [360, 390, 800])
def test_no_screen_scrolls_sideways(browser, report, wide_report, width):
    for path in (report, wide_report):
        size = {"width": width, "height": 800}
        with Visit(browser, path, viewport=size) as visit:
            reach = visit.page.evaluate("document.documentElement.scrollWidth")
            assert reach <= width
            assert visit.page.evaluate(SMALLEST_TEXT) >= 9
            hidden = visit.page.evaluate(
                """() => [...document.querySelectorAll('.chart .upright')]
                  .filter(t => !t.getBoundingClientRect().width).length"""
            )
            assert hidden == 0


def test_dark_screens_get_dark_pages(browser, report):
    def ground(scheme):
        with Visit(browser, report, color_scheme=scheme) as visit:
            return visit.page.evaluate(
                "[document.body, document.querySelector('h1')].map("
                "e => getComputedStyle(e)).map(s => [s.backgroundColor, s.color])"
            )

    light, dark = ground("light"), ground("dark")
    assert _brightness(light[0][0]) > 240 > 60 > _brightness(dark[0][0])
    assert _brightness(light[1][1]) < 60 < 200 < _brightness(dark[1][1])


def test_without_script_everything_is_there(browser, report):
    with Visit(browser, report, java_script_enabled=False) as visit:
        page = visit.page
        for section in page.locator("section").all():
            assert section.is_visible()
        assert page.locator("section h2").count() == 8
        assert page.locator("input[type=range]").is_hidden()
        assert page.locator("#row-box").is_hidden()
        assert page.locator('.explorer path.profile[data-method="m0"]').is_visible()
        hint = page.locator('#noise circle[data-row="20"] title').text_content()
        assert "row 21: dose = " in hint
        page.locator("summary", has_text="All settings").click()
        assert page.locator("dl.settings").is_visible()


def test_printing_leaves_out_what_paper_cannot_do(browser, report):
    with Visit(browser, report) as visit:
        visit.page.emulate_media(media="print")
        for what in ("nav", ".slider", ".switch"):
            assert visit.page.locator(what).first.is_hidden()
        assert visit.page.pdf(format="A4").startswith(b"%PDF")


def test_no_table_is_cut_off_on_paper(browser, report):
    page_size = {"width": 700, "height": 1000}  # of A4 within its margins
    with Visit(browser, report, viewport=page_size) as visit:
        visit.page.emulate_media(media="print")
        cut = visit.page.evaluate(
            """() => [...document.querySelectorAll('.scroll')]
              .filter(e => e.scrollWidth > e.clientWidth + 1).length"""
        )
        assert visit.page.locator(".scroll table").count() > 0
        assert cut == 0
        assert visit.page.evaluate(SMALLEST_TEXT) >= 9


@pytest.mark.parametrize("script", [True, False])
def test_what_is_closed_is_printed_too(browser, report, script):
    with Visit(browser, report, java_script_enabled=script) as visit:
        closed = visit.page.locator("details:not([open])")
        count = closed.count()
        assert count >= 2
        if script:
            visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
            assert closed.count() == 0
            visit.page.evaluate("dispatchEvent(new Event('afterprint'))")
            assert closed.count() == count
        settings = visit.page.locator("dl.settings")
        assert settings.is_hidden()
        visit.page.emulate_media(media="print")
        assert settings.bounding_box()["height"] > 100


def test_cards_end_where_their_content_does(browser, wide_report):
    with Visit(browser, wide_report) as visit:
        spare = visit.page.evaluate(
            """() => [...document.querySelectorAll('.explorer-card, #training figure')]
              .map(card => card.getBoundingClientRect().bottom
                - card.lastElementChild.getBoundingClientRect().bottom)"""
        )
        assert len(spare) > 3
        assert max(spare) <= 20
        lines = visit.page.locator(".readout").first.bounding_box()["height"]
        assert lines < 30


def test_a_finger_shows_a_row_too(browser, report):
    size = {"width": 390, "height": 800}
    with Visit(browser, report, viewport=size, has_touch=True) as visit:
        dot = visit.page.locator('#split circle[data-row="5"]')
        dot.scroll_into_view_if_needed()
        box = dot.bounding_box()
        visit.page.touchscreen.tap(box["x"] + 2, box["y"] + 2)
        visit.page.locator("#row-box").wait_for(state="visible")
        assert visit.complaints == []


def _brightness(colour: str) -> float:
    numbers = colour.split("(")[1].rstrip(")").split(",")[:3]
    return sum(map(float, numbers)) / 3
