"""`ncai datasets`: list the paper's real data sets and download them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

Name = Annotated[str, typer.Argument(help="A name from the list.", metavar="NAME")]
Folder = Annotated[
    Path | None,
    typer.Option(
        help="Where NAME.csv goes. Default: the user cache.", metavar="FOLDER"
    ),
]
Timeout = Annotated[
    float, typer.Option(help="Seconds to wait for a server.", metavar="SECONDS")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]


def add_datasets(app: typer.Typer, guard, example) -> None:
    """Add the commands to the main app, which decides how errors are reported."""
    datasets = typer.Typer(
        help="List and download the real data sets of the paper, and boston.",
        rich_markup_mode=None,
        no_args_is_help=True,
        epilog=example("ncai datasets list", "ncai datasets get yacht"),
    )
    datasets.command("list", epilog=example("ncai datasets list"))(guard(list_sets))
    get_example = example("ncai datasets get yacht --to data")
    datasets.command("get", epilog=get_example)(guard(get))
    app.add_typer(datasets, name="datasets")


def list_sets() -> None:
    """Show the size, source, licence and file of each real set.

    The command looks for files in the folder that NCAI_DATA_DIR names, and then in the
    user cache.
    """
    from rich.console import Console

    # A pipe has no width of its own, and 80 columns would cut every path.
    Console(width=None if sys.stdout.isatty() else 240).print(_table())


def get(
    name: Name, to: Folder = None, timeout: Timeout = 30.0, force: Force = False
) -> None:
    """Download a set from UCI or OpenML, check it, and keep it as CSV."""
    from ncai.datasets.download import download_dataset

    with _bar(name, sys.stderr.isatty()) as report:
        path = download_dataset(
            name, to, timeout=timeout, on_progress=report, force=force
        )
    typer.echo(f"{name}: {path}")


def _table():
    from rich.table import Table

    from ncai.datasets.registry import REAL_SETS

    table = Table("name", box=None, header_style="bold")
    for title in ("rows", "inputs"):
        table.add_column(title, justify="right")
    for title in ("source", "licence", "found"):
        table.add_column(title, overflow="fold")
    for known in REAL_SETS.values():
        table.add_row(
            known.name,
            str(known.rows),
            str(len(known.input_names)),
            known.source,
            known.licence,
            _where(known),
        )
    return table


def _where(known) -> str:
    from ncai.datasets.real import find_file, read_clean_file
    from ncai.datasets.registry import DatasetError

    path = find_file(known)
    if path is None:
        return "not found"
    try:
        read_clean_file(known, path)
    except DatasetError:
        return f"damaged: {path}"
    return str(path)


@contextmanager
def _bar(name: str, show: bool) -> Iterator[Callable[[int, int | None], None] | None]:
    """Show a progress bar of the downloaded bytes while the context lasts."""
    if not show:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        console=Console(file=sys.stderr),
    )
    with bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
