"""How soon is a fit as good as the paper's 30,000 steps of NCAI?

Both sides are ours: NCAI with the paper's settings and network, and "marginal" with two
hidden layers, z entering the last (as the default preset has it), for more and more
steps. Good is the log-likelihood of the validation rows, of the
restart that is best on them; times are of second calls, so nothing compiles.
"""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ncai.datasets import make_dataset
from ncai.fitting.member_scores import score_rows
from ncai.inference.base import Method, Training
from ncai.inference.marginal import Marginal
from ncai.inference.ncai import NCAI
from ncai.model.bnn_lv import Model, Variance
from ncai.model.networks import MLP, FlatNetwork
from ncai.types import Data, TrainingRows

PAPER_STEPS = 30_000
MARGINAL_STEPS = (250, 500, 750, 1000, 1250, 1500, 2000, 2500, 3000, 4000)
# s_z and the noise, as the paper fixes them.
SETS = {"heavy_tail": (0.01, 0.1), "depeweg": (1.0, 0.1)}


def time_to_quality(say: Callable[[str], None], repeats: int = 3) -> list[dict]:
    """One entry a set."""
    return [_one_set(say, name, repeats) for name in SETS]


def _one_set(say, name: str, repeats: int) -> dict:
    latent_variance, noise = SETS[name]
    parts = make_dataset(name, seed=0)
    train = parts.train
    data = Data(
        jnp.asarray(train.inputs, jnp.float32),
        jnp.asarray(train.targets, jnp.float32),
        jnp.ones(len(train.inputs), jnp.float32),
    )
    network = FlatNetwork(MLP((50,)), 1, 1, 1)
    empirical = Variance(jnp.asarray(1.0), "empirical")
    paper = Model(
        network,
        empirical,
        Variance(jnp.asarray(latent_variance)),
        Variance(jnp.asarray([noise])),
    )
    learned = Model(
        FlatNetwork(MLP((50, 50), latent_layer="last"), 1, 1, 1),
        empirical,
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray([noise]), "variational", 1.0, 0.02),
    )
    valid = parts.valid
    rows = TrainingRows(valid.inputs, valid.targets, np.ones(len(valid.inputs)))

    def measure(method: Method, model: Model, steps: int) -> tuple[float, float]:
        seconds, score = [], 0.0
        for call in range(repeats + 1):
            started = time.perf_counter()
            fit = method.fit(jax.random.key(0), model, data, Training(max_steps=steps))
            jax.block_until_ready(fit.posterior)
            if call:
                seconds.append(time.perf_counter() - started)
        posterior = fit.posterior  # the same each time
        scores = [
            score_rows(posterior.select(i), rows, jax.random.key(1)).mean()
            for i in range(posterior.num_components)
        ]
        score = float(np.max(scores))
        return float(np.median(seconds)), score

    seconds, target = measure(NCAI().resolved("paper"), paper, PAPER_STEPS)
    result = {
        "set": name,
        "ncai": {"steps": PAPER_STEPS, "seconds": seconds, "validation": target},
        "marginal": [],
    }
    for steps in MARGINAL_STEPS:
        method = Marginal(
            learning_rate=0.1,  # for so few steps; the default preset has more
            schedule="cosine",
            temperature=0.1,
            noise_starts=(noise,),
        ).resolved("paper")
        took, score = measure(method, learned, steps)
        result["marginal"].append(
            {"steps": steps, "seconds": took, "validation": score}
        )
        if score >= target:
            break
    last = result["marginal"][-1]
    result["reached"] = last["validation"] >= target
    result["times_shorter"] = seconds / last["seconds"]
    say(
        f"{name}: NCAI, {PAPER_STEPS} steps: validation {target:.3f} in "
        f"{seconds:.1f} s; marginal, {last['steps']} steps: {last['validation']:.3f} "
        f"in {last['seconds']:.1f} s ({result['times_shorter']:.1f}x shorter)"
    )
    return result
