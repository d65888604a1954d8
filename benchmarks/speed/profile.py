"""Where a training step goes, and how near it is to what the machine can do.

Parts of a step are timed alone, in a compiled loop like that of training. They need not
add up: in training XLA fuses across them. The roofline takes the arithmetic and the
memory traffic of both passes of the network, the only part that grows with
rows x hidden nodes, against what a large matrix product and a large copy reach here.
"""

from collections.abc import Callable
from functools import partial
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.speed.steps import SIZES, _run, _setting
from benchmarks.speed.timing import seconds_in_turn
from ncai.objectives.penalties import Penalties
from ncai.stats.henze_zirkler import henze_zirkler_statistic

LOOPS = 300
RESTARTS = 5  # one group: one thread of training
# Multiply-adds and activation of one hidden node at one row, forward and backward.
FLOPS_A_NODE = 27
# Its activation is written once and read three times, its gradient written and read
# three times: 8 passes of 4 bytes, if nothing is fused.
BYTES_A_NODE = 32


def profile_step(say: Callable[[str], None], case: str = "depeweg") -> dict:
    """Microseconds of the parts of one step of five restarts, and the roofline."""
    num_rows, hidden = SIZES[case]
    model, data, state = _setting(num_rows, hidden, RESTARTS)
    flat = jnp.zeros((RESTARTS, 2 * (model.network.num_weights + num_rows)))
    weights = state.params.mean.weights
    latents = state.params.mean.latents + jax.random.normal(
        jax.random.key(1), state.params.mean.latents.shape
    )

    def error(weights, latents):
        outputs = model.network.apply_rows(weights, data.inputs, latents)
        return jnp.sum((data.targets - outputs) ** 2)

    adam = optax.scale_by_adam()

    def normals(i, carry):
        key = jax.random.fold_in(jax.random.key(0), i)
        return carry + jax.random.normal(key, carry.shape)

    def network(i, carry):
        del i
        w, z = carry
        slopes = jax.vmap(jax.grad(error, argnums=(0, 1)))(w, z)
        return w - 1e-6 * slopes[0], z - 1e-6 * slopes[1]

    def gaussianity(i, carry):
        del i
        statistic = partial(henze_zirkler_statistic, row_weights=data.row_weights)
        return carry - 1e-6 * jax.vmap(jax.grad(statistic))(carry)

    def optimiser(i, carry):
        del i
        values, averages = carry
        direction, averages = adam.update(values, averages)
        return values - 1e-3 * direction, averages  # pyright: ignore

    parts = {
        "random numbers": (normals, jnp.zeros((RESTARTS, flat.shape[1] // 2))),
        "network, forward and backward": (network, (weights, latents)),
        "HZ with gradient": (gaussianity, latents),
        "Adam": (optimiser, (flat, adam.init(flat))),
    }
    loops = {
        name: partial(
            jax.jit(
                lambda carry, body: jax.lax.fori_loop(0, LOOPS, body, carry),
                static_argnums=1,
            ),
            start,
            body,
        )
        for name, (body, start) in parts.items()
    }
    setting = (model, data, state)
    loops |= {
        "whole step, MFVI": lambda: _run(None, setting, LOOPS).params,
        "whole step, NCAI": lambda: _run(Penalties(), setting, LOOPS).params,
    }
    seconds = seconds_in_turn(loops, repeats=5)
    microseconds = {n: 1e6 * median(s) / LOOPS for n, s in seconds.items()}
    roofline = _roofline(num_rows * hidden * RESTARTS)
    for name, value in microseconds.items():
        say(f"{name}: {value:.0f} us")
    say(
        f"roofline of the network on one core: {roofline['microseconds']:.0f} us "
        f"({roofline['gigaflops']:.0f} GFLOP/s, {roofline['gigabytes']:.0f} GB/s)"
    )
    ratio = microseconds["whole step, MFVI"] / roofline["microseconds"]
    say(f"a whole step of MFVI takes {ratio:.1f}x the roofline")
    return {
        "case": case,
        "restarts": RESTARTS,
        "microseconds": microseconds,
        "roofline": roofline | {"whole_step_over_roofline": ratio},
    }


def _roofline(nodes: int) -> dict:
    """Microseconds for so many hidden nodes x rows, by what this machine reaches."""
    size = 1024
    matrix = jnp.ones((size, size), jnp.float32)
    product = jax.jit(
        lambda m: m @ m, compiler_options={"xla_cpu_multi_thread_eigen": False}
    )
    source = np.ones(32_000_000 // 4, np.float32)
    target = np.empty_like(source)
    seconds = seconds_in_turn(
        {
            "product": lambda: product(matrix),
            "copy": lambda: np.copyto(target, source),
        },
        repeats=7,
    )
    flops = 2 * size**3 / min(seconds["product"])
    traffic = 2 * source.nbytes / min(seconds["copy"])
    return {
        "gigaflops": flops / 1e9,
        "gigabytes": traffic / 1e9,
        "microseconds": 1e6
        * max(FLOPS_A_NODE * nodes / flops, BYTES_A_NODE * nodes / traffic),
    }
