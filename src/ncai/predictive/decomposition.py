"""How much of a prediction's uncertainty is aleatoric and how much epistemic.

Both parts are of y before it is rounded. The scale of training is u.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from ncai.model.latent_nodes import latent_nodes
from ncai.model.networks import FlatNetwork
from ncai.predictive import mixture, row_statistics
from ncai.predictive.row_map import Mixtures, map_mixtures
from ncai.predictive.target_map import TargetMap
from ncai.runtime.arguments import whole_number
from ncai.stats.knn import knn_entropy, sorted_knn_entropy
from ncai.types import WeightDraws

MEASURES = ("variance", "entropy")
METHODS = ("monte_carlo", "nearest_neighbour")

# The density given W is a mixture over z alone; this many values make it smooth.
MIN_LATENT_DRAWS = {0: 1, 1: 256}
MIN_LATENT_DRAWS_MANY = 512
# Components that make the whole mixture smooth, and samples that make an average.
SMOOTH_COMPONENTS = 4096
# W x z of a decomposition at most, unless asked for more; and W at least.
MOST_COMPONENTS = 65_536
ENOUGH_WEIGHT_DRAWS = 256
NUM_SAMPLES = 1024


class Decomposition(NamedTuple):
    """Uncertainty of each row: `total = aleatoric + epistemic`."""

    total: np.ndarray
    aleatoric: np.ndarray
    epistemic: np.ndarray

    @classmethod
    def of_variances(cls, total: np.ndarray, epistemic: np.ndarray) -> "Decomposition":
        """A total by all draws, with an epistemic part by fewer of them.

        Where tails are heavy a few draws make up most of a variance, so that two sets
        of draws disagree; the total, by more draws, is the more accurate of the two.
        """
        epistemic = np.minimum(epistemic, total)
        return cls(total, total - epistemic, epistemic)


def default_latent_draws(latent_dim: int, num_latent: int) -> int:
    """Values of z for each weight draw, enough for a smooth density given W."""
    enough = MIN_LATENT_DRAWS.get(latent_dim, MIN_LATENT_DRAWS_MANY)
    return max(enough, num_latent)


def default_weight_draws(num_latent: int) -> int:
    """The most weight draws to use: bounded work, however many there are."""
    return max(ENOUGH_WEIGHT_DRAWS, MOST_COMPONENTS // num_latent)


def split_mixtures(
    mixtures: Mixtures,
    num_weight_draws: int | None,
    num_latent_draws: int | None,
    usual_latent_draws: int,
) -> Mixtures:
    """The draws of W, and the values of z for each, that a decomposition uses.

    Where a number is None, its default depends on `usual_latent_draws`, the number of
    values of z that other statistics use.
    """
    total, latent_dim = len(mixtures.draws.weights), mixtures.network.latent_dim
    if num_latent_draws is None:
        num_latent = default_latent_draws(latent_dim, usual_latent_draws)
    else:
        num_latent = whole_number("num_latent_draws", num_latent_draws)
    if num_weight_draws is None:
        most = default_weight_draws(num_latent)
    else:
        most = whole_number("num_weight_draws", num_weight_draws)
    # The draws of a restart lie together, so the first few would be of one restart.
    chosen = np.linspace(0, total - 1, min(most, total)).round().astype(int)
    draws = WeightDraws(*(leaf[chosen] for leaf in mixtures.draws))
    nodes = latent_nodes(len(chosen), num_latent, latent_dim)
    return replace(mixtures, draws=draws, nodes=nodes)


def variance_decomposition(
    mixtures: Mixtures, target_map: TargetMap
) -> tuple[Float[np.ndarray, "N L"], Float[np.ndarray, "N L"]]:
    """Aleatoric E_W Var[y|x,W] and epistemic Var_W E[y|x,W]; together Var[y|x].

    All are of y before rounding.
    """
    found = row_statistics.statistics_of(target_map)
    aleatoric, epistemic, _ = map_mixtures(
        found.variance_parts, mixtures, shared=found.shared, values_per_row=4
    )
    return aleatoric * found.unit**2, epistemic * found.unit**2


def entropy_decomposition(
    mixtures: Mixtures,
    target_map: TargetMap,
    method: str,
    num_samples: int,
    k: int,
    seed: int,
) -> Decomposition:
    """Entropies of y before rounding, in nats, by one of `METHODS`.

    `num_samples` of each weight draw, and their `k`-th neighbours, are for
    "nearest_neighbour" alone.
    """
    if method == "nearest_neighbour":
        total, aleatoric = _neighbour_entropies(mixtures, num_samples, k, seed)
    else:
        total, aleatoric = _density_entropies(mixtures, seed)
    # What y has more than u. The epistemic part is information: it has no units.
    shift = float(np.log(target_map.scale).sum())
    if not target_map.is_linear:
        slopes = map_mixtures(
            row_statistics.MEAN_LOG_SLOPES[target_map.transform.name],
            mixtures,
            shared=row_statistics.transform_constants(target_map),
        )
        shift = shift + slopes.sum(axis=1)
    return Decomposition(total + shift, aleatoric + shift, total - aleatoric)


def _density_entropies(
    mixtures: Mixtures, seed: int
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """Total H[p(u|x)] and aleatoric E_W H[p(u|x,W)] (Eq. `aleatoric`).

    One output: both by quadrature over u, without randomness. More outputs: -log p(u|x)
    and -log p(u|x,W) averaged over the same draws of u, so that most of the sampling
    error cancels in their difference, the epistemic part (Eq. `epistemic`).
    """
    network = mixtures.network
    num_draws, num_latent, dim = mixtures.nodes.shape
    # All draws together are smooth with fewer values of z each.
    fewer = min(num_latent, -(-SMOOTH_COMPONENTS // num_draws))
    for_total = replace(mixtures, nodes=latent_nodes(num_draws, fewer, dim))
    if network.output_dim == 1:
        whole, given_weights = _ENTROPIES[dim > 1]
        total = map_mixtures(whole, for_total)
        aleatoric = map_mixtures(given_weights, mixtures)
        return total, aleatoric
    latents, noise = _random_parts(network, num_draws, NUM_SAMPLES, seed)
    parts = []
    for rows in _row_slices(len(mixtures)):
        samples = _samples(mixtures.pick(rows), latents, noise).astype(np.float32)
        total = map_mixtures(_sampled_entropy, for_total.pick(rows), samples)
        aleatoric = map_mixtures(
            _sampled_entropy_given_weights, mixtures.pick(rows), samples
        )
        parts.append((total, aleatoric))
    total, aleatoric = (np.concatenate(part) for part in zip(*parts, strict=True))
    return total, aleatoric


def _neighbour_entropies(
    mixtures: Mixtures, num_samples: int, k: int, seed: int
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """The paper's estimate of both entropies, from distances between samples.

    Each weight draw gives `num_samples` samples of u. Their k-th neighbour distances
    give H[p(u|x,W)]; the total takes the samples of all weight draws together.
    """
    k = whole_number("k", k)
    if k >= num_samples:
        raise ValueError(
            f"k={k!r} must be at least 1 and less than the {num_samples} samples of "
            "each weight draw."
        )
    num_draws, num_rows = len(mixtures.draws.weights), len(mixtures)
    latents, noise = _random_parts(
        mixtures.network, num_draws, num_draws * num_samples, seed
    )
    total, aleatoric = np.empty(num_rows), np.empty(num_rows)
    for rows in _row_slices(num_rows, 64):
        samples = _samples(mixtures.pick(rows), latents, noise)
        for row, of_row in enumerate(samples, start=rows.start):
            aleatoric[row] = np.mean(_group_entropies(of_row, k))
            together = of_row.reshape(1, -1, of_row.shape[-1])
            total[row] = _group_entropies(together, k)[0]
    return total, aleatoric


def _samples(mixtures: Mixtures, latents, noise) -> Float[np.ndarray, "N S n L"]:
    """Draws of u at these z and with this noise."""
    drawn = replace(mixtures, nodes=latents)
    return map_mixtures(_noisy, drawn, shared=noise, values_per_row=noise.size)


def _group_entropies(
    samples: Float[np.ndarray, "groups n L"], k: int
) -> Float[np.ndarray, "groups"]:
    """Nearest-neighbour entropy of each group of samples."""
    if samples.shape[-1] > 1:
        return np.array([knn_entropy(group, k=k) for group in samples])
    return sorted_knn_entropy(samples[..., 0], k)


def _row_slices(num_rows: int, size: int = 1024) -> list[slice]:
    """Rows to hold in memory at once; one empty slice if there are none."""
    return [slice(start, start + size) for start in range(0, max(num_rows, 1), size)]


def _random_parts(network: FlatNetwork, num_draws: int, num_samples: int, seed: int):
    """Random z and noise for `num_samples` draws of y, as many from each W.

    All rows share them: what is compared between rows then differs less by chance.
    """
    each = -(-num_samples // num_draws)
    rng = np.random.default_rng(seed)
    latents = rng.standard_normal((num_draws, each, network.latent_dim), np.float32)
    return latents, rng.standard_normal(
        (num_draws, each, network.output_dim), np.float32
    )


def _entropy(means, noise_std, row, shared, *, neighbours):
    del row, shared
    one = mixture.one_output(means, noise_std, 0)
    return mixture.entropy(*mixture.smoothed(*one, neighbours=neighbours))


def _entropy_given_weights(means, noise_std, row, shared, *, neighbours):
    del row, shared
    each = (means[:, None, :, 0], noise_std[:, :, None])
    return jax.lax.map(
        lambda draw: mixture.entropy(*mixture.smoothed(*draw, neighbours=neighbours)),
        each,
    ).mean()


# One z: its values are evenly spread, so f's are too. With more z they lie at random.
# Made once: what is mapped over rows is part of the compiled program's name.
_ENTROPIES = tuple(
    tuple(
        partial(entropy, neighbours=neighbours)
        for entropy in (_entropy, _entropy_given_weights)
    )
    for neighbours in (2, 8)
)


def _noisy(means, noise_std, row, shared):
    del row
    return means + noise_std[:, None, :] * shared


def _sampled_entropy(means, noise_std, targets, shared):
    del shared
    flat = targets.reshape(-1, targets.shape[-1])
    logs = jax.lax.map(
        lambda target: mixture.joint_log_density(means, noise_std, target), flat
    )
    return -logs.mean()


def _sampled_entropy_given_weights(means, noise_std, targets, shared):
    del shared

    def one_draw(draw):
        mean, std, own_targets = draw
        log_density = jax.vmap(mixture.joint_log_density, (None, None, 0))
        return log_density(mean[None], std[None], own_targets).mean()

    return -jax.lax.map(one_draw, (means, noise_std, targets)).mean()
