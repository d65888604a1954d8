"""From rows in the user's units to a fit: quick fits say how, whole ones decide."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ncai.fitting.fit import FEWEST_HELD_OUT, Result, fit_rows, hold_out
from ncai.fitting.settings import has_folds
from ncai.inference.posterior import Fit
from ncai.model.networks import FlatNetwork
from ncai.preprocessing.rounding import Lattice
from ncai.preprocessing.scaling import Scaling
from ncai.preprocessing.target_transforms import WORDS
from ncai.training.driver import Progress
from ncai.types import Rows, Unknowns

# Transforms whose quick fits are closer than so many standard errors are both fitted in
# full: a quarter of the steps tells little about what is best in the end.
CLOSE = 3.0


class Trial(NamedTuple):
    """A fit under one transform of y, by one network.

    Args:
        scaling: the transform, and the units of training.
        network: what was fitted.
        result: the fit.
        log_probs: log densities of the held-out rows, in the units of y; None if there
            are none.
        row_weights: of these rows.
    """

    scaling: Scaling
    network: FlatNetwork
    result: Result
    log_probs: np.ndarray | None
    row_weights: np.ndarray

    @property
    def score(self) -> float:
        """The average of the log densities."""
        if self.log_probs is None:
            return -np.inf
        return float(self.row_weights @ self.log_probs / self.row_weights.sum())


def fit_scaled(
    rows: Rows,
    settings: Mapping[str, Any],
    networks: Sequence[FlatNetwork],
    seed: int,
    valid: Rows | None = None,
    start: Unknowns | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> tuple[Scaling, Result]:
    """Fit rows in the user's units: quickly, under each transform of y, then in full.

    The transform is that which gives the held-out rows the best density, in the units
    of y: of quick fits, and of whole ones where those are close. The network is the
    best of quick fits under the best transform; the first where nothing can be told.
    Where restarts are weighted, those of the quick fit stay among them: on small tables
    stopping early can be best.
    """
    started = time.monotonic()
    lattice = None
    if settings["rounding"] != "ignore":
        found = Lattice.learn(rows.targets)
        rows = found.unround(rows, seed)
        valid = None if valid is None else found.unround(valid, seed + 1)
        lattice = found if settings["rounding"] == "auto" else None
    judged = rows if valid is None else valid

    def fit(scaling, network, settings, stage: str | None, quick=None) -> Trial:
        result = fit_rows(
            scaling.apply(rows),
            settings,
            network,
            seed,
            None if valid is None else scaling.apply(valid),
            start,
            on_progress if stage is None else _named_stage(on_progress, stage),
            quick,
        )
        return judge(scaling, network, result, judged)

    names = _transforms_to_try(rows, settings, valid)
    scalings = [
        Scaling.learn(rows, settings["standardize"], name, lattice) for name in names
    ]
    weighted = has_folds(settings) and settings["keep"] == "weighted"
    if not _num_held_out(rows, settings, valid):
        networks = networks[:1]
    quick_settings = _quick_settings(settings, len(names) * len(networks))

    def try_out(scaling: Scaling, network: FlatNetwork) -> Trial:
        number = "" if network is networks[0] else " 2"  # with another network
        stage = f"trial{number}, {WORDS[scaling.transform.name]}"
        trial = fit(scaling, network, quick_settings, stage)
        if trial.result.fit.interrupted:
            raise _InterruptedError(trial)
        whole_trials.append(trial)
        return trial

    best: Trial | None = None
    whole_trials: list[Trial] = []
    quick_fits: list[Trial] = []
    plans = [(scalings[0], networks[0])]
    if len(names) > 1 or len(networks) > 1 or weighted:
        try:
            quick_fits = try_all(scalings, networks, try_out)
        except _InterruptedError as stopped:
            best, plans = stopped.trial, []
            if whole_trials:
                best = _interrupted(worth_a_whole_fit(whole_trials)[0])
        else:
            plans = [(t.scaling, t.network) for t in worth_a_whole_fit(quick_fits)]
    if settings["time_limit"]:
        plans = plans[:1]
        left = settings["time_limit"] - (time.monotonic() - started)
        settings = {**settings, "time_limit": max(left, 1e-3)}
    for scaling, network in plans:
        quick = [_as_trial(t) for t in quick_fits if t.scaling is scaling]
        stage = WORDS[scaling.transform.name] if len(plans) > 1 else None
        added = quick[0].result.fit if weighted else None
        whole = fit(scaling, network, settings, stage, added)
        if quick and _untrained(whole, added):  # the trial is all that was learned
            stopped = whole.result.fit.interrupted
            whole = _interrupted(quick[0]) if stopped else quick[0]
        if best is not None and whole.result.fit.interrupted:
            best = _interrupted(best)
            break
        if best is None or whole.score > best.score:
            best = whole
        if whole.result.fit.interrupted:
            break
    assert best is not None
    score = best.score
    return best.scaling, replace(
        best.result,
        seconds=time.monotonic() - started,
        held_out_score=score if np.isfinite(score) else None,
    )


def try_all(
    scalings: Sequence[Scaling],
    networks: Sequence[FlatNetwork],
    try_out: Callable[[Scaling, FlatNetwork], Trial],
) -> list[Trial]:
    """Quick fits under every transform that may be best, by the best of the networks.

    The transforms are tried with the first network, others with the best transform; if
    one of these wins, with all transforms that are close.
    """
    trials = [try_out(scaling, networks[0]) for scaling in scalings]
    for network in networks[1:]:
        best, *close = worth_a_whole_fit(trials)
        other = try_out(best.scaling, network)
        if worth_a_whole_fit([best, other])[0] is other:
            trials = [other, *(try_out(trial.scaling, network) for trial in close)]
    return trials


class _InterruptedError(Exception):
    """Ctrl-C in a quick fit: those before it, or what it found, are all there is."""

    def __init__(self, trial: Trial):
        self.trial = trial


def judge(
    scaling: Scaling, network: FlatNetwork, result: Result, judged: Rows
) -> Trial:
    """A fit, with the log densities of its held-out rows in the units of y."""
    found = result.held_out
    if found is None:
        return Trial(scaling, network, result, None, np.zeros(0))
    held = judged.pick(found.rows)
    log_probs = found.log_probs + scaling.log_density_shifts(held)
    return Trial(scaling, network, result, log_probs, held.weights)


def worth_a_whole_fit(trials: list[Trial]) -> list[Trial]:
    """The best, and those that are not clearly behind it, best first."""
    # One whose time was over before its first step tells nothing.
    ranked = sorted(trials, key=lambda t: (t.result.fit.num_steps == 0, -t.score))
    best = ranked[0]
    return [best, *(trial for trial in ranked[1:] if _is_close(best, trial))]


def _is_close(best: Trial, other: Trial) -> bool:
    one, two = best.log_probs, other.log_probs
    if one is None or two is None or len(one) != len(two):
        return False
    apart = one - two
    if not np.isfinite(apart).all():
        return False
    error = np.std(apart) / np.sqrt(len(apart))
    return best.score - other.score < CLOSE * error


def _interrupted(trial: Trial) -> Trial:
    """What there was before Ctrl-C."""
    fit = replace(trial.result.fit, interrupted=True)
    return trial._replace(result=replace(trial.result, fit=fit))


def _named_stage(on_progress: Callable[[Progress], None] | None, name: str):
    """Tell progress under a name of its own."""
    if on_progress is None:
        return None
    return lambda progress: on_progress(replace(progress, stage=name))


def _as_trial(trial: Trial) -> Trial:
    """The same, its stages told as those of a trial."""
    fit = trial.result.fit
    fit = replace(fit, stop_reasons=[f"trial {why}" for why in fit.stop_reasons])
    return trial._replace(result=replace(trial.result, fit=fit))


def _untrained(whole: Trial, added: Fit | None) -> bool:
    """Whether it was over before its first step, by the time limit or Ctrl-C."""
    return whole.result.fit.num_steps == (added.num_steps if added else 0)


def _quick_settings(settings: Mapping[str, Any], num_fits: int) -> dict[str, Any]:
    """A quarter of the steps, the middle temperature, and one restart a fold."""
    limit = settings["time_limit"]
    temperatures = np.atleast_1d(np.asarray(settings["temperature"], float))
    return {
        **settings,
        "max_steps": max(settings["max_steps"] // 4, 1),
        "temperature": float(np.exp(np.log(temperatures).mean())),
        "n_restarts": min(settings["n_restarts"], max(settings["n_folds"], 4)),
        "refit": False,
        "n_snapshots": 0,
        "time_limit": limit and limit / (4 * num_fits),
    }


def _transforms_to_try(rows: Rows, settings, valid: Rows | None) -> list[str]:
    asked = settings["target_transform"]
    if asked != "auto":
        return [asked]
    if not _num_held_out(rows, settings, valid):
        return ["none"]  # nothing to choose by
    positive = (rows.targets > 0).all() and (valid is None or (valid.targets > 0).all())
    return ["none", "log"] if positive else ["none", "yeo_johnson"]


def _num_held_out(rows: Rows, settings, valid: Rows | None) -> int:
    """Rows by which fits can be compared."""
    if valid is not None:
        return len(valid)
    if settings["inference"] in ("hmc", "hmc_marginal"):
        return 0
    if has_folds(settings) and len(rows) >= FEWEST_HELD_OUT:
        return len(rows)
    return len(hold_out(len(rows), settings["validation_fraction"], 0)[1])
