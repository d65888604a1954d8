"""How well the chains of `hmc.py` mixed, and what is kept of them."""

import datetime
import json
import subprocess
from dataclasses import asdict, replace

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import spearmanr

from benchmarks.references.leaky import LeakyDensity
from ncai.inference.nuts import DrawInfo, judge_mixing
from ncai.inference.posterior import SamplerReport
from ncai.runtime.atomic_write import replacing
from ncai.study.experiments.decomposition import GRID_POINTS, HIGH, LOW, MEASURES
from ncai.study.experiments.hmc_draws import (
    digest_of_file,
    digest_of_problem,
    posterior_from_file,
    summary_of,
)
from ncai.study.experiments.problems import predictive_at

FINEST_RULE = (1_008, 6.0)
ARGUMENTS = "hidden chains draws leapfrogs sweeps nodes acceptance seed kept".split()


def joined(chains, name) -> np.ndarray:
    """[chains, draws, ...] of what was kept of each draw."""
    return np.stack([np.concatenate([c[name] for c in one]) for one in chains])


def mixing_of(problem, chains) -> SamplerReport:
    """R-hat and effective sample size of all draws so far."""
    parts = (joined(chains, n) for n in ("acceptance", "divergent", "leapfrogs"))
    info = DrawInfo(*map(jnp.asarray, parts), jnp.zeros(()))
    found = judge_mixing(summary_of(problem, joined(chains, "weights")), info)
    print(f"{seconds_of(chains):6.0f} s  {found}", flush=True)
    return found


def seconds_of(chains) -> float:
    return sum(float(chunk["seconds"]) for one in chains for chunk in one)


def write_report(options, problem, densities, chains) -> None:
    """Thinned draws and a report on the whole run, beside each other."""
    mixing = mixing_of(problem, chains)
    weights = joined(chains, "weights")
    places = np.linspace(0, weights.shape[1] - 1, options.kept).round().astype(int)
    kept = weights[:, places].astype(np.float32)
    rows = problem.data.inputs[:, 0], problem.data.targets[:, 0]
    finest = LeakyDensity(*rows, options.hidden, rule=FINEST_RULE)
    values = [
        np.array([d.value_and_gradient(w)[0] for w in kept.reshape(-1, finest.size)])
        for d in (finest, *densities)
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"depeweg_{options.hidden}.npz"
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(
            file,
            weights=kept,
            log_density=values[0].reshape(kept.shape[:2]),
            problem=np.array(digest_of_problem(problem)),
        )
    leapfrogs = int(joined(chains, "leapfrogs").sum())
    report = {
        "command": command_of(options),
        "date": datetime.date.today().isoformat(),
        "versions": versions(),
        "sha256": digest_of_file(path),
        **{k: v for k, v in asdict(mixing).items() if k != "num_divergences"},
        "mixed": mixing.mixed,
        "divergences": mixing.num_divergences,
        "draws_kept_of_each_chain": options.kept,
        "seconds_of_drawing": round(seconds_of(chains)),
        "leapfrogs": leapfrogs,
        "milliseconds_a_leapfrog": round(1e3 * seconds_of(chains) / leapfrogs, 4),
        "worst_quantity": worst_quantity(problem, weights),
        "quadrature_error": {
            "of_the_density": quadrature_error(values[0], values[1]),
            "of_the_leapfrogs": quadrature_error(values[0], values[2]),
        },
        "rank_correlation_of_epistemic_between_halves": halves(path, problem),
    }
    with replacing(path.with_suffix(".json")) as temporary:
        temporary.write_text(json.dumps(report, indent=2) + "\n")


def command_of(options) -> str:
    shown = " ".join(f"--{name} {getattr(options, name)}" for name in ARGUMENTS)
    powers = " ".join(map(str, options.powers))
    return (
        f"python -m benchmarks.references.hmc {shown} --powers {powers} --folder FOLDER"
    )


def versions() -> dict[str, str]:
    compiler = subprocess.run(["cc", "--version"], capture_output=True, text=True)
    packages = {m.__name__: m.__version__ for m in (np, jax, blackjax)}
    return packages | {"cc": compiler.stdout.split("\n")[0]}


def quadrature_error(fine, coarse) -> dict[str, float]:
    """Of the log density, in nats; and what importance weights for it would leave."""
    error = coarse - fine
    weights = np.exp(-(error - error.max()))
    return {
        "mean": round(float(error.mean()), 4),
        "standard_deviation": round(float(error.std()), 4),
        "largest": round(float(np.abs(error).max()), 4),
        "effective_share": round(
            float(weights.sum() ** 2 / (weights**2).sum() / len(error)), 4
        ),
    }


def worst_quantity(problem, weights) -> dict:
    """The quantity of fewest effective draws: whether its chains differ, or drift."""
    chains = jnp.asarray(np.moveaxis(summary_of(problem, weights), 1, 0))
    ess, rhat = np.asarray(blackjax.ess(chains)), np.asarray(blackjax.rhat(chains))
    worst = int(np.argmin(ess))
    values = np.asarray(chains[..., worst])
    count, points = int(problem.data.inputs.shape[0]), len(ess) // 2
    row = np.linspace(0, count - 1, points).astype(int)[worst % points]
    alone = [float(np.asarray(blackjax.ess(one[None, :, None]))[0]) for one in values]
    return {
        "what": ("mean" if worst < points else "spread") + " of f over z",
        "x": round(float(problem.data.inputs[row, 0]), 3),
        "rhat": round(float(rhat[worst]), 4),
        "means_of_chains": values.mean(axis=1).round(3).tolist(),
        "standard_deviation": round(float(values.std()), 3),
        "ess_of_each_chain_alone": [round(one) for one in alone],
        "median_ess_of_all_quantities": round(float(np.median(ess))),
    }


def halves(path, problem) -> dict[str, float]:
    """Rank correlation over x of the epistemic parts of two halves of the chains."""
    posterior, _ = posterior_from_file(path, problem)
    grid = np.linspace(LOW, HIGH, GRID_POINTS)[:, None]
    number = posterior.num_components
    parts = []
    for chains in np.array_split(np.arange(number), 2):
        shares = np.isin(np.arange(number), chains) / len(chains)
        count = len(chains) * posterior.samples.weights.shape[1]
        draws = replace(posterior, shares=shares).draw(jax.random.key(0), count)
        predictive = predictive_at(problem.model.network, draws, grid)
        parts.append({m: predictive.decompose(m).epistemic for m in MEASURES})
    return {
        m: round(float(np.asarray(spearmanr(parts[0][m], parts[1][m])[0])), 4)
        for m in MEASURES
    }
