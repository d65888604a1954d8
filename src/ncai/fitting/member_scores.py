"""Log densities of held-out rows under each ensemble member.

They decide which members predict, their stacking weights, and the recalibration of
their noise, so they are computed at many widths of the noise at once.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats
from scipy.special import logsumexp

from ncai.fitting.holdout import HoldOut
from ncai.inference.posterior import GaussianPosterior, Posterior
from ncai.model.latent_nodes import latent_nodes, tail_nodes
from ncai.predictive import row_statistics
from ncai.predictive.row_map import Mixtures, map_mixtures
from ncai.runtime.jax_setup import num_threads
from ncai.types import TrainingRows

NUM_DRAWS, NUM_LATENT_DRAWS = 64, 32


@dataclass(frozen=True, eq=False)
class NoiseGrid:
    """Widths that are tried, the first being what was learned.

    Args:
        factors: of the learned width (a standard deviation).
        spreads: standard deviations of the logarithm of its square between draws.
    """

    factors: Float[np.ndarray, "G"]
    spreads: Float[np.ndarray, "G"]

    def nodes(self) -> Float[np.ndarray, "J"]:
        """Factors at which densities are computed: all others are mixtures of them."""
        plain = self.factors[self.spreads == 0]
        if not self.spreads.any():
            return plain
        return np.concatenate([_NODES, plain[~np.isin(plain, _NODES)]])

    def at_every_width(
        self, at_nodes: Float[np.ndarray, "J N"]
    ) -> Float[np.ndarray, "G N"]:
        """Log densities at every width, from those at the nodes."""
        nodes = self.nodes()
        found = np.empty((len(self.factors), at_nodes.shape[1]))
        top = at_nodes.max(axis=0)
        densities = np.exp(at_nodes[: len(_NODES)] - top)
        for i, (factor, spread) in enumerate(
            zip(self.factors, self.spreads, strict=True)
        ):
            if spread == 0:
                found[i] = at_nodes[np.flatnonzero(nodes == factor)[0]]
            else:
                with np.errstate(divide="ignore"):
                    found[i] = np.log(_node_shares(factor, spread) @ densities) + top
        return found


# Half octaves. A width that varies is an integral over these: they lie one standard
# deviation of the least spread apart, where the trapezoidal rule is all but exact.
_NODES = 2.0 ** (np.arange(-12, 21) / 2)


def _node_shares(factor: float, spread: float) -> Float[np.ndarray, "J"]:
    """Shares of the nodes where log variances are N(2 log factor, spread^2).

    What lies beyond the first or the last node goes to that.
    """
    places = 2 * np.log(_NODES / factor) / spread
    half = 0.5 * (places[1] - places[0])
    shares = stats.norm.pdf(places)
    shares *= 2 * half
    shares[0] = stats.norm.cdf(places[0] + half)
    shares[-1] = stats.norm.sf(places[-1] - half)
    return shares / shares.sum()


AS_LEARNED = NoiseGrid(np.ones(1), np.zeros(1))


@dataclass(frozen=True)
class Judge:
    """The held-out rows, and which of them each member did not learn from.

    Args:
        holdout: the rows that judge.
        key: of the draws of W.
        numbers: the number of each member within the fit that it comes from, by which
            its fold is known.
    """

    holdout: HoldOut
    key: Any
    numbers: tuple[int, ...]

    @property
    def row_weights(self) -> np.ndarray:
        """How often each judging row counts."""
        assert self.holdout.judges is not None
        return self.holdout.judges.weights

    def log_probs(
        self, posterior: GaussianPosterior, grid: NoiseGrid = AS_LEARNED
    ) -> Float[np.ndarray, "G R N"]:
        """At each width of the noise; NaN where a member learned from a row."""
        rows = self.holdout.judges
        assert rows is not None
        count = posterior.num_components
        found = np.full((len(grid.factors), count, len(rows)), np.nan)

        def judge(member: int) -> None:
            own = self.holdout.judges_of(self.numbers[member])
            found[:, member, own] = log_probs_on_grid(
                posterior.select(member), rows.pick(own), self.key, grid
            )

        judge(0)  # which compiles; the others side by side
        with ThreadPoolExecutor(num_threads()) as pool:
            list(pool.map(judge, range(1, count)))
        return found

    def scores(self, log_probs: Float[np.ndarray, "R N"]) -> Float[np.ndarray, "R"]:
        """The average of each member over the rows that it did not learn from."""
        weights = np.where(np.isnan(log_probs), 0.0, self.row_weights)
        totals = (weights * np.nan_to_num(log_probs, nan=0.0)).sum(axis=1)
        return totals / np.maximum(weights.sum(axis=1), 1e-300)


def mix(log_probs: Float[np.ndarray, "R N"], shares: Float[np.ndarray, "R"]):
    """Log density of rows under those restarts that did not learn from them, [N]."""
    counts = ~np.isnan(log_probs)
    weights = np.where(counts, shares[:, None], 0.0)
    filled = np.where(counts, log_probs, -np.inf)
    total = weights.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mixed = logsumexp(filled, axis=0, b=weights) - np.log(total)
    return np.where(total > 0, mixed, np.nan)


def mean_of_known(
    log_probs: Float[np.ndarray, "N"], row_weights: Float[np.ndarray, "N"]
) -> float:
    """The average over rows that were held out; NaN if there are none."""
    known = ~np.isnan(log_probs)
    total = row_weights[known].sum()
    return float(row_weights[known] @ log_probs[known] / total) if total else np.nan


def log_probs_on_grid(
    posterior: Posterior, rows: TrainingRows, key, grid: NoiseGrid
) -> Float[np.ndarray, "G N"]:
    """Log predictive density of rows at every width, in the units of training."""
    draws = posterior.draw(key, NUM_DRAWS)
    network = posterior.model.network
    count, log_weights = len(draws.weights), None
    if network.latent_dim == 1:
        # Rows far out must not make noise wider for want of values of z that far.
        nodes, log_weights = tail_nodes(count, NUM_LATENT_DRAWS)
    else:
        nodes = latent_nodes(count, NUM_LATENT_DRAWS, network.latent_dim)
    found = map_mixtures(
        row_statistics.log_prob_at_scales,
        Mixtures(network, draws, nodes, rows.inputs.astype(np.float32)),
        rows.targets.astype(np.float32),
        (np.asarray(grid.nodes(), np.float32), log_weights),
    )
    return grid.at_every_width(found.T)


def score_rows(posterior: Posterior, rows: TrainingRows, key) -> Float[np.ndarray, "N"]:
    """Log predictive density of rows, in the units of training."""
    return log_probs_on_grid(posterior, rows, key, AS_LEARNED)[0]
