"""Standard deviations that say little about how wide a density is."""

from typing import Any

import numpy as np
from scipy.special import ndtri

# Of intervals narrower than this the tails are no business.
LEAST_LEVEL = 0.8
# A log-normal whose logarithm has a standard deviation of 1.5 is just below it.
MOST_TIMES = 2.0


def rests_on_rare_draws(
    predictive: Any, std: np.ndarray, width: np.ndarray, level: float = 0.95
) -> np.ndarray:
    """Whether std is far more than a central interval of this width tells of.

    Where the logarithm of y was learned, values far out are e to the power of what the
    network gave: one draw in a thousand can then be most of a variance, while no
    interval notices it.

    Args:
        predictive: what both are of.
        std: standard deviations.
        width: of intervals with this probability.
        level: the probability; below 0.8 nothing is told.
    """
    if level < LEAST_LEVEL:
        return np.zeros(np.shape(std), bool)
    lattice = getattr(predictive, "lattice", None)
    if lattice is not None:  # a value stands for all that was rounded to it
        width = width + lattice.step
    of_a_normal = width / (2 * ndtri((1 + level) / 2))
    return std > MOST_TIMES * of_a_normal
