"""Sample the posterior of Depeweg by microcanonical Langevin dynamics.

    python -m benchmarks.references.microcanonical --folder FOLDER

The posterior of benchmarks/references/nuts.py (W, with z integrated out) by another
sampler, as a check on NUTS, whose chains hardly mix there. It has no accept step: the
bias of its step size is judged by the variance of the energy error of a step and weight
(Robnik et al., 2023, want at most 5e-4).

Chunks are kept in FOLDER as they are made: the same command goes on where it was
stopped. Every few chunks results/hmc/depeweg.json says how well the chains have
mixed, and FOLDER/depeweg_draws.npz has draws for `ncai study run decomposition`
(by the variable NCAI_HMC_DRAWS). At the end the epistemic uncertainty of these draws is
compared with that of their halves, and of what the study has: NUTS and the methods.
"""

import argparse
import datetime
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc import mclmc
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.stats import spearmanr

from benchmarks.references import nuts
from ncai.inference.nuts import (
    DrawInfo,
    Target,
    check_points,
    judge_mixing,
    predictive_summary,
)
from ncai.study.engine import SCALES
from ncai.study.engine.store import Store
from ncai.study.experiments.decomposition import (
    GRID_POINTS,
    HIGH,
    LOW,
    MEASURES,
    load_outcomes,
)
from ncai.study.experiments.hmc_draws import DATASET, DRAW, posterior_from_file
from ncai.study.experiments.problems import known_problem, predictive_at
from ncai.types import Unknowns

STEPS_A_DRAW = 100
GRADIENTS_A_DRAW = 2 * STEPS_A_DRAW
CHUNK_DRAWS = 50
KEPT_DRAWS = 256  # of each chain, in the file
DRAWS_FILE = "depeweg_draws.npz"
KIND = "microcanonical"
BURN_IN = 0.25  # share of the draws that is dropped


class Tuned(NamedTuple):
    """Of one chain."""

    step_size: Float[Array, ""]
    length: Float[Array, ""]
    inverse_mass: Float[Array, "U"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuning", type=int, default=20_000, help="steps")
    parser.add_argument("--draws", type=int, default=2_000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--step-factor", type=float, default=0.6)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/hmc"))
    parser.add_argument("--study", type=Path, default=Path("results/study"))
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def log_density(target: Target, weights: Float[Array, "U"]) -> Float[Array, ""]:
    return target.log_density(
        Unknowns(weights, jnp.zeros((0, 1)), jnp.zeros((0,), weights.dtype))
    )


@jax.jit(static_argnames=("num_steps",))
def tune(target: Target, weights, key: PRNGKeyArray, num_steps: int):
    """A state of the chain, and what it is tuned to."""
    start_key, tune_key = jax.random.split(key)

    def density(w):
        return log_density(target, w)

    found: Any
    state, found, _ = blackjax.mclmc_find_L_and_step_size(
        mclmc_kernel=mclmc.build_kernel(),
        logdensity_fn=density,
        num_steps=num_steps,
        state=mclmc.init(weights, density, start_key),
        rng_key=tune_key,
        frac_tune1=0.4,
        frac_tune2=0.4,
        frac_tune3=0.2,
    )
    return state, Tuned(found.step_size, found.L, found.inverse_mass_matrix)


@jax.jit
def draw_chunk(target: Target, state, tuned: Tuned, key: PRNGKeyArray):
    """The state after a chunk; weights [draws, U], densities, energy errors squared."""
    kernel: Any = mclmc.build_kernel()

    def one_step(state, key):
        state, info = kernel(
            key,
            state,
            lambda w: log_density(target, w),
            tuned.inverse_mass,
            tuned.length,
            tuned.step_size,
        )
        return state, info.energy_change

    def one_draw(state, key):
        state, errors = jax.lax.scan(
            one_step, state, jax.random.split(key, STEPS_A_DRAW)
        )
        return state, (state.position, state.logdensity, jnp.mean(errors**2))

    return jax.lax.scan(one_draw, state, jax.random.split(key, CHUNK_DRAWS))


class Chain:
    """One chain: its chunks in files, the newest state in memory."""

    def __init__(self, options, target: Target, weights, number: int):
        self.options, self.target, self.number = options, target, number
        self.key = jax.random.fold_in(jax.random.key(options.seed), 1000 + number)
        self.weights = weights

    def path(self, name) -> Path:
        return self.options.folder / f"chain{self.number}-{name}.npz"

    def tuned(self):
        path = self.path("tuned")
        if not path.exists():
            state, tuned = tune(
                self.target, self.weights, self.key, self.options.tuning
            )
            nuts.save(path, **state._asdict(), **tuned._asdict())
        found = dict(np.load(path))
        tuned = Tuned(*(jnp.asarray(found[name]) for name in Tuned._fields))
        return found, tuned._replace(
            step_size=self.options.step_factor * tuned.step_size
        )

    def run(self, chunk: int) -> dict[str, np.ndarray]:
        """The chunk of this number: from its file, or drawn from the one before."""
        path = self.path(f"{chunk:04d}")
        if not path.exists():
            found, tuned = self.tuned()
            if chunk:
                found = dict(np.load(self.path(f"{chunk - 1:04d}")))
            names = mclmc.IntegratorState._fields
            state: Any = [jnp.asarray(found[name]) for name in names]
            state = mclmc.IntegratorState(*state)
            begun = time.time()
            key = jax.random.fold_in(self.key, chunk)
            state, (weights, density, error) = jax.block_until_ready(
                draw_chunk(self.target, state, tuned, key)
            )
            nuts.save(
                path,
                **state._asdict(),
                weights=weights,
                density=density,
                error=error,
                seconds=time.time() - begun,
            )
        return dict(np.load(path))


def report(options, target, chunks) -> None:
    """Mixing so far, and draws to keep; chunks[i][c] is chunk i of chain c."""

    def drawn(name):
        parts = [np.stack([c[name] for c in row], axis=1) for row in chunks]
        return np.concatenate(parts)

    first = int(BURN_IN * CHUNK_DRAWS * len(chunks))
    weights, errors = drawn("weights")[first:], drawn("error")[first:]
    inputs, nodes = check_points(target)
    no_latents = jnp.zeros((*weights.shape[:2], 0, 1))
    positions = Unknowns(jnp.asarray(weights), no_latents, no_latents[..., 0])
    summary = np.asarray(predictive_summary(target, positions, inputs, nodes))
    nothing = jnp.zeros(weights.shape[:2])
    found = judge_mixing(summary, DrawInfo(nothing, nothing, nothing, nothing))
    per_weight = errors.mean(axis=0) / weights.shape[2]
    print(
        f"{len(weights)} draws of {weights.shape[1]} chains: R-hat "
        f"{found.max_rhat:.3f}, effective {found.min_ess:.0f}, energy error variance "
        f"a weight {per_weight.round(6)}, log density "
        f"{drawn('density')[first:].mean(axis=0).round(1)}",
        flush=True,
    )
    options.out.mkdir(parents=True, exist_ok=True)
    seconds = sum(chain["seconds"] for row in chunks for chain in row)
    result = {
        "command": "python -m benchmarks.references.microcanonical --tuning "
        f"{options.tuning} --draws {options.draws} --chains {options.chains} "
        f"--step-factor {options.step_factor} --nodes {options.nodes} --seed "
        f"{options.seed} --folder FOLDER",
        "date": datetime.date.today().isoformat(),
        "versions": {"jax": jax.__version__, "blackjax": blackjax.__version__},
        "chains": found.num_chains,
        "draws": found.num_draws,
        "gradients_a_chain": GRADIENTS_A_DRAW * CHUNK_DRAWS * len(chunks),
        "seconds_of_drawing": round(float(seconds)),
        "max_rhat": found.max_rhat,
        "min_ess": found.min_ess,
        "mixed": found.mixed,
        "energy_error_variance": per_weight.tolist(),
    }
    nuts.record(options.out / nuts.REPORT_FILE, KIND, result)
    kept = np.linspace(0, len(weights) - 1, min(KEPT_DRAWS, len(weights))).astype(int)
    nuts.save(
        options.folder / DRAWS_FILE,
        weights=np.swapaxes(weights[kept], 0, 1).astype(np.float32),
    )


def agreement(options) -> None:
    """Add rank correlations over x of the epistemic part to the report."""
    known = known_problem(DATASET, DRAW)
    grid = np.linspace(LOW, HIGH, GRID_POINTS)[:, None]
    posterior, _ = posterior_from_file(options.folder / DRAWS_FILE, known)

    def epistemic(chains, measure):
        shares = np.isin(np.arange(options.chains), chains) / len(chains)
        draws = replace(posterior, shares=shares).draw(jax.random.key(0), 1024)
        predictive = predictive_at(known.model.network, draws, grid)
        return predictive.decompose(measure).epistemic

    half = options.chains // 2
    found = load_outcomes(SCALES["paper"], Store(options.study / "paper"))
    outcomes = {f"{m}, {p}": outcome for (m, p), outcome in found.others.items()}
    if found.reference is not None:
        outcomes["NUTS"] = found.reference
    correlations = {}
    for measure in MEASURES:
        ours = epistemic(np.arange(options.chains), measure)
        others = {
            name: outcome.arrays[f"{measure}_epistemic"]
            for name, outcome in outcomes.items()
        }
        first, second = np.split(np.arange(options.chains), [half])
        halves = epistemic(first, measure), epistemic(second, measure)
        correlations[measure] = {
            "first half of the chains with the second": _rank_correlation(*halves)
        } | {name: _rank_correlation(ours, other) for name, other in others.items()}
    path = options.out / nuts.REPORT_FILE
    result = json.loads(path.read_text())[KIND]
    result["rank_correlation_of_epistemic"] = correlations
    nuts.record(path, KIND, result)


def _rank_correlation(a, b) -> float:
    return round(float(np.asarray(spearmanr(a, b)[0])), 3)


def main() -> None:
    options = parse()
    options.folder.mkdir(parents=True, exist_ok=True)
    options.start, options.kind, options.problem = None, "marginal", "paper"
    _, target, position = nuts.make_target(options)
    chains = [Chain(options, target, w, i) for i, w in enumerate(position.weights)]
    chunks = []
    with ThreadPoolExecutor(options.threads) as pool:
        for number in range(options.draws // CHUNK_DRAWS):
            chunks.append(list(pool.map(lambda c, n=number: c.run(n), chains)))
            if number % 4 == 3 and not chains[0].path(f"{number + 1:04d}").exists():
                report(options, target, chunks)
    report(options, target, chunks)
    agreement(options)


if __name__ == "__main__":
    main()
