"""What all pictures share: colours, axes, margins."""

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

# Colours of Okabe and Ito, distinct for colour-blind readers too.
COLOURS = {
    "truth": "#4d4d4d",
    "BNN": "#009e73",
    "MFVI": "#0072b2",
    "NCAI": "#d55e00",
}
ALEATORIC, EPISTEMIC = COLOURS["NCAI"], COLOURS["MFVI"]
# Share of the width left free on both sides, so that no point is cut in half.
ROOM = 0.025


def axes(ax: Axes | None) -> Axes:
    """The given axis, or that of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def plain(ax: Axes) -> Axes:
    """Remove the lines at the top and on the right."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def limits(values: np.ndarray, room: float = ROOM) -> tuple[float, float]:
    """Ends of an axis that shows all values and some room."""
    low, high = float(np.min(values)), float(np.max(values))
    span = (high - low) or 1.0
    return low - room * span - 1e-9, high + room * span + 1e-9


def one_column(values: ArrayLike, name: str) -> np.ndarray:
    """Values given as [N] or [N, 1], as [N]."""
    array = np.asarray(values, float)
    if array.ndim == 0 or array.size != len(array) or array.size == 0:
        raise ValueError(f"{name} has shape {array.shape}; it must be [N] or [N, 1].")
    return array.reshape(-1)


def with_unit(name: str, unit: str | None) -> str:
    """A label such as `speed (m/s)`."""
    return f"{name} ({unit})" if unit else name
