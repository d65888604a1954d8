"""Gibbs moves of a network with one hidden layer of leaky ReLU, which jump over modes.

Given W, each z is piecewise Gaussian. Given z and the hidden nodes, the output weights
are Gaussian. So one sweep draws z exactly, moves the weights into each hidden node by
elliptical slice sampling (Murray et al., 2010) with the output weights integrated out,
and draws the output weights exactly. The loops are in `leaky_gibbs.c`.
"""

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from benchmarks.references.leaky import library

SIDE = 65  # as in leaky_gibbs.c


def _state(rng: np.random.Generator) -> np.ndarray:
    """Of the random numbers of the compiled code."""
    return rng.integers(1, 2**63, size=4, dtype=np.uint64)


def draw_latents(rng, inputs, targets, weights, noise_var) -> np.ndarray:
    """A draw of z for each row from p(z | x, y, W)."""
    inputs, targets, weights = (
        np.ascontiguousarray(a, float) for a in (inputs, targets, weights)
    )
    latents, state = np.empty_like(inputs), _state(rng)
    library().draw_latents(
        inputs.ctypes.data,
        targets.ctypes.data,
        len(inputs),
        len(weights) // 4,
        weights.ctypes.data,
        noise_var,
        state.ctypes.data,
        latents.ctypes.data,
    )
    return latents


def slice_nodes(rng, inputs, latents, targets, weights, variances, passes=1):
    """Weights with other hidden nodes; gram and moment of the features at the end.

    The features are a one and the hidden nodes at (x_n, z_n). The output weights have
    no part in it.
    """
    arrays = [np.ascontiguousarray(a, float) for a in (inputs, latents, targets)]
    weights, state = np.array(weights, float), _state(rng)
    gram, moment = np.empty((SIDE, SIDE)), np.empty(SIDE)
    library().slice_nodes(
        *(a.ctypes.data for a in arrays),
        len(arrays[0]),
        len(weights) // 4,
        *variances,
        passes,
        *(a.ctypes.data for a in (weights, state, gram, moment)),
    )
    size = len(weights) // 4 + 1
    return weights, gram[:size, :size], moment[:size]


def draw_outputs(rng, gram, moment, variances) -> np.ndarray:
    """The output bias and the output weights, given the features."""
    noise_var, prior_var = variances
    precision = gram / noise_var + np.eye(len(gram)) / prior_var
    lower = np.linalg.cholesky(precision)
    mean = cho_solve((lower, True), moment / noise_var)
    noise = rng.standard_normal(len(mean))
    return mean + solve_triangular(lower, noise, lower=True, trans=1)


def sweep(rng, inputs, targets, weights, variances, passes=1) -> np.ndarray:
    """Weights after z, all hidden nodes and the outputs have moved.

    Args:
        rng: random numbers.
        inputs: x of each row.
        targets: y of each row.
        weights: in the order of `FlatNetwork`.
        variances: s_eps and s_w.
        passes: how often each hidden node moves with the same z.
    """
    latents = draw_latents(rng, inputs, targets, weights, variances[0])
    weights, gram, moment = slice_nodes(
        rng, inputs, latents, targets, weights, variances, passes
    )
    start = 3 * (len(weights) // 4)
    weights[start:] = draw_outputs(rng, gram, moment, variances)
    return weights
