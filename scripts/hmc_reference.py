"""Sample the posterior of Depeweg by NUTS and report how well the chains mixed.

    python scripts/hmc_reference.py --kind joint --warmup 1000 --draws 4000

Settings of the paper's reference: s_w = 10, s_z = 1, s_eps = 0.1. Writes
results/hmc/depeweg_<kind>.json.
"""

import argparse
import datetime
import json
import time
import warnings
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

from ncai.datasets import make_dataset
from ncai.inference.hmc import HMC
from ncai.model import Model, Variance
from ncai.networks import MLP, FlatNetwork
from ncai.optimise import Driver
from ncai.types import Data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["joint", "marginal"], default="joint")
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--doublings", type=int, default=8)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/hmc"))
    parser.add_argument("--keep", type=Path, help="also write the draws of W (.npz)")
    options = parser.parse_args()

    rows = make_dataset("depeweg", seed=options.seed).train
    data = Data(
        jnp.asarray(rows.inputs, jnp.float32),
        jnp.asarray(rows.targets, jnp.float32),
        jnp.ones(len(rows.inputs)),
    )
    model = Model(
        FlatNetwork(MLP((50,)), 1, 1, 1),
        Variance(jnp.asarray(10.0)),
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray([0.1])),
    )
    method = HMC(
        marginal=options.kind == "marginal",
        num_chains=options.chains,
        num_warmup=options.warmup,
        num_draws=options.draws,
        num_nodes=options.nodes,
        max_doublings=options.doublings,
    )
    started = time.time()

    def tell(progress):
        if progress.step % 100 == 0:
            terms = {k: round(v, 3) for k, v in progress.terms.items()}
            print(
                f"{time.time() - started:7.0f} s  {progress.stage} {progress.step}/"
                f"{progress.max_steps}  {progress.value:.1f}  {terms}",
                flush=True,
            )

    warnings.simplefilter("ignore")
    fit = method.fit(jax.random.key(options.seed), model, data, Driver(tell))
    report = fit.sampler
    print(report)
    if options.keep:
        np.savez(options.keep, weights=fit.posterior.samples.weights)
    options.out.mkdir(parents=True, exist_ok=True)
    result = {
        "command": "python scripts/hmc_reference.py "
        + " ".join(
            f"--{name} {value}"
            for name, value in vars(options).items()
            if name not in ("out", "keep")
        ),
        "date": datetime.date.today().isoformat(),
        "versions": {"jax": jax.__version__, "blackjax": blackjax.__version__},
        "seconds": round(time.time() - started),
        "max_rhat": report.max_rhat,
        "min_ess": report.min_ess,
        "mixed": report.mixed,
        "divergences": report.num_divergences,
        "acceptance_rate": report.acceptance_rate,
        "mean_leapfrogs": report.mean_leapfrogs,
        "chains": report.num_chains,
        "draws": report.num_draws,
    }
    path = options.out / f"depeweg_{options.kind}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
