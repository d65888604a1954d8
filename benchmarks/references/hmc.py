r"""Reference draws of the posterior on Depeweg by Hamiltonian Monte Carlo.

    python -m benchmarks.references.hmc --hidden 10 --leapfrogs 1000 --sweeps 200 \
        --folder FOLDER
    python -m benchmarks.references.hmc --hidden 50 --folder FOLDER

The model of the study `decomposition`: s_w = 10, s_z = 1, s_eps = 0.1, with z
integrated out; `--hidden` is the size of its only hidden layer. A transition is a move
of the norms of each hidden node, a trajectory of random length, then Gibbs sweeps. Each
leaves the posterior as it is.

Draws are kept in FOLDER as they are made: the same command goes on where it was
stopped. It ends when the chains have mixed, or after `--draws` draws of each. Then
thinned draws go into OUT/depeweg.zip, and how well the chains mixed into
OUT/depeweg.json. It needs a C compiler (`cc`).
"""

import argparse
import datetime
import json
import subprocess
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import spearmanr

from benchmarks.references.leaky import (
    Frame,
    LeakyDensity,
    Moved,
    rescale,
    sweep,
    trajectory,
)
from ncai.inference.nuts import (
    DrawInfo,
    judge_mixing,
    posterior_of_weights,
    summary_of_weights,
)
from ncai.inference.posterior import SamplerReport
from ncai.runtime.atomic_write import replacing
from ncai.study.experiments.decomposition import GRID_POINTS, HIGH, LOW, MEASURES
from ncai.study.experiments.problems import (
    digest_of_draws,
    digest_of_problem,
    predictive_at,
    reference_problem,
)

CHUNK = 25
TRUE_RULE = (512, 5.0)  # of the density that is sampled: nodes of z, and their reach
REACH = 4.25  # of the cheaper rule of the leapfrogs
FINEST_RULE = (1_008, 6.0)  # to judge both
ENOUGH_ESS, ENOUGH_RHAT = 1_000, 1.02  # with a margin
SPREAD_OF_STARTS = 0.5
FIRST_STEP, STEP_OF_FRAME = 1e-4, 1e-3
ARGUMENTS = "hidden chains draws leapfrogs sweeps nodes acceptance seed kept".split()


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
        density, cheap = densities
        return cls(density, cheap, powers, leapfrogs, sweeps, weights)

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

    def state(self) -> dict:
        """All that the next draw depends on."""
        values = self.frame.values if self.frame else np.zeros(0)
        return {"weights": self.weights, "values": values, "log_step": self.log_step}

    def restore(self, path: Path) -> None:
        """Go on from what was kept."""
        with np.load(path) as found:
            self.weights, self.log_step = found["weights"], float(found["log_step"])
            self.frame = Frame(self.cheap, self.powers, found["values"])


def joined(chains, name) -> np.ndarray:
    """[chains, draws, ...] of what was kept of each draw."""
    return np.stack([np.concatenate([c[name] for c in one]) for one in chains])


def mixing_of(problem, chains) -> SamplerReport:
    """R-hat and effective sample size of all draws so far."""
    acceptance, divergent, leapfrogs = (
        jnp.asarray(joined(chains, n)) for n in ("acceptance", "divergent", "leapfrogs")
    )
    info = DrawInfo(acceptance, divergent, leapfrogs, jnp.zeros(()))
    found = judge_mixing(
        summary_of_weights(problem.model, problem.data, joined(chains, "weights")), info
    )
    print(f"{seconds_of(chains):6.0f} s  {found}", flush=True)
    return found


def seconds_of(chains) -> float:
    return sum(float(chunk["seconds"]) for one in chains for chunk in one)


def write_report(options, problem, densities, chains) -> None:
    """Thinned draws and a report on the whole run, beside each other."""
    mixing = mixing_of(problem, chains)
    weights = joined(chains, "weights")
    count = min(options.kept, weights.shape[1])
    places = np.linspace(0, weights.shape[1] - 1, count).round().astype(int)
    kept = weights[:, places].astype(np.float32)
    rows = problem.data.inputs[:, 0], problem.data.targets[:, 0]
    finest = LeakyDensity(*rows, options.hidden, rule=FINEST_RULE)
    values = [
        np.array([d.value_and_gradient(w)[0] for w in kept.reshape(-1, finest.size)])
        for d in (finest, *densities)
    ]
    name = options.hidden
    draws = {
        f"weights_{name}": kept,
        f"log_density_{name}": values[0].reshape(kept.shape[:2]),
        f"problem_{name}": np.array(digest_of_problem(problem)),
    }
    leapfrogs = int(joined(chains, "leapfrogs").sum())
    report = {
        "command": command_of(options),
        "date": datetime.date.today().isoformat(),
        "versions": versions(),
        "sha256_of_draws": digest_of_draws(kept),
        **{k: v for k, v in asdict(mixing).items() if k != "num_divergences"},
        "mixed": mixing.mixed,
        "divergences": mixing.num_divergences,
        "draws_kept_of_each_chain": count,
        "seconds_of_drawing": round(seconds_of(chains)),
        "leapfrogs": leapfrogs,
        "milliseconds_a_leapfrog_sweeps_included": round(
            1e3 * seconds_of(chains) / leapfrogs, 4
        ),
        "worst_quantity": worst_quantity(problem, weights),
        "quadrature_error": {
            "of_the_density": quadrature_error(values[0], values[1]),
            "of_the_leapfrogs": quadrature_error(values[0], values[2]),
        },
        "rank_correlation_of_epistemic_between_halves": halves(kept, problem),
    }
    store(options.out, draws, {str(name): report})


def store(out: Path, draws: dict, report: dict) -> None:
    """Beside those of the other problem."""
    out.mkdir(parents=True, exist_ok=True)
    path, beside = out / "depeweg.zip", out / "depeweg.json"
    if path.exists():
        with np.load(path) as found:
            draws = dict(found) | draws
        report = json.loads(beside.read_text()) | report
    save(path, **draws)
    with replacing(beside) as temporary:
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
    chains = jnp.asarray(
        np.moveaxis(summary_of_weights(problem.model, problem.data, weights), 1, 0)
    )
    ess, rhat = np.asarray(blackjax.ess(chains)), np.asarray(blackjax.rhat(chains))
    worst = int(np.argmin(ess))
    values = np.asarray(chains[..., worst])
    count, points = int(problem.data.inputs.shape[0]), len(ess) // 2
    row = np.linspace(0, count - 1, points).astype(int)[worst % points]
    alone = [float(blackjax.ess(one[None, :])) for one in values]
    return {
        "what": ("mean" if worst < points else "spread") + " of f over z",
        "x": round(float(problem.data.inputs[row, 0]), 3),
        "rhat": round(float(rhat[worst]), 4),
        "means_of_chains": values.mean(axis=1).round(3).tolist(),
        "standard_deviation": round(float(values.std()), 3),
        "ess_of_each_chain_alone": [round(one) for one in alone],
        "median_ess_of_all_quantities": round(float(np.median(ess))),
    }


def halves(kept, problem) -> dict[str, float]:
    """Rank correlation over x of the epistemic parts of two halves of the chains."""
    posterior = posterior_of_weights(problem.model, kept)
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


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=50)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--draws", type=int, default=4_000)
    parser.add_argument("--leapfrogs", type=int, default=3_000)
    parser.add_argument("--sweeps", type=int, default=20, help="by Gibbs, a draw")
    parser.add_argument("--powers", type=int, nargs="+", default=(3, 2))
    parser.add_argument("--nodes", type=int, default=192, help="of z, for leapfrogs")
    parser.add_argument("--acceptance", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kept", type=int, default=128, help="draws of each chain")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/hmc"))
    return parser.parse_args(arguments)


def save(path: Path, **arrays) -> None:
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)


class Kept:
    """A chain and its files: the state after the warm-up, then chunks of draws."""

    def __init__(self, options, densities, number: int):
        self.options, self.number = options, number
        rng = np.random.default_rng([options.seed, number])
        moves = options.powers, options.leapfrogs, options.sweeps
        self.chain = Chain.start(densities, *moves, rng)
        self.rng, self.folder = rng, options.folder
        self.chunks: list[dict[str, np.ndarray]] = []

    def path(self, name: str) -> Path:
        return self.folder / f"nodes{self.options.hidden}-chain{self.number}-{name}.npz"

    def warm_up(self) -> None:
        path = self.path("warm")
        if not path.exists():
            begun = time.process_time()
            self.chain.warm_up(self.rng, self.options.acceptance)
            save(path, **self.chain.state())
            step = np.exp(self.chain.log_step)
            seconds = time.process_time() - begun
            print(
                f"chain {self.number} warm: step {step:.2e}, {seconds:.0f} s",
                flush=True,
            )
        self.chain.restore(path)

    def next_chunk(self) -> None:
        """From its file, or drawn from the end of the one before."""
        number = len(self.chunks)
        path = self.path(f"{number:04d}")
        if not path.exists():
            rng = np.random.default_rng([self.options.seed, self.number, 1 + number])
            begun = time.process_time()
            chunk = self.chain.draw(rng, CHUNK)
            save(path, **chunk, seconds=time.process_time() - begun)
        with np.load(path) as found:
            self.chunks.append(dict(found))
        self.chain.weights = self.chunks[-1]["weights"][-1]


def main() -> None:
    options = parse()
    options.folder.mkdir(parents=True, exist_ok=True)
    problem = reference_problem(options.hidden)
    rows = problem.data.inputs[:, 0], problem.data.targets[:, 0]
    rules = TRUE_RULE, (options.nodes, REACH)
    densities = [LeakyDensity(*rows, options.hidden, rule=rule) for rule in rules]
    chains = [Kept(options, densities, i) for i in range(options.chains)]
    for chain in chains:
        chain.warm_up()
    for number in range(1, 1 + options.draws // CHUNK):
        for chain in chains:
            chain.next_chunk()
        if number % 4 == 0 and not chains[0].path(f"{number:04d}").exists():
            mixing = mixing_of(problem, [c.chunks for c in chains])
            if mixing.min_ess > ENOUGH_ESS and mixing.max_rhat < ENOUGH_RHAT:
                break
    write_report(options, problem, densities, [c.chunks for c in chains])


if __name__ == "__main__":
    main()
