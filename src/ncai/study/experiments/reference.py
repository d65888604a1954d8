"""HMC's draws for `decomposition`: from a file of an earlier run, or sampled."""

import hashlib
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ncai.inference.base import Training
from ncai.inference.hmc import HMCMarginal
from ncai.inference.nuts import (
    DrawInfo,
    Target,
    check_points,
    judge_mixing,
    predictive_summary,
)
from ncai.inference.posterior import Posterior, SamplePosterior, SamplerReport
from ncai.model.empirical_bayes import initial_priors
from ncai.study.engine.cells import Cell
from ncai.study.experiments.problems import KnownProblem
from ncai.types import Unknowns, WeightDraws

# Names a file with `weights` [chains, draws, weights], of the same data and model.
DRAWS_FILE = "NCAI_HMC_DRAWS"


class SamplerSize(NamedTuple):
    """Of the HMC run; `kept` of all draws are used, `start_steps` find its start."""

    chains: int
    warmup: int
    draws: int
    doublings: int
    kept: int
    start_steps: int


SAMPLER_SIZES = {
    "smoke": SamplerSize(2, 25, 25, 3, 32, 30),
    "small": SamplerSize(4, 300, 500, 8, 512, 3_000),
    "paper": SamplerSize(4, 600, 4_000, 10, 1_024, 5_000),
}


def reference_draws(cell: Cell, known: KnownProblem) -> tuple[WeightDraws, dict]:
    """Draws of W, and where they come from with how well their chains mixed."""
    path = os.environ.get(DRAWS_FILE)
    if path:
        posterior, report, source = posterior_from_file(Path(path), known)
    else:
        posterior, report, source = _sampled(cell, known)
    row = {
        "source": source,
        "max_rhat": report.max_rhat,
        "min_ess": report.min_ess,
        "mixed": report.mixed,
        "num_chains": report.num_chains,
        "num_draws": report.num_draws,
    }
    return posterior.draw(jax.random.key(0), cell["kept"]), row


def posterior_from_file(
    path: Path, known: KnownProblem
) -> tuple[Posterior, SamplerReport, str]:
    """Draws that an earlier run kept, how well they mixed, and what they are called."""
    network = known.model.network
    if not path.is_file():
        raise FileNotFoundError(f"{DRAWS_FILE}={path} names no file.")
    with np.load(path, allow_pickle=False) as found:
        weights: Any = found["weights"] if "weights" in found else np.zeros(0)
    if weights.ndim != 3 or weights.shape[2] != network.num_weights:
        raise ValueError(
            f"{path} holds weights of shape {list(weights.shape)}; it must be "
            f"[chains, draws, {network.num_weights}]."
        )
    chains, draws, _ = weights.shape
    samples = Unknowns(
        jnp.asarray(weights, jnp.float32),
        jnp.zeros((chains, draws, 0, network.latent_dim)),
        jnp.zeros((chains, draws, 0)),
    )
    priors = initial_priors(jax.random.key(0), known.model)
    target = Target(known.model, known.data, priors, None)
    inputs, nodes = check_points(target)
    by_draw = jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), samples)
    summary = np.asarray(predictive_summary(target, by_draw, inputs, nodes))
    # Only the draws are kept in the file, not what the sampler said of each.
    nothing = jnp.zeros((draws, chains))
    report = judge_mixing(summary, DrawInfo(nothing, nothing, nothing, nothing))
    posterior = SamplePosterior(
        known.model,
        samples,
        jax.tree.map(lambda a: jnp.broadcast_to(a, (chains, *a.shape)), priors),
        np.full(chains, 1 / chains),
    )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return posterior, report, f"{path.name} (sha256 {digest})"


def _sampled(cell: Cell, known: KnownProblem) -> tuple[Posterior, SamplerReport, str]:
    method = HMCMarginal(
        n_chains=cell["chains"],
        n_warmup=cell["warmup"],
        n_draws=cell["draws"],
        max_doublings=cell["doublings"],
        start_steps=cell["start_steps"],
    ).resolved("paper")
    training = Training(max_steps=cell["start_steps"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the table tells it
        fit = method.fit(jax.random.key(cell.seed), known.model, known.data, training)
    assert fit.sampler is not None
    return fit.posterior, fit.sampler, "sampled here"
