"""Empirical characteristic functions: the mean of exp(i t'x) over rows x.

The fast form, in JAX and differentiable, takes equispaced frequencies. At frequencies
0, 1, 2, ... the terms exp(i k angle) are powers of one complex number, and with
k = B a + b they are products of a few powers, so that the sums over rows for all k are
one small matrix product. A row costs one sine, one cosine and about 2 sqrt(count)
multiplications, whereas the plain form needs `count` sines and cosines.

The `reference_` form is in NumPy and float64.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import stats

from ncai.stats import BLOCK_SIZE, GAUSSIAN_REACH

Complex = tuple[jax.Array, jax.Array]
"""Real and imaginary part, since XLA's complex numbers are slow on a CPU."""


def _times(a: Complex, b: Complex) -> Complex:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _powers(base: Complex, count: int, first: Complex | None = None):
    """[first, first * base, ...] as `[2 count, N]`, and the power that comes next."""
    if first is None:
        first = jnp.ones_like(base[0]), jnp.zeros_like(base[0])
    # We use a scan, since XLA would fuse plain products and compute the whole chain
    # again for each power.
    following, (real, imaginary) = jax.lax.scan(
        lambda power, _: (_times(power, base), power), first, None, length=count
    )
    return jnp.concatenate([real, imaginary]), following


def _mean_of_products(left, right, share) -> Complex:
    """Sum over rows n of share[n] left[a, n] right[b, n], as `[A, B]`."""
    num_left, num_right = left.shape[0] // 2, right.shape[0] // 2
    parts = (left * share) @ right.T
    real = parts[:num_left, :num_right] - parts[num_left:, num_right:]
    imaginary = parts[:num_left, num_right:] + parts[num_left:, :num_right]
    return real, imaginary


def _to_angles(left, right, share, gradient: Complex, frequencies):
    """Gradient with respect to each row's angle; `frequencies` holds k."""
    real, imaginary = gradient[0] * frequencies, gradient[1] * frequencies
    mixing = jnp.block([[imaginary, -real], [-real, -imaginary]])
    return share * jnp.sum(left * (mixing @ right), axis=0)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def ecf_on_line(
    angles: Float[Array, "N"], share: Float[Array, "N"], count: int
) -> tuple[Float[Array, "A B"], Float[Array, "A B"]]:
    """Sum over rows of share * exp(i k angle), for k = 0 up to at least count - 1.

    Returns the real and the imaginary part, as matrices that hold k in row-major order.
    No gradient flows to the shares.
    """
    return _line_forward(angles, share, count)[0]


def _line_forward(angles, share, count):
    width = round(count**0.5)
    right, following = _powers((jnp.cos(angles), jnp.sin(angles)), width)
    left, _ = _powers(following, -(-count // width))
    return _mean_of_products(left, right, share), (left, right, share)


def _line_backward(count, saved, gradient):
    del count
    left, right, share = saved
    shape = gradient[0].shape
    frequencies = jnp.arange(shape[0] * shape[1], dtype=left.dtype).reshape(shape)
    return _to_angles(left, right, share, gradient, frequencies), None


ecf_on_line.defvjp(_line_forward, _line_backward)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def ecf_on_half_plane(
    angles: Float[Array, "N 2"], share: Float[Array, "N"], reach: int
) -> tuple[Float[Array, "A B"], Float[Array, "A B"]]:
    """Sum over rows of share * exp(i (j angle_1 + k angle_2)).

    Here j = 0 .. reach and k = -reach .. reach. Returns the real and the imaginary
    part, `[reach + 1, 2 reach + 1]` each. No gradient flows to the shares.
    """
    return _plane_forward(angles, share, reach)[0]


def _plane_forward(angles, share, reach):
    first, second = angles[:, 0], angles[:, 1]
    lowest = jnp.cos(reach * second), -jnp.sin(reach * second)
    left, _ = _powers((jnp.cos(first), jnp.sin(first)), reach + 1)
    right, _ = _powers((jnp.cos(second), jnp.sin(second)), 2 * reach + 1, lowest)
    return _mean_of_products(left, right, share), (left, right, share)


def _plane_backward(reach, saved, gradient):
    left, right, share = saved
    first = jnp.arange(reach + 1, dtype=left.dtype)[:, None]
    second = jnp.arange(-reach, reach + 1, dtype=left.dtype)[None, :]
    by_angle = [
        _to_angles(left, right, share, gradient, frequencies)
        for frequencies in (first, second)
    ]
    return jnp.stack(by_angle, axis=1), None


ecf_on_half_plane.defvjp(_plane_forward, _plane_backward)


# ----- The reference, in float64 ------------------------------------------------------


def reference_ecf_on_grid(whitened: np.ndarray, counts: np.ndarray, beta: float):
    """Empirical characteristic function on a grid, for one or two columns.

    exp(i(s a + t b)) is a product, so a grid of two axes takes one matrix product. The
    first axis only has s >= 0, since |ecf - ...| is the same at (-s, -t).

    Returns:
        The function, the squared norms of the nodes, and their weights in a mean over
        N(0, beta^2 I).
    """
    steps, sizes = zip(
        *(_trapezoid_grid(column, beta) for column in whitened.T), strict=True
    )
    first = steps[0] * np.arange(sizes[0])
    second = np.zeros(1)
    if len(steps) == 2:
        second = steps[1] * np.arange(1 - sizes[1], sizes[1])

    ecf = np.zeros((len(first), len(second)), complex)
    block = max(1, BLOCK_SIZE // (len(first) + len(second)))
    for start in range(0, len(whitened), block):
        part = slice(start, start + block)
        waves = [
            _waves(step * column[part], size)
            for step, column, size in zip(steps, whitened.T, sizes, strict=True)
        ]
        across = np.ones((len(waves[0]), 1))
        if len(waves) == 2:
            across = np.hstack([waves[1][:, :0:-1].conj(), waves[1]])
        ecf += (waves[0].T * counts[part]) @ across

    weights = 2 * steps[0] * stats.norm.pdf(first, scale=beta)
    weights[0] /= 2
    if len(steps) == 2:
        weights = np.outer(weights, steps[1] * stats.norm.pdf(second, scale=beta))
    else:
        weights = weights[:, None]
    return ecf / counts.sum(), np.add.outer(first**2, second**2), weights


def _trapezoid_grid(column: np.ndarray, beta: float) -> tuple[float, int]:
    """Step and number of nodes t = 0, h, 2h, ... for a mean over t ~ N(0, beta^2).

    On equispaced nodes with step h, the only error of a Gaussian integral of exp(i t d)
    are aliases at d + 2 pi m / h. We choose the period 2 pi / h so long that no alias
    reaches any distance d that occurs in the three terms of the squared modulus.
    """
    period = max(
        np.ptp(column) + GAUSSIAN_REACH / beta,
        np.abs(column).max() + GAUSSIAN_REACH * np.sqrt(1 + beta**-2),
        GAUSSIAN_REACH * np.sqrt(2 + beta**-2),
    )
    step = 2 * np.pi / period
    return step, 1 + int(np.ceil(GAUSSIAN_REACH * beta / step))


def _waves(phases: np.ndarray, size: int) -> np.ndarray:
    """exp(i j phase) for j below `size`, by doubling, which is cheaper than exps."""
    waves = np.ones((len(phases), 1), complex)
    while waves.shape[1] < size:
        shift = np.exp(1j * waves.shape[1] * phases)
        waves = np.hstack([waves, waves * shift[:, None]])
    return waves[:, :size]


def reference_ecf_at(
    whitened: np.ndarray, counts: np.ndarray, nodes: np.ndarray
) -> np.ndarray:
    """Empirical characteristic function at scattered nodes `[M, K]`."""
    ecf = np.zeros(len(nodes), complex)
    block = max(1, BLOCK_SIZE // len(nodes))
    for start in range(0, len(whitened), block):
        part = slice(start, start + block)
        angle = whitened[part] @ nodes.T
        ecf += counts[part] @ np.cos(angle) + 1j * (counts[part] @ np.sin(angle))
    return ecf / counts.sum()
