"""Noise recalibration: how wide the output noise of a mixture should be.

Each member learns a width of the noise that fits its own errors on the rows it is
trained on. On other rows it errs by more, the more so the colder its posterior is, and
now and then by much more. A mixture of many members, in turn, errs less than any of
them, but adds their disagreement to the noise of each. So held-out rows choose widths
twice: for each group of members alone, a factor and a spread (widths that differ from
draw to draw, which makes tails heavier); and then one more factor for all of them
together. With folds a row is judged by fewer members than predict it;
`factor_for_more_members` allows for that.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats
from scipy.special import logsumexp

from ncai.fitting.holdout import HoldOut
from ncai.fitting.settings import Settings
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


# ----- The choice of widths -----------------------------------------------------------


def _all_pairs(factors, spreads) -> NoiseGrid:
    """With the learned width, factor 1 and spread 0, first."""
    pairs = sorted(itertools.product(factors, spreads), key=lambda p: p != (1.0, 0.0))
    return NoiseGrid(*np.array(pairs).T)


# Of a group alone: half octaves. Cold networks fit their rows so well that their noise
# is far too narrow for others, most of the time a little, sometimes by much.
_FACTORS = 2.0 ** (np.arange(-8, 11) / 2)
OF_GROUPS = _all_pairs(_FACTORS, np.round(0.7 * np.arange(7), 1))
OF_GROUPS_WITHOUT_SPREAD = _all_pairs(_FACTORS, (0.0,))
# Of the mixture of all: mostly narrower, since its members disagree.
_COMMON = np.array([1.0, 0.84, 0.71, 0.59, 0.5, 0.42, 0.35, 0.3, 0.25, 1.19])
# However much members disagree, no mixture is trusted to need less than half of that.
_MOST_NARROWING = 0.5
OF_MIXTURE = NoiseGrid(_COMMON, np.zeros(len(_COMMON)))


def widths_to_try(settings: Settings, posterior: GaussianPosterior) -> NoiseGrid:
    """The widths that a group of members may have: as learned, or a whole grid."""
    if not settings.recalibrates_noise:
        return AS_LEARNED
    variational = posterior.model.noise_variance.mode == "variational"
    return OF_GROUPS if variational else OF_GROUPS_WITHOUT_SPREAD


class Recalibrated(NamedTuple):
    """Members at the widths that suit their groups.

    Args:
        posterior: with these widths.
        log_probs: of the held-out rows, at these widths.
        scores: of each member; minus infinity for one that was lost.
        recalibrated: whether there was anything to choose.
    """

    posterior: GaussianPosterior
    log_probs: Float[np.ndarray, "R N"]
    scores: Float[np.ndarray, "R"]
    recalibrated: bool


def recalibrate_groups(
    posterior: GaussianPosterior,
    judge: Judge,
    groups: Int[np.ndarray, "R"],
    alive: Bool[np.ndarray, "R"],
    settings: Settings,
) -> Recalibrated:
    """The width at which each group of members fits the held-out rows best."""
    grid = widths_to_try(settings, posterior)
    on_grid = judge.log_probs(posterior, grid)
    alive = alive & np.isfinite(judge.scores(on_grid[0]))
    living = np.flatnonzero(alive)
    widths = np.zeros(len(alive), int)
    widths[living] = widths_by_group(
        on_grid[:, living], groups[living], judge.row_weights
    )
    log_probs = on_grid[widths, np.arange(len(alive))]
    return Recalibrated(
        posterior.with_noise(grid.factors[widths], grid.spreads[widths]),
        log_probs,
        # A member is as good as it is at its width.
        np.where(alive, judge.scores(log_probs), -np.inf),
        len(grid.factors) > 1,
    )


def recalibrate_mixture(
    posterior: GaussianPosterior,
    judge: Judge,
    living: Int[np.ndarray, "members"],
    shares: Float[np.ndarray, "members"],
) -> tuple[GaussianPosterior, Float[np.ndarray, "R N"]]:
    """One more factor for all members, and the log densities at it.

    With folds a row is held out by one member of a group. Stacking weights that leave
    one group only would make the width that of a member alone, not of the many which
    predict together; so there all groups count the same.
    """
    on_grid = judge.log_probs(posterior, OF_MIXTURE)
    counts = shares if judge.holdout.folds is None else np.ones(len(living))
    best = width_of_mixture(on_grid[:, living], counts, judge.row_weights)
    num_judges = np.mean(np.sum(~np.isnan(on_grid[best][living]), axis=0))
    factor = factor_for_more_members(
        float(OF_MIXTURE.factors[best]), float(num_judges), len(living)
    )
    every = np.ones(posterior.num_components)
    return posterior.with_noise(factor * every, 0 * every), on_grid[best]


def widths_by_group(
    on_grid: Float[np.ndarray, "G R N"],
    groups: Int[np.ndarray, "R"],
    row_weights: Float[np.ndarray, "N"],
) -> Int[np.ndarray, "R"]:
    """Which width each restart should have: that by which its group alone fits best."""
    found = np.zeros(len(groups), int)
    for group in np.unique(groups):
        own = groups == group
        counts = np.ones(own.sum())
        scores = [mean_of_known(mix(at[own], counts), row_weights) for at in on_grid]
        if not np.isnan(scores).all():
            found[own] = int(np.nanargmax(scores))
    return found


def width_of_mixture(
    on_grid: Float[np.ndarray, "G R N"],
    counts: Float[np.ndarray, "R"],
    row_weights: Float[np.ndarray, "N"],
) -> int:
    """Which width, the same for all, lets the mixture of restarts fit best."""
    scores = [mean_of_known(mix(at, counts), row_weights) for at in on_grid]
    return 0 if np.isnan(scores).all() else int(np.nanargmax(scores))


def factor_for_more_members(factor: float, judges: float, members: int) -> float:
    """The factor for a mixture of so many members, from that for the few that judged.

    With folds a row is held out by a few restarts, and predicted by many more. Let
    members, alone, err by s^2 in the mean square, D of it not shared with others. Then
    a mixture of m errs by s^2 - D (1 - 1/m), and is wider than its noise by
    D (1 - 1/m): noise of c^2 s^2 fits if c^2 = 1 - (2 D / s^2) (1 - 1/m). So what the
    judges' factor tells of D tells the factor of others; where members agree it is 1.
    """
    if factor >= 1 or judges <= 1 or members <= judges:
        return factor
    excess = (1 - factor**2) * (1 - 1 / members) / (1 - 1 / judges)
    return max(np.sqrt(max(1 - excess, 0.0)), _MOST_NARROWING * factor)
