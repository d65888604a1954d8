"""Figures of predictions and of uncertainties over x."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from scipy.stats import gaussian_kde

from ncai.study.engine import Outcome, Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.benchmark import ONE_DIMENSIONAL, QUALITATIVE
from ncai.study.experiments.decomposition import (
    DEFAULT,
    METHOD_LABELS,
    PARTS,
    load_outcomes,
)

COLOURS = {"bnn": "#2ca02c", "mfvi": "#1f77b4", "ncai": "#d62728"}
HEADS = {"bnn": "BNN", "mfvi": "BNN+LV with MFVI", "ncai": "BNN+LV with NCAI"}
SETS = {
    "goldberg": "Goldberg",
    "lidar": "Lidar",
    "williams": "Williams",
    "yuan": "Yuan",
    "heavy_tail": "Heavy-Tail",
    "depeweg": "Depeweg",
}
# Columns of the predictions and of the latents.
PLACES = {"bnn": (0, None), "mfvi": (1, 2), "ncai": (3, 4)}
PART_COLOURS = {"total": "0.2", "aleatoric": "#e6850e", "epistemic": "#3b6fb6"}
TRUTH_LINE = "0.45"


def qualitative_figure(scale: Scale, store: Store) -> Figure | None:
    """Draw predictions of three methods, and their z if any; one row per set."""
    found = _qualitative_outcomes(scale, store)
    shown = [name for name in ONE_DIMENSIONAL if any(key[0] == name for key in found)]
    if not shown:
        return None
    figure, axes = plt.subplots(
        len(shown),
        5,
        figsize=(13, 2.3 * len(shown)),
        squeeze=False,
        width_ratios=[1, 1, 0.8, 1, 0.8],
    )
    for line, name in zip(axes, shown, strict=True):
        targets = [found[key].arrays["targets"] for key in found if key[0] == name]
        for method, (column, latent_column) in PLACES.items():
            places = (
                line[column],
                None if latent_column is None else line[latent_column],
            )
            _fit_of_one_set(*places, found.get((name, method)), COLOURS[method])
            if (name, method) in found:
                line[column].set_ylim(*_wide_range(targets[0]))
        line[0].set_ylabel(SETS[name], fontsize=12)
    for method, (column, latent_column) in PLACES.items():
        axes[0, column].set_title(HEADS[method], fontsize=11)
        if latent_column is not None:
            axes[0, latent_column].set_title("its latent means", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("x")
    for axis in axes.ravel():
        axis.tick_params(labelsize=7)
    inch = 1 / figure.get_figheight()
    figure.text(
        0.5,
        0.08 * inch,
        "line and bands: median, central 50 % and 95 % of y; dashed: median and 95 % "
        "of the true process, where it is known",
        ha="center",
        fontsize=9,
    )
    figure.tight_layout(rect=(0, 0.25 * inch, 1, 1))
    return figure


def _qualitative_outcomes(scale: Scale, store: Store) -> dict[tuple[str, str], Outcome]:
    """Outcomes by set and method; "ncai" is the one of NCAI0 and NCAI selected."""
    found: dict[tuple[str, str], Outcome] = {}
    for cell in QUALITATIVE.cells(scale, store):
        outcome = store.load(cell) if cell.study == QUALITATIVE.name else None
        if outcome is not None:
            method = "ncai" if cell["method"] == "ncai0" else cell["method"]
            found[cell["dataset"], method] = outcome
    return found


def _fit_of_one_set(axis, latent_axis, outcome: Outcome | None, colour: str) -> None:
    """Draw predictions over x, and latent means if the method has latents."""
    if outcome is None:
        axis.set_axis_off()
        if latent_axis is not None:
            latent_axis.set_axis_off()
        return
    arrays = outcome.arrays
    _predictions(axis, arrays, colour)
    if latent_axis is not None:
        latent_axis.plot(
            arrays["inputs"], arrays["latents"], ".", color=colour, ms=3, alpha=0.6
        )
        latent_axis.set_ylabel("z / prior width", fontsize=8)


def _predictions(axis, arrays, colour: str) -> None:
    grid = arrays["grid"]
    low, lower, middle, upper, high = arrays["quantiles"]
    axis.plot(arrays["inputs"], arrays["targets"], ".", color="0.2", ms=2, alpha=0.5)
    axis.fill_between(grid, low, high, color=colour, alpha=0.25, lw=0)
    axis.fill_between(grid, lower, upper, color=colour, alpha=0.35, lw=0)
    axis.plot(grid, middle, color=colour, lw=1.3)
    for line in arrays.get("true_quantiles", ())[::2]:
        axis.plot(grid, line, color=TRUTH_LINE, lw=1, ls="--")


def _wide_range(targets: np.ndarray) -> tuple[float, float]:
    margin = 0.25 * float(np.ptp(targets))
    return float(targets.min()) - margin, float(targets.max()) + margin


def decomposition_figure(measure: str):
    """Draw the parts of the uncertainty over x for each method, with the data."""

    def draw(scale: Scale, store: Store) -> Figure | None:
        reference, others = load_outcomes(scale, store)
        wanted = [(method, "shared") for method in ("mfvi", "ncai", "marginal")]
        wanted.append((DEFAULT, "own"))
        shown = {key[0]: others[key] for key in wanted if key in others}
        if reference is not None:
            shown["hmc"] = reference
        if not shown:
            return None
        figure, axes = plt.subplots(
            2,
            len(shown),
            figsize=(3.6 * len(shown), 5.6),
            squeeze=False,
            sharex=True,
            sharey="row",
            height_ratios=[1.4, 1],
        )
        for (top, bottom), (method, outcome) in zip(axes.T, shown.items(), strict=True):
            _uncertainties(top, outcome.arrays, measure)
            _data_and_density(bottom, outcome.arrays)
            top.set_title(_head(method, outcome), fontsize=10)
            bottom.set_xlabel("x")
        units = "entropy, nats" if measure == "entropy" else "standard deviation"
        axes[0, 0].set_ylabel(units)
        axes[1, 0].set_ylabel("y")
        axes[0, 0].legend(fontsize=8)
        figure.tight_layout()
        return figure

    return draw


def _head(method: str, outcome: Outcome) -> str:
    if method != "hmc":
        return METHOD_LABELS[method]
    return f"HMC (largest R-hat {outcome.row['max_rhat']:.2f})"


def _uncertainties(axis, arrays, measure: str) -> None:
    grid = arrays["grid"]
    for part in PARTS:
        values = arrays[f"{measure}_{part}"]
        if measure == "variance":
            values = np.sqrt(np.maximum(values, 0))
        axis.plot(grid, values, color=PART_COLOURS[part], label=part)
    if measure == "entropy":
        axis.plot(
            grid,
            arrays["true_entropy"],
            color=TRUTH_LINE,
            ls="--",
            lw=1,
            label="of the truth",
        )


def _data_and_density(axis, arrays) -> None:
    axis.plot(arrays["inputs"], arrays["targets"], ".", color="0.2", ms=2, alpha=0.5)
    beside = axis.twinx()
    density = gaussian_kde(arrays["inputs"], 0.15)(arrays["grid"])
    beside.fill_between(arrays["grid"], density, color="#8c6bb1", alpha=0.3, lw=0)
    beside.set_ylim(0, 2.5 * density.max())
    beside.set_yticks([])
