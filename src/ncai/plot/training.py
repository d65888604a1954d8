"""How training went: one line for each restart."""

from matplotlib.axes import Axes

from ncai.diagnostics.training_curves import (
    NAMES,
    history_of,
    settled_limits,
    stage_starts,
    term_values,
)
from ncai.plot.style import COLOURS, axes, plain


def training(
    model_or_history,
    ax: Axes | None = None,
    *,
    term: str = "value",
    colour: str = COLOURS["NCAI"],
) -> Axes:
    """The objective, or one of its terms, over the steps; the chosen restart on top.

    Args:
        model_or_history: a model that was fitted (not read from a file), or its
            `history_`.
        ax: where to draw; a new figure if not given.
        term: "value" for the objective, or a term named in `history_`.
        colour: of the chosen restart.
    """
    history, chosen = history_of(model_or_history)
    steps, values = history["step"], term_values(history, term)
    ax = axes(ax)
    for restart in range(values.shape[1]):
        if restart != chosen:
            ax.plot(steps, values[:, restart], color="black", alpha=0.25, linewidth=1)
    if chosen is not None:
        ax.plot(steps, values[:, chosen], color=colour, linewidth=2, label="chosen")
    for step in stage_starts(history):
        ax.axvline(step, color="black", linewidth=0.8, linestyle=":")
    low, high = settled_limits(values)
    ax.set(ylim=(low, high), xlabel="step", ylabel=NAMES.get(term, term))
    return plain(ax)
