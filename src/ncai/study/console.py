"""What the study commands do and show."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from ncai.study.engine.live import RunView
from ncai.study.engine.run import Study, run_study
from ncai.study.engine.scales import SCALES, Scale
from ncai.study.engine.store import Store
from ncai.study.registry import STUDIES, TABLES

EXIT_FAILED_CELLS = 1


def _chosen(names: list[str] | None, scale: str) -> tuple[list[Study], Scale]:
    for name in names or ():
        if name not in STUDIES:
            raise ValueError(f"study {name!r} is not known; choose among {[*STUDIES]}.")
    if scale not in SCALES:
        raise ValueError(f"--scale {scale!r} must be one of {[*SCALES]}.")
    return [STUDIES[name] for name in names or STUDIES], SCALES[scale]


def run_and_show(names, scale_name, jobs, scheduler, out: Path) -> int:
    """Run with a live table; the exit code."""
    studies, scale = _chosen(names, scale_name)
    console = Console()
    store = Store(out / scale.name)
    failed = []
    with RunView(store, [study.name for study in studies], console) as view:
        for study in studies:
            view.begin(study.name)
            failed += run_study(study, scale, store, jobs, scheduler, view)
    if failed:
        console.print(
            f"{len(failed)} cells failed; their tracebacks are beside the results "
            "(*.failed.txt). The same command tries them again."
        )
        return EXIT_FAILED_CELLS
    console.print(f"All done: {store.folder}")
    return 0


def show_status(names, scale_name, out: Path) -> None:
    """A table of studies."""
    studies, scale = _chosen(names, scale_name)
    store = Store(out / scale.name)
    table = Table("study", "done", "failed", "missing", "hours so far", box=None)
    for study in studies:
        cells = study.cells(scale, store)
        done = [cell for cell in cells if store.is_done(cell)]
        failed = [cell for cell in cells if store.failure(cell)]
        own = [cell for cell in done if cell.study == study.name]
        hours = sum(store.seconds(cell) for cell in own) / 3600
        missing = len(cells) - len(done) - len(failed)
        table.add_row(
            study.name, str(len(done)), str(len(failed)), str(missing), f"{hours:.2f}"
        )
    Console().print(table)


def write_tables(names, scale_name, out: Path) -> None:
    """Into OUT/SCALE/tables; says what it wrote."""
    from ncai.study.output.claims.verdicts import claims_table
    from ncai.study.output.tables.write import tidy, write_csv

    studies, scale = _chosen(names, scale_name)
    store = Store(out / scale.name)
    folder = store.folder / "tables"
    console = Console()
    for study in studies:
        found = TABLES[study.name](scale, store) if study.name in TABLES else []
        for table in found:
            table.write(folder)
        lines = tidy(study, scale, store)
        if len(lines):
            write_csv(lines, folder / f"tidy_{study.name}.csv")
        console.print(f"{study.name}: {len(found)} tables in {folder}")
    claims_table(scale, store).write(folder)
    console.print(f"claims: {folder / 'claims.md'}")


def draw_figures(names, scale_name, out: Path) -> None:
    """Into OUT/SCALE/figures; says what it drew."""
    from ncai.study.output.figures.draw import write_figures

    studies, scale = _chosen(names, scale_name)
    store = Store(out / scale.name)
    for study in studies:
        for path in write_figures(study.name, scale, store, store.folder / "figures"):
            Console().print(f"{study.name}: {path}")


def write_whole_report(names, scale_name, out: Path) -> None:
    """OUT/SCALE/report.html: all tables and figures, and the claims."""
    from ncai.study.output.report import write_report

    studies, scale = _chosen(names, scale_name)
    path = write_report(studies, scale, Store(out / scale.name))
    Console().print(f"Report: {path}")
