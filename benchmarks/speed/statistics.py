"""HZ in O(N) against its double sum: time and error, value and gradient."""

from collections.abc import Callable
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.speed.timing import ratios, seconds_in_turn
from ncai.stats import henze_zirkler as hz
from ncai.stats.henze_zirkler import henze_zirkler_double_sum, henze_zirkler_statistic

LARGEST_DOUBLE_SUM = 30_000


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
