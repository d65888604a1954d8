"""What the true process says of y over x: curves that pictures draw."""

from collections.abc import Sequence

import numpy as np

from ncai.datasets.oracles import Oracle

TARGET_POINTS = 2001


def _log_density(oracle: Oracle, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values of y that reach past all likely ones, and log p(y|x), [rows, values]."""
    samples = oracle.sample(np.repeat(inputs, 20, axis=0), seed=0)
    margin = 0.5 * float(np.ptp(samples))
    targets = np.linspace(samples.min() - margin, samples.max() + margin, TARGET_POINTS)
    return targets, oracle.log_prob_grid(inputs, targets)


def oracle_quantiles(
    oracle: Oracle, inputs: np.ndarray, levels: Sequence[float]
) -> np.ndarray:
    """Of y at each input, [levels, rows]."""
    targets, log_density = _log_density(oracle, inputs)
    reached = np.cumsum(np.exp(log_density), axis=1)
    reached /= reached[:, -1:]
    # The sum up to a grid value holds all of its bin, which ends half a step on.
    ends = targets + 0.5 * (targets[1] - targets[0])
    return np.stack([np.interp(levels, row, ends) for row in reached], axis=1)


def oracle_entropy(oracle: Oracle, inputs: np.ndarray) -> np.ndarray:
    """Of y at each input: all of it is aleatoric."""
    targets, log_density = _log_density(oracle, inputs)
    step = targets[1] - targets[0]
    return -step * np.sum(np.exp(log_density) * log_density, axis=1)
