"""The predictive distribution of y where the network was trained on t = g(y)."""

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from ncai.model.latent_nodes import latent_nodes
from ncai.predictive.decomposition import Decomposition
from ncai.predictive.distribution import (
    PredictiveDistribution,
    _numbers,
    mixture,
    row_statistics,
)
from ncai.predictive.row_map import map_mixtures
from ncai.preprocessing.target_transforms import (
    TargetTransform,
    inverse,
    log_inverse_slope,
)
from ncai.types import WeightDraws

# Gauss-Hermite nodes and weights for averages over the output noise.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
# A highest-density set is looked for among so many quantiles of a row.
_GRID_POINTS = 512


class TransformedPredictive(PredictiveDistribution):
    """As `PredictiveDistribution`, which it asks about t; answers are about y.

    Densities, cdf and quantiles are exact given the draws, as they are there. Moments
    average g's inverse over the noise by Gauss-Hermite quadrature. CRPS is that of one
    evenly spread value of y for each component.
    """

    def __init__(self, *, transform: TargetTransform, **options):
        super().__init__(**options)
        self.transform = transform

    # ----- Moments --------------------------------------------------------------------

    @functools.cached_property
    def _moments(self):
        aleatoric, epistemic, centre = self._average(_PARTS, self.draws, self._nodes())
        return centre, aleatoric + epistemic

    def _average(self, statistics: dict, draws: WeightDraws, nodes: np.ndarray):
        statistic = statistics[self.transform.name]
        return map_mixtures(
            statistic, self.network, draws, nodes, self.inputs, (), self._shared()
        )

    def _shared(self):
        shape = np.broadcast_arrays(self.target_shift, *self.transform.shape)[1:]
        return tuple(
            np.asarray(a, np.float32)
            for a in (self.target_shift, self.target_scale, *shape)
        )

    def mean(self) -> np.ndarray:
        """E[y|x]."""
        return self._drop(self._moments[0])

    def variance(self) -> np.ndarray:
        """Var[y|x], noise included."""
        return self._drop(self._moments[1])

    # ----- Densities ------------------------------------------------------------------

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """Log p(y|x), [N]: the joint density of all outputs."""
        targets = self._targets(y, "y")
        inside = np.all(np.isfinite(self.transform.forward(targets)), axis=1)
        safe = np.where(inside.reshape(-1, 1), targets, self.transform.inverse(0.0))
        log_density = super().log_prob(self.transform.forward(safe))
        log_density = log_density + self.transform.log_slope(safe).sum(axis=1)
        return np.where(inside, log_density, -np.inf)

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """P(y' <= y) for each output."""
        return super().cdf(self._transformed(self._targets(y, "y")))

    def prob_above(self, threshold: ArrayLike) -> np.ndarray:
        """P(y' > threshold) for each output; `threshold` is one number or an array."""
        targets = self._targets(threshold, "threshold")
        return super().prob_above(self._transformed(targets))

    def _transformed(self, targets):
        """g(y), and minus infinity below the values that y can have."""
        t = self.transform.forward(targets)
        return np.where(np.isnan(t), -np.inf, t)

    def log_prob_grid(self, values: ArrayLike, output: int = 0) -> np.ndarray:
        """Log density of one output at the same G values for every row, [N, G]."""
        values = _numbers("values", values)
        if values.ndim != 1 or np.isnan(values).any():
            return super().log_prob_grid(values, output)  # which says what is wrong
        one = self.transform.of_output(self._output(output))
        t = one.forward(values)
        inside = np.isfinite(t)
        log_density = super().log_prob_grid(np.where(inside, t, 0.0), output)
        slopes = np.where(inside, one.log_slope(np.where(inside, values, 1.0)), -np.inf)
        return log_density + slopes

    def crps(self, y: ArrayLike) -> np.ndarray:
        """Continuous ranked probability score of each output; smaller is better."""
        targets = self._targets(y, "y").astype(np.float32)
        found = map_mixtures(
            _CRPS[self.transform.name],
            self.network,
            self.draws,
            self._nodes(),
            self.inputs,
            targets,
            self._shared(),
        )
        return self._drop(found)

    # ----- Quantiles and intervals ----------------------------------------------------

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Values with probability `q` below them; see `PredictiveDistribution`."""
        found = super().quantile(q)
        if self.single_output or not np.ndim(q):
            return self.transform.inverse(found)
        return np.swapaxes(
            self.transform.inverse(np.swapaxes(found, 1, 2)), 1, 2
        )  # its outputs are the last axis

    def _highest_density(self, level: float, output: int | None) -> list[np.ndarray]:
        if output is None and self.network.output_dim > 1:
            return super()._highest_density(level, output)  # which says what is wrong
        output = self._output(0 if output is None else output)
        ends = super().quantile([5e-5, 1 - 5e-5]).reshape(len(self), -1, 2)[:, output]
        one = self.transform.of_output(output)
        share = np.linspace(0, 1, _GRID_POINTS)
        # Half of the points even in t, half in y: each is blind where slopes are steep.
        t = ends[:, :1] + share[::2] * (ends[:, 1:] - ends[:, :1])
        low, high = one.inverse(ends[:, :1]), one.inverse(ends[:, 1:])
        points = np.sort(
            np.concatenate([one.inverse(t), low + share[1::2] * (high - low)], axis=1)
        )
        shift, scale = self.target_shift[output], self.target_scale[output]
        scaled = ((one.forward(points) - shift) / scale).astype(np.float32)
        log_density = map_mixtures(
            _log_density_at,
            self.network,
            self.draws,
            self._nodes(),
            self.inputs,
            scaled,
            np.int32(output),
            values_per_row=_GRID_POINTS,
        )
        density = np.exp(log_density + one.log_slope(points) - np.log(scale))
        return [
            row_statistics.highest_density_set(*row, _threshold(*row, level), level)
            for row in zip(points, density, strict=True)
        ]

    # ----- Samples --------------------------------------------------------------------

    def sample(self, n: int, seed: int | None = None) -> np.ndarray:
        """Random draws of y, [n, N] or [n, N, L], independent between rows."""
        return self.transform.inverse(super().sample(n, seed))

    def sample_functions(self, n: int, seed: int | None = None, **options):
        """Random functions at the rows: g's inverse of those of t.

        With latent="mean" that is a typical y given x and W (g's inverse of the mean of
        t), which is not its mean.
        """
        return self.transform.inverse(super().sample_functions(n, seed, **options))

    # ----- Decomposition --------------------------------------------------------------

    def decompose(self, measure: str = "variance", **options) -> Decomposition:
        """Split each row's uncertainty; see `PredictiveDistribution.decompose`.

        The epistemic entropy is that of t: information does not depend on units.
        """
        found = super().decompose(measure, **options)
        if measure != "entropy":
            return found
        draws, num_latent = self._split_draws(
            options.get("num_weight_draws"), options.get("num_latent_draws")
        )
        nodes = latent_nodes(len(draws.weights), num_latent, self.network.latent_dim)
        shift = self._average(_SLOPES, draws, nodes).sum(axis=1)
        return Decomposition(
            found.total + shift, found.aleatoric + shift, found.epistemic
        )

    def _variance_parts(self, draws: WeightDraws, num_latent: int):
        nodes = latent_nodes(len(draws.weights), num_latent, self.network.latent_dim)
        aleatoric, epistemic, _ = self._average(_PARTS, draws, nodes)
        return self._drop(aleatoric), self._drop(epistemic)


# ----- One row, compiled --------------------------------------------------------------


def _row_parts(name, means, noise_std, row, shared):
    """E_W Var[y|W], Var_W E[y|W] and E[y] of each output."""
    del row
    shift, scale, *shape = shared
    # Squares of differences from a value in the middle: large numbers do not cancel.
    middle = inverse(name, shift + scale * means.mean((0, 1)), *shape)

    def moments(t):
        away = inverse(name, t, *shape) - middle
        return away, jnp.square(away)

    first, second = _over_noise(moments, means, noise_std, shift, scale)
    given_weights = first.mean(1)
    within = second.mean(1) - jnp.square(given_weights)
    centre = given_weights.mean(0)
    between = jnp.square(given_weights - centre).mean(0)
    return jnp.maximum(within, 0).mean(0), between, middle + centre


def _row_slope(name, means, noise_std, row, shared):
    """E[log dy/dt] of each output."""
    del row
    shift, scale, *shape = shared
    (slope,) = _over_noise(
        lambda t: (log_inverse_slope(name, t, *shape),), means, noise_std, shift, scale
    )
    return slope.mean((0, 1))


def _over_noise(function, means, noise_std, shift, scale):
    """Averages over the noise of functions of t, for each component [S, M, L].

    Node by node: an axis of so few would keep the compiler from vector instructions.
    """

    def add(totals, node_and_weight):
        node, weight = node_and_weight
        found = function(shift + scale * (means + node * noise_std[:, None]))
        pairs = zip(totals, found, strict=True)
        return tuple(total + weight * part for total, part in pairs), None

    zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(function, means))
    nodes = tuple(jnp.asarray(a, means.dtype) for a in (_NODES, _WEIGHTS))
    return jax.lax.scan(add, zeros, nodes)[0]


def _row_crps(name, means, noise_std, targets, shared):
    """CRPS of an even sample of y."""
    shift, scale, *shape = shared
    noise = mixture.even_noise(means.shape, means.dtype)
    t = shift + scale * (means + noise_std[:, None, :] * noise)
    sample = inverse(name, t, *shape).reshape(-1, means.shape[-1])
    spread = jax.vmap(mixture.half_mean_difference, 1)(sample)
    return jnp.abs(sample - targets).mean(0) - spread


def _log_density_at(means, noise_std, points, output):
    means, noise_std = means[..., output, None], noise_std[:, output, None]
    log_density = partial(mixture.joint_log_density, means, noise_std)
    return jax.lax.map(log_density, points[:, None])


def _named(function, name):
    """A function of its own for each transform, as a static argument must be."""
    return functools.wraps(function)(partial(function, name))


_PARTS = {name: _named(_row_parts, name) for name in ("log", "yeo_johnson")}
_SLOPES = {name: _named(_row_slope, name) for name in ("log", "yeo_johnson")}
_CRPS = {name: _named(_row_crps, name) for name in ("log", "yeo_johnson")}


def _threshold(points, density, level) -> float:
    """The height above which the density holds `level`."""
    mass = density * np.gradient(points)
    order = np.argsort(-density)
    filled = np.cumsum(mass[order]) / mass.sum()
    return float(density[order[min(np.searchsorted(filled, level), len(order) - 1)]])
