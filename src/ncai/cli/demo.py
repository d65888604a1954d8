"""`ncai demo`: fit three models to data with a known density; draw and report them."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncai.cli import _options as options
from ncai.cli._options import Force, notify

if TYPE_CHECKING:
    from rich.table import Table

    from ncai.study.demo import DemoFit

EXAMPLES = ("ncai demo --out pictures",)
PICTURE = "demo.png"
REPORT = "report.html"
# Horizontal and vertical grid points in each panel of the picture.
_FINE, _COARSE = (240, 280), (60, 60)
Out = Annotated[
    Path,
    typer.Option(help="Folder for demo.png and report.html.", metavar="DIR"),
]
Seed = Annotated[int, typer.Option(help="Seed of the data and the fits.")]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="Train for a few steps only, to check the installation; fits are poor.",
    ),
]


def demo(
    out: Out = Path("demo"), seed: Seed = 0, quick: Quick = False, force: Force = False
) -> None:
    """Fit three models to data with a known density; draw them and write a report.

    This takes two to three minutes on two cores.
    """
    from rich.console import Console

    for name in (PICTURE, REPORT):
        # The demo makes the folder, so only existing files need a check.
        if (out / name).exists():
            options.check_output(out / name, force, [])
    fits = run_demo(out, seed, quick, sys.stderr.isatty(), notify)
    Console().print(table(fits))
    typer.echo(f"Picture: {out / PICTURE}")
    typer.echo(f"Report:  {out / REPORT}")


def run_demo(
    out: str | Path = "demo",
    seed: int = 0,
    quick: bool = False,
    show: bool = False,
    notify: Callable[[str], None] = lambda text: None,
) -> "list[DemoFit]":
    """Fit Heavy-Tail by three methods, score them, draw them and write a report.

    Args:
        out: folder for demo.png and report.html; it is created if needed.
        seed: seed of the data and of the fits.
        quick: train for a few steps only, to check the installation; the fits are poor.
        show: show progress bars.
        notify: called with one line before each step.
    """
    from ncai.study.demo import (
        demo_data,
        demo_models,
        demo_name,
        draw_demo,
        fit_and_score,
        write_demo_report,
    )

    out = _prepare_folder(Path(out))
    data, models = demo_data(seed), demo_models(seed, quick, show)
    fits = []
    for number, (method, model) in enumerate(models.items(), start=1):
        notify(f"Fitting {demo_name(method)} ({number} of {len(models)})")
        fits.append(fit_and_score(method, model, data))
    notify("Drawing")
    draw_demo(out / PICTURE, data, fits, _COARSE if quick else _FINE)
    notify("Writing the report")
    command = f"ncai demo --seed {seed}{' --quick' * quick}"
    write_demo_report(out / REPORT, data, fits, command)
    return fits


def _prepare_folder(out: Path) -> Path:
    from ncai.runtime.atomic_write import check_writable

    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; name a folder.")
    out.mkdir(parents=True, exist_ok=True)
    for name in (PICTURE, REPORT):
        check_writable(out / name)  # before the fits, not after them
    return out


def table(fits: "list[DemoFit]") -> "Table":
    """Return the scores as a rich table whose caption explains the columns."""
    from rich import box
    from rich.table import Table

    view = Table(
        title="Heavy-Tail: three fits of the same 300 rows, scored on 300 others",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        caption=_caption(fits),
    )
    view.add_column("\nmodel", no_wrap=True)
    for heading in (
        "test\nlog-lik.",
        "gap to\ntruth",
        "95%\ncoverage",
        "mean\nwidth",
        "\nHZ",
        "\nMI(x; z)",
    ):
        view.add_column(heading, justify="right", no_wrap=True)
    for fit in fits:
        found = fit.diagnosis
        view.add_row(
            fit.name,
            f"{fit.log_likelihood:.3f}",
            f"{fit.gap:.3f}",
            f"{fit.coverage:.1%}",
            f"{fit.width:.2f}",
            "-" if found is None else f"{found.hz:.2f}",
            "-" if found is None else f"{found.mi_x_mean:.2f}",
        )
    return view


def _caption(fits: "list[DemoFit]") -> str:
    from ncai.study.demo import LEVEL, white_noise_levels

    hz, mi = white_noise_levels(fits)
    return (
        f"The true density scores {fits[0].true_log_likelihood:.3f}; the gap is the "
        f"distance to it. Coverage and width refer to {LEVEL:.0%} intervals. White "
        f"noise stays below HZ {hz:.2f} and MI {mi:.2f} in 95% of cases; larger values "
        "mean that z is not Gaussian, or depends on x."
    )
