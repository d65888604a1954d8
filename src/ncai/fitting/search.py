"""Fit rows in the user's units: trial fits choose the transform and the network."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ncai.fitting.fit import FitTask, Result, fit_rows
from ncai.fitting.holdout import num_judges
from ncai.fitting.settings import Settings
from ncai.fitting.transform_choice import (
    Candidate,
    Trial,
    candidates,
    judge,
    worth_a_whole_fit,
)
from ncai.inference.posterior import Fit
from ncai.model.networks import FlatNetwork
from ncai.preprocessing.target_transforms import WORDS
from ncai.training.driver import Progress
from ncai.types import RawRows, Unknowns


class Search:
    """Trial fits with each transform of y and each network, then complete fits.

    The transform with the best density of held-out rows, in the units of y, is used; if
    trial fits are close, complete fits decide. The network is the best one in trial
    fits with the best transform, or the first one if no rows can choose. With stacking
    weights, the restarts of the trial fit stay in the mixture, because on small tables
    it can be best to stop early.

    Args:
        settings: resolved and checked.
        networks: the networks to choose among, the usual one first.
        seed: seed of all random numbers.
        start: a start given as values for all rows, if there is one.
        on_progress: called after each chunk of steps.
    """

    def __init__(
        self,
        settings: Settings,
        networks: Sequence[FlatNetwork],
        seed: int,
        start: Unknowns | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ):
        self.settings = settings
        self.networks = networks
        self.seed = seed
        self.start = start
        self.on_progress = on_progress

    def run(self, rows: RawRows, valid: RawRows | None = None) -> Trial:
        """Return the best fit, with the transform and units that it was trained in."""
        started = time.monotonic()
        listed = candidates(rows, valid, self.settings, self.seed)
        networks = self.networks
        if not num_judges(len(rows), self.settings, valid):
            networks = networks[:1]
        trials: list[Trial] = []
        if len(listed) > 1 or len(networks) > 1 or self._keeps_trials:
            trials = self._trials(listed, networks)
        else:
            best = self._fit(listed[0], networks[0], self.settings)
        if trials:
            spent = time.monotonic() - started
            best = self._whole_fits(trials, spent)
        score = best.score
        result = replace(
            best.result,
            seconds=time.monotonic() - started,
            held_out_score=score if np.isfinite(score) else None,
        )
        return replace(best, result=result)

    @property
    def _keeps_trials(self) -> bool:
        """Return whether restarts of the trial fit may join the final mixture."""
        return self.settings.has_folds and self.settings.keep == "weighted"

    def _trials(
        self, listed: list[Candidate], networks: Sequence[FlatNetwork]
    ) -> list[Trial]:
        """Make a trial fit for each transform that may be best, with the best network.

        The first network is tried with all transforms, and the other networks with the
        best transform. If another network wins, it is also tried with the transforms
        that came close to the best. After Ctrl-C only one trial is returned, marked as
        interrupted: the best complete one, or else the one that was interrupted.
        """
        settings = _trial_settings(self.settings, len(listed) * len(networks))
        done: list[Trial] = []

        def interrupted_by(candidate: Candidate, network: FlatNetwork) -> bool:
            number = "" if network is networks[0] else " 2"  # with another network
            stage = f"trial{number}, {WORDS[candidate.scaling.transform.name]}"
            done.append(self._fit(candidate, network, settings, stage))
            return done[-1].result.fit.interrupted

        for candidate in listed:
            if interrupted_by(candidate, networks[0]):
                return _before_interrupt(done)
        trials = list(done)
        for network in networks[1:]:
            best, *close = worth_a_whole_fit(trials)
            if interrupted_by(best.candidate, network):
                return _before_interrupt(done)
            other = done[-1]
            if worth_a_whole_fit([best, other])[0] is other:
                trials = [other]
                for trial in close:
                    if interrupted_by(trial.candidate, network):
                        return _before_interrupt(done)
                    trials.append(done[-1])
        return trials

    def _whole_fits(self, trials: list[Trial], spent: float) -> Trial:
        """Make complete fits of the best trials; return the best on held-out rows."""
        if trials[0].result.fit.interrupted:
            return trials[0]
        settings, plans = self.settings, worth_a_whole_fit(trials)
        if settings.time_limit:
            plans = plans[:1]
            left = max(settings.time_limit - spent, 1e-3)
            settings = replace(settings, time_limit=left)
        best: Trial | None = None
        for trial in map(_named_trial, plans):
            whole = self._whole_fit(trial, settings, len(plans) > 1)
            if best is not None and whole.result.fit.interrupted:
                return _interrupted(best)
            if best is None or whole.score > best.score:
                best = whole
            if whole.result.fit.interrupted:
                break
        assert best is not None
        return best

    def _whole_fit(self, trial: Trial, settings: Settings, named: bool) -> Trial:
        """Make a complete fit; return the trial if there was no time for a step."""
        stage = WORDS[trial.candidate.scaling.transform.name] if named else None
        added = trial.result.fit if self._keeps_trials else None
        whole = self._fit(trial.candidate, trial.network, settings, stage, added)
        if whole.result.fit.num_steps > (added.num_steps if added else 0):
            return whole
        return _interrupted(trial) if whole.result.fit.interrupted else trial

    def _fit(
        self,
        candidate: Candidate,
        network: FlatNetwork,
        settings: Settings,
        stage: str | None = None,
        trial: Fit | None = None,
    ) -> Trial:
        report = self.on_progress
        if stage is not None:
            report = _under_name(report, stage)
        task = FitTask(settings, network, self.seed, self.start, report, trial)
        result = fit_rows(task, candidate.rows, candidate.valid)
        return judge(candidate, network, result)


def _trial_settings(settings: Settings, num_trials: int) -> Settings:
    """Return settings for a trial fit: fewer steps, one restart for each fold."""
    limit = settings.time_limit
    return replace(
        settings,
        method=settings.method.for_trial(),
        max_steps=max(settings.max_steps // 4, 1),
        n_restarts=min(settings.n_restarts, max(settings.num_folds, 4)),
        time_limit=limit and limit / (4 * num_trials),
    )


def _before_interrupt(done: list[Trial]) -> list[Trial]:
    """Return the best trial completed before Ctrl-C, or else the interrupted one."""
    *whole, last = done
    return [_interrupted(worth_a_whole_fit(whole)[0]) if whole else last]


def _with_fit(trial: Trial, **changes) -> Trial:
    result: Result = trial.result
    return replace(trial, result=replace(result, fit=replace(result.fit, **changes)))


def _interrupted(trial: Trial) -> Trial:
    return _with_fit(trial, interrupted=True)


def _named_trial(trial: Trial) -> Trial:
    """Return the trial with "trial" in the names of its stages."""
    reasons = trial.result.fit.stop_reasons
    return _with_fit(trial, stop_reasons=[f"trial {reason}" for reason in reasons])


def _under_name(on_progress: Callable[[Progress], None] | None, name: str):
    """Return a callback that reports progress under this stage name."""
    if on_progress is None:
        return None
    return lambda progress: on_progress(replace(progress, stage=name))
