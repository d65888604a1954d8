"""Python blocks of the README and the documentation run, as a reader would run them."""

import ast
import contextlib
import importlib.util
import pkgutil
import re
import shlex
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import ncai
import test_house
from helpers import real_data
from ncai.cli import app as cli
from ncai.inference.registry import METHODS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "ncai"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.S | re.M)
ALL_PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
PAGES = [name for name in ALL_PAGES if BLOCK.search((DOCS / name).read_text())]
NEED_REAL_DATA = ("learn/tutorial.md", "paper/datasets.md")
SHELL_BLOCK = re.compile(r"^```(?:sh|bash|console)?\n(.*?)^```$", re.S | re.M)
MOST_FILES = 23


# ----- Code ---------------------------------------------------------------------------


def run_page(name: str) -> int:
    """Run the blocks of a page in one namespace; how many there were."""
    text = (DOCS / name).read_text()
    names: dict = {"__name__": "docs"}
    found = list(BLOCK.finditer(text))
    for block in found:
        # Errors point at the line of the page.
        before = "\n" * text.count("\n", 0, block.start(1))
        exec(compile(before + block[1], str(DOCS / name), "exec"), names)
    return len(found)


@pytest.fixture
def quick_fits(short_fits, monkeypatch):
    """Shorter still: narrow networks; the target and the noise as they are learned."""
    for method in METHODS.values():
        usual = method.presets["default"]
        narrow = replace(usual.network, hidden=(8,) * len(usual.network.hidden))
        quick = replace(
            usual,
            network=narrow,
            target_transform="none",
            method={**usual.method, "recalibrate_noise": False},
        )
        monkeypatch.setitem(method.presets, "default", quick)


@pytest.mark.filterwarnings("ignore")  # short fits warn, and so do optional packages
@pytest.mark.parametrize("name", [name for name in PAGES if name not in NEED_REAL_DATA])
def test_the_code_of_a_page_runs(name, quick_fits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("NCAI_THREADS", "1")  # a page may set it; put it back after
    assert run_page(name) >= 1


@real_data
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NEED_REAL_DATA)
def test_the_code_on_real_data_runs(name, quick_fits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    assert run_page(name) >= 1


def test_no_page_is_left_out():
    assert {
        "learn/start.md",
        "use/settings.md",
        "learn/uncertainty.md",
        "learn/tutorial.md",
    } <= set(PAGES)
    assert set(NEED_REAL_DATA) <= set(PAGES)


def test_an_error_on_a_page_is_seen(tmp_path, monkeypatch):
    (tmp_path / "bad.md").write_text("# Bad\n\n```python\n1 / 0\n```\n")
    monkeypatch.setattr(f"{__name__}.DOCS", tmp_path)
    with pytest.raises(ZeroDivisionError):
        run_page("bad.md")


# ----- Commands -----------------------------------------------------------------------


def commands_of(text: str) -> list[list[str]]:
    """The calls of `ncai` in blocks without a language or of a shell."""
    lines = "\n".join(SHELL_BLOCK.findall(text)).replace("\\\n", " ").splitlines()
    return [
        shlex.split(line.split("|")[0].split(" > ")[0], comments=True)[1:]
        for line in lines
        if line.startswith("ncai ")
    ]


@pytest.mark.parametrize("name", ALL_PAGES)
def test_commands_of_a_page_exist_with_their_options(name):
    """Parsed, not run: what they do is tested elsewhere."""
    for words in commands_of((DOCS / name).read_text()):
        command: Any = typer.main.get_command(cli.app)
        while words and words[0] in getattr(command, "commands", ()):
            first, *words = words
            command = command.commands[first]
        with contextlib.suppress(typer.Exit):  # of --version
            command.make_context("ncai", list(words))


def test_a_wrong_option_on_a_page_is_seen(tmp_path, monkeypatch):
    (tmp_path / "bad.md").write_text("```\nncai fit a.csv --targt y\n```\n")
    monkeypatch.setattr(f"{__name__}.DOCS", tmp_path)
    with pytest.raises(Exception, match="No such option"):
        test_commands_of_a_page_exist_with_their_options("bad.md")


# ----- What pages say of the code -----------------------------------------------------


def script(name: str) -> Any:
    """A module of the folder scripts, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_settings_are_those_of_the_code():
    page = (DOCS / "use" / "settings.md").read_text()
    assert script("docs_settings").with_tables(page) == page, (
        "run: python scripts/docs_settings.py"
    )


def test_the_page_of_settings_explains_those_of_every_method():
    page = (DOCS / "use" / "settings.md").read_text()
    by_hand = page.partition("## Every setting of every method")[0]
    listed = {
        name
        for line in re.findall(r"^- (.*?):", by_hand, re.M)
        for name in re.findall(r"`(\w+)`", line)
    }
    for method in METHODS.values():
        assert set(method().get_params()) <= listed, method


def test_the_api_page_has_every_public_name_and_no_other():
    page = (DOCS / "use" / "api.md").read_text()
    named = set(re.findall(r"^::: ncai\.(\S+)$", page, re.M))
    modules = {name.split(".")[0] for name in named if "." in name}
    public = set(dir(ncai)) - {"__version__"}
    assert {name for name in named if "." not in name} | modules == public
    for name in named:
        value: Any = ncai
        for part in name.split("."):
            value = getattr(value, part)


def test_type_checkers_see_the_names_that_are_loaded_on_first_use():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == set(dir(ncai)) - {"__version__"}
    assert (SOURCE / "py.typed").exists()


def names_defined(path: Path) -> set[str]:
    """Functions, classes, fields and constants of a file, or of a folder's files."""
    files = path.rglob("*.py") if path.is_dir() else [path]
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
    return found


def wrong_places(page: str, root: Path) -> list[str]:
    """Files that a page's tables name and that are not there, and names not in them.

    In a cell of a table, `file.py` or `folder/` is a place under the root; every other
    code after one must be defined in one of the places of the cell.
    """
    wrong = []
    for line in page.splitlines():
        for cell in line.split("|") if line.startswith("|") else ():
            codes = re.findall(r"`([^`]+)`", cell)
            places = [code for code in codes if code.endswith((".py", "/"))]
            if not places:
                continue
            missing = [place for place in places if not (root / place).exists()]
            wrong += missing
            there = [root / place for place in places if place not in missing]
            known = set().union(*map(names_defined, there))
            wrong += [
                f"{code} in {', '.join(places)}"
                for code in codes
                if code not in places and code.split(".")[-1] not in known
            ]
    return wrong


def test_places_from_paper_to_code_exist():
    page = (DOCS / "paper" / "paper_to_code.md").read_text()
    assert page.count(".py`") > 20
    assert not wrong_places(page, SOURCE)


def test_places_of_the_contributing_guide_exist():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert not wrong_places(page, SOURCE)
    for place in re.findall(r"`((?:src|tests|scripts|benchmarks|docs)/[^`\s]*)`", page):
        assert (ROOT / place).exists() or "NAME" in place, place


def test_the_floor_plan_has_the_layers_and_limits_of_the_test():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    plan = page.partition("| Package |")[2].partition("\n\n")[0]
    packages = re.findall(r"^\| `(\w+)(?:\.py|/)`", plan, re.M)
    assert tuple(packages) == test_house.LAYERS
    limits = (
        f"at most {test_house.MOST_MODULES_AT_THE_TOP} modules",
        f"more than {test_house.MOST_FILES_IN_A_FOLDER} files",
        f"at most {test_house.MOST_LINES_OF_A_FILE} lines",
        f"at most {test_house.MOST_LINES_OF_A_FUNCTION} lines, "
        f"{test_house.MOST_BRANCHES} branches and {test_house.MOST_PARAMETERS} param",
    )
    assert not [limit for limit in limits if limit not in page]


def test_pages_that_quote_stale_numbers_say_so():
    results = {
        "bench/quality.md": ("README.md", "docs/measured/quality.md"),
        "study/paper/tables.md": ("docs/learn/uncertainty.md", "docs/paper/study.md"),
    }
    for name, pages in results.items():
        stale = "stale" in (ROOT / "results" / name).read_text().lower()
        for page in pages:
            assert not stale or "stale" in (ROOT / page).read_text(), page


def test_a_wrong_place_is_seen():
    page = "| HZ | `stats/henze_zirkler.py`: `no_such_name` |\n| x | `nowhere.py` |"
    assert wrong_places(page, SOURCE) == [
        "no_such_name in stats/henze_zirkler.py",
        "nowhere.py",
    ]


# ----- Is it the paper? ---------------------------------------------------------------

STATUSES = ("right", "deviates", "missing")


def parts_of_the_paper(page: str) -> list[list[str]]:
    """The rows of the page's tables: number, part, places, status and tests."""
    rows = re.findall(r"^\| (\d+ \|.*) \|$", page, re.M)
    return [row.split(" | ") for row in rows]


def names_of_tests() -> set[str]:
    files = (ROOT / "tests").rglob("test_*.py")
    return {
        name
        for file in files
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)
    }


def is_there(code: str, tests: set[str]) -> bool:
    """Whether a `module:Name`, a file or a test of this name exists."""
    if ":" not in code:
        return code in tests or (ROOT / code).is_file()
    try:
        pkgutil.resolve_name(code)
    except (ImportError, AttributeError):
        return False
    return True


def wrong_parts(page: str) -> list[str]:
    """Rows of a page without a place, a known status or a test, and wrong names."""
    wrong, tests = [], names_of_tests()
    for number, _, places, status, checks in parts_of_the_paper(page):
        word, _, reason = status.partition(": ")
        named = re.findall(r"`([^`]+)`", places)
        if not named and word != "missing":
            wrong.append(f"{number} has no place")
        if word.partition(" ")[0] not in STATUSES or (
            word == "deviates" and not reason
        ):
            wrong.append(f"{number} has the status {status}")
        checked = re.findall(r"`([^`]+)`", checks)
        if not checked and checks != "no test":
            wrong.append(f"{number} is checked by {checks}")
        wrong += [code for code in named + checked if not is_there(code, tests)]
    return wrong


def test_parts_of_the_paper_are_where_the_audit_says():
    page = (DOCS / "paper" / "is_it_the_paper.md").read_text()
    assert not wrong_parts(page)


def test_the_audit_counts_its_rows():
    page = (DOCS / "paper" / "is_it_the_paper.md").read_text()
    rows = parts_of_the_paper(page)
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1))
    counts = [sum(row[3].startswith(word) for row in rows) for word in STATUSES]
    told = "Of {} parts, {} are right, {} deviate and {} are missing"
    said = " ".join(page.split())
    assert told.format(len(rows), *counts) in said
    untested = sum(row[4] == "no test" for row in rows)
    assert f"For {untested} parts it says *no test*" in said


def test_a_wrong_part_is_seen():
    page = (
        "| 1 | x | `ncai.model.bnn_lv:Model` | right | `test_no_such_test` |\n"
        "| 2 | x | `ncai.model.bnn_lv:Nothing` | deviates: Why. | no test |\n"
        "| 3 | x |  | right | no test |\n"
        "| 4 | x | `ncai.nowhere:Model` | deviates | |\n"
    )
    assert wrong_parts(page.replace("| |", "|  |")) == [
        "test_no_such_test",
        "ncai.model.bnn_lv:Nothing",
        "3 has no place",
        "4 has the status deviates",
        "4 is checked by ",
        "ncai.nowhere:Model",
    ]


# ----- The site -----------------------------------------------------------------------


def test_every_page_is_in_the_navigation_and_there_are_few_files():
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert not [name for name in ALL_PAGES if name not in navigation]
    assert sum(path.is_file() for path in DOCS.rglob("*")) <= MOST_FILES


@pytest.mark.parametrize(
    "name", [*(f"docs/{page}" for page in ALL_PAGES), "README.md", "CONTRIBUTING.md"]
)
def test_links_lead_somewhere(name):
    """Also those that leave docs, which MkDocs does not look at."""
    page = ROOT / name
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_site_is_built_without_a_warning(tmp_path):
    """Strict: a dead link, or a name that is no longer there, fails."""
    mkdocs = pytest.importorskip("mkdocs.commands.build", reason="MkDocs is not here")
    from mkdocs.config import load_config

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = load_config(
            str(ROOT / "mkdocs.yml"),
            site_dir=str(tmp_path / "site"),
            strict=True,
        )
        config.plugins.on_startup(command="build", dirty=False)
        mkdocs.build(config)
    start = (tmp_path / "site" / "learn" / "start.html").read_text()
    assert "predict_interval" in start
    # Nothing is fetched when a page is read.
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?://', start)


# ----- The README ---------------------------------------------------------------------

README = ROOT / "README.md"


@pytest.mark.usefixtures("quick_fits")
def test_the_code_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(python)?\n(.*?)```", README.read_text(), re.S)
    assert len(blocks) >= 6
    names: dict = {}
    for language, block in blocks:
        if language:
            exec(compile(block, str(README), "exec"), names)
            continue
        for line in block.splitlines():
            if line.startswith("ncai "):
                result = CliRunner().invoke(cli.app, line.split()[1:])
                assert result.exit_code == 0, result.stderr
    printed = capsys.readouterr().out
    assert "aleatoric" in printed
    assert "white noise" in printed
    written = {path.name for path in tmp_path.iterdir()}
    assert written >= {"waves.ncai", "table.ncai", "predictions.csv"}


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_two_commands_of_the_readme_exist(command):
    assert command in README.read_text()
    target = command.split()[1]
    makefile = (README.parent / "Makefile").read_text()
    assert re.search(rf"^{target}:", makefile, re.M)
