"""Every Python block of the documentation runs, page by page, as a reader would."""

import contextlib
import re
import shlex
import warnings
from pathlib import Path
from typing import Any

import pytest
import typer

from ncai.cli import app as cli
from real_sets import real_data

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.S | re.M)
PAGES = sorted(
    page.name for page in DOCS.glob("*.md") if BLOCK.search(page.read_text())
)
NEED_REAL_DATA = ("datasets.md", "tutorial.md")
SHELL_BLOCK = re.compile(r"^```(?:sh|bash|console)?\n(.*?)^```$", re.S | re.M)


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


@pytest.mark.filterwarnings("ignore")  # short fits warn, and so do optional packages
@pytest.mark.parametrize("name", [name for name in PAGES if name not in NEED_REAL_DATA])
def test_the_code_of_a_page_runs(name, short_fits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("NCAI_THREADS", "1")  # a page may set it; put it back after
    assert run_page(name) >= 1


@real_data
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NEED_REAL_DATA)
def test_the_code_on_real_data_runs(name, short_fits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    assert run_page(name) >= 1


def commands_of(text: str) -> list[list[str]]:
    """The calls of `ncai` in blocks without a language or of a shell."""
    lines = "\n".join(SHELL_BLOCK.findall(text)).replace("\\\n", " ").splitlines()
    return [
        shlex.split(line.split("|")[0].split(" > ")[0], comments=True)[1:]
        for line in lines
        if line.startswith("ncai ")
    ]


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_commands_of_a_page_exist_with_their_options(page):
    """Parsed, not run: what they do is tested elsewhere."""
    for words in commands_of(page.read_text()):
        command: Any = typer.main.get_command(cli.app)
        while words and words[0] in getattr(command, "commands", ()):
            name, *words = words
            command = command.commands[name]
        with contextlib.suppress(typer.Exit):  # of --version
            command.make_context("ncai", list(words))


def test_a_wrong_option_on_a_page_is_seen(tmp_path):
    (tmp_path / "bad.md").write_text("```\nncai fit a.csv --targt y\n```\n")
    with pytest.raises(Exception, match="No such option"):
        test_commands_of_a_page_exist_with_their_options(tmp_path / "bad.md")


def test_no_page_is_left_out():
    assert {"start.md", "settings.md", "uncertainty.md", "tutorial.md"} <= set(PAGES)
    assert set(NEED_REAL_DATA) <= set(PAGES)


def test_an_error_on_a_page_is_seen(tmp_path, monkeypatch):
    (tmp_path / "bad.md").write_text("# Bad\n\n```python\n1 / 0\n```\n")
    monkeypatch.setattr(f"{__name__}.DOCS", tmp_path)
    with pytest.raises(ZeroDivisionError):
        run_page("bad.md")


def test_every_page_is_in_the_navigation():
    navigation = (DOCS.parent / "mkdocs.yml").read_text()
    missing = [page.name for page in DOCS.glob("*.md") if page.name not in navigation]
    assert not missing


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """Also those that leave docs, which MkDocs does not look at."""
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
            str(DOCS.parent / "mkdocs.yml"),
            site_dir=str(tmp_path / "site"),
            strict=True,
        )
        config.plugins.on_startup(command="build", dirty=False)
        mkdocs.build(config)
    start = (tmp_path / "site" / "start.html").read_text()
    assert "predict_interval" in start
    # Nothing is fetched when a page is read.
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?://', start)
