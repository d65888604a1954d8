"""Fit the ground-truth networks of the synthetic sets and store their weights.

    python scripts/fit_ground_truth.py          # those that the file lacks
    python scripts/fit_ground_truth.py --all    # all of them

Deterministic for one machine and one version of JAX. The stored file is part of the
package: run this with --all only to change the truth, since it changes every draw.
"""

import argparse
import functools
import itertools
import json
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from safetensors import safe_open
from safetensors.numpy import save_file
from scipy.optimize import minimize

import ncai
from ncai.datasets.oracles import NetworkOracle, Truth
from ncai.datasets.synthetic import (
    LATENT_PROCESSES,
    OTHER_SIZES,
    WEIGHTS_FILE,
    LatentProcess,
    name_of_size,
)
from ncai.model.networks import MLP, FlatNetwork

SEED = 0
POOL = 2**17
BATCH = 1000
FLOOR = 0.05  # share of the design spread evenly over x, and z within 4 prior widths
DECAY = 1e-8  # on the mean squared weight: keeps the truth plausible under the prior
CANDIDATES = 2  # starts that L-BFGS goes on from


@dataclass(frozen=True)
class Effort:
    num_starts: int
    num_steps: int
    learning_rate: float


EFFORTS = {
    "heavy_tail": Effort(12, 20_000, 5e-2),
    "depeweg": Effort(6, 20_000, 3e-2),
    "bimodal": Effort(3, 5_000, 1e-2),
    "bimodal_20_20": Effort(6, 20_000, 1e-2),
    "bimodal_50": Effort(6, 20_000, 3e-2),
}


def design(process: LatentProcess, generator):
    """Pairs (x, z), mostly from their own distribution, and the noiseless target."""
    inputs = process.sample_inputs(generator, POOL)
    units = generator.standard_normal(POOL)
    even = generator.random((2, POOL)) < FLOOR
    inputs = np.where(even[0], generator.uniform(*process.input_range, POOL), inputs)
    units = np.where(even[1], generator.uniform(-4, 4, POOL), units)
    # Nothing is asked of the network inside the gap: move those draws to its edge.
    gap = process.latent_gap
    units = np.where(np.abs(units) < gap, np.where(units > 0, gap, -gap), units)
    latents = units * process.latent_var**0.5
    return (
        inputs[:, None],
        latents[:, None],
        process.noiseless(inputs, latents)[:, None],
    )


def scaled_start(key, network: FlatNetwork, inputs, latents):
    """Weights whose first-layer kinks each pass through a point of the design.

    A kink that no data touch gets no gradient, and with 50 nodes none can be spared.
    """
    init_key, turn_key, pick_key = jax.random.split(key, 3)
    layers = network.unflatten(network.init(init_key))
    width = layers[0]["bias"].shape[0]
    turns = jax.random.normal(turn_key, (2, width))
    turns = turns / jnp.linalg.norm(turns, axis=0)
    picks = jax.random.randint(pick_key, (width,), 0, len(inputs))
    points = jnp.concatenate([inputs, latents], axis=1)[picks]
    first = {
        "input": turns[:1],
        "latent": turns[1:],
        "bias": -jnp.sum(turns.T * points, axis=1),
    }
    return network.flatten([first, *layers[1:]])


def unscale(network, flat, input_std, latent_std, target_std):
    """Weights for raw units from weights for unit-width x, z and y."""
    layers = [dict(layer) for layer in network.unflatten(flat)]
    layers[0]["input"] = layers[0]["input"] / input_std
    layers[0]["latent"] = layers[0]["latent"] / latent_std
    layers[-1] = {name: value * target_std for name, value in layers[-1].items()}
    return network.flatten(layers)


def balance(network: FlatNetwork, flat):
    """The same function with the smallest weights.

    A leaky ReLU commutes with a positive factor, so that each node's incoming weights
    can be multiplied and its outgoing ones divided. Equal norms minimise the sum of
    squares, so the truth is as likely under a Gaussian prior as its function allows.
    """
    layers = [
        {name: np.array(value) for name, value in layer.items()}
        for layer in network.unflatten(flat)
    ]
    for _ in range(50):  # neighbouring layers share weights: sweep until settled
        for layer, above in itertools.pairwise(layers):
            columns = np.concatenate([np.atleast_2d(v) for v in layer.values()])
            inward = np.sqrt((columns**2).sum(axis=0))
            outward = np.sqrt((above["weight"] ** 2).sum(axis=1))
            dead = (inward == 0) | (outward == 0)
            factor = np.where(dead, 1.0, np.sqrt(outward / np.where(dead, 1.0, inward)))
            for name in layer:
                layer[name] = layer[name] * factor
            above["weight"] = above["weight"] / factor[:, None]
    return np.asarray(network.flatten(layers))


def processes() -> dict[str, LatentProcess]:
    """All sets with their own network, and those with networks of another size."""
    others = {
        name_of_size(name, hidden): replace(LATENT_PROCESSES[name], hidden=hidden)
        for name, sizes in OTHER_SIZES.items()
        for hidden in sizes
    }
    return dict(LATENT_PROCESSES) | others


def fit(name: str, process: LatentProcess):
    """The best network found for one set, as raw weights, and its R^2."""
    effort = EFFORTS[name]
    network = FlatNetwork(MLP(process.hidden), 1, 1, 1)
    raw = design(process, np.random.default_rng(SEED))
    widths = (raw[0].std(), process.latent_var**0.5, raw[2].std())
    columns = [values / width for values, width in zip(raw, widths, strict=True)]
    to_raw = functools.partial(
        unscale,
        network,
        input_std=widths[0],
        latent_std=widths[1],
        target_std=widths[2],
    )

    def objective(flat, inputs, latents, targets):
        error = network.apply_rows(flat, inputs, latents) - targets
        return jnp.mean(error**2) + DECAY * jnp.mean(to_raw(flat) ** 2)

    single = [jnp.asarray(values, jnp.float32) for values in columns]
    found, scores = _descend(network, effort, objective, single)
    # Double precision from here: L-BFGS stalls on rounding long before it is done.
    part = [jnp.asarray(values[::8]) for values in columns]
    value_and_slope = jax.jit(jax.value_and_grad(lambda flat: objective(flat, *part)))
    best = (-np.inf, None)
    for index in np.argsort(np.asarray(scores))[:CANDIDATES]:
        start = np.asarray(found[index], np.float64)
        result = minimize(
            lambda flat: tuple(np.asarray(v) for v in value_and_slope(flat)),
            start,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 2000, "maxcor": 50},
        )
        for flat in (start, result.x):
            weights = balance(network, to_raw(flat)).astype(np.float32)
            truth = Truth(
                process.hidden, weights, process.noise_var, process.latent_var
            )
            score = process.r_squared(NetworkOracle(truth).function, seed=SEED + 1)
            print(f"{name}: start {index}, R^2 {score:.6f}", flush=True)
            best = max(best, (score, weights), key=lambda pair: pair[0])
    return best


def _descend(network: FlatNetwork, effort, objective, single):
    """Weights from several starts by Adam in batches, and their objectives."""
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, effort.learning_rate, 500, effort.num_steps, 1e-6
    )
    optimizer = optax.adam(schedule)

    def descend(key):
        start_key, batch_key = jax.random.split(key)
        flat = scaled_start(start_key, network, *single[:2]).astype(jnp.float32)

        def step(carry, step_key):
            flat, state = carry
            first = jax.random.randint(step_key, (), 0, POOL - BATCH)
            batch = [jax.lax.dynamic_slice(v, (first, 0), (BATCH, 1)) for v in single]
            slope = jax.grad(objective)(flat, *batch).astype(jnp.float32)
            updates, state = optimizer.update(slope, state)
            return ((flat + updates).astype(flat.dtype), state), None

        keys = jax.random.split(batch_key, effort.num_steps)
        (flat, _), _ = jax.lax.scan(step, (flat, optimizer.init(flat)), keys)
        return flat, objective(flat, *single)

    starts = jax.random.split(jax.random.key(SEED), effort.num_starts)
    return jax.block_until_ready(jax.jit(jax.vmap(descend))(starts))


def stored(path: Path):
    """The weights in the file, and what it says about them."""
    if not path.exists():
        return {}, {}
    with safe_open(path, framework="numpy") as file:
        about = json.loads(file.metadata()["about"])
        return {name: file.get_tensor(name) for name in file.keys()}, about


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="fit all networks again")
    again = parser.parse_args().all
    jax.config.update("jax_enable_x64", True)
    path = Path(ncai.__file__).parent / "datasets" / WEIGHTS_FILE
    weights, about = ({}, {}) if again else stored(path)
    for name, process in processes().items():
        if name in weights:
            continue
        score, weights[name] = fit(name, process)
        if score < 0.999:
            raise SystemExit(f"{name}: R^2 is {score:.6f}, below 0.999.")
        about[name] = {
            "r_squared": round(score, 6),
            "seed": SEED,
            "hidden": process.hidden,
        }
        largest = np.abs(weights[name]).max()
        mean_square = np.mean(weights[name] ** 2)
        print(f"{name}: largest weight {largest:.2f}, mean square {mean_square:.3f}")
    # safetensors writes several entries in random order: one keeps the file the same.
    save_file(weights, path, {"about": json.dumps(about)})
    print(f"wrote {path} ({path.stat().st_size} bytes)")


if __name__ == "__main__":
    main()
