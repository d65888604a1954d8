"""The true process of a synthetic set: its density, its mean, and fresh draws.

The average log density of the truth at the test points is the best test log-likelihood
that any model can reach, so its error must be far smaller than the gaps between models.
With a leaky-ReLU network it is exact: f(x, .) is piecewise linear, and on each piece z
and the noise are Gaussian and integrate in closed form.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array
from scipy.special import log_ndtr, ndtr

from ncai.model.networks import MLP, FlatNetwork

LEAKY_SLOPE = 0.01
"""Slope of the hidden activation below 0, as in `ncai.model.networks.ACTIVATIONS`."""

_REACH = 40.0
"""We look for kinks up to this many prior stds from 0; the mass beyond is < 1e-300."""

_CHUNK = 2_000_000
"""The largest intermediate array, as a count of numbers: 16 MB."""


@runtime_checkable
class Oracle(Protocol):
    """What is known about the true process, in the raw units of the data."""

    def log_prob(
        self, inputs: Float[Array, "N 1"], targets: Float[Array, "N 1"]
    ) -> Float[Array, "N"]:
        """The log density of each target at its own input."""
        ...

    def log_prob_grid(
        self, inputs: Float[Array, "N 1"], target_grid: Float[Array, "G"]
    ) -> Float[Array, "N G"]:
        """The log density of every grid value at every input."""
        ...

    def mean(self, inputs: Float[Array, "N 1"]) -> Float[Array, "N 1"]:
        """The expected target at each input."""
        ...

    def sample(self, inputs: Float[Array, "N 1"], seed: int) -> Float[Array, "N 1"]:
        """One fresh target at each input."""
        ...


def _column(name: str, values) -> Float[Array, "N 1"]:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != 1:
        raise ValueError(f"{name} has shape {values.shape}; it must be [N, 1].")
    return values


def _pair(inputs, targets) -> tuple[Float[Array, "N 1"], Float[Array, "N 1"]]:
    inputs, targets = _column("inputs", inputs), _column("targets", targets)
    if len(inputs) != len(targets):
        raise ValueError(
            f"inputs has {len(inputs)} rows and targets {len(targets)}; "
            "they must have the same number."
        )
    return inputs, targets


def _grid(values) -> Float[Array, "G"]:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"target_grid has shape {values.shape}; it must be [G].")
    return values


def _normal_log_prob(values, mean, variance):
    return -0.5 * ((values - mean) ** 2 / variance + np.log(2 * np.pi * variance))


@dataclass(frozen=True)
class GaussianOracle:
    """y = mean(x) + Gaussian noise whose standard deviation may depend on x.

    Args:
        mean_function: the noiseless target for an array of inputs.
        noise_function: the width of the noise there.
        noise_is_variance: whether that is a variance or a standard deviation.
    """

    mean_function: Callable[[Array], Array]
    noise_function: Callable[[Array], Array]
    noise_is_variance: bool

    def noise_std(self, inputs: Float[Array, "N 1"]) -> Float[Array, "N 1"]:
        """The standard deviation of the noise at each input."""
        width = self.noise_function(_column("inputs", inputs))
        return np.sqrt(width) if self.noise_is_variance else width

    def log_prob(self, inputs, targets):
        """The log density of each target at its own input, [N]."""
        return self._log_prob(*_pair(inputs, targets))[:, 0]

    def log_prob_grid(self, inputs, target_grid):
        """The log density of every grid value at every input, [N, G]."""
        return self._log_prob(_column("inputs", inputs), _grid(target_grid)[None, :])

    def _log_prob(self, inputs, targets):
        return _normal_log_prob(
            targets, self.mean_function(inputs), self.noise_std(inputs) ** 2
        )

    def mean(self, inputs):
        """The expected target at each input, [N, 1]."""
        return self.mean_function(_column("inputs", inputs))

    def sample(self, inputs, seed):
        """One fresh target at each input, [N, 1]."""
        return self.draw(_column("inputs", inputs), np.random.default_rng(seed))

    def draw(self, inputs, generator: np.random.Generator) -> Float[Array, "N 1"]:
        """Fresh targets, from a random generator."""
        noise = generator.standard_normal(inputs.shape)
        return self.mean_function(inputs) + self.noise_std(inputs) * noise


@dataclass(frozen=True, eq=False)
class Truth:
    """The parameters that a set was generated from: y = f(x, z; W) + noise.

    Args:
        hidden: nodes of each hidden layer (leaky ReLU throughout).
        weights: W as one vector, in the order of `flat_network`.
        noise_var: variance of the output noise.
        latent_var: prior variance of z.
    """

    hidden: tuple[int, ...]
    weights: Float[Array, "P"]
    noise_var: float
    latent_var: float

    @property
    def flat_network(self) -> FlatNetwork:
        """The network of `weights`, with one input, one latent and one output."""
        return FlatNetwork(MLP(self.hidden), input_dim=1, latent_dim=1, output_dim=1)


@dataclass(frozen=True, eq=False)
class NetworkOracle:
    """y = f(x, z; W) + noise with z integrated out, for the network of `truth`."""

    truth: Truth

    def function(
        self, inputs: Float[Array, "N 1"], latents: Float[Array, "N J"]
    ) -> Float[Array, "N J"]:
        """f(x_n, z_nj; W) in double precision, whatever JAX is set to."""
        return self._preactivations(inputs, latents)[-1][..., 0]

    def log_prob(self, inputs, targets):
        """The log density of each target at its own input, [N]."""
        inputs, targets = _pair(inputs, targets)
        return self._by_chunks(inputs, targets)[:, 0]

    def log_prob_grid(self, inputs, target_grid):
        """The log density of every grid value at every input, [N, G]."""
        inputs, grid = _column("inputs", inputs), _grid(target_grid)
        return self._by_chunks(inputs, np.broadcast_to(grid, (len(inputs), len(grid))))

    def mean(self, inputs):
        """The expected target at each input, [N, 1]."""
        inputs = _column("inputs", inputs)
        parts = [self._mean(inputs[rows]) for rows in self._chunks(len(inputs), 1)]
        return np.concatenate([np.zeros((0, 1)), *parts])

    def sample(self, inputs, seed):
        """One fresh target at each input, [N, 1]."""
        return self.draw(_column("inputs", inputs), np.random.default_rng(seed))[0]

    def draw(
        self, inputs, generator
    ) -> tuple[Float[Array, "N 1"], Float[Array, "N 1"]]:
        """Fresh targets, and the latents behind them."""
        latents, noise = generator.standard_normal((2, *inputs.shape))
        latents = latents * self.truth.latent_var**0.5
        parts = [
            self.function(inputs[rows], latents[rows])
            for rows in self._chunks(len(inputs), 1)
        ]
        outputs = np.concatenate([np.zeros((0, 1)), *parts])
        return outputs + noise * self.truth.noise_var**0.5, latents

    def _chunks(self, num_rows: int, num_targets: int) -> list[slice]:
        # We do not know the number of kinks yet, so this is a guess: the first layer
        # adds one kink per node, and later layers about as many again.
        width = max(self.truth.hidden) * len(self.truth.hidden)
        size = max(1, _CHUNK // (4 * width * max(width, num_targets)))
        return [slice(start, start + size) for start in range(0, num_rows, size)]

    def _by_chunks(self, inputs, targets):
        parts = [
            self._log_prob(inputs[rows], targets[rows])
            for rows in self._chunks(len(inputs), targets.shape[1])
        ]
        return np.concatenate([np.zeros((0, targets.shape[1])), *parts])

    def _preactivations(self, inputs, latents) -> list[Float[Array, "N J H"]]:
        """What enters each layer's activation; the last entry is the output."""
        first, *rest = self._layers
        values = (inputs @ first["input"] + first["bias"])[:, None, :]
        out = [values + latents[:, :, None] * first["latent"][0]]
        for layer in rest:
            hidden = np.where(out[-1] > 0, out[-1], LEAKY_SLOPE * out[-1])
            out.append(hidden @ layer["weight"] + layer["bias"])
        return out

    @functools.cached_property
    def _layers(self):
        # Slices of a NumPy vector stay NumPy, hence double precision.
        weights: Any = np.asarray(self.truth.weights, np.float64)
        return self.truth.flat_network.unflatten(weights)

    def _pieces(self, inputs) -> tuple[Float[Array, "N J"], ...]:
        """Where f(x_n, .) is linear: edges in z, and intercept and slope between them.

        Rows with fewer pieces than others are padded with pieces of width 0.
        """
        reach = _REACH * self.truth.latent_var**0.5
        edges = np.tile([-reach, reach], (len(inputs), 1))
        for layer in range(len(self.truth.hidden)):
            # Between the kinks of the layers below, a layer is linear in z: its own
            # kinks are where a straight line crosses 0.
            values = self._preactivations(inputs, edges)[layer]
            left, right = values[:, :-1], values[:, 1:]
            crosses = (left > 0) != (right > 0)
            share = np.where(crosses, left, 1.0) / np.where(crosses, left - right, 1.0)
            start, width = edges[:, :-1, None], np.diff(edges)[:, :, None]
            kinks = np.where(crosses, start + width * share, reach)
            most = int(crosses.sum(axis=(1, 2)).max(initial=0))
            kinks = np.sort(kinks.reshape(len(inputs), -1))[:, :most]
            edges = np.sort(np.concatenate([edges, kinks], axis=1))
        outputs = self.function(inputs, edges)
        width = np.diff(edges)
        slopes = np.diff(outputs) / np.where(width > 0, width, 1.0)
        return edges, outputs[:, :-1] - slopes * edges[:, :-1], slopes

    def _log_prob(self, inputs, targets: Float[Array, "N G"]) -> Float[Array, "N G"]:
        latent_var, noise_var = self.truth.latent_var, self.truth.noise_var
        edges, intercepts, slopes = (a[:, None, :] for a in self._pieces(inputs))
        total_var = noise_var + slopes**2 * latent_var
        resid = targets[:, :, None] - intercepts
        # If f were linear everywhere, z given y would be Gaussian with these moments.
        # The piece contributes the part of that Gaussian between its edges.
        centre = slopes * latent_var * resid / total_var
        spread = np.sqrt(latent_var * noise_var / total_var)
        log_mass = _log_normal_mass(
            (edges[..., :-1] - centre) / spread, (edges[..., 1:] - centre) / spread
        )
        terms = log_mass + _normal_log_prob(resid, 0.0, total_var)
        top = terms.max(axis=-1, keepdims=True)
        return top[..., 0] + np.log(np.exp(terms - top).sum(axis=-1))

    def _mean(self, inputs):
        edges, intercepts, slopes = self._pieces(inputs)
        std = self.truth.latent_var**0.5
        mass = np.diff(ndtr(edges / std))
        density = np.exp(_normal_log_prob(edges / std, 0.0, 1.0))
        parts = intercepts * mass - slopes * std * np.diff(density)
        return parts.sum(axis=1, keepdims=True)


def _log_normal_mass(lower, upper):
    """The log of P(lower < u < upper) for a standard normal u, exact in both tails."""
    flip = lower + upper > 0  # work in the left tail, where nothing rounds to 1
    low, high = np.where(flip, -upper, lower), np.where(flip, -lower, upper)
    log_high = log_ndtr(high)
    gap = np.minimum(log_ndtr(low) - log_high, 0.0)
    with np.errstate(divide="ignore"):  # a piece of width 0 has log mass -inf
        return log_high + np.log(-np.expm1(gap))
