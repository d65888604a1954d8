"""Sample the posterior of Depeweg by NUTS and report how well the chains mixed.

    python -m benchmarks.references.nuts --kind marginal --draws 4000 --folder FOLDER

Settings of the paper's reference: s_w = 10, s_z = 1, s_eps = 0.1. With `--problem
default` it is the network of `BNNLVRegressor()` on standardised rows, with its priors
and learned noise, at temperature 1; its draws have not been made yet. Draws are kept in
FOLDER as they are made: the same command goes on where it was stopped. A report on the
draws so far goes into results/hmc/depeweg.json every few draws, and all draws go
into FOLDER/depeweg_<kind>_draws.npz: for `--start`, and for `ncai study run
decomposition` by the variable NCAI_HMC_DRAWS.
"""

import argparse
import datetime
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.staged_adaptation import build_schedule

from ncai.datasets import make_dataset
from ncai.estimators.bnn_lv import BNNLVRegressor
from ncai.inference.base import Training
from ncai.inference.hmc import CHUNK_DRAWS, HMC, _keys
from ncai.inference.nuts import (
    DrawInfo,
    Target,
    Tuned,
    check_points,
    draw_chunk,
    finish_warmup,
    judge_mixing,
    predictive_summary,
    warm_start,
    warmup_chunk,
)
from ncai.model.bnn_lv import Model, Variance
from ncai.model.empirical_bayes import initial_priors
from ncai.model.networks import MLP, FlatNetwork
from ncai.model.quadrature import latent_rule
from ncai.runtime.atomic_write import replacing
from ncai.training.driver import Driver
from ncai.types import Data, Unknowns

REPORT_FILE = "depeweg.json"
TUNING_DOUBLINGS = 6
LONG_STEP_FACTOR = 0.6


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problem", choices=["paper", "default"], default="paper")
    parser.add_argument("--kind", choices=["joint", "marginal"], default="marginal")
    parser.add_argument("--warmup", type=int, default=600)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--doublings", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--acceptance", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="weights of an earlier run (.npz)")
    parser.add_argument("--out", type=Path, default=Path("results/hmc"))
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def paper_problem(rows) -> tuple[Data, Model]:
    data = Data(
        jnp.asarray(rows.inputs, jnp.float32),
        jnp.asarray(rows.targets, jnp.float32),
        jnp.ones(len(rows.inputs)),
    )
    variances = (jnp.asarray(10.0), jnp.asarray(1.0), jnp.asarray([0.1]))
    return data, Model(FlatNetwork(MLP((50,)), 1, 1, 1), *map(Variance, variances))


def default_problem(rows) -> tuple[Data, Model]:
    settings = BNNLVRegressor().resolved_settings()
    network = FlatNetwork(settings.network.choices()[0], 1, 1, 1)
    x, y = (
        jnp.asarray((a - a.mean(axis=0)) / a.std(axis=0), jnp.float32)
        for a in (rows.inputs, rows.targets)
    )
    model = settings.method.build_model(network, settings.noise_variance)
    return Data(x, y, jnp.ones(len(x))), model


def name_of(options) -> str:
    """What its files and its report are called."""
    return options.kind if options.problem == "paper" else f"default-{options.kind}"


def make_target(options) -> tuple[HMC, Target, Unknowns]:
    rows = make_dataset("depeweg", seed=options.seed).train
    problem = paper_problem if options.problem == "paper" else default_problem
    data, model = problem(rows)
    method = HMC(n_chains=options.chains).resolved("paper")
    key = jax.random.key(options.seed)
    if options.start:
        if options.problem != "paper":
            raise SystemExit("--start needs fixed variances: --problem paper.")
        weights = jnp.asarray(np.load(options.start)["weights"][:, -1])
        position = Unknowns(
            weights,
            jnp.zeros((options.chains, len(rows.inputs), 1)),
            jnp.zeros((options.chains, 0)),
        )
        priors = initial_priors(key, model)  # all are fixed
    else:
        position, priors = method._starts(key, model, data, Training(), Driver())
    rule = None
    if options.kind == "marginal":
        rule = latent_rule(1, options.nodes)
        position = position._replace(latents=position.latents[:, :0])
    return method, Target(model, data, priors, rule), position


def save(path, **arrays):
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def on_threads(pool, function, groups, *trees):
    """Call the function for each group of chains in parallel, and join the results."""
    parts = pool.map(
        lambda chains: function(*jax.tree.map(lambda a: a[chains], trees)), groups
    )
    return list(parts)


def join(parts, axis=0):
    return jax.tree.map(lambda *p: jnp.concatenate(p, axis=axis), *parts)


def warm_up(options, target, position, pool, groups):
    """Tuned step sizes and masses, and where the chains are: from a file if there."""
    path = options.folder / f"{name_of(options)}-warm.npz"
    if not path.exists():
        key = jax.random.fold_in(jax.random.key(options.seed), 1)
        schedule = jnp.asarray(build_schedule(options.warmup))
        warm = warm_start(target, position, options.acceptance)
        doublings = options.doublings
        if options.start:
            # The earlier draws give the masses, so only the step size is tuned, for
            # which short trajectories are enough.
            schedule, doublings = jnp.zeros_like(schedule), TUNING_DOUBLINGS
            warm = with_masses(warm, np.load(options.start)["weights"])
        started, first = time.time(), 0
        partial = options.folder / f"{name_of(options)}-warming.npz"
        if partial.exists():
            found = dict(np.load(partial))
            first = int(found.pop("next"))
            leaves = [jnp.asarray(found[f"leaf{i}"]) for i in range(len(found))]
            warm = jax.tree.unflatten(jax.tree.structure(warm), leaves)
        for start in range(first, options.warmup, CHUNK_DRAWS):
            keys = jnp.swapaxes(_keys(key, start, options.chains), 0, 1)
            part = schedule[start : start + CHUNK_DRAWS]
            parts = on_threads(
                pool,
                lambda w, k, part=part: warmup_chunk(
                    target,
                    w,
                    jnp.swapaxes(k, 0, 1),
                    part,
                    options.acceptance,
                    doublings,
                ),
                groups,
                warm,
                keys,
            )
            warm = join([p[0] for p in parts])
            info = join([p[1] for p in parts], axis=1)
            tell("warm-up", start, info, started)
            leaves = {f"leaf{i}": v for i, v in enumerate(jax.tree.leaves(warm))}
            save(partial, next=start + CHUNK_DRAWS, **leaves)
        state, tuned = finish_warmup(warm, options.acceptance)
        if options.start:
            # Long trajectories reach stiffer regions than the short ones did.
            tuned = tuned._replace(step_size=LONG_STEP_FACTOR * tuned.step_size)
        save(
            path,
            weights=state.position.weights,
            latents=state.position.latents,
            log_noise_var=state.position.log_noise_var,
            step_size=tuned.step_size,
            inverse_mass=tuned.inverse_mass,
        )
    kept = np.load(path)
    print("step sizes", kept["step_size"], flush=True)
    return kept


def with_masses(warm, weights):
    """Each chain's inverse masses from the variances of its earlier draws."""
    state, adaptation = warm
    num_draws = weights.shape[1]
    shrink = num_draws / (num_draws + 5)  # Stan's, towards 0.001
    variances = jnp.asarray(
        shrink * weights.var(axis=1) + (1 - shrink) * 1e-3, jnp.float32
    )
    mass = adaptation.mass._replace(inverse_mass_matrix=variances)
    return state, adaptation._replace(mass=mass, inverse_mass=variances)


def tell(stage, start, info: DrawInfo, started):
    print(
        f"{time.time() - started:7.0f} s  {stage} {start + CHUNK_DRAWS}  "
        f"{float(info.log_density.mean()):.1f}  acceptance "
        f"{float(info.acceptance.mean()):.2f}  leapfrogs "
        f"{float(info.leapfrogs.mean()):.0f}  divergent {int(info.divergent.sum())}",
        flush=True,
    )


def main() -> None:
    options = parse()
    options.folder.mkdir(parents=True, exist_ok=True)
    _, target, position = make_target(options)
    pool = ThreadPoolExecutor(options.threads)
    groups = np.arange(options.chains)[:, None]  # one chain each, so that none waits
    kept = warm_up(options, target, position, pool, groups)
    tuned = Tuned(jnp.asarray(kept["step_size"]), jnp.asarray(kept["inverse_mass"]))
    inputs, nodes = check_points(target)
    chunks = []
    key = jax.random.fold_in(jax.random.key(options.seed), 2)
    last = Unknowns(
        jnp.asarray(kept["weights"]),
        jnp.asarray(kept["latents"]),
        jnp.asarray(kept["log_noise_var"]),
    )
    init = jax.jit(jax.vmap(lambda p: blackjax.nuts.init(p, target.log_density)))
    started = time.time()
    for start in range(0, options.draws, CHUNK_DRAWS):
        path = options.folder / f"{name_of(options)}-{start:06d}.npz"
        if not path.exists():
            keys = jnp.swapaxes(_keys(key, start, options.chains), 0, 1)
            begun = time.time()
            parts = on_threads(
                pool,
                lambda p, t, k: draw_chunk(
                    target, init(p), t, jnp.swapaxes(k, 0, 1), options.doublings
                ),
                groups,
                last,
                tuned,
                keys,
            )
            draws = join([p[1] for p in parts], axis=1)
            info = join([p[2] for p in parts], axis=1)
            save(
                path,
                weights=draws.weights,
                latents=draws.latents[-1],
                log_noise_var=draws.log_noise_var,
                summary=predictive_summary(target, draws, inputs, nodes),
                seconds=time.time() - begun,
                **info._asdict(),
            )
            tell("draws", start, info, started)
        chunk = dict(np.load(path))
        chunks.append(chunk)
        last = last._replace(
            weights=jnp.asarray(chunk["weights"][-1]),
            latents=jnp.asarray(chunk["latents"]),
            log_noise_var=jnp.asarray(chunk["log_noise_var"][-1]),
        )
        if (
            len(chunks) % 4 == 0
            and not (
                options.folder / f"{name_of(options)}-{start + CHUNK_DRAWS:06d}.npz"
            ).exists()
        ):
            report(options, chunks)


def report(options, chunks):
    """Mixing so far."""
    summary = np.concatenate([c["summary"] for c in chunks])
    info = DrawInfo(
        *(jnp.concatenate([c[name] for c in chunks]) for name in DrawInfo._fields)
    )
    found = judge_mixing(summary, info)
    print(found, flush=True)
    result = {
        "command": "python -m benchmarks.references.nuts --problem "
        f"{options.problem} --kind {options.kind} --warmup {options.warmup} "
        f"--draws {options.draws} --chains {options.chains} "
        f"--doublings {options.doublings} --nodes {options.nodes} --seed "
        f"{options.seed} --folder FOLDER",
        "date": datetime.date.today().isoformat(),
        "versions": {"jax": jax.__version__, "blackjax": blackjax.__version__},
        "seconds_of_drawing": round(sum(float(c["seconds"]) for c in chunks)),
        "max_rhat": found.max_rhat,
        "min_ess": found.min_ess,
        "mixed": found.mixed,
        "divergences": found.num_divergences,
        "acceptance_rate": found.acceptance_rate,
        "mean_leapfrogs": found.mean_leapfrogs,
        "chains": found.num_chains,
        "draws": found.num_draws,
    }
    weights = np.concatenate([c["weights"] for c in chunks])
    path = options.folder / f"depeweg_{name_of(options)}_draws.npz"
    save(path, weights=np.swapaxes(weights, 0, 1))
    options.out.mkdir(parents=True, exist_ok=True)
    record(options.out / REPORT_FILE, name_of(options), result)


def record(path: Path, kind: str, result: dict) -> None:
    """Put the report on one sampler into the file of all of them."""
    reports = json.loads(path.read_text()) if path.exists() else {}
    with replacing(path) as temporary:
        text = json.dumps(reports | {kind: result}, indent=2)
        Path(temporary).write_text(text + "\n")


if __name__ == "__main__":
    main()
