"""How much of a prediction's uncertainty is aleatoric and how much epistemic."""

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from ncai.model.latent_nodes import latent_nodes
from ncai.model.networks import FlatNetwork
from ncai.predictive import mixture
from ncai.predictive.row_map import map_mixtures
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
        """A total by many draws, of which fewer told what is epistemic.

        Where tails are heavy a few draws make up most of a variance, so that two sets
        of draws disagree: the total is the better known.
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


def variance_decomposition(
    network: FlatNetwork, draws: WeightDraws, inputs, num_latent: int
) -> tuple[Float[np.ndarray, "N L"], Float[np.ndarray, "N L"]]:
    """Aleatoric E_W Var[y|x,W] and epistemic Var_W E[y|x,W]; together Var[y|x]."""
    nodes = latent_nodes(len(draws.weights), num_latent, network.latent_dim)
    parts = map_mixtures(
        _variance_parts, network, draws, nodes, inputs, values_per_row=4
    )
    return parts[0], parts[1]


def _variance_parts(means, noise_std, row, shared):
    del row, shared
    return mixture.joint_variance_parts(means, noise_std)[:2]


def entropy_decomposition(
    network: FlatNetwork, draws: WeightDraws, inputs, num_latent: int, seed: int
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """Total H[p(y|x)] and aleatoric E_W H[p(y|x,W)] (Eq. `aleatoric`), in nats.

    One output: both by quadrature over y, without randomness. More outputs: -log p(y|x)
    and -log p(y|x,W) averaged over the same draws of y, so that most of the sampling
    error cancels in their difference, the epistemic part (Eq. `epistemic`).
    """
    num_draws, dim = len(draws.weights), network.latent_dim
    nodes = latent_nodes(num_draws, num_latent, dim)
    # All draws together are smooth with fewer values of z each.
    fewer = min(num_latent, -(-SMOOTH_COMPONENTS // num_draws))
    total_nodes = latent_nodes(num_draws, fewer, dim)
    if network.output_dim == 1:
        whole, given_weights = _ENTROPIES[dim > 1]
        total = map_mixtures(whole, network, draws, total_nodes, inputs)
        aleatoric = map_mixtures(given_weights, network, draws, nodes, inputs)
        return total, aleatoric
    latents, noise = _random_parts(network, num_draws, NUM_SAMPLES, seed)
    parts = []
    for rows in _row_slices(len(inputs)):
        samples = map_mixtures(
            _noisy, network, draws, latents, inputs[rows], (), noise, noise.size
        ).astype(np.float32)
        total = map_mixtures(
            _sampled_entropy, network, draws, total_nodes, inputs[rows], samples
        )
        aleatoric = map_mixtures(
            _sampled_entropy_given_weights, network, draws, nodes, inputs[rows], samples
        )
        parts.append((total, aleatoric))
    total, aleatoric = (np.concatenate(part) for part in zip(*parts, strict=True))
    return total, aleatoric


def neighbour_decomposition(
    network: FlatNetwork, draws: WeightDraws, inputs, num_latent: int, k: int, seed: int
) -> tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
    """The paper's estimate of both entropies, from distances between samples.

    Each weight draw gives `num_latent` samples of y. Their k-th neighbour distances
    give H[p(y|x,W)]; the total takes the samples of all weight draws together.
    """
    num_draws = len(draws.weights)
    latents, noise = _random_parts(network, num_draws, num_draws * num_latent, seed)
    total, aleatoric = np.empty(len(inputs)), np.empty(len(inputs))
    for rows in _row_slices(len(inputs), 64):
        samples = map_mixtures(
            _noisy, network, draws, latents, inputs[rows], (), noise, noise.size
        )
        for row, of_row in enumerate(samples, start=rows.start):
            aleatoric[row] = np.mean(_neighbour_entropies(of_row, k))
            together = of_row.reshape(1, -1, of_row.shape[-1])
            total[row] = _neighbour_entropies(together, k)[0]
    return total, aleatoric


def _neighbour_entropies(
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
