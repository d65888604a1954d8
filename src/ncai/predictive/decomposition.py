"""Split the uncertainty of a prediction into aleatoric and epistemic parts.

All parts refer to y before rounding. u is the target on the scale of training.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from jaxtyping import Float

from ncai.model.networks import FlatNetwork
from ncai.model.quadrature import LatentNodes
from ncai.predictive import moments, split_statistics
from ncai.predictive.moments import transform_constants
from ncai.predictive.row_map import Mixtures, map_mixtures
from ncai.predictive.split_statistics import Grouping
from ncai.predictive.target_map import TargetMap
from ncai.runtime.arguments import whole_number
from ncai.stats.knn import knn_entropy, sorted_knn_entropy

PARTS = ("total", "aleatoric", "epistemic")
MEASURES = ("crps", "variance", "entropy")
METHODS = ("quadrature", "nearest_neighbour")
# What the aleatoric part is conditional on: W, or the ensemble member that W is drawn
# from.
CONDITIONS = ("weights", "member")
# A row is unstable if the standard error of a part exceeds this share of the total.
MOST_ERROR = 0.05
# Number of random draws that the joint entropy of several outputs is averaged over.
NUM_SAMPLES = 1024
_MEAN_LOG_SLOPES = {
    name: found[0]
    for name, found in moments.for_each_transform(moments.mean_log_slope).items()
}


@dataclass(frozen=True, eq=False)
class Parts:
    """Total, aleatoric and epistemic part: one number for each row (and output)."""

    total: np.ndarray
    aleatoric: np.ndarray
    epistemic: np.ndarray

    def of_output(self, output: int) -> Self:
        """The parts of one output, [N]."""
        return replace(self, **{n: getattr(self, n)[:, output] for n in PARTS})


@dataclass(frozen=True, eq=False)
class Decomposition(Parts):
    """Uncertainty of each row: `total = aleatoric + epistemic`.

    Attributes:
        total: uncertainty of the prediction.
        aleatoric: the part that would remain if W, or the right ensemble member, were
            known.
        epistemic: the part that knowing it would remove.
        measure: "crps" (in units of y), "variance" (in squared units of y) or
            "entropy" (in nats).
        standard_error: Monte Carlo standard error of each part, because the number of
            draws of W is finite; None for the nearest-neighbour estimate.
    """

    measure: str = "crps"
    standard_error: Parts | None = None

    @property
    def unstable(self) -> np.ndarray:
        """Whether the standard error of a part exceeds 5 % of the total, for each row.

        For entropies, which may be 0 or negative, the limit is 0.05 nats.
        """
        if self.standard_error is None:
            return np.zeros(np.shape(self.total), bool)
        errors = self.standard_error
        worst = np.maximum(errors.total, np.maximum(errors.aleatoric, errors.epistemic))
        scale = 1.0 if self.measure == "entropy" else np.abs(self.total)
        return worst > MOST_ERROR * scale

    def of_output(self, output: int) -> Self:
        """The parts of one output, [N]."""
        errors = self.standard_error
        errors = None if errors is None else errors.of_output(output)
        return replace(super().of_output(output), standard_error=errors)

    def as_stds(self) -> "Decomposition":
        """Convert variances to standard deviations, which have the units of y.

        Other measures are returned unchanged. Standard deviations do not add up.
        """
        if self.measure != "variance":
            return self
        roots = {name: np.sqrt(getattr(self, name)) for name in PARTS}
        errors = self.standard_error
        if errors is not None:
            # The error of a root follows from its derivative; near 0, it is the root of
            # the error.
            found = {
                name: np.minimum(
                    getattr(errors, name) / (2 * np.maximum(roots[name], 1e-300)),
                    np.sqrt(getattr(errors, name)),
                )
                for name in PARTS
            }
            errors = Parts(**found)
        return replace(self, **roots, standard_error=errors)


def _grouping(mixtures: Mixtures, given: str) -> Grouping:
    """Return which draws belong to which member, and whether members are pooled."""
    members = np.asarray(mixtures.draws.members)
    belongs = (np.unique(members)[:, None] == members).astype(np.float32)
    return Grouping(belongs, belongs if given == "member" else None)


def variance_decomposition(
    mixtures: Mixtures, target_map: TargetMap, given: str
) -> Decomposition:
    """Aleatoric E_W Var[y|x,W] and epistemic Var_W E[y|x,W], [N, L]."""
    unit = _unit(target_map) ** 2
    statistics = split_statistics.VARIANCE_SPLIT
    return _of_each_output(statistics, "variance", mixtures, target_map, unit, given)


def crps_decomposition(
    mixtures: Mixtures, target_map: TargetMap, given: str
) -> Decomposition:
    """Integrals of F(1 - F) for y and for y given W, and their difference, [N, L]."""
    unit = _unit(target_map)
    statistics = split_statistics.CRPS_SPLIT
    return _of_each_output(statistics, "crps", mixtures, target_map, unit, given)


OF_EACH_OUTPUT = {"crps": crps_decomposition, "variance": variance_decomposition}


def _unit(target_map: TargetMap) -> Float[np.ndarray, "L"]:
    """The unit of distances in the results of the compiled statistics."""
    one = np.ones(target_map.num_outputs)
    return target_map.scale if target_map.is_linear else one


def _of_each_output(
    statistics, measure: str, mixtures, target_map, unit, given: str
) -> Decomposition:
    shared = (transform_constants(target_map), _grouping(mixtures, given))
    statistic = statistics[target_map.transform.name]
    parts, errors = map_mixtures(statistic, mixtures, shared=shared, values_per_row=6)
    unit = unit[:, None]
    return _decomposition(parts * unit, errors * unit, measure)


def _decomposition(parts: np.ndarray, errors: np.ndarray, measure: str):
    """Create a decomposition from arrays whose last axis holds the three parts."""
    return Decomposition(
        *np.moveaxis(parts, -1, 0),
        measure=measure,
        standard_error=Parts(*np.moveaxis(errors, -1, 0)),
    )


@dataclass(frozen=True)
class Neighbours:
    """The paper's estimate of entropies, from distances between samples.

    Args:
        num_samples: number of samples of each weight draw.
        k: number of neighbours.
    """

    num_samples: int
    k: int

    def __post_init__(self):
        whole_number("num_samples", self.num_samples)
        whole_number("k", self.k)
        if self.k >= self.num_samples:
            raise ValueError(
                f"k={self.k!r} must be at least 1 and less than the {self.num_samples} "
                "samples of each weight draw."
            )


def entropy_decomposition(
    mixtures: Mixtures,
    target_map: TargetMap,
    given: str,
    seed: int,
    neighbours: Neighbours | None = None,
) -> Decomposition:
    """Entropies of y in nats for all outputs together, [N].

    The total is H[p(y|x)] and the aleatoric part is E_W H[p(y|x,W)] (Eqs. `aleatoric`
    and `epistemic`). They come from distances between samples if `neighbours` says how,
    and otherwise by quadrature.
    """
    if neighbours is not None:
        total, aleatoric = _neighbour_entropies(mixtures, neighbours, given, seed)
        found = Decomposition(total, aleatoric, total - aleatoric, measure="entropy")
    elif mixtures.network.output_dim == 1:
        statistic = split_statistics.ENTROPY_SPLIT[mixtures.network.latent_dim > 1]
        parts, errors = map_mixtures(
            statistic, mixtures, shared=_grouping(mixtures, given), values_per_row=6
        )
        found = _decomposition(parts, errors, "entropy")
    else:
        found = _sampled_entropies(mixtures, given, seed)
    # Convert entropies of u to y. The epistemic part does not depend on units.
    shift: Any = float(np.log(target_map.scale).sum())
    if not target_map.is_linear:
        slopes = map_mixtures(
            _MEAN_LOG_SLOPES[target_map.transform.name],
            mixtures,
            shared=transform_constants(target_map),
        )
        shift = shift + slopes.sum(axis=1)
    return replace(found, total=found.total + shift, aleatoric=found.aleatoric + shift)


def _sampled_entropies(mixtures: Mixtures, given: str, seed: int) -> Decomposition:
    """Average -log p(u|x) and -log p(u|x,W) over the same draws of u.

    Most of the sampling error cancels in their difference, which is the epistemic part.
    """
    latents, noise = _random_parts(mixtures, NUM_SAMPLES, seed)
    grouping = _grouping(mixtures, given)
    found = []
    for rows in _row_slices(len(mixtures)):
        some = mixtures.pick(rows)
        samples = _samples(some, latents, noise).astype(np.float32)
        statistic = split_statistics.sampled_entropy_split
        found.append(map_mixtures(statistic, some, samples, grouping, values_per_row=6))
    parts, errors = (np.concatenate(part) for part in zip(*found, strict=True))
    return _decomposition(parts, errors, "entropy")


def _neighbour_entropies(
    mixtures: Mixtures, neighbours: Neighbours, given: str, seed: int
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """The paper's estimate of both entropies, from distances between samples.

    Each weight draw gives samples of u, whose distances to their k-th neighbours give
    H[p(u|x,W)]. The total uses the samples of all weight draws together. The weight
    draws are therefore resampled first, so that all have equal weights.
    """
    num_draws, num_rows = len(mixtures.draws.weights), len(mixtures)
    mixtures = replace(mixtures, draws=mixtures.draws.resampled(num_draws, seed))
    num_samples, k = neighbours.num_samples, neighbours.k
    latents, noise = _random_parts(mixtures, num_draws * num_samples, seed)
    members = np.asarray(mixtures.draws.members)
    belongs = [members == member for member in np.unique(members)]
    total, aleatoric = np.empty(num_rows), np.empty(num_rows)
    for rows in _row_slices(num_rows, 64):
        samples = _samples(mixtures.pick(rows), latents, noise)
        for row, of_row in enumerate(samples, start=rows.start):
            total[row] = _pooled_entropy(of_row, k)
            if given == "weights":
                aleatoric[row] = np.mean(_group_entropies(of_row, k))
            else:
                of_members = [_pooled_entropy(of_row[own], k) for own in belongs]
                aleatoric[row] = np.mean(belongs, axis=1) @ of_members
    return total, aleatoric


def _pooled_entropy(samples: Float[np.ndarray, "S n L"], k: int) -> float:
    """Nearest-neighbour entropy of the samples of all draws together."""
    return _group_entropies(samples.reshape(1, -1, samples.shape[-1]), k)[0]


def _samples(mixtures: Mixtures, latents, noise) -> Float[np.ndarray, "N S n L"]:
    """Samples of u with the given z and noise."""
    ones = np.ones((len(mixtures.draws.weights), 1))
    draws = mixtures.draws._replace(noise_factors=ones, noise_shares=ones)
    zeros = np.zeros(latents.shape[:2], np.float32)
    nodes = LatentNodes(latents, zeros, zeros)
    drawn = replace(mixtures, draws=draws, nodes=nodes)
    statistic = split_statistics.noisy
    return map_mixtures(statistic, drawn, shared=noise, values_per_row=noise.size)


def _group_entropies(
    samples: Float[np.ndarray, "groups n L"], k: int
) -> Float[np.ndarray, "groups"]:
    """Nearest-neighbour entropy of each group of samples."""
    if samples.shape[-1] > 1:
        return np.array([knn_entropy(group, k=k) for group in samples])
    return sorted_knn_entropy(samples[..., 0], k)


def _row_slices(num_rows: int, size: int = 1024) -> list[slice]:
    """Slices of rows that are in memory at once; one empty slice without rows."""
    return [slice(start, start + size) for start in range(0, max(num_rows, 1), size)]


def _random_parts(mixtures: Mixtures, num_samples: int, seed: int):
    """Random z and noise for `num_samples` draws of y, equally many for each W.

    All rows share them, so that chance contributes less to differences between rows.
    Each value of the noise has one of the widths of its draw, chosen at random.
    """
    network: FlatNetwork = mixtures.network
    draws = mixtures.draws
    num_draws = len(draws.weights)
    each = -(-num_samples // num_draws)
    rng = np.random.default_rng(seed)
    latents = rng.standard_normal((num_draws, each, network.latent_dim), np.float32)
    noise = rng.standard_normal((num_draws, each, network.output_dim), np.float32)
    edges = np.cumsum(np.asarray(draws.noise_shares, float), axis=1)
    if edges.shape[1] > 1:
        places = rng.uniform(size=(num_draws, each, 1)) * edges[:, None, -1:]
        width = np.argmax(edges[:, None, :] > places, axis=2)
        factors = np.take_along_axis(np.asarray(draws.noise_factors), width, axis=1)
        noise *= factors[..., None]
    return latents, noise
