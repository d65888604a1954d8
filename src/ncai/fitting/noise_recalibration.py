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

import numpy as np
from jaxtyping import Float, Int

from ncai.fitting.member_scores import (
    AS_LEARNED,
    Judge,
    NoiseGrid,
    mean_of_known,
    mix,
)
from ncai.fitting.settings import Settings
from ncai.inference.posterior import GaussianPosterior


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
