"""The demo: one synthetic set with a known density, fitted by three methods.

This module makes the fits, their scores, the picture and the report.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ncai import plot
from ncai.datasets import make_dataset
from ncai.datasets.synthetic import SyntheticData
from ncai.diagnostics.latent_diagnosis import LatentDiagnosis
from ncai.estimators.bnn import BNNRegressor
from ncai.estimators.bnn_lv import BNNLVRegressor
from ncai.inference.base import Method
from ncai.inference.mean_field import MFVI
from ncai.inference.ncai import NCAI
from ncai.report import ReportInputs, write_report
from ncai.report.words import fixed
from ncai.runtime.atomic_write import replacing
from ncai.stats.scores import mpiw, picp

# The central interval whose coverage and width the demo shows.
LEVEL = 0.95
# The paper's settings for this set, with fewer steps: NCAI is far ahead by then, and
# the demo takes less than three minutes.
_COMMON: dict[str, Any] = {"preset": "paper", "standardize": False, "hidden": (50,)}
# Estimator, method and noise variance; the variances of z and noise are the true ones.
_RECIPES: dict[str, tuple[type[BNNLVRegressor], Method, float]] = {
    "BNN": (BNNRegressor, MFVI(), 0.5),
    "MFVI": (BNNLVRegressor, MFVI(latent_variance=0.01), 0.1),
    "NCAI": (
        BNNLVRegressor,
        NCAI(latent_variance=0.01, input_tolerance=0.1, target_tolerance=1.0),
        0.1,
    ),
}
_FULL = {"max_steps": 10_000, "n_restarts": 10}
_QUICK = {"max_steps": 100, "n_restarts": 2}
_QUICK_DRAWS = 16


@dataclass(frozen=True, eq=False)
class DemoFit:
    """One fit, and how well it predicts the test rows.

    Attributes:
        name: the model and its inference method.
        method: short name of the method, a key of `ncai.plot.COLOURS`.
        model: the fitted estimator.
        log_likelihood: average over the test rows.
        gap: how far that is below the average of the true density.
        coverage: share of test rows inside their 95% interval.
        width: mean width of these intervals.
        diagnosis: of the latents; None for a model without latents.
        seconds: duration of the fit.
    """

    name: str
    method: str
    model: BNNLVRegressor
    log_likelihood: float
    gap: float
    coverage: float
    width: float
    diagnosis: LatentDiagnosis | None
    seconds: float

    @property
    def true_log_likelihood(self) -> float:
        """Average log density of the test rows under the truth."""
        return self.log_likelihood + self.gap


def demo_data(seed: int) -> SyntheticData:
    """Heavy-Tail: 300 training rows, 300 test rows, and their true density."""
    return make_dataset("heavy_tail", seed)


def demo_models(seed: int, quick: bool, progress: bool) -> dict[str, BNNLVRegressor]:
    """The estimators by method, not yet fitted."""
    common = {
        **_COMMON,
        **(_QUICK if quick else _FULL),
        "progress": progress,
        "random_state": seed,
    }
    draws = {"n_weight_draws": _QUICK_DRAWS} if quick else {}
    return {
        name: kind(
            inference=replace(method, **draws), noise_variance=noise_variance, **common
        )
        for name, (kind, method, noise_variance) in _RECIPES.items()
    }


def demo_name(method: str) -> str:
    """The model and its inference method."""
    return method if method == "BNN" else f"BNN+LV, {method}"


def fit_and_score(method: str, model: BNNLVRegressor, data: SyntheticData) -> DemoFit:
    """Fit a model to the training rows and score it on the test rows."""
    train, valid, test = (
        (part.inputs, part.targets[:, 0])
        for part in (data.train, data.valid, data.test)
    )
    model.fit(*train, X_valid=valid[0], y_valid=valid[1])
    if model.interrupted_:  # Ctrl-C ends a fit early; here it ends the demo
        raise KeyboardInterrupt
    predictive = model.predict_dist(test[0])
    log_likelihood = float(predictive.log_prob(test[1]).mean())
    best = float(data.oracle.log_prob(data.test.inputs, data.test.targets).mean())
    lower, upper = predictive.interval(LEVEL)
    return DemoFit(
        name=demo_name(method),
        method=method,
        model=model,
        log_likelihood=log_likelihood,
        gap=best - log_likelihood,
        coverage=picp(test[1], lower, upper),
        width=mpiw(lower, upper),
        diagnosis=None if method == "BNN" else model.diagnose(),
        seconds=model.fit_seconds_,
    )


def white_noise_levels(fits: list[DemoFit]) -> tuple[float, float]:
    """HZ and MI that white noise of as many rows exceeds in 5% of cases."""
    found = [fit.diagnosis for fit in fits if fit.diagnosis is not None]
    return found[0].hz_reference, max(one.mi_reference for one in found)


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


def write_demo_report(
    path: Path, data: SyntheticData, fits: list[DemoFit], command: str
) -> None:
    """Write the report on the last of the fits."""
    *others, main = fits
    write_report(
        path,
        ReportInputs(
            main.model,
            *_rows(data.train),
            *_rows(data.test),
            target_name="y",
            data_notes=[
                "Heavy-Tail is a synthetic set: a network with a latent input makes y "
                "from x, so the true density is known and shown.",
                "The true density has a log-likelihood of "
                f"{fixed(main.true_log_likelihood)} on the test rows; no model can be "
                "expected to do better.",
                "Three models were fitted to the same rows. BNN is a plain Bayesian "
                "neural network. MFVI and NCAI have a latent variable z: MFVI is plain "
                "variational inference, NCAI constrains z to be white noise.",
            ],
            command=command,
            title="Heavy-Tail, fitted three ways",
            method_name=main.method,
            others={fit.method: fit.model for fit in reversed(others)},
            truth=data.oracle,
        ),
    )


def _rows(part) -> tuple[pd.DataFrame, np.ndarray]:
    return pd.DataFrame(part.inputs, columns=["x"]), part.targets[:, 0]
