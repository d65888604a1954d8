"""What is committed of the judge of quality is of the code as it is, everywhere."""

import json
from pathlib import Path

import pytest

from benchmarks.quality import methods, report
from benchmarks.quality.leads import write_leads
from benchmarks.quality.problems import REAL, SET_GROUPS
from benchmarks.quality.results import Store
from benchmarks.quality.results import Results

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "results" / "bench"
SPLITS = 20
# As README and docs/quality.md call them.
LABELS = {
    "ncai, default": "default",
    "the default": "default",
    "NCAI": "ncai",
    "MFVI": "mfvi",
    "NGBoost": "ngboost",
    "CatBoost": "catboost",
    "quantile forest": "quantile_forest",
    "deep ensemble": "deep_ensemble",
    "mixture density network": "mdn",
    "MC dropout": "mc_dropout",
    "heteroscedastic GP": "het_gp",
}


@pytest.fixture(scope="module")
def store():
    return Store(BENCH / "quality" / "cells")


@pytest.fixture(scope="module")
def results(store):
    names = methods.METHOD_GROUPS["all"]
    return Results.load(store, SET_GROUPS["all"], names, SPLITS)


def test_no_cell_is_of_other_settings_than_those_of_today(store):
    cells = sorted(store.folder.glob("*/*.json"))
    assert len(cells) > 200
    stale = [
        f"{path.parent.name} {path.stem}"
        for path in cells
        if json.loads(path.read_text())["digest"]
        != methods.digest_of(path.stem, path.parent.name)
    ]
    assert not stale


def test_the_page_is_that_of_the_cells(store, results):
    command = f"ncai bench quality --table --splits {SPLITS}"
    page = report.markdown(store, results, "default", command)
    assert (BENCH / "quality.md").read_text() == page


def test_the_page_of_leads_is_that_of_the_cells(store, tmp_path):
    write_leads(store, 5, tmp_path / "leads.md")
    made = (tmp_path / "leads.md").read_text()
    assert (BENCH / "leads.md").read_text() == made


def tables(path: Path, columns: tuple[str, ...]) -> list[dict[str, list[str]]]:
    """Cells by the first column, of each table whose other columns are these."""
    found, rows = [], None
    for line in path.read_text().splitlines():
        if not line.startswith("|"):
            rows = None
            continue
        first, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if tuple(cells) == columns:
            rows = {}
            found.append(rows)
        elif rows is not None and set(first) != {"-"}:
            rows[first] = cells
    return found


@pytest.mark.parametrize(("page", "least"), [("README.md", 8), ("docs/quality.md", 3)])
def test_tables_of_nll_are_those_of_the_page(page, least):
    whole = tables(BENCH / "quality.md", REAL)[0]  # the first of the page is NLL
    (told,) = tables(ROOT / page, REAL)
    assert len(told) >= least
    for label, cells in told.items():
        known = whole[LABELS[label]]
        assert [cell.strip("*") for cell in cells] == [c.strip("*") for c in known]


def test_gaps_of_the_papers_methods_are_those_of_the_page(results):
    columns = ("Heavy-Tail", "Depeweg", "Bimodal", "Goldberg", "Yuan", "Williams")
    (told,) = tables(ROOT / "docs/quality.md", columns)
    for label, cells in told.items():
        for name, cell in zip(columns, cells, strict=True):
            dataset = name.lower().replace("-", "_")
            entry = results.entry(dataset, LABELS[label], "gap")
            assert f"{entry.mean:.3f}" == cell, (label, name)
