"""The draws of HMC that `decomposition` compares with: problems, files, how they mixed.

A clone of the repository has thinned draws in results/hmc, made by
benchmarks/references/hmc.py. They are not in the wheel: without them, and without a
file named by NCAI_HMC_DRAWS, the study samples.
"""

import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

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
from ncai.model.bnn_lv import Model
from ncai.model.empirical_bayes import initial_priors
from ncai.model.networks import MLP, FlatNetwork
from ncai.study.engine import Cell
from ncai.study.experiments.problems import KnownProblem, known_problem
from ncai.types import Unknowns, WeightDraws

DATASET, DRAW = "depeweg", 0
# Rows of the small problem: with all of them its few nodes are locked in narrow modes.
FEW_ROWS = {10: 150}
# Names a file with `weights` [chains, draws, weights], of the same data and model.
DRAWS_FILE = "NCAI_HMC_DRAWS"
# In a clone: src/ncai/study/experiments/hmc_draws.py is four folders below its root.
FOLDER = Path(__file__).resolve().parents[4] / "results" / "hmc"
# What the report beside a file of draws says of the whole run.
MIXING = ("max_rhat", "min_ess", "mixed", "num_chains", "num_draws")


def reference_problem(hidden: int) -> KnownProblem:
    """Depeweg's rows, s_w, s_z and s_eps with a hidden layer of this size.

    A network of 10 nodes has the first 150 rows. The truth belongs to the network that
    made the rows, whatever the size is.
    """
    known = known_problem(DATASET, DRAW)
    model = known.model
    rows = FEW_ROWS.get(hidden, len(known.data.inputs))
    data = jax.tree.map(lambda a: a[:rows], known.data)
    network = FlatNetwork(MLP((hidden,)), 1, 1, 1)
    priors = model.weight_variance, model.latent_variance, model.noise_variance
    return known._replace(data=data, model=Model(network, *priors))


def digest_of_problem(known: KnownProblem) -> str:
    """Of the rows, the size of the network and the three variances."""
    model = known.model
    variances = model.weight_variance, model.latent_variance, model.noise_variance
    arrays = [known.data.inputs, known.data.targets, *(v.value for v in variances)]
    text = b"".join(np.asarray(a, np.float32).tobytes() for a in arrays)
    size = str(model.network.num_weights).encode()
    return hashlib.sha256(text + size).hexdigest()[:12]


def digest_of_file(path: Path) -> str:
    """Of its bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def committed_draws(hidden: int) -> str | None:
    """Name and digest of the draws in this clone, if it has any."""
    path = FOLDER / f"{DATASET}_{hidden}.npz"
    return f"{path.name} (sha256 {digest_of_file(path)})" if path.is_file() else None


def reference_draws(cell: Cell, known: KnownProblem) -> tuple[WeightDraws, dict]:
    """Draws of W, and where they come from with how well their chains mixed.

    From the file that the variable names, else from the one that the cell names, else
    sampled here.
    """
    named, committed = os.environ.get(DRAWS_FILE), cell.get("draws_file")
    if named or committed:
        path = Path(named) if named else FOLDER / str(committed).split()[0]
        posterior, report = posterior_from_file(path, known)
        row = _row(report) | _of_whole_run(path)
        row["source"] = f"{path.name} (sha256 {digest_of_file(path)})"
    else:
        posterior, report = _sampled(cell, known)
        row = _row(report) | {"source": "sampled here"}
    return posterior.draw(jax.random.key(0), cell["kept"]), row


def _row(report: SamplerReport) -> dict[str, Any]:
    return {name: getattr(report, name) for name in MIXING}


def _of_whole_run(path: Path) -> dict[str, Any]:
    """What the report beside the file says; nothing if it is of other draws."""
    beside = path.with_suffix(".json")
    if not beside.is_file():
        return {}
    report = json.loads(beside.read_text())
    if report.get("sha256") != digest_of_file(path):
        return {}
    return {name: report[name] for name in MIXING}


def posterior_from_file(
    path: Path, known: KnownProblem
) -> tuple[SamplePosterior, SamplerReport]:
    """Draws that an earlier run kept, and how well these mixed."""
    network = known.model.network
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file with draws of HMC.")
    with np.load(path, allow_pickle=False) as found:
        weights: Any = found["weights"] if "weights" in found else np.zeros(0)
        problem = str(found["problem"]) if "problem" in found else None
    if weights.ndim != 3 or weights.shape[2] != network.num_weights:
        raise ValueError(
            f"{path} holds weights of shape {list(weights.shape)}; it must be "
            f"[chains, draws, {network.num_weights}]."
        )
    if problem not in (None, digest_of_problem(known)):
        raise ValueError(f"{path} holds draws for other rows or other variances.")
    chains, draws, _ = weights.shape
    samples = Unknowns(
        jnp.asarray(weights, jnp.float32),
        jnp.zeros((chains, draws, 0, network.latent_dim)),
        jnp.zeros((chains, draws, 0)),
    )
    priors = initial_priors(jax.random.key(0), known.model)
    summary = summary_of(known, weights)
    # Only the draws are kept in the file, not what the sampler said of each.
    nothing = jnp.zeros((draws, chains))
    report = judge_mixing(summary, DrawInfo(nothing, nothing, nothing, nothing))
    posterior = SamplePosterior(
        known.model,
        samples,
        jax.tree.map(lambda a: jnp.broadcast_to(a, (chains, *a.shape)), priors),
        np.full(chains, 1 / chains),
    )
    return posterior, report


def summary_of(known: KnownProblem, weights: np.ndarray) -> np.ndarray:
    """The predictive quantities whose mixing is judged: [draws, chains, quantities]."""
    priors = initial_priors(jax.random.key(0), known.model)
    target = Target(known.model, known.data, priors, None)
    by_draw = jnp.asarray(np.swapaxes(weights, 0, 1), jnp.float32)
    nothing = jnp.zeros((*by_draw.shape[:2], 0))
    positions = Unknowns(by_draw, nothing[..., None], nothing)
    return np.asarray(predictive_summary(target, positions, *check_points(target)))


def _sampled(cell: Cell, known: KnownProblem) -> tuple[Posterior, SamplerReport]:
    method = HMCMarginal(
        n_chains=cell["chains"],
        n_warmup=cell["warmup"],
        n_draws=cell["draws"],
        max_doublings=cell["doublings"],
        start_steps=cell["start_steps"],
    ).resolved("paper")
    training = Training(max_steps=cell["start_steps"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the table shows it
        fit = method.fit(jax.random.key(cell.seed), known.model, known.data, training)
    assert fit.sampler is not None
    return fit.posterior, fit.sampler
