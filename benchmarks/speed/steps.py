"""What a training step costs, how it grows with rows, and where its time goes.

For the profile, parts of a step are timed alone, in a compiled loop like that of
training. They need not add up: in training XLA fuses across them. The roofline takes
the arithmetic and the memory traffic of both passes of the network, the only part that
grows with rows x hidden nodes, against what a large matrix product and a large copy
reach here.

HZ in O(N) is compared with its double sum: time and error, value and gradient.
"""

from collections.abc import Callable
from functools import partial
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.speed.fit_worker import DoubleSumPenalties
from benchmarks.speed.measuring import ratios, seconds_in_turn
from ncai.inference.warm_start import initial_priors_of, mean_field_at, random_point
from ncai.model.bnn_lv import Model, Variance
from ncai.model.networks import MLP, FlatNetwork
from ncai.objectives.elbo import NegativeElbo
from ncai.objectives.penalties import Penalties
from ncai.stats import henze_zirkler as hz
from ncai.stats.henze_zirkler import henze_zirkler_double_sum, henze_zirkler_statistic
from ncai.training.driver import Driver
from ncai.training.step import Stage, TrainState, initial_state
from ncai.types import Data

SIZES = {"goldberg": (200, 20), "depeweg": (750, 50)}
LOOPS = 300
RESTARTS = 5  # one group: one thread of training
# Multiply-adds and activation of one hidden node at one row, forward and backward.
FLOPS_A_NODE = 27
# Its activation is written once and read three times, its gradient written and read
# three times: 8 passes of 4 bytes, if nothing is fused.
BYTES_A_NODE = 32
LARGEST_DOUBLE_SUM = 30_000


def _setting(num_rows: int, hidden: int, restarts: int):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(num_rows, 1))
    targets = np.sin(inputs) + 0.3 * rng.exponential(size=(num_rows, 1))
    data = Data(
        *(jnp.asarray(a, jnp.float32) for a in (inputs, targets, np.ones(num_rows)))
    )
    model = Model(
        FlatNetwork(MLP((hidden,)), 1, 1, 1),
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray([0.1])),
    )
    keys = jax.random.split(jax.random.key(0), restarts)
    points = jax.vmap(lambda k: random_point(k, model, num_rows))(keys)
    q = jax.vmap(lambda k, p: mean_field_at(k, model, p))(keys, points)
    priors = initial_priors_of(keys, model)
    return model, data, initial_state(q, priors, keys)


def _run(penalties: Penalties | None, setting, num_steps: int) -> TrainState:
    model, data, state = setting
    stage = Stage("bench", NegativeElbo(1, penalties), max_steps=num_steps)
    return Driver().run(stage, model, data, state)


def step_costs(
    say: Callable[[str], None], num_steps: int = 2000, repeats: int = 5
) -> list[dict]:
    """A step of ten restarts against ten steps of one, and HZ against its double sum.

    Our own variants only: these are ratios within this package.
    """
    out = []
    for name, (num_rows, hidden) in SIZES.items():
        ten = _setting(num_rows, hidden, 10)
        one = _setting(num_rows, hidden, 1)

        def steps_of(penalties, setting):
            return lambda: _run(penalties, setting, num_steps).params

        seconds = seconds_in_turn(
            {
                "mfvi": steps_of(None, ten),
                "mfvi, one restart": steps_of(None, one),
                "ncai": steps_of(Penalties(offdiagonal_weight=0.0), ten),
                "ncai, HZ by double sum": steps_of(
                    DoubleSumPenalties(offdiagonal_weight=0.0), ten
                ),
            },
            repeats,
        )
        milliseconds = {
            label: 1e3 * median(times) / num_steps for label, times in seconds.items()
        }
        alone = [10 * s for s in seconds["mfvi, one restart"]]
        result = {
            "case": name,
            "rows": num_rows,
            "hidden": hidden,
            "restarts": 10,
            "milliseconds_a_step": milliseconds,
            "gain_of_restarts_together": ratios(alone, seconds["mfvi"]),
            "gain_of_hz_in_linear_time": ratios(
                seconds["ncai, HZ by double sum"], seconds["ncai"]
            ),
        }
        out.append(result)
        say(
            f"{name} ({num_rows} rows, {hidden} hidden, 10 restarts): a step takes "
            f"{milliseconds['mfvi']:.2f} ms (MFVI), {milliseconds['ncai']:.2f} ms "
            "(NCAI); ten restarts in turn would take "
            f"{result['gain_of_restarts_together']['median']:.1f}x, HZ by its double "
            f"sum {result['gain_of_hz_in_linear_time']['median']:.1f}x"
        )
    return out


def growth_with_rows(
    say: Callable[[str], None], sizes=(100, 1000, 10_000, 100_000), hidden: int = 50
) -> list[dict]:
    """Milliseconds of a full-batch step with penalties, one restart."""
    out = []
    for num_rows in sizes:
        setting = _setting(num_rows, hidden, 1)
        num_steps = int(np.clip(2_000_000 // num_rows, 20, 1000))
        seconds = seconds_in_turn(
            {
                "ncai": lambda s=setting, n=num_steps: _run(
                    Penalties(offdiagonal_weight=0.0), s, n
                )
            },
            repeats=3,
        )["ncai"]
        milliseconds = 1e3 * median(seconds) / num_steps
        out.append({"rows": num_rows, "milliseconds_a_step": milliseconds})
        say(
            f"{num_rows} rows: {milliseconds:.3f} ms a step, "
            f"{1e6 * milliseconds / num_rows:.0f} ns a row"
        )
    return out


def profile_step(say: Callable[[str], None], case: str = "depeweg") -> dict:
    """Microseconds of the parts of one step of five restarts, and the roofline."""
    num_rows, hidden = SIZES[case]
    setting = _setting(num_rows, hidden, RESTARTS)
    loops = {
        name: partial(
            jax.jit(
                lambda carry, body: jax.lax.fori_loop(0, LOOPS, body, carry),
                static_argnums=1,
            ),
            start,
            body,
        )
        for name, (body, start) in _parts_of_a_step(*setting).items()
    }
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


def _parts_of_a_step(model, data, state) -> dict[str, tuple]:
    """Parts of a training step by name: the body of a loop, and where it starts."""
    num_rows = len(data.inputs)
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

    return {
        "random numbers": (normals, jnp.zeros((RESTARTS, flat.shape[1] // 2))),
        "network, forward and backward": (network, (weights, latents)),
        "HZ with gradient": (gaussianity, latents),
        "Adam": (optimiser, (flat, adam.init(flat))),
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


def compare_hz(
    say: Callable[[str], None],
    sizes=(100, 1000, 10_000, 30_000, 100_000, 1_000_000),
    repeats: int = 3,
) -> list[dict]:
    """One entry a size. Points from Student's t with 3 degrees: heavy tails are hard.

    Past what the double sum can do, the error is against twice as many nodes.
    """
    out = []
    for num_rows in sizes:
        rng = np.random.default_rng(0)
        points = jnp.asarray(rng.standard_t(3, size=(num_rows, 1)), jnp.float32)
        ones = jnp.ones(num_rows, jnp.float32)
        linear = jax.jit(
            jax.value_and_grad(lambda p, w=ones: henze_zirkler_statistic(p, w))
        )
        functions = {"linear": lambda f=linear, p=points: f(p)}
        if num_rows <= LARGEST_DOUBLE_SUM:
            exact = jax.jit(jax.value_and_grad(henze_zirkler_double_sum))
            functions["reference"] = lambda f=exact, p=points: f(p)
            kind = "double sum"
        else:
            finer = _with_twice_the_nodes(ones)
            functions["reference"] = lambda f=finer, p=points: f(p)
            kind = "twice the nodes"
        seconds = seconds_in_turn(functions, repeats)
        value, gradient = linear(points)
        expected, expected_gradient = functions["reference"]()
        result = {
            "rows": num_rows,
            "reference": kind,
            "milliseconds": 1e3 * median(seconds["linear"]),
            "times_slower_reference": ratios(seconds["reference"], seconds["linear"]),
            "hz": float(value),
            "relative_error": float(abs(value - expected) / abs(expected)),
            "relative_error_of_gradient": float(
                jnp.linalg.norm(gradient - expected_gradient)
                / jnp.linalg.norm(expected_gradient)
            ),
        }
        out.append(result)
        say(
            f"HZ, {num_rows} rows: {result['milliseconds']:.2f} ms with gradient; "
            f"{kind} takes {result['times_slower_reference']['median']:.1f}x; error "
            f"{result['relative_error']:.1e}, of the gradient "
            f"{result['relative_error_of_gradient']:.1e}"
        )
    return out


def _with_twice_the_nodes(ones):
    """`henze_zirkler_statistic` with a finer quadrature."""
    steps = hz.hz_steps

    def value(points):
        hz.hz_steps = lambda n, k: 2 * steps(n, k)
        try:
            return henze_zirkler_statistic(points, ones)
        finally:
            hz.hz_steps = steps

    return jax.jit(jax.value_and_grad(value))
