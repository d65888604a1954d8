"""Pictures of `divergence` and of `elbo-ranking` on Bimodal."""

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from ncai.study.engine.scales import Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.benchmark_scores import predictive_at
from ncai.study.experiments.divergence import DIVERGENCE, DIVERGENCES
from ncai.study.experiments.elbo_ranking import ELBO_RANKING
from ncai.study.experiments.ground_truth import known_problem
from ncai.types import WeightDraws

TRUE_COLOUR, FOUND_COLOUR, DATA_COLOUR = "#7b3294", "#1f77b4", "0.25"
PLANE = 3.2  # half the width of the pictures of z
NUM_DRAWS, NUM_POINTS = 64, 120


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
    """Samples of y where the ELBO was trained from the joint mode, and the truth's."""
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
        draws = WeightDraws(
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
