"""Pictures of the studies, from what their cells stored."""

from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from ncai.runtime.atomic_write import replacing
from ncai.study.engine.scales import Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.decomposition import DECOMPOSITION
from ncai.study.experiments.divergence import DIVERGENCE
from ncai.study.experiments.elbo_ranking import ELBO_RANKING
from ncai.study.experiments.ground_truth import GROUND_TRUTH_SETS
from ncai.study.experiments.map_bias import MAP_BIAS
from ncai.study.experiments.qualitative import QUALITATIVE
from ncai.study.experiments.theory import THEORY
from ncai.study.output.figures.latents import bimodal_figure, divergence_figure
from ncai.study.output.figures.predictions import (
    decomposition_figure,
    qualitative_figure,
)

TRUE_COLOUR, FOUND_COLOUR = "#7b3294", "#1f77b4"
TITLES = {"heavy_tail": "Heavy-Tail", "depeweg": "Depeweg", "bimodal": "Bimodal"}


def map_bias_figure(scale: Scale, store: Store) -> Figure | None:
    """Functions at the truth and at the mode over z, and both sets of z against x."""
    found = {}
    for cell in MAP_BIAS.cells(scale, store):
        outcome = store.load(cell)
        if outcome is not None:
            found.setdefault(cell["dataset"], outcome)  # the first draw
    shown = [name for name in GROUND_TRUTH_SETS if name in found]
    if not shown:
        return None
    figure, axes = plt.subplots(
        2, len(shown), figsize=(4.2 * len(shown), 6.4), squeeze=False, sharex="col"
    )
    for column, name in enumerate(shown):
        arrays, row = found[name].arrays, found[name].row
        top, bottom = axes[:, column]
        lines, width = arrays["latent_lines"], row["latent_std"]
        density = np.exp(-0.5 * (lines / width) ** 2)
        for key, colour in (("f_true", TRUE_COLOUR), ("f_map", FOUND_COLOUR)):
            for line, weight in zip(arrays[key].T, density, strict=True):
                top.plot(arrays["grid"], line, color=colour, alpha=0.5 * weight, lw=1)
        top.plot(
            arrays["inputs"], arrays["targets"], ".", color="0.25", ms=2, alpha=0.5
        )
        top.set_ylim(*_range(arrays["targets"]))
        top.set_title(
            f"{TITLES[name]}\nlog posterior: truth {row['log_posterior_true']:.0f}, "
            f"mode {row['log_posterior_map']:.0f}",
            fontsize=10,
        )
        for key, colour, label in (
            ("z_true", TRUE_COLOUR, "truth"),
            ("z_map", FOUND_COLOUR, "joint mode"),
        ):
            bottom.plot(
                arrays["inputs"], arrays[key], ".", ms=3, color=colour, label=label
            )
        bottom.set_xlabel("x")
    axes[0, 0].set_ylabel("f(x, z), |z| up to 3 prior widths")
    axes[1, 0].set_ylabel("z")
    axes[1, 0].legend(loc="upper left", fontsize=9)
    figure.tight_layout()
    return figure


def theory_figure(scale: Scale, store: Store) -> Figure | None:
    """How often the scaled parameters win, with the bound, over the number of rows."""
    found = [(cell, store.load(cell)) for cell in THEORY.cells(scale, store)]
    found = [(cell, outcome) for cell, outcome in found if outcome is not None]
    if not found:
        return None
    figure, axes = plt.subplots(
        1, len(found), figsize=(5 * len(found), 3.8), squeeze=False, sharey=True
    )
    for axis, (cell, outcome) in zip(axes[0], found, strict=True):
        arrays = outcome.arrays
        symbol = "C" if cell["part"] == "one-node" else "t"
        colours = matplotlib.colormaps["viridis"](
            np.linspace(0, 0.9, len(arrays["scales"]))
        )
        for value, won, bound, colour in zip(
            arrays["scales"], arrays["wins"], arrays["bounds"], colours, strict=True
        ):
            label = f"{symbol} = {value:.2f}"
            axis.plot(arrays["num_rows"], won, color=colour, label=label)
            axis.plot(arrays["num_rows"], bound, color=colour, ls=":")
        axis.set_xscale("log")
        axis.set_xlabel("rows")
        axis.set_title(f"{cell['part']} model", fontsize=11)
        axis.legend(fontsize=8, title="dotted: bound", title_fontsize=8)
    axes[0, 0].set_ylabel("P(scaled parameters beat the truth)")
    figure.tight_layout()
    return figure


def _range(values: np.ndarray) -> tuple[float, float]:
    margin = 0.1 * float(np.ptp(values))
    return float(values.min()) - margin, float(values.max()) + margin


FIGURES = {
    MAP_BIAS.name: {"map_bias": map_bias_figure},
    THEORY.name: {"theory": theory_figure},
    DIVERGENCE.name: {"divergence": divergence_figure},
    ELBO_RANKING.name: {"bimodal_from_the_mode": bimodal_figure},
    QUALITATIVE.name: {"qualitative": qualitative_figure},
    DECOMPOSITION.name: {
        "decomposition_entropy": decomposition_figure("entropy"),
        "decomposition_variance": decomposition_figure("variance"),
    },
}


def write_figures(name: str, scale: Scale, store: Store, folder: Path) -> list[Path]:
    """PNG files of a study; none where there is nothing to draw yet."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for file_name, draw in FIGURES.get(name, {}).items():
        figure = draw(scale, store)
        if figure is None:
            continue
        path = folder / f"{file_name}.png"
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=120, format="png")
        plt.close(figure)
        written.append(path)
    return written
