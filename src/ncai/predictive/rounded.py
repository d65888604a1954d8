"""The predictive distribution of a y that is rounded.

The network learns y before it was rounded (`Lattice.unround`). What is asked about here
is y itself: P(y = k) is the probability of everything that is rounded to k.
"""

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, logsumexp
from numpy.typing import ArrayLike

from ncai.predictive.decomposition import Decomposition
from ncai.predictive.distribution import PredictiveDistribution, mixture
from ncai.predictive.row_statistics import counted_log_mean
from ncai.predictive.transformed import TransformedPredictive
from ncai.preprocessing.rounding import Lattice
from ncai.preprocessing.target_transforms import NAMES, TargetTransform, inverse


def predictive_of(
    transform: TargetTransform, lattice: Lattice, **options
) -> PredictiveDistribution:
    """The predictive distribution of y, whatever was trained on."""
    rounded, transformed = bool(lattice), transform.name != "none"
    if rounded and transformed:
        return RoundedTransformed(lattice=lattice, transform=transform, **options)
    if rounded:
        return RoundedPredictive(lattice=lattice, **options)
    if transformed:
        return TransformedPredictive(transform=transform, **options)
    return PredictiveDistribution(**options)


class _Rounded(PredictiveDistribution):
    """Answers about y, rounded, from those of the class it is mixed with.

    Probabilities, quantiles and intervals are exact given the draws. Variance and CRPS
    are those of an even sample, rounded. The mean is that of y before it was rounded,
    as are entropies and `log_prob_grid`, the density that pictures show.
    """

    def __init__(self, *, lattice: Lattice, **options):
        super().__init__(**options)
        self.lattice = lattice

    # ----- Moments --------------------------------------------------------------------

    @functools.cached_property
    def _rounded_variance(self) -> np.ndarray:
        return self._drop(self._rounded_sample(_VARIANCES, ()))

    def variance(self) -> np.ndarray:
        """Var[y|x], noise included."""
        return self._rounded_variance

    def __getitem__(self, index):
        """The rows that `index` (number, slice, mask or list of numbers) picks."""
        part = super().__getitem__(index)
        part.__dict__.pop("_rounded_variance", None)  # that of all rows
        return part

    # ----- Probabilities --------------------------------------------------------------

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """Log of P(y|x) / step, [N], for the value of the lattice nearest to y.

        That is the density of y plus uniform noise of one step, so it can be compared
        with densities. Outputs that are not rounded have theirs.
        """
        targets = self._targets(y, "y")
        transform = self._transform()
        on_lattice = self.lattice.step > 0
        ends = []
        for edge in self.lattice.edges(targets):
            trained_on = transform.forward(edge)
            low = np.where(np.isnan(trained_on), -np.inf, trained_on)
            ends.append(self._standardise(low))
        log_mass = self._map_with_tails(
            _log_mass, _weighted_log_mass, tuple(ends), on_lattice
        )
        units = np.where(on_lattice, self.lattice.step, self.target_scale)
        slopes = np.where(on_lattice, 0.0, transform.log_slope(targets))
        return log_mass - np.log(units).sum() + slopes.sum(axis=1)

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """P(y' <= y) for each output."""
        return super().cdf(self.lattice.upper_edge(self._targets(y, "y")))

    def prob_above(self, threshold: ArrayLike) -> np.ndarray:
        """P(y' > threshold) for each output; `threshold` is one number or an array."""
        targets = self._targets(threshold, "threshold")
        return super().prob_above(self.lattice.upper_edge(targets))

    def pit(self, y: ArrayLike, seed: int = 0) -> np.ndarray:
        """Random values from P(y' < y) to P(y' <= y): uniform if all is right."""
        lower, upper = self.lattice.edges(self._targets(y, "y"))
        below, up_to = super().cdf(lower), super().cdf(upper)
        share = np.random.default_rng(seed).uniform(size=np.shape(below))
        return below + share * (up_to - below)

    def crps(self, y: ArrayLike) -> np.ndarray:
        """Continuous ranked probability score of each output; smaller is better."""
        targets = self._targets(y, "y") - self.lattice.origin
        return self._drop(self._rounded_sample(_CRPS, targets.astype(np.float32)))

    # ----- Quantiles and samples ------------------------------------------------------

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Values with probability `q` up to them; see `PredictiveDistribution`."""
        found = super().quantile(q)
        if self.single_output or not np.ndim(q):
            return self._nearest(found)
        return np.swapaxes(self._nearest(np.swapaxes(found, 1, 2)), 1, 2)

    def _highest_density(self, level: float, output: int | None) -> list[np.ndarray]:
        found = super()._highest_density(level, output)
        number = 0 if output is None else output
        one = Lattice(self.lattice.origin[[number]], self.lattice.step[[number]])
        return [_merged(one.nearest(ends[..., None])[..., 0]) for ends in found]

    def sample(self, n: int, seed: int | None = None) -> np.ndarray:
        """Random draws of y, [n, N] or [n, N, L], independent between rows."""
        return self._nearest(super().sample(n, seed))

    def sample_functions(
        self,
        n: int,
        seed: int | None = None,
        latent: str = "mean",
        include_noise: bool = False,
    ) -> np.ndarray:
        """Random functions at the rows; with noise they are draws of y, rounded."""
        found = super().sample_functions(
            n, seed, latent=latent, include_noise=include_noise
        )
        return self._nearest(found) if include_noise else found

    # ----- Decomposition --------------------------------------------------------------

    def decompose(self, measure: str = "variance", **options) -> Decomposition:
        """Split each row's uncertainty; see `PredictiveDistribution.decompose`.

        The epistemic variance is that of y before it was rounded (a mean hardly
        changes); the total is `variance()`. Entropies are of y before it was rounded.
        """
        parts = super().decompose(measure, **options)
        if measure != "variance":
            return parts
        return Decomposition.of_variances(self.variance(), parts.epistemic)

    # ----- Inside ---------------------------------------------------------------------

    def _transform(self) -> TargetTransform:
        return TargetTransform("none", np.ones(self.network.output_dim))

    def _nearest(self, values: np.ndarray) -> np.ndarray:
        """Rounded; the last axis is that of outputs, if there are several."""
        if self.single_output:
            return self.lattice.nearest(values[..., None])[..., 0]
        return self.lattice.nearest(values)

    def _rounded_sample(self, statistics: dict, arguments) -> np.ndarray:
        transform = self._transform()
        origin, step = self.lattice.origin, self.lattice.step
        # Without a transform the origin can be taken off before numbers become 32-bit.
        early, late = (origin, 0 * origin)
        if transform.name != "none":
            early, late = late, early
        shape = np.broadcast_arrays(self.target_shift, *transform.shape)[1:]
        lowest = self.lattice.lowest - origin
        shared = (self.target_shift - early, self.target_scale, late)
        shared = (*shared, step, lowest, *shape)
        return self._map(
            statistics[transform.name],
            arguments,
            tuple(np.asarray(a, np.float32) for a in shared),
        )


class RoundedPredictive(_Rounded):
    """As `PredictiveDistribution`, of values on a lattice."""


class RoundedTransformed(_Rounded, TransformedPredictive):
    """As `TransformedPredictive`, of values on a lattice."""

    def _transform(self) -> TargetTransform:
        return self.transform


def _merged(intervals: np.ndarray) -> np.ndarray:
    """Intervals that touch after rounding, as one."""
    out = [intervals[0]]
    for low, high in intervals[1:]:
        if low <= out[-1][1]:
            out[-1] = np.array([out[-1][0], max(high, out[-1][1])])
        else:
            out.append(np.array([low, high]))
    return np.stack(out)


# ----- One row, compiled --------------------------------------------------------------


def _log_mass(means, noise_std, ends, on_lattice):
    """Log probability between two ends, and how many components make it."""
    return counted_log_mean(_log_parts(means, noise_std, ends, on_lattice))


def _weighted_log_mass(means, noise_std, ends, shared):
    """The same where components have weights [S, M]."""
    on_lattice, log_weights = shared
    return logsumexp(_log_parts(means, noise_std, ends, on_lattice) + log_weights)


def _log_parts(means, noise_std, ends, on_lattice):
    """Of each component; the log density there for outputs that are not rounded."""
    lower, upper = ends
    log_parts = jnp.zeros((), means.dtype)
    for output in range(means.shape[-1]):
        mean, std = mixture.one_output(means, noise_std, output)
        low, high = (lower[output] - mean) / std, (upper[output] - mean) / std
        density = -0.5 * jnp.square(high) - jnp.log(std) - 0.5 * mixture.LOG_2PI
        log_parts = log_parts + jnp.where(
            on_lattice[output], _log_between(low, high), density
        )
    return log_parts


def _log_between(low, high):
    """Log of Phi(high) - Phi(low), also where both are far out on one side."""
    above = low > 0
    low, high = jnp.where(above, -high, low), jnp.where(above, -low, high)
    log_high, log_low = log_ndtr(high), log_ndtr(low)
    nothing = jnp.isneginf(log_high)  # nor is there anything below
    ratio = jnp.exp(jnp.where(nothing, -1.0, log_low - log_high))
    # Narrow cells far out: the two logarithms are equal to rounding.
    inside = jnp.log1p(-jnp.minimum(ratio, 1 - 1e-7))
    return jnp.where(nothing, -jnp.inf, log_high + inside)


def _sample(name, means, noise_std, shared):
    """Evenly spread values of y less the lattice's origin, rounded: [R, S, M, L]."""
    shift, scale, late_origin, step, lowest, *shape = shared
    noise = mixture.even_noise(means.shape, means.dtype)
    t = shift + scale * (means + noise_std[:, None, :] * noise)
    y = inverse(name, t, *shape) - late_origin
    width = jnp.where(step > 0, step, 1.0)
    rounded = jnp.maximum(width * jnp.floor(y / width + 0.5), lowest)
    return jnp.where(step > 0, rounded, y)


def _row_variance(name, means, noise_std, row, shared):
    del row
    return _sample(name, means, noise_std, shared).var((0, 1, 2))


def _row_crps(name, means, noise_std, targets, shared):
    sample = _sample(name, means, noise_std, shared).reshape(-1, means.shape[-1])
    spread = jax.vmap(mixture.half_mean_difference, 1)(sample)
    return jnp.abs(sample - targets).mean(0) - spread


def _named(function, name):
    """A function of its own for each transform, as a static argument must be."""
    return functools.wraps(function)(partial(function, name))


_VARIANCES = {name: _named(_row_variance, name) for name in NAMES}
_CRPS = {name: _named(_row_crps, name) for name in NAMES}
