"""The demo's picture: densities above, latents below, the truth at the left."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ncai import plot
from ncai.datasets.synthetic import SyntheticData
from ncai.runtime.atomic_write import replacing
from ncai.study.demo.fits import LEVEL, DemoFit, white_noise_levels

# The data end at 4. A little room keeps every point whole.
_X = (-4.2, 4.2)
_Y = (-10, 10)
# One scale for all panels, so that the same shade means the same density.
_DARKEST = 1.0


def draw_demo(
    path: Path,
    data: SyntheticData,
    fits: list[DemoFit],
    grid: tuple[int, int] = (240, 280),
) -> None:
    """Draw the truth and all fits, and write the picture."""
    # Without pyplot, which may look for a window system.
    figure = Figure(figsize=(13, 6.6), layout="constrained")
    figure.get_layout_engine().set(hspace=0.07, h_pad=0.08)  # pyright: ignore
    FigureCanvasAgg(figure)
    axes = figure.subplots(
        2, 1 + len(fits), sharex=True, sharey="row", height_ratios=(1.5, 1)
    )
    _draw_densities(axes[0], data, fits, grid)
    _draw_latents(axes[1], data, fits)
    figure.supxlabel(_explanation(fits), fontsize=10, color=plot.COLOURS["truth"])
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=110, format=path.suffix[1:])


def _draw_densities(axes, data: SyntheticData, fits: list[DemoFit], grid) -> None:
    panels = [("Truth", "truth", data.oracle, fits[0].true_log_likelihood)]
    panels += [(fit.name, fit.method, fit.model, fit.log_likelihood) for fit in fits]
    for ax, (name, method, model, score) in zip(axes, panels, strict=True):
        colour = plot.COLOURS[method]
        plot.density(
            *(model, data.train.inputs, data.train.targets, ax),
            colour=colour,
            x_limits=_X,
            y_limits=_Y,
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
    axes[0].set_ylabel("y", fontsize=12)


def _draw_latents(axes, data: SyntheticData, fits: list[DemoFit]) -> None:
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
    for ax, fit in zip(axes[1:], fits, strict=True):
        found = fit.diagnosis
        if found is None:
            # The plain BNN has no z, so its panel is free for the legend.
            ax.set_axis_off()
            _draw_legend(ax)
            titles.append("no z: equal noise everywhere")
            continue
        plot.latent(fit.model, ax, colour=plot.COLOURS[fit.method])
        reaches.append(ax.get_ylim()[1])
        titles.append(f"inferred z:  HZ {found.hz:.1f},  MI {found.mi_x_mean:.2f}")
    for ax, title in zip(axes, titles, strict=True):
        ax.set(xlim=_X, ylim=(-max(reaches), max(reaches)), ylabel="")
        ax.set_title(title, fontsize=10)
    axes[0].set_ylabel("z", fontsize=12)


def _draw_legend(ax: Axes) -> None:
    """What points, lines and shades mean in all panels."""
    grey = plot.COLOURS["truth"]
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


def _explanation(fits: list[DemoFit]) -> str:
    hz, mi = white_noise_levels(fits)
    return (
        "HZ: how far z is from Gaussian (Henze-Zirkler); for white noise it stays "
        f"below {hz:.1f} in 95% of cases.\nMI: mutual information of x and z, in nats; "
        f"for white noise it stays below {mi:.2f}."
    )
