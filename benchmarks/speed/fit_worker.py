"""Our side of the fit benchmark: `python -m benchmarks.speed.fit_worker TASK.json`.

The first call compiles (no cache is used here), the second does not.
"""

import json
import sys
import time
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ncai.inference.base import Method, Training
from ncai.inference.mean_field import MFVI
from ncai.inference.ncai import NCAI
from ncai.model.bnn_lv import Model, Variance
from ncai.model.networks import MLP, FlatNetwork
from ncai.objectives.penalties import Penalties
from ncai.stats.henze_zirkler import henze_zirkler_double_sum
from ncai.types import Data


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "hz_weight",
        "offdiagonal_weight",
        "dependence_weight",
        "hz_tolerance",
        "input_tolerance",
        "target_tolerance",
    ],
    meta_fields=["on"],
)
@dataclass(frozen=True)
class DoubleSumPenalties(Penalties):
    """NCAI's penalties with HZ by its definition, O(N^2), for comparison."""

    def values(self, latents, inputs, targets, row_weights):
        """As before, HZ apart."""
        found = super().values(latents, inputs, targets, row_weights)
        return found | {"hz": henze_zirkler_double_sum(latents)}


class DoubleSumNCAI(NCAI):
    """NCAI with these penalties."""

    def penalties_of(self, restart: int) -> Penalties:
        """The penalties of a restart."""
        return DoubleSumPenalties(**vars(super().penalties_of(restart)))


def make_setting(task: dict) -> tuple[Model, Data]:
    """The model and data of a task; nothing but the weights and latents is learned."""
    arrays = np.load(task["data"])
    data = Data(
        jnp.asarray(arrays["inputs"], jnp.float32),
        jnp.asarray(arrays["targets"], jnp.float32),
        jnp.ones(len(arrays["inputs"]), jnp.float32),
    )
    network = FlatNetwork(MLP((task["hidden"],)), data.inputs.shape[1], 1, 1)
    model = Model(
        network,
        Variance(jnp.asarray(task["weight_variance"])),
        Variance(jnp.asarray(task["latent_variance"])),
        Variance(jnp.asarray([task["noise_variance"]])),
    )
    return model, data


def make_method(task: dict) -> Method:
    """Mean-field inference from a random start, with or without penalties."""
    shared = {"learning_rate": task["learning_rate"], "start": "random"}
    if task["method"] == "mfvi":
        return MFVI(**shared).resolved("paper")
    penalised = NCAI if task["method"] == "ncai" else DoubleSumNCAI
    return penalised(offdiagonal_weight=0.0, **shared).resolved("paper")


def main() -> None:
    """Run the task twice."""
    with open(sys.argv[1]) as file:
        task = json.load(file)
    model, data = make_setting(task)
    method = make_method(task)
    training = Training(num_restarts=task["restarts"], max_steps=task["steps"])
    seconds, values = [], np.zeros((0, 0))
    for seed in range(2):
        started = time.perf_counter()
        fit = method.fit(jax.random.key(seed), model, data, training)
        jax.block_until_ready(fit.posterior)
        seconds.append(time.perf_counter() - started)
        values = fit.history["elbo"]
    tail = max(len(values) // 10, 1)
    result = {
        "first_seconds": seconds[0],
        "seconds": seconds[1],
        "elbos": values[-tail:].mean(axis=0).tolist(),
        "versions": {"jax": jax.__version__},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
