"""Noise recalibration: held-out rows set the noise width of a mixture.

Each ensemble member learns a noise width that fits its own errors on its training rows.
On other rows its errors are larger, above all if its posterior is cold, and now and
then much larger. A mixture of many members, on the other hand, has smaller errors than
each member, but the disagreement of the members adds to their noise. So held-out rows
choose widths in two steps:

1. For each group of members alone, they choose a factor and a spread. With a spread,
   the noise of each member becomes a mixture of widths, which has heavier tails.
2. They choose one more factor for the mixture of all members.

With folds, fewer members score a row than predict new rows; `factor_for_more_members`
corrects for this.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logsumexp

from ncai.fitting.holdout import HoldOut
from ncai.fitting.settings import Settings
from ncai.inference.posterior import GaussianPosterior, NoiseSpread, Posterior
from ncai.model.networks import FlatNetwork
from ncai.predictive import row_statistics
from ncai.predictive.row_map import Mixtures, map_mixtures
from ncai.runtime.jax_setup import num_threads
from ncai.types import TrainingRows, WeightDraws

NUM_DRAWS, NUM_LATENT_DRAWS = 64, 16


@dataclass(frozen=True, eq=False)
class NoiseGrid:
    """The noise widths to try; the first is the learned width.

    Args:
        factors: factors of the learned width (a standard deviation).
        spread: the mixture of widths that goes with each factor.
    """

    factors: Float[np.ndarray, "G"]
    spread: NoiseSpread

    def _widths(self) -> tuple[np.ndarray, np.ndarray]:
        factors, weights = self.spread.widths()
        # Rounded to ten digits, so that equal products of powers of 2 are the same
        # number.
        return np.round(self.factors[:, None] * factors, 10), weights

    def nodes(self) -> Float[np.ndarray, "J"]:
        """Factors at which densities are computed; all others are mixtures of these."""
        return np.unique(self._widths()[0])

    def at_every_width(
        self, at_nodes: Float[np.ndarray, "J N"]
    ) -> Float[np.ndarray, "G N"]:
        """Log densities at every width, from the log densities at the nodes."""
        widths, weights = self._widths()
        places = np.searchsorted(self.nodes(), widths)
        # With logarithms, because the learned noise may be far too narrow for some
        # rows.
        parts = zip(places.T, np.log(weights).T, strict=True)
        log_parts = [at_nodes[place] + weight[:, None] for place, weight in parts]
        return np.logaddexp.reduce(log_parts, axis=0)


AS_LEARNED = NoiseGrid(np.ones(1), NoiseSpread.none(1))


@dataclass(frozen=True)
class Judge:
    """Scores each member on the held-out rows that it was not trained on.

    Args:
        holdout: the held-out rows.
        key: random key of the draws of W.
        numbers: the number of each member within its own fit, which determines its
            fold.
    """

    holdout: HoldOut
    key: Any
    numbers: tuple[int, ...]

    @property
    def row_weights(self) -> np.ndarray:
        """How often each held-out row counts."""
        assert self.holdout.judges is not None
        return self.holdout.judges.weights

    def log_probs(
        self, posterior: GaussianPosterior, grid: NoiseGrid = AS_LEARNED
    ) -> Float[np.ndarray, "G R N"]:
        """Log densities at each noise width; NaN where a member trained on a row."""
        rows = self.holdout.judges
        assert rows is not None
        count, network = posterior.num_components, posterior.model.network
        draws = [posterior.select(m).draw(self.key, NUM_DRAWS) for m in range(count)]
        owned = [self.holdout.judges_of(number) for number in self.numbers]
        found = np.full((len(grid.factors), count, len(rows)), np.nan)

        def judge(member: int) -> None:
            own = owned[member]
            found[:, member, own] = _log_probs_of_draws(
                network, draws[member], rows.pick(own), grid
            )

        judge(0)  # compiles; the others then run in parallel
        with ThreadPoolExecutor(num_threads()) as pool:
            list(pool.map(judge, range(1, count)))
        return found

    def scores(self, log_probs: Float[np.ndarray, "R N"]) -> Float[np.ndarray, "R"]:
        """The average of each member over the rows that it was not trained on."""
        weights = np.where(np.isnan(log_probs), 0.0, self.row_weights)
        totals = (weights * np.nan_to_num(log_probs, nan=0.0)).sum(axis=1)
        return totals / np.maximum(weights.sum(axis=1), 1e-300)


def mix(log_probs: Float[np.ndarray, "R N"], shares: Float[np.ndarray, "R"]):
    """Log density of rows under the restarts that were not trained on them, [N]."""
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
    """The average over held-out rows; NaN if there are none."""
    known = ~np.isnan(log_probs)
    total = row_weights[known].sum()
    return float(row_weights[known] @ log_probs[known] / total) if total else np.nan


def log_probs_on_grid(
    posterior: Posterior, rows: TrainingRows, key, grid: NoiseGrid
) -> Float[np.ndarray, "G N"]:
    """Log predictive density of rows at every width, in the units of training."""
    draws = posterior.draw(key, NUM_DRAWS)
    return _log_probs_of_draws(posterior.model.network, draws, rows, grid)


def _log_probs_of_draws(
    network: FlatNetwork, draws: WeightDraws, rows: TrainingRows, grid: NoiseGrid
) -> Float[np.ndarray, "G N"]:
    nodes = np.asarray(grid.nodes(), np.float32)
    found = map_mixtures(
        row_statistics.log_prob_at_scales,
        Mixtures.of(network, draws, NUM_LATENT_DRAWS, rows.inputs),
        rows.targets.astype(np.float32),
        nodes,
    )
    return grid.at_every_width(found.T)


def score_rows(posterior: Posterior, rows: TrainingRows, key) -> Float[np.ndarray, "N"]:
    """Log predictive density of rows, in the units of training."""
    return log_probs_on_grid(posterior, rows, key, AS_LEARNED)[0]


# ----- The choice of widths -----------------------------------------------------------


# Widths for a single group; the factors are half octaves. Cold networks fit their own
# rows so well that their noise is too narrow for other rows: mostly a little, sometimes
# a lot.
_FACTORS = 2.0 ** (np.arange(-8, 11) / 2)
_SPREADS = [(0, 0.5), *itertools.product((1, 2, 3), (0.5, 0.25, 0.1, 0.03))]


def _all_pairs(factors, spreads) -> NoiseGrid:
    """All pairs; the learned width (factor 1 without a spread) comes first."""
    pairs = itertools.product(factors, spreads)
    ordered = sorted(pairs, key=lambda p: p != (1.0, spreads[0]))
    steps, ratios = np.array([spread for _, spread in ordered], float).T
    return NoiseGrid(np.array([f for f, _ in ordered]), NoiseSpread(steps, ratios))


OF_GROUPS = _all_pairs(_FACTORS, _SPREADS)
# Factors for the mixture of all members: mostly below 1, because members disagree.
_COMMON = np.array([1.0, 0.84, 0.71, 0.59, 0.5, 0.42, 0.35, 0.3, 0.25, 1.19])
# The factor for more members is at least this share of the factor for a few members.
_MOST_NARROWING = 0.5
OF_MIXTURE = NoiseGrid(_COMMON, NoiseSpread.none(len(_COMMON)))


class Recalibrated(NamedTuple):
    """Members with the noise widths that suit their groups.

    Args:
        posterior: the posterior with these widths.
        log_probs: log densities of the held-out rows at these widths.
        scores: the score of each member; minus infinity for a lost member.
        recalibrated: whether there were several widths to choose from.
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
    """Give each group of members the noise width that fits held-out rows best."""
    grid = OF_GROUPS if settings.recalibrates_noise else AS_LEARNED
    on_grid = judge.log_probs(posterior, grid)
    alive = alive & np.isfinite(judge.scores(on_grid[0]))
    living = np.flatnonzero(alive)
    widths = np.zeros(len(alive), int)
    widths[living] = widths_by_group(
        on_grid[:, living], groups[living], judge.row_weights
    )
    log_probs = on_grid[widths, np.arange(len(alive))]
    return Recalibrated(
        posterior.with_noise(grid.factors[widths], grid.spread.pick(widths)),
        log_probs,
        # A member is scored at its new width.
        np.where(alive, judge.scores(log_probs), -np.inf),
        len(grid.factors) > 1,
    )


def recalibrate_mixture(
    posterior: GaussianPosterior,
    judge: Judge,
    living: Int[np.ndarray, "members"],
    shares: Float[np.ndarray, "members"],
) -> tuple[GaussianPosterior, Float[np.ndarray, "R N"]]:
    """Choose one more factor for all members; also return log densities with it.

    With folds, only one member of a group holds out a row. If the stacking weights
    selected a single group, the chosen width would suit a single member, although many
    members predict together. With folds, all members therefore count the same.
    """
    on_grid = judge.log_probs(posterior, OF_MIXTURE)
    counts = shares if judge.holdout.folds is None else np.ones(len(living))
    best = width_of_mixture(on_grid[:, living], counts, judge.row_weights)
    num_judges = np.mean(np.sum(~np.isnan(on_grid[best][living]), axis=0))
    factor = factor_for_more_members(
        float(OF_MIXTURE.factors[best]), float(num_judges), len(living)
    )
    factors = np.full(posterior.num_components, factor)
    return posterior.with_noise(factors), on_grid[best]


def widths_by_group(
    on_grid: Float[np.ndarray, "G R N"],
    groups: Int[np.ndarray, "R"],
    row_weights: Float[np.ndarray, "N"],
) -> Int[np.ndarray, "R"]:
    """Return the number of the noise width at which each group alone fits best."""
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
    """Return the number of the common width at which the mixture fits best."""
    scores = [mean_of_known(mix(at, counts), row_weights) for at in on_grid]
    return 0 if np.isnan(scores).all() else int(np.nanargmax(scores))


def factor_for_more_members(factor: float, judges: float, members: int) -> float:
    """Convert the factor for a few members into the factor for more members.

    With folds, a few restarts hold out a row, but many more predict new rows. Let s^2
    be the mean squared error of a single member, and D the part of it that members do
    not share. A mixture of m members then has the mean squared error
    s^2 - D (1 - 1/m), and the disagreement of its members adds D (1 - 1/m) to the
    variance of its noise. So a noise variance of c^2 s^2 fits if
    c^2 = 1 - (2 D / s^2) (1 - 1/m). The factor c for `judges` members determines
    D / s^2, which gives the factor for `members`. If members agree, the factor is 1.
    """
    if factor >= 1 or judges <= 1 or members <= judges:
        return factor
    excess = (1 - factor**2) * (1 - 1 / members) / (1 - 1 / judges)
    return max(np.sqrt(max(1 - excess, 0.0)), _MOST_NARROWING * factor)
