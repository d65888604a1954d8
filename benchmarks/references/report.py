"""How well the chains of `hmc.py` mixed, and what is kept of them."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.references.leaky import LeakyDensity
from ncai.inference.nuts import (
    DrawInfo,
    Target,
    check_points,
    judge_mixing,
    predictive_summary,
)
from ncai.inference.posterior import SamplerReport
from ncai.model.empirical_bayes import initial_priors
from ncai.types import Unknowns


class Run:
    """A run: its settings, its problem, and the density of its draws."""

    def __init__(self, options, problem, density: LeakyDensity):
        self.options, self.problem, self.density = options, problem, density
        priors = initial_priors(jax.random.key(0), problem.model)
        self.target = Target(problem.model, problem.data, priors, None)

    def summary(self, weights) -> np.ndarray:
        """The 80 predictive quantities, [draws, chains, 80], of [chains, draws, W]."""
        weights = jnp.asarray(np.swapaxes(weights, 0, 1), jnp.float32)
        nothing = jnp.zeros((*weights.shape[:2], 0, 1))
        positions = Unknowns(weights, nothing, nothing[..., 0])
        points = check_points(self.target)
        return np.asarray(predictive_summary(self.target, positions, *points))

    def judge(self, chains) -> SamplerReport:
        """R-hat and effective sample size of all draws so far."""

        def joined(name):
            return np.stack([np.concatenate([c[name] for c in one]) for one in chains])

        nothing = np.zeros(())
        info = DrawInfo(
            *(joined(n) for n in ("acceptance", "divergent", "leapfrogs")), nothing
        )
        found = judge_mixing(self.summary(joined("weights")), info)
        seconds = sum(float(chunk["seconds"]) for one in chains for chunk in one)
        print(f"{seconds:6.0f} s  {found}", flush=True)
        return found


def write_report(run, chains):
    run.judge(chains)
