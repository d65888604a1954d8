"""The demo: one data set with a known truth, three fits; table, picture, report."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ncai.datasets import make_dataset
from ncai.datasets.synthetic import SyntheticData
from ncai.diagnostics.latents import LatentDiagnosis
from ncai.estimators.bnn import BNNRegressor
from ncai.estimators.bnn_lv import BNNLVRegressor
from ncai.runtime.atomic_write import check_writable, replacing
from ncai.stats.scores import mpiw, picp

LEVEL = 0.95
PICTURE = "demo.png"
REPORT = "report.html"
# The data end at 4: a little room, so that no point is cut in half.
_X = (-4.2, 4.2)
# The same shade means the same density in all panels.
_DARKEST = 1.0
# The paper's settings for this set (noise and latent variance are the true ones), but
# fewer steps: by then NCAI is far ahead, and the demo stays below three minutes.
_COMMON = {"preset": "paper", "standardize": False, "hidden": (50,)}
_BNN = {**_COMMON, "noise_variance": 0.5}
_BNN_LV = {
    **_COMMON,
    "noise_variance": 0.1,
    "latent_variance": 0.01,
    "input_tolerance": 0.1,
    "target_tolerance": 1.0,
}
_FULL = {"max_steps": 10_000, "n_restarts": 10}
_QUICK = {"max_steps": 100, "n_restarts": 2, "n_weight_draws": 16}


@dataclass(frozen=True, eq=False)
class DemoRow:
    """One fit, and how well it predicts the test rows.

    Args:
        name: what was fitted, and how.
        colour_name: its entry in `ncai.plot.COLOURS`.
        model: the fitted estimator.
        log_likelihood: average over the test rows.
        gap: what is missing to the true density on the same rows.
        coverage: share of test rows in the 95% interval.
        width: mean width of that interval.
        diagnosis: of the latents, if there are any.
        seconds: of the fit.
    """

    name: str
    colour_name: str
    model: BNNLVRegressor
    log_likelihood: float
    gap: float
    coverage: float
    width: float
    diagnosis: LatentDiagnosis | None
    seconds: float


def run_demo(
    out: str | Path = "demo",
    seed: int = 0,
    quick: bool = False,
    show: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> list[DemoRow]:
    """Fit Heavy-Tail by three methods, score them, draw them and write a report.

    Args:
        out: folder of demo.png and report.html; made if it does not exist.
        seed: of the data and of the fits.
        quick: a few steps only, to see that all is installed; the fits are poor.
        show: progress bars.
        tell: called with one line before each piece of work.
    """
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; name a folder.")
    out.mkdir(parents=True, exist_ok=True)
    for name in (PICTURE, REPORT):
        check_writable(out / name)
    data = make_dataset("heavy_tail", seed)
    effort = {**(_QUICK if quick else _FULL), "progress": show, "random_state": seed}
    models = [
        ("BNN", "BNN", BNNRegressor(**_BNN, **effort)),
        ("BNN+LV, MFVI", "MFVI", BNNLVRegressor(inference="mfvi", **_BNN_LV, **effort)),
        ("BNN+LV, NCAI", "NCAI", BNNLVRegressor(inference="ncai", **_BNN_LV, **effort)),
    ]
    rows = []
    for number, (name, colour_name, model) in enumerate(models, start=1):
        tell(f"Fitting {name} ({number} of {len(models)})")
        rows.append(_fit_and_score(name, colour_name, model, data))
    tell("Drawing")
    draw(data, rows, out / PICTURE, grid=(60, 60) if quick else (240, 280))
    tell("Writing the report")
    report(data, rows, out / REPORT, f"ncai demo --seed {seed}{' --quick' * quick}")
    return rows


def report(data: SyntheticData, rows: list[DemoRow], path: Path, command: str) -> None:
    """The report on the last of the fits, with the others to switch on and off."""
    import pandas as pd

    from ncai.report import ReportInputs, write_report
    from ncai.report.words import fixed

    train, test = (
        (pd.DataFrame(part.inputs, columns=["x"]), part.targets[:, 0])
        for part in (data.train, data.test)
    )
    *others, main = rows
    truth = main.log_likelihood + main.gap
    write_report(
        path,
        ReportInputs(
            main.model,
            *train,
            *test,
            target_name="y",
            data_notes=[
                "Heavy-Tail is a synthetic set: y is made from x by a network with a "
                "latent input, so that the true density is known and can be shown.",
                f"The true density has a log-likelihood of {fixed(truth)} on the test "
                "rows; no model can expect to do better.",
                "Three models were fitted to the same rows. BNN: a plain Bayesian "
                "network. MFVI and NCAI: one with a latent variable z, by plain "
                "variational inference, and with z constrained to be white noise.",
            ],
            command=command,
            title="Heavy-Tail, fitted three ways",
            method_name=main.colour_name,
            others={row.colour_name: row.model for row in reversed(others)},
            truth=data.oracle,
        ),
    )


def _fit_and_score(name, colour_name, model, data: SyntheticData) -> DemoRow:
    train, valid, test = (
        (part.inputs, part.targets[:, 0])
        for part in (data.train, data.valid, data.test)
    )
    model.fit(*train, X_valid=valid[0], y_valid=valid[1])
    if model.interrupted_:  # a fit ends well on Ctrl-C; the demo is to end
        raise KeyboardInterrupt
    predictive = model.predict_dist(test[0])
    log_likelihood = float(predictive.log_prob(test[1]).mean())
    limit = float(data.oracle.log_prob(data.test.inputs, data.test.targets).mean())
    lower, upper = predictive.interval(LEVEL)
    return DemoRow(
        name=name,
        colour_name=colour_name,
        model=model,
        log_likelihood=log_likelihood,
        gap=limit - log_likelihood,
        coverage=picp(test[1], lower, upper),
        width=mpiw(lower, upper),
        diagnosis=None if colour_name == "BNN" else model.diagnose(),
        seconds=model.fit_seconds_,
    )


def table(rows: list[DemoRow]):
    """The scores as a rich table, with what noise would give in the caption."""
    from rich import box
    from rich.table import Table

    view = Table(
        title="Heavy-Tail: three fits of the same 300 rows, scored on 300 others",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        caption=_caption(rows),
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
    for row in rows:
        found = row.diagnosis
        view.add_row(
            row.name,
            f"{row.log_likelihood:.3f}",
            f"{row.gap:.3f}",
            f"{row.coverage:.1%}",
            f"{row.width:.2f}",
            "-" if found is None else f"{found.hz:.2f}",
            "-" if found is None else f"{found.mi_x_mean:.2f}",
        )
    return view


def _caption(rows: list[DemoRow]) -> str:
    hz, mi = _noise_levels(rows)
    truth = rows[0].log_likelihood + rows[0].gap
    return (
        f"The true density scores {truth:.3f}; the gap is what a model misses of it. "
        f"Coverage and width are of {LEVEL:.0%} intervals. White noise of this size "
        f"stays below HZ {hz:.2f} and MI {mi:.2f} in 95% of cases; "
        "more means that z is not Gaussian, or depends on x."
    )


def _noise_levels(rows: list[DemoRow]) -> tuple[float, float]:
    """HZ and MI that white noise of this size stays below in 95% of cases."""
    found = [row.diagnosis for row in rows if row.diagnosis is not None]
    return found[0].hz_reference, max(one.mi_reference for one in found)


def draw(
    data: SyntheticData,
    rows: list[DemoRow],
    path: Path,
    grid: tuple[int, int] = (240, 280),
) -> None:
    """Densities above, latents below; the truth at the left."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from ncai import plot

    # No pyplot: the demo must not depend on a window system.
    figure = Figure(figsize=(13, 6.6), layout="constrained")
    figure.get_layout_engine().set(hspace=0.07, h_pad=0.08)  # pyright: ignore
    FigureCanvasAgg(figure)
    axes = figure.subplots(
        2, 1 + len(rows), sharex=True, sharey="row", height_ratios=(1.5, 1)
    )
    x, y = data.train.inputs, data.train.targets
    columns = [("Truth", "truth", data.oracle)]
    columns += [(row.name, row.colour_name, row.model) for row in rows]
    truth_score = rows[0].log_likelihood + rows[0].gap
    scores = [truth_score, *(row.log_likelihood for row in rows)]
    for ax, (name, colour_name, model), score in zip(
        axes[0], columns, scores, strict=True
    ):
        colour = plot.COLOURS[colour_name]
        plot.density(
            *(model, x, y, ax),
            colour=colour,
            x_limits=_X,
            y_limits=(-10, 10),
            grid=grid,
            darkest=_DARKEST,
        )
        ax.set_title(name, color=colour, fontsize=14, fontweight="bold", pad=22)
        ax.text(
            *(0.5, 1.02),
            f"test log-likelihood {score:.2f}",
            transform=ax.transAxes,
            ha="center",
            va="bottom",
        )
        ax.set(xlabel="", ylabel="", xticks=range(-4, 5, 2), yticks=range(-10, 11, 5))
        ax.tick_params(labelbottom=True)
    axes[0, 0].set_ylabel("y", fontsize=12)

    _draw_latents(axes[1], data, rows)
    figure.supxlabel(_explanation(rows), fontsize=10, color=plot.COLOURS["truth"])
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=110, format=path.suffix[1:])


def _draw_latents(axes, data: SyntheticData, rows: list[DemoRow]) -> None:
    from ncai import plot

    assert data.train.latents is not None  # Heavy-Tail was made with a z
    assert data.truth is not None
    plot.latent_values(
        data.train.inputs,
        data.train.latents,
        data.truth.latent_var**0.5,
        axes[0],
        colour=plot.COLOURS["truth"],
    )
    reaches = [axes[0].get_ylim()[1]]
    titles = ["the z that made the data"]
    for ax, row in zip(axes[1:], rows, strict=True):
        found = row.diagnosis
        if found is None:
            # The plain BNN has no z: its place is free for the legend.
            ax.set_axis_off()
            _draw_legend(ax)
            titles.append("no z: equal noise everywhere")
            continue
        plot.latent(row.model, ax, colour=plot.COLOURS[row.colour_name])
        reaches.append(ax.get_ylim()[1])
        titles.append(f"inferred z:  HZ {found.hz:.1f},  MI {found.mi_x_mean:.2f}")
    for ax, title in zip(axes, titles, strict=True):
        ax.set(xlim=_X, ylim=(-max(reaches), max(reaches)), ylabel="")
        ax.set_title(title, fontsize=10)
    axes[0].set_ylabel("z", fontsize=12)


def _draw_legend(ax) -> None:
    """What points, lines and shades mean in all panels."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    from ncai.plot import COLOURS

    grey = COLOURS["truth"]
    ax.legend(
        handles=[
            Line2D([], [], marker=".", linestyle="", color="black", label="data"),
            Line2D([], [], color="black", label="mean of y"),
            Line2D([], [], color=grey, label=f"{LEVEL:.0%} interval of y"),
            Patch(color=grey, alpha=0.3, label="density of y"),
            Line2D(
                *([], []),
                color="black",
                linestyle="--",
                label="2 prior std. deviations of z",
            ),
        ],
        loc="center",
        frameon=False,
        fontsize=10,
        labelspacing=0.7,
    )


def _explanation(rows: list[DemoRow]) -> str:
    hz, mi = _noise_levels(rows)
    return (
        "HZ: how far z is from Gaussian (Henze-Zirkler); white noise of this size "
        f"stays below {hz:.1f} in 95% of cases.\nMI: what z tells about x (mutual "
        f"information, in nats); white noise stays below {mi:.2f}."
    )
