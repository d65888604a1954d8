r"""Reference draws of the posterior on Depeweg by Hamiltonian Monte Carlo.

    python -m benchmarks.references.hmc --hidden 10 --leapfrogs 1000 --sweeps 100 \
        --folder FOLDER
    python -m benchmarks.references.hmc --hidden 50 --folder FOLDER

The model of the study `decomposition`: s_w = 10, s_z = 1, s_eps = 0.1, with z
integrated out; `--hidden` is the size of its only hidden layer. Draws are kept in
FOLDER as they are made: the same command goes on where it was stopped. It ends when the
chains have mixed, or after `--draws` draws of each. Then thinned draws go into
OUT/depeweg_HIDDEN.npz, and how well the chains mixed into OUT/depeweg_HIDDEN.json.
It needs a C compiler (`cc`).
"""

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.references.chain import Chain
from benchmarks.references.leaky import LeakyDensity
from benchmarks.references.report import mixing_of, write_report
from ncai.runtime.atomic_write import replacing
from ncai.study.experiments.hmc_draws import reference_problem

CHUNK = 25
TRUE_RULE = (512, 5.0)  # of the density that is sampled: nodes of z, and their reach
REACH = 4.25  # of the cheaper rule of the leapfrogs
ENOUGH_ESS, ENOUGH_RHAT = 480, 1.03  # with a margin


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
        np.savez(file, **arrays)


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
            self.chain.save(path)
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
