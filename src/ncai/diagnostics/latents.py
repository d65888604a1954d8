"""Check whether the latents of a fit satisfy the assumptions of the model.

The model draws z from its prior, independently of x. A fit may explain y by a z that
depends on x, or that is not distributed like the prior; it then predicts badly at new
points, where z can only come from the prior. `diagnose_latents` measures both, and
compares each number with what white noise with as many rows would give.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ncai.diagnostics.latent_diagnosis import ROUNDING, LatentDiagnosis
from ncai.stats.correlation import (
    reference_offdiagonal_norm,
    reference_squared_correlation,
)
from ncai.stats.divergence import aggregated_posterior_divergences
from ncai.stats.henze_zirkler import henze_zirkler_test, hz_quantile
from ncai.stats.knn import mutual_information, permuted_mutual_information
from ncai.stats.scores import ks_statistic

_NEIGHBOURS = 5  # of the mutual information, as in the paper
# Means that differ by less than this, in units of the prior's deviation, are equal.
_SMALLEST_RANGE = 1e-9


@dataclass(frozen=True)
class DiagnosisOptions:
    """How to diagnose latents.

    Args:
        judged: the values that the verdicts judge. The "means" of z, as in the paper,
            reveal a z that memorises. Under exact inference, however, only "samples" of
            z, one per row, are independent of x and distributed like the prior.
        num_permutations: number of random pairings of x and z that show what white
            noise gives.
        seed: seed of the permutations, the samples of z and the choice of rows.
        level: probability that white noise passes each test.
        max_rows: MI, PC and the divergences use at most this many randomly chosen rows;
            their references belong to that number of rows.
    """

    judged: str = "means"
    num_permutations: int = 200
    seed: int = 0
    level: float = 0.95
    max_rows: int = 2000

    def __post_init__(self):
        """Refuse values that cannot work."""
        smallest = (self.num_permutations + 1) * (1 - self.level)
        if not 0 < self.level < 1 or smallest < 1 - ROUNDING:
            raise ValueError(
                f"num_permutations={self.num_permutations} is too small for "
                f"level={self.level}: level must lie between 0 and 1, and "
                "(num_permutations + 1) * (1 - level) must be at least 1."
            )
        if self.judged not in ("means", "samples"):
            raise ValueError(
                f"judged={self.judged!r} must be one of ['means', 'samples']."
            )


class _Latents(NamedTuple):
    """The checked arrays to diagnose: equally many rows, all values finite."""

    inputs: np.ndarray
    targets: np.ndarray
    means: np.ndarray
    stds: np.ndarray
    samples: np.ndarray
    prior_std: np.ndarray

    def take(self, rows: np.ndarray) -> "_Latents":
        arrays = (array[rows] for array in self[:-1])
        return _Latents(*arrays, prior_std=self.prior_std)


def diagnose_latents(
    inputs: ArrayLike,
    targets: ArrayLike,
    latent_means: ArrayLike,
    latent_stds: ArrayLike,
    prior_std: ArrayLike,
    *,
    latent_samples: ArrayLike | None = None,
    **options: Any,
) -> LatentDiagnosis:
    """Check both assumptions about z, each against white noise with as many rows.

    Args:
        inputs: `[N, D]` training inputs.
        targets: `[N, L]` training targets.
        latent_means: `[N, K]` means of q(z_n).
        latent_stds: `[N, K]` standard deviations of q(z_n).
        prior_std: standard deviation of the prior of z, a number or `[K]`.
        latent_samples: `[N, K]` draws of z, one per row. If they are not given, they
            are drawn from Gaussians with these means and standard deviations.
        options: fields of `DiagnosisOptions`: judged, num_permutations, seed, level
            and max_rows.
    """
    chosen = DiagnosisOptions(**options)
    sample_seed, row_seed, permutation_seed = np.random.SeedSequence(chosen.seed).spawn(
        3
    )
    latents = _checked(inputs, targets, latent_means, latent_stds, prior_std)
    latents = _with_samples(latents, latent_samples, sample_seed)
    num_rows = len(latents.means)
    if min(num_rows, chosen.max_rows) < 3:
        raise ValueError(
            f"There are {num_rows} rows and max_rows={chosen.max_rows}: a diagnosis "
            "needs at least 3 rows."
        )
    some = latents.take(_row_choice(num_rows, chosen.max_rows, row_seed))
    return LatentDiagnosis(
        judged=chosen.judged,
        num_rows=num_rows,
        num_rows_used=len(some.means),
        num_inputs=latents.inputs.shape[1],
        latent_dim=latents.means.shape[1],
        level=chosen.level,
        collapsed=_is_collapsed(latents),
        **_information(some, chosen),
        **_correlations(some, chosen, permutation_seed),
        **_normality(latents, chosen.level),
        **_distances_from_prior(latents),
        **aggregated_posterior_divergences(
            some.means, some.stds, some.prior_std, seed=chosen.seed
        )._asdict(),
        offdiag_cov=reference_offdiagonal_norm(latents.means),
        std_ratio=_std_ratio(latents),
    )


# ----- The data -----------------------------------------------------------------------


def _checked(inputs, targets, latent_means, latent_stds, prior_std) -> _Latents:
    """All arrays in float64 after checks; samples are still missing."""
    x, y = _matrix(inputs, "inputs"), _matrix(targets, "targets")
    means, stds = (
        _matrix(latent_means, "latent_means"),
        _matrix(latent_stds, "latent_stds"),
    )
    if not len(x) == len(y) == len(means) or means.shape != stds.shape:
        raise ValueError(
            "inputs, targets, latent_means and latent_stds must have the same rows, "
            f"got shapes {x.shape}, {y.shape}, {means.shape} and {stds.shape}."
        )
    prior_std = np.broadcast_to(np.asarray(prior_std, float), means.shape[1])
    return _Latents(x, y, means, stds, means, prior_std)


def _with_samples(latents: _Latents, given: ArrayLike | None, seed) -> _Latents:
    shape = latents.means.shape
    if given is None:
        noise = np.random.default_rng(seed).standard_normal(shape)
        return latents._replace(samples=latents.means + latents.stds * noise)
    samples = _matrix(given, "latent_samples")
    if samples.shape != shape:
        raise ValueError(
            f"latent_samples has shape {samples.shape}; it must have the shape {shape} "
            "of latent_means."
        )
    return latents._replace(samples=samples)


def _row_choice(num_rows: int, max_rows: int, seed) -> np.ndarray:
    if num_rows <= max_rows:
        return np.arange(num_rows)
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(num_rows, max_rows, replace=False))


def _matrix(values: ArrayLike, name: str) -> np.ndarray:
    array = np.asarray(values, float)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or not np.isfinite(array).all():
        raise ValueError(
            f"{name} of shape {array.shape} must be [N] or [N, columns] of finite "
            "numbers."
        )
    return array


# ----- Independence of x --------------------------------------------------------------


def _information(latents: _Latents, options: DiagnosisOptions) -> dict[str, float]:
    """Mutual information with x, and what it would be if z were independent of x."""
    x, neighbours = latents.inputs, min(_NEIGHBOURS, len(latents.inputs) - 1)
    on_means = mutual_information(x, latents.means, neighbours)
    on_samples = mutual_information(x, latents.samples, neighbours)
    judged, found = latents.means, on_means
    if options.judged == "samples":
        judged, found = latents.samples, on_samples
    count = options.num_permutations
    noise = permuted_mutual_information(x, judged, count, neighbours, options.seed)
    return {
        "mi_x_mean": max(0.0, on_means),
        "mi_x_sample": max(0.0, on_samples),
        "mi_reference": max(0.0, _critical_value(noise, options.level)),
        "mi_p_value": float((1 + np.sum(noise >= found)) / (1 + count)),
    }


def _correlations(
    latents: _Latents, options: DiagnosisOptions, seed
) -> dict[str, float]:
    """PC(x) and PC(y) of the means, and what they would be if z were independent."""
    rng, num_rows = np.random.default_rng(seed), len(latents.means)
    orders = [rng.permutation(num_rows) for _ in range(options.num_permutations)]
    found = {}
    for name, values in (("pc_x", latents.inputs), ("pc_y", latents.targets)):
        noise = [
            reference_squared_correlation(values, latents.means[order])
            for order in orders
        ]
        found[name] = reference_squared_correlation(values, latents.means)
        found[f"{name}_reference"] = _critical_value(noise, options.level)
    return found


def _critical_value(noise: ArrayLike, level: float) -> float:
    """The order statistic that a value exceeds if and only if it is significant."""
    ordered = np.sort(noise)
    position = int(np.ceil(level * (len(ordered) + 1) - ROUNDING))
    return float(ordered[position - 1])


# ----- Equality with the prior --------------------------------------------------------


def _is_collapsed(latents: _Latents) -> bool:
    ranges = np.ptp(latents.means, axis=0)
    return bool(np.all(ranges <= _SMALLEST_RANGE * latents.prior_std))


def _normality(latents: _Latents, level: float) -> dict[str, Any]:
    hz = henze_zirkler_test(latents.means)
    return {
        "hz": hz.statistic,
        "hz_p_value": hz.p_value,
        "hz_expected": hz.expected,
        "hz_reference": hz_quantile(level, *latents.means.shape),
        "hz_singular": hz.singular,
        "hz_sample": henze_zirkler_test(latents.samples).statistic,
    }


def _distances_from_prior(latents: _Latents) -> dict[str, float]:
    ks = ks_statistic(latents.means, latents.prior_std)
    ks_sample = ks_statistic(latents.samples, latents.prior_std)
    return {
        "ks": ks.statistic,
        "ks_p_value": ks.p_value,
        "ks_sample": ks_sample.statistic,
        "ks_sample_p_value": ks_sample.p_value,
    }


def _std_ratio(latents: _Latents) -> float:
    """Standard deviation of q(z) over that of the prior; the ratio furthest from 1."""
    variances = np.var(latents.means, axis=0) + np.mean(latents.stds**2, axis=0)
    ratios = np.sqrt(variances) / latents.prior_std
    with np.errstate(divide="ignore"):  # a ratio of 0 is the furthest from 1
        return float(ratios[np.argmax(np.abs(np.log(ratios)))])
