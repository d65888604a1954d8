"""Gibbs moves of a network with one hidden layer of leaky ReLU, which jump over modes.

Given W, each z is piecewise Gaussian. Given z and the hidden nodes, the output weights
are Gaussian. So one sweep draws z exactly, moves the weights into each hidden node with
the output weights integrated out, and draws the output weights exactly.
"""

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import log_ndtr, ndtri_exp

SLOPE = 0.01


def log_difference(larger, smaller):
    """log(exp(larger) - exp(smaller))."""
    with np.errstate(divide="ignore"):
        return larger + np.log1p(-np.exp(np.minimum(smaller - larger, 0)))


def draw_latents(rng, inputs, targets, weights, noise_var) -> np.ndarray:
    """A draw of z for each row from p(z | x, y, W); weights is (b, a, c, d, v)."""
    b, a, c, d, v = weights
    offsets = b + np.outer(inputs, a)
    slopes = np.where(np.abs(c) < 1e-12, 1e-12, c)
    kinks = -offsets / slopes
    order = np.argsort(kinks, axis=1)
    kinks = np.take_along_axis(kinks, order, axis=1)
    # Below all kinks a node is on if its slope falls; at its kink it changes.
    below = np.where(slopes < 0, 1.0, SLOPE)
    jumps = np.where(slopes < 0, SLOPE - 1, 1 - SLOPE)[order]

    def pieces(by_node, start):
        """Of a sum over nodes: its value in each piece, [rows, nodes + 1]."""
        first = start + (by_node * below).sum(axis=1, keepdims=True)
        changes = np.take_along_axis(by_node, order, axis=1) * jumps
        return np.concatenate([first, first + np.cumsum(changes, axis=1)], axis=1)

    level = pieces(v * offsets, d)
    slope = pieces(np.broadcast_to(v * slopes, offsets.shape), 0.0)
    precision = 1 + slope**2 / noise_var
    error = targets[:, None] - level
    mean, width = slope * error / noise_var / precision, precision**-0.5
    infinite = np.full((len(kinks), 1), np.inf)
    low = (np.concatenate([-infinite, kinks], axis=1) - mean) / width
    high = (np.concatenate([kinks, infinite], axis=1) - mean) / width
    # Both in the lower half, where the distribution function is accurate.
    flipped = low > 0
    low, high = np.where(flipped, -high, low), np.where(flipped, -low, high)
    lower, upper = log_ndtr(low), log_ndtr(high)
    mass = 0.5 * (precision * mean**2 - error**2 / noise_var) + np.log(width)
    mass = mass + log_difference(upper, lower)
    mass = np.where(np.isnan(mass), -np.inf, mass)
    chosen = np.argmax(mass + rng.gumbel(size=mass.shape), axis=1)[:, None]

    def of_chosen(values):
        return np.take_along_axis(values, chosen, axis=1)[:, 0]

    lower, upper = of_chosen(lower), of_chosen(upper)
    share = upper + np.log(rng.random(len(inputs)))
    rest = np.logaddexp(share, lower + np.log1p(-np.exp(share - upper)))
    standard = np.clip(ndtri_exp(rest), of_chosen(low), of_chosen(high))
    standard = np.where(of_chosen(flipped), -standard, standard)
    return of_chosen(mean) + of_chosen(width) * standard


class Collapsed:
    """p(y | hidden nodes, z), with the output weights integrated out.

    The features are a one and the hidden nodes at (x_n, z_n).
    """

    def __init__(self, inputs, latents, targets, hidden, noise_var, prior_var):
        """`hidden` is [nodes, 3]: the weights b, a and c into each node."""
        self.given = np.stack([np.ones_like(inputs), inputs, latents])
        self.noise_var, self.prior_var = noise_var, prior_var
        self.hidden, self.targets = hidden.copy(), targets
        after = [self.feature(weights) for weights in hidden]
        self.features = np.stack([np.ones_like(inputs), *after])
        self.gram = self.features @ self.features.T
        self.moment = self.features @ targets

    def feature(self, weights):
        before = weights @ self.given
        return np.maximum(before, SLOPE * before)

    def _factor(self, gram, moment):
        precision = gram / self.noise_var
        precision[np.diag_indices_from(precision)] += 1 / self.prior_var
        lower = np.linalg.cholesky(precision)
        half = solve_triangular(lower, moment / self.noise_var, lower=True)
        return lower, half

    def value(self, gram=None, moment=None) -> float:
        """Log p(y | hidden nodes, z) up to a constant."""
        if gram is None:
            gram, moment = self.gram, self.moment
        lower, half = self._factor(gram, moment)
        return 0.5 * float(half @ half) - float(np.log(np.diag(lower)).sum())

    def with_node(self, node, weights):
        """What changes if a node has these weights: feature, gram, moment."""
        feature, place = self.feature(weights), node + 1
        products = self.features @ feature
        products[place] = feature @ feature
        gram, moment = self.gram.copy(), self.moment.copy()
        gram[place], gram[:, place] = products, products
        moment[place] = feature @ self.targets
        return feature, gram, moment

    def take(self, node, weights, changed) -> None:
        feature, self.gram, self.moment = changed
        self.hidden[node], self.features[node + 1] = weights, feature

    def slice_node(self, rng, node, value) -> float:
        """Move a node by elliptical slice sampling (Murray et al., 2010)."""
        here = self.hidden[node].copy()
        other = np.sqrt(self.prior_var) * rng.standard_normal(3)
        level = value + np.log(rng.random())
        angle = rng.uniform(0, 2 * np.pi)
        low, high = angle - 2 * np.pi, angle
        while True:
            there = here * np.cos(angle) + other * np.sin(angle)
            changed = self.with_node(node, there)
            found = self.value(*changed[1:])
            if found > level:
                self.take(node, there, changed)
                return found
            if high - low < 1e-10:
                return value
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = rng.uniform(low, high)

    def draw_outputs(self, rng) -> np.ndarray:
        """The output bias and the output weights, given all else."""
        lower, _ = self._factor(self.gram, self.moment)
        mean = cho_solve((lower, True), self.moment / self.noise_var)
        noise = rng.standard_normal(len(mean))
        return mean + solve_triangular(lower, noise, lower=True, trans=1)


def sweep(rng, inputs, targets, weights, variances, passes=1) -> np.ndarray:
    """Weights after z, all hidden nodes (in random order) and the outputs.

    Args:
        rng: random numbers.
        inputs: x of each row.
        targets: y of each row.
        weights: in the order of `FlatNetwork`.
        variances: s_eps and s_w.
        passes: how often each hidden node moves with the same z.
    """
    size = len(weights) // 4
    parts = np.split(weights, [size, 2 * size, 3 * size, 3 * size + 1])
    latents = draw_latents(rng, inputs, targets, parts, variances[0])
    hidden = np.stack(parts[:3], axis=1)
    collapsed = Collapsed(inputs, latents, targets, hidden, *variances)
    value = collapsed.value()
    for _ in range(passes):
        for node in rng.permutation(size):
            value = collapsed.slice_node(rng, node, value)
    outputs = collapsed.draw_outputs(rng)
    return np.concatenate([collapsed.hidden.T.ravel(), outputs])
