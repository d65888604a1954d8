"""The model of the paper in NumPyro: SVI with AutoNormal.

Run as `python numpyro_svi.py TASK.json`; prints one line of JSON. It needs numpyro,
jax and numpy only. `task["vmapped"]` trains all restarts in one compiled scan, as an
expert would; otherwise `SVI.run` is called for each in turn, as the tutorials do.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions, optim
from numpyro.infer import SVI, TraceMeanField_ELBO, init_to_value
from numpyro.infer.autoguide import AutoNormal


def make_model(task):
    hidden = task["hidden"]
    weight_scale = task["weight_variance"] ** 0.5
    latent_scale = task["latent_variance"] ** 0.5
    noise_scale = task["noise_variance"] ** 0.5

    def weights(name, *shape):
        prior = distributions.Normal(0.0, weight_scale).expand(shape)
        return numpyro.sample(name, prior.to_event(len(shape)))

    def model(inputs, targets):
        num_rows, input_dim = inputs.shape
        first, first_bias = (
            weights("first", input_dim + 1, hidden),
            weights("b", hidden),
        )
        last, last_bias = weights("last", hidden, 1), weights("c", 1)
        with numpyro.plate("rows", num_rows):
            latent = numpyro.sample("z", distributions.Normal(0.0, latent_scale))
            full = jnp.concatenate([inputs, latent[:, None]], axis=1)
            activated = jax.nn.leaky_relu(full @ first + first_bias, 0.01)
            mean = (activated @ last + last_bias)[:, 0]
            numpyro.sample("y", distributions.Normal(mean, noise_scale), obs=targets)

    return model


def xavier_start(task, key, num_rows, input_dim):
    """Where the other side starts too; NumPyro's own start is far worse here."""
    hidden, keys = task["hidden"], jax.random.split(key, 3)

    def normal(key, *shape):
        return (2 / sum(shape)) ** 0.5 * jax.random.normal(key, shape)

    return {
        "first": normal(keys[0], input_dim + 1, hidden),
        "first_bias": jnp.zeros(hidden),
        "last": normal(keys[1], hidden, 1),
        "last_bias": jnp.zeros(1),
        "z": normal(keys[2], num_rows, 1)[:, 0],
    }


def make_svi(task, key, inputs):
    model = make_model(task)
    start = init_to_value(values=xavier_start(task, key, *inputs.shape))
    guide = AutoNormal(model, init_loc_fn=start, init_scale=0.05)
    return SVI(model, guide, optim.Adam(task["learning_rate"]), TraceMeanField_ELBO())


def in_turn(task, inputs, targets):
    losses = []
    for seed in range(task["restarts"]):
        key = jax.random.key(seed)
        result = make_svi(task, key, inputs).run(
            key, task["steps"], inputs, targets, progress_bar=False
        )
        losses.append(np.asarray(result.losses))
    return np.stack(losses)


def make_vmapped(task):
    @jax.jit
    def run(keys, inputs, targets):
        def one(key):
            svi = make_svi(task, key, inputs)
            state = svi.init(key, inputs, targets)
            return jax.lax.scan(
                lambda state, _: svi.update(state, inputs, targets),
                state,
                None,
                length=task["steps"],
            )[1]

        return jax.vmap(one)(keys)

    keys = jax.random.split(jax.random.key(0), task["restarts"])
    return lambda inputs, targets: np.asarray(run(keys, inputs, targets))


def main():
    with open(sys.argv[1]) as file:
        task = json.load(file)
    data = np.load(task["data"])
    inputs = jnp.asarray(data["inputs"], jnp.float32)
    targets = jnp.asarray(data["targets"][:, 0], jnp.float32)
    if task["vmapped"]:
        run = make_vmapped(task)
    else:

        def run(inputs, targets):
            return in_turn(task, inputs, targets)

    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        losses = run(inputs, targets)
        seconds.append(time.perf_counter() - started)
    tail = max(task["steps"] // 10, 1)
    print(
        json.dumps(
            {
                "first_seconds": seconds[0],
                "seconds": seconds[1],
                "elbos": [-float(v) for v in losses[:, -tail:].mean(axis=1)],
                "versions": {"numpyro": numpyro.__version__, "jax": jax.__version__},
            }
        )
    )


if __name__ == "__main__":
    main()
