"""Choose the transform of y: which ones to try, and which is best on held-out rows.

Each transform has its own units of training, so each `Candidate` has its own rows. Log
densities in the units of y make the candidates comparable.
"""

from dataclasses import dataclass

import numpy as np

from ncai.fitting.fit import Result
from ncai.fitting.holdout import num_judges
from ncai.fitting.settings import Settings
from ncai.model.networks import FlatNetwork
from ncai.preprocessing.rounding import Lattice
from ncai.preprocessing.scaling import Scaling
from ncai.types import RawRows, TrainingRows

# Transforms whose trial fits differ by fewer standard errors are both fitted
# completely, because a quarter of the steps does not show which is best in the end.
CLOSE = 3.0


@dataclass(frozen=True)
class Candidate:
    """A transform of y with the rows in its units.

    Args:
        scaling: the transform, the rounding and the units of training.
        rows: the rows to fit, in these units.
        valid: the user's validation rows, in these units.
        judge_weights: the weights of the rows that may score a fit: the validation
            rows, or else the rows to fit.
        log_density_shifts: what turns log densities of these rows in the units of
            training into log densities of y.
    """

    scaling: Scaling
    rows: TrainingRows
    valid: TrainingRows | None
    judge_weights: np.ndarray
    log_density_shifts: np.ndarray


@dataclass(frozen=True)
class Trial:
    """A fit of a candidate with one network.

    Args:
        candidate: the transform and its rows.
        network: what was fitted.
        result: the fit.
        log_probs: log densities of the held-out rows, in the units of y; None if there
            are none.
        row_weights: the weights of these rows.
    """

    candidate: Candidate
    network: FlatNetwork
    result: Result
    log_probs: np.ndarray | None
    row_weights: np.ndarray

    @property
    def score(self) -> float:
        """The weighted average of the log densities."""
        if self.log_probs is None:
            return -np.inf
        return float(self.row_weights @ self.log_probs / self.row_weights.sum())


def candidates(
    rows: RawRows, valid: RawRows | None, settings: Settings, seed: int
) -> list[Candidate]:
    """Return a candidate for each transform to try."""
    names = transforms_to_try(rows, valid, settings)
    rounding = Lattice.none(rows.targets.shape[1])
    if settings.rounding != "ignore":
        rounding = Lattice.learn(rows.targets)

    def candidate(name: str) -> Candidate:
        positive = name == "log"
        if positive:
            _require_logarithms(rows, rounding, "y")
        smooth = rounding.dequantise(rows, seed, positive)
        rounds = settings.rounding == "auto"
        scaling = Scaling.learn(smooth, settings.standardize, name, rounding, rounds)
        scaled, scaled_valid, judges = scaling.apply(smooth), None, smooth
        if valid is not None:
            if positive:
                _require_logarithms(valid, rounding, "y_valid")
            judges = rounding.dequantise(valid, seed + 1, positive)
            scaled_valid = scaling.apply(judges)
        shifts = scaling.log_density_shifts(judges)
        return Candidate(scaling, scaled, scaled_valid, judges.weights, shifts)

    return [candidate(name) for name in names]


def _require_logarithms(rows: RawRows, rounding: Lattice, name: str) -> None:
    """Reject a y without a logarithm; a rounded 0 is accepted, as y may be above 0."""
    smallest = rows.targets + 0.5 * rounding.step
    if not (smallest > 0).all() or (rows.targets < 0).any():
        raise ValueError(
            f"target_transform='log' needs a positive {name}; its smallest value is "
            f"{rows.targets.min():g}: use 'yeo_johnson'."
        )


def transforms_to_try(
    rows: RawRows, valid: RawRows | None, settings: Settings
) -> list[str]:
    """Return the given transform; for "auto", "none" and the alternative for this y."""
    asked = settings.target_transform
    if asked != "auto":
        return [asked]
    if not num_judges(len(rows), settings, valid):
        return ["none"]  # no rows can choose
    given = [rows] if valid is None else [rows, valid]
    positive = all((part.targets > 0).all() for part in given)
    return ["none", "log"] if positive else ["none", "yeo_johnson"]


def judge(candidate: Candidate, network: FlatNetwork, result: Result) -> Trial:
    """Return a fit with the log densities of its held-out rows in the units of y."""
    found = result.held_out
    if found is None:
        return Trial(candidate, network, result, None, np.zeros(0))
    log_probs = found.log_probs + candidate.log_density_shifts[found.rows]
    weights = candidate.judge_weights[found.rows]
    return Trial(candidate, network, result, log_probs, weights)


def worth_a_whole_fit(trials: list[Trial]) -> list[Trial]:
    """Return the best trial and those not clearly behind it, best first."""
    # A trial that ran out of time before its first step has no information.
    ranked = sorted(trials, key=lambda t: (t.result.fit.num_steps == 0, -t.score))
    best = ranked[0]
    return [best, *(trial for trial in ranked[1:] if _is_close(best, trial))]


def _is_close(best: Trial, other: Trial) -> bool:
    one, two = best.log_probs, other.log_probs
    if one is None or two is None or len(one) != len(two):
        return False
    difference = one - two
    if not np.isfinite(difference).all():
        return False
    error = np.std(difference) / np.sqrt(len(difference))
    return bool(best.score - other.score < CLOSE * error)
