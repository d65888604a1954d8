"""One chain of Hamiltonian Monte Carlo on the density of `leaky.py`.

A transition is a move of the norms of each hidden node, then a trajectory of random
length in the coordinates of a `Frame`, then Gibbs sweeps, which jump over modes. Each
leaves the posterior as it is.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.references.gibbs import sweep
from benchmarks.references.leaky import Frame, LeakyDensity, library
from ncai.runtime.atomic_write import replacing

SPREAD_OF_STARTS = 0.5
RESCALING_MOVES, RESCALING_STEP = 10, 0.8
FIRST_STEP, STEP_OF_FRAME = 1e-4, 1e-3
STEP_FACTORS = (0.7, 1.1)  # some regions are stiffer than those of the warm-up


def log_norm_density(log_norm, product, prior_var):
    """Of the log norm r of the weights into a node, given r v and their direction.

    With (b, a, c) = r u and v = p / r, the volume is r^2 dr du dp / r, which is
    r^2 dlog(r) du dp; the likelihood depends on u and p alone.
    """
    square = np.exp(2 * log_norm)
    return 2 * log_norm - (square + product**2 / square) / (2 * prior_var)


def rescale(rng: np.random.Generator, density: LeakyDensity, weights) -> np.ndarray:
    """Weights of the same function, with other norms into and out of each node."""
    b, a, c, bias, v = density.unpack(weights)
    start = 0.5 * np.log(b * b + a * a + c * c)
    product, log_norm = np.exp(start) * v, start
    here = log_norm_density(log_norm, product, density.prior_var)
    for _ in range(RESCALING_MOVES):
        there = log_norm + RESCALING_STEP * rng.standard_normal(len(v))
        value = log_norm_density(there, product, density.prior_var)
        taken = np.log(rng.random(len(v))) < value - here
        log_norm = np.where(taken, there, log_norm)
        here = np.where(taken, value, here)
    factor = np.exp(log_norm - start)
    return np.concatenate([b * factor, a * factor, c * factor, bias, v / factor])


class Moved(NamedTuple):
    """The end of a trajectory."""

    position: np.ndarray
    acceptance: float
    divergent: bool


def trajectory(rng, chain: "Chain", position, num_steps) -> Moved:
    """Leapfrogs from a fresh momentum, and the accept step.

    The leapfrogs have a cheaper rule for z than the density that is sampled: the accept
    step makes up for it.
    """
    density, frame = chain.cheap, chain.frame
    step = float(np.exp(chain.log_step)) * rng.uniform(*STEP_FACTORS)
    space = frame or density
    value, gradient = space.value_and_gradient(position)
    end, momentum = position.copy(), rng.standard_normal(density.size)
    end_value = np.zeros(1)
    change = library().trajectory(
        density.address,
        frame.address if frame else None,
        *(a.ctypes.data for a in (end, momentum, gradient)),
        step,
        num_steps,
        value,
        end_value.ctypes.data,
    )
    if np.isfinite(change):
        change += chain.excess(position) - chain.excess(end)
    acceptance = float(np.exp(-max(change, 0.0))) if np.isfinite(change) else 0.0
    taken = rng.random() < acceptance
    divergent = not np.isfinite(change) or change > 1000
    return Moved(end if taken else position, acceptance, divergent)


@dataclass
class Chain:
    """Where it is, and what it is tuned to."""

    density: LeakyDensity
    cheap: LeakyDensity
    powers: tuple[int, ...]
    leapfrogs: int
    sweeps: int
    weights: np.ndarray
    log_step: float = float(np.log(FIRST_STEP))
    frame: Frame | None = None

    @classmethod
    def start(cls, densities, powers, leapfrogs, sweeps, rng) -> "Chain":
        """From small random weights; the densities are the true and the cheap one."""
        weights = SPREAD_OF_STARTS * rng.standard_normal(densities[0].size)
        return cls(*densities, powers, leapfrogs, sweeps, weights)

    def excess(self, position) -> float:
        """How much higher the true log density is than the cheap one."""
        weights = self.frame.to_weights(position) if self.frame else position
        true, cheap = (
            d.value_and_gradient(weights)[0] for d in (self.density, self.cheap)
        )
        return true - cheap

    def move(self, rng, leapfrogs: int) -> tuple[Moved, int]:
        """One transition of about this many leapfrogs, and how many there were."""
        weights = rescale(rng, self.density, self.weights)
        position = self.frame.to_position(weights) if self.frame else weights
        count = max(1, int(leapfrogs * rng.uniform(0.5, 1.5)))
        moved = trajectory(rng, self, position, count)
        at = moved.position
        self.weights = self.frame.to_weights(at) if self.frame else at
        variances = self.density.noise_var, self.density.prior_var
        rows = self.density.rows, self.density.targets
        for _ in range(self.sweeps):
            self.weights = sweep(rng, *rows, self.weights, variances)
        return moved, count

    def warm_up(self, rng, target_acceptance: float) -> None:
        """Find the bulk of the posterior, then the frame and the step size.

        Stages: short and longer trajectories of the weights; a frame from the last
        draws; the same once more; the step size alone, whose later half is averaged.
        """
        short, full = self.leapfrogs // 4, self.leapfrogs
        for count, leapfrogs, rate, to_frame in (
            (100, 300, 0.1, False),
            (30, 1000, 0.1, True),
            (40, short, 0.1, False),
            (40, full, 0.05, True),
            (60, full, 0.03, False),
        ):
            draws, log_steps = [], []
            for _ in range(count):
                moved, _ = self.move(rng, leapfrogs)
                self.log_step += rate * (moved.acceptance - target_acceptance)
                draws.append(self.weights)
                log_steps.append(self.log_step)
            if to_frame:
                self.log_step = max(self.log_step, float(np.log(STEP_OF_FRAME)))
                self.set_frame(draws[-len(draws) // 2 :])
        self.log_step = float(np.mean(log_steps[len(log_steps) // 2 :]))

    def set_frame(self, draws) -> None:
        """With the components that the function has on average over the draws."""
        frame = Frame(self.cheap, self.powers)
        values = np.mean([frame.components(w) for w in draws], axis=0)
        self.frame = Frame(self.cheap, self.powers, values)

    def draw(self, rng, count: int) -> dict[str, np.ndarray]:
        """A chunk of draws, with what is known of each."""
        found = {"weights": [], "acceptance": [], "divergent": [], "leapfrogs": []}
        for _ in range(count):
            moved, leapfrogs = self.move(rng, self.leapfrogs)
            values = self.weights, moved.acceptance, moved.divergent, leapfrogs
            for name, value in zip(found, values, strict=True):
                found[name].append(value)
        return {name: np.array(values) for name, values in found.items()}

    def save(self, path: Path) -> None:
        """Keep all that the next draw depends on."""
        values = self.frame.values if self.frame else np.zeros(0)
        state = {"weights": self.weights, "values": values, "log_step": self.log_step}
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **state)

    def restore(self, path: Path) -> None:
        """Go on from what was kept."""
        with np.load(path) as found:
            self.weights, self.log_step = found["weights"], float(found["log_step"])
            self.frame = Frame(self.cheap, self.powers, found["values"])
