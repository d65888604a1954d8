"""The code that all peers share: read a task, tune, fit each split, print scores.

A task is a file of JSON: {"files": {split: npz}, "settings": null or a dictionary}. An
npz holds train_inputs, train_targets, test_inputs, test_targets, and may hold
valid_inputs and valid_targets. Each line printed is one JSON object: what tuning chose,
or the scores of each test row of one split, in raw units.

A peer is a `fit(train, settings, seed, valid) -> predict` on standardised rows, where
`predict(inputs)` gives a `Prediction`. Where `valid` is None it may hold out rows of
`train` to stop by, and should then train on all of them.

Settings are tuned once a set, on the first file of the task (the first split): each
point of the peer's grid is fitted to 80 % of its training rows and scored by NLL on the
others, or on the validation rows where the set has them. Test rows are not used for
tuning.

It needs numpy and scipy only.
"""

import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtr

LEVEL = 0.95
BISECTIONS = 60


class Rows(NamedTuple):
    inputs: np.ndarray
    targets: np.ndarray


@dataclass
class Prediction:
    """A Gaussian mixture a row: arrays [N, C]; equal weights unless given.

    Where `points` [N, P] are given, CRPS, mean and interval are those of the points
    and the mixture is their smoothed density.
    """

    means: np.ndarray
    stds: np.ndarray
    weights: np.ndarray | None = None
    points: np.ndarray | None = None

    def __post_init__(self):
        self.stds = np.broadcast_to(self.stds, self.means.shape)
        if self.weights is None:
            self.weights = np.full(self.means.shape, 1 / self.means.shape[1])

    def log_density(self, targets):
        standard = (targets[:, None] - self.means) / self.stds
        return logsumexp(
            -0.5 * standard**2 - np.log(self.stds) - 0.5 * math.log(2 * math.pi),
            b=self.weights,
            axis=1,
        )

    def mean(self):
        if self.points is not None:
            return self.points.mean(axis=1)
        return (self.weights * self.means).sum(axis=1)

    def interval(self):
        tail = (1 - LEVEL) / 2
        if self.points is not None:
            return np.quantile(self.points, [tail, 1 - tail], axis=1)
        return np.stack([self._quantile(tail), self._quantile(1 - tail)])

    def _quantile(self, level):
        low = (self.means - 10 * self.stds).min(axis=1)
        high = (self.means + 10 * self.stds).max(axis=1)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            standard = (middle[:, None] - self.means) / self.stds
            below = (self.weights * ndtr(standard)).sum(axis=1) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    def crps(self, targets):
        """In closed form (Grimit et al., 2006), row by row to bound memory."""
        if self.points is not None:
            means, stds = self.points, np.zeros_like(self.points)
            weights = np.full(means.shape, 1 / means.shape[1])
        else:
            means, stds, weights = self.means, self.stds, self.weights
        scores = np.empty(len(targets))
        for row, (m, s, w, y) in enumerate(
            zip(means, stds, weights, targets, strict=True)
        ):
            spread = np.hypot(s[:, None], s[None, :])
            apart = _expected_abs(m[:, None] - m[None, :], spread)
            scores[row] = w @ _expected_abs(y - m, s) - 0.5 * w @ apart @ w
        return scores


def _expected_abs(mean, std):
    """E|X| for X ~ N(mean, std^2)."""
    safe = np.where(std > 0, std, 1.0)
    scaled = mean / safe
    density = np.exp(-0.5 * scaled**2) / math.sqrt(2 * math.pi)
    smooth = 2 * std * density + mean * (2 * ndtr(scaled) - 1)
    return np.where(std > 0, smooth, np.abs(mean))


class Problem:
    """One split, standardised on its training rows."""

    def __init__(self, path):
        with np.load(path) as found:
            arrays = {name: np.asarray(found[name], float) for name in found.files}
        inputs = arrays["train_inputs"]
        targets = arrays["train_targets"]
        self.shift, self.scale = targets.mean(), targets.std() or 1.0
        input_shift, spread = inputs.mean(axis=0), inputs.std(axis=0)
        input_scale = np.where(spread > 0, spread, 1.0)

        def part(name):
            if f"{name}_inputs" not in arrays:
                return None
            return Rows(
                (arrays[f"{name}_inputs"] - input_shift) / input_scale,
                (arrays[f"{name}_targets"] - self.shift) / self.scale,
            )

        self.train, self.valid, self.test = map(part, ("train", "valid", "test"))

    def scores(self, predicted):
        """Of each test row, in raw units."""
        lower, upper = predicted.interval()
        targets = self.test.targets
        return {
            "log_density": predicted.log_density(targets) - math.log(self.scale),
            "crps": predicted.crps(targets) * self.scale,
            "mean": predicted.mean() * self.scale + self.shift,
            "lower": lower * self.scale + self.shift,
            "upper": upper * self.scale + self.shift,
        }


def held_out(train, seed, fraction=0.2):
    """Two parts of the training rows: to fit, and to choose by."""
    order = np.random.default_rng(seed).permutation(len(train.targets))
    cut = max(1, round(fraction * len(order)))
    pick = [Rows(train.inputs[i], train.targets[i]) for i in (order[cut:], order[:cut])]
    return pick[0], pick[1]


def tune_on_grid(fit, grid, train, valid, seed):
    """The point of the grid with the lowest validation NLL, and all of these."""
    scores = [
        -fit(train, point, seed, valid)(valid.inputs).log_density(valid.targets).mean()
        for point in grid
    ]
    return grid[int(np.argmin(scores))], scores


def tune_nested(train, finish, slow, fast, rows, valid, seed):
    """As `tune_on_grid`, where one training serves all points that share a slow part.

    `train(rows, slow settings, seed)(inputs)` is what `finish(that, fast settings)`
    turns into a `Prediction`.
    """
    scores = []
    for trained in slow:
        found = train(rows, trained, seed)(valid.inputs)
        for point in fast:
            predicted = finish(found, point)
            scores.append(-predicted.log_density(valid.targets).mean())
    grid = [trained | point for trained in slow for point in fast]
    return grid[int(np.argmin(scores))], scores


def say(**values):
    def plain(value):
        if isinstance(value, np.ndarray):
            return [float(f"{v:.7g}") for v in value]
        return value

    print(json.dumps({k: plain(v) for k, v in values.items()}), flush=True)


class Peer(NamedTuple):
    """How to fit, the settings to choose from, and whose versions to record.

    `tune(train, valid, seed)` may take the place of a fit for each point of the grid.
    """

    fit: Callable
    grid: list[dict]
    packages: tuple[str, ...]
    tune: Callable | None = None


def run_peer(peers: dict[str, Peer]):
    """Run the task with the peer; the command line names both."""
    warnings.simplefilter("ignore")
    name, path = sys.argv[1:]
    fit, grid, packages, tune = peers[name]
    with open(path) as file:
        task = json.load(file)
    files = {int(split): path for split, path in task["files"].items()}
    say(versions={name: version(name) for name in packages})
    settings = task.get("settings")
    if settings is None:
        worked = time.process_time()
        first = Problem(task["first_file"])
        inner, valid = first.train, first.valid
        if valid is None:
            inner, valid = held_out(first.train, 0)
        if tune is None:
            settings, scores = tune_on_grid(fit, grid, inner, valid, 0)
        else:
            settings, scores = tune(inner, valid, 0)
        seconds = time.process_time() - worked
        say(settings=settings, points=len(scores), tuning_seconds=seconds)
    for split, path in files.items():
        problem = Problem(path)
        started, worked = time.perf_counter(), time.process_time()
        predict = fit(problem.train, settings, split, problem.valid)
        times = {
            "seconds": time.perf_counter() - started,
            "cpu_seconds": time.process_time() - worked,
        }
        say(split=split, **times, **problem.scores(predict(problem.test.inputs)))
