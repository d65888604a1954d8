"""Figures of the studies, from the arrays of their cells."""

from collections.abc import Sequence
from pathlib import Path

import jax
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from ncai.runtime.atomic_write import replacing
from ncai.study.engine import Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.benchmark import QUALITATIVE
from ncai.study.experiments.decomposition import DECOMPOSITION
from ncai.study.experiments.divergence import DIVERGENCE, DIVERGENCES
from ncai.study.experiments.elbo_ranking import ELBO_RANKING
from ncai.study.experiments.map_bias import MAP_BIAS
from ncai.study.experiments.problems import (
    GROUND_TRUTH_SETS,
    known_problem,
    predictive_at,
)
from ncai.study.experiments.theory import THEORY
from ncai.study.output.prediction_figures import (
    decomposition_figure,
    qualitative_figure,
)
from ncai.types import WeightDraws

TITLES = {"heavy_tail": "Heavy-Tail", "depeweg": "Depeweg", "bimodal": "Bimodal"}
TRUE_COLOUR, FOUND_COLOUR, DATA_COLOUR = "#7b3294", "#1f77b4", "0.25"
PLANE = 3.2  # half the width of pictures of z
NUM_DRAWS, NUM_POINTS = 64, 120


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


def divergence_figure(scale: Scale, store: Store) -> Figure | None:
    """Samples of q(z) and the means, before and after each divergence."""
    found = [(cell, store.load(cell)) for cell in DIVERGENCE.cells(scale, store)]
    found = [(cell, outcome) for cell, outcome in found if outcome is not None]
    if not found:
        return None
    first = found[0][1]
    columns = [("start", first.arrays, "before", first.row["p_value_before"])]
    for cell, outcome in found:
        title = DIVERGENCES[cell["part"]].replace(" of the means", "\nof the means")
        columns.append((title, outcome.arrays, "after", outcome.row["p_value_after"]))
    figure, axes = plt.subplots(
        2, len(columns), figsize=(2.3 * len(columns), 5.2), sharex=True, sharey=True
    )
    rng = np.random.default_rng(0)
    for (top, bottom), (title, arrays, when, p_value) in zip(
        axes.T, columns, strict=True
    ):
        means, stds = arrays[f"means_{when}"], arrays[f"stds_{when}"]
        many = np.repeat(means, max(1, 2000 // len(means)), axis=0)
        widths = np.repeat(stds, len(many) // len(means), axis=0)
        samples = many + widths * rng.standard_normal(many.shape)
        top.plot(*samples.T, ".", color="0.3", ms=1.5, alpha=0.4)
        top.set_title(title, fontsize=10)
        bottom.plot(*means.T, ".", color=FOUND_COLOUR, ms=3)
        shown = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"
        bottom.set_title(f"HZ of the means: {shown}", fontsize=8.5)
        for axis in (top, bottom):
            axis.set_aspect("equal")
            axis.set_xlim(-PLANE, PLANE)
            axis.set_ylim(-PLANE, PLANE)
    axes[0, 0].set_ylabel("samples of q(z)")
    axes[1, 0].set_ylabel("posterior means")
    figure.tight_layout()
    return figure


def bimodal_figure(scale: Scale, store: Store) -> Figure | None:
    """Samples of y from fits that started at the joint mode, and from the truth."""
    found = []
    for cell in ELBO_RANKING.cells(scale, store):
        if cell["dataset"] == "bimodal" and cell["start"] == "map":
            outcome = store.load(cell)
            if outcome is not None:
                found.append((cell["draw"], outcome.arrays))
    if not found:
        return None
    figure, axes = plt.subplots(
        1, len(found), figsize=(3.4 * len(found), 3.4), squeeze=False, sharey=True
    )
    for axis, (draw, arrays) in zip(axes[0], found, strict=True):
        known = known_problem("bimodal", draw)
        train = known.drawn.train
        inputs = np.linspace(train.inputs.min(), train.inputs.max(), NUM_POINTS)[
            :, None
        ]
        noise = jax.random.normal(
            jax.random.key(draw), (NUM_DRAWS, len(arrays["weight_mean"]))
        )
        weights = arrays["weight_mean"] + arrays["weight_std"] * noise
        draws = WeightDraws.equal(
            np.asarray(weights),
            np.sqrt(np.full((NUM_DRAWS, 1), known.model.noise_variance.value[0])),
            np.sqrt(np.full(NUM_DRAWS, float(known.model.latent_variance.value))),
        )
        network = known.model.network
        learned = predictive_at(network, draws, inputs).sample(20, seed=0)
        many = np.repeat(inputs, 20, axis=0)
        true = known.drawn.oracle.sample(many, seed=0)
        axis.plot(many, true, ".", color=TRUE_COLOUR, ms=1.5, alpha=0.35, label="truth")
        columns = np.broadcast_to(inputs[:, 0], learned.shape)
        axis.plot(
            columns.ravel(),
            learned.ravel(),
            ".",
            color=FOUND_COLOUR,
            ms=1.5,
            alpha=0.35,
            label="from the mode",
        )
        axis.plot(
            train.inputs, train.targets, ".", color=DATA_COLOUR, ms=2.5, label="data"
        )
        axis.set_title(f"draw {draw + 1}", fontsize=10)
        axis.set_xlabel("x")
    axes[0, 0].set_ylabel("y")
    axes[0, 0].legend(fontsize=8, markerscale=4)
    figure.tight_layout()
    return figure


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
    """Write the PNG files of a study; none if there is nothing to draw yet."""
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


def write_sheet(pictures: Sequence[Path], path: Path) -> None:
    """Write all pictures below one another to one PNG file."""
    images = [plt.imread(picture) for picture in pictures]
    width = max(image.shape[1] for image in images)
    rows = [np.ones((image.shape[0], width, 4), np.float32) for image in images]
    for row, image in zip(rows, images, strict=True):
        row[:, : image.shape[1], : image.shape[2]] = image
    with replacing(path) as temporary:
        plt.imsave(temporary, np.concatenate(rows), format="png")
