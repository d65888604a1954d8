"""Empirical characteristic functions at equispaced frequencies, with gradient.

At frequencies 0, 1, 2, ... the terms exp(i k angle) are powers of one complex number,
and with k = B a + b they are products of a few powers: the sums over rows for all k
are one small matrix product. A row costs one sine, one cosine and about 2 sqrt(count)
multiplications, where the plain form takes `count` sines and cosines.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Complex = tuple[jax.Array, jax.Array]
"""Real and imaginary part: XLA's complex numbers are slow on a CPU."""


def _times(a: Complex, b: Complex) -> Complex:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def _powers(base: Complex, count: int, first: Complex | None = None):
    """[first, first * base, ...], stacked as [2 count, N], and the one that follows."""
    if first is None:
        first = jnp.ones_like(base[0]), jnp.zeros_like(base[0])
    # A scan, not a product of arrays: XLA would fold each power into the next and
    # compute the whole chain anew for each.
    following, (real, imaginary) = jax.lax.scan(
        lambda power, _: (_times(power, base), power), first, None, length=count
    )
    return jnp.concatenate([real, imaginary]), following


def _mean_of_products(left, right, share) -> Complex:
    """Sum over rows n of share[n] left[a, n] right[b, n], as [A, B]."""
    num_left, num_right = left.shape[0] // 2, right.shape[0] // 2
    parts = (left * share) @ right.T
    real = parts[:num_left, :num_right] - parts[num_left:, num_right:]
    imaginary = parts[:num_left, num_right:] + parts[num_left:, :num_right]
    return real, imaginary


def _to_angles(left, right, share, gradient: Complex, frequencies):
    """Gradient by the angle of each row, where exp(i k angle) has k `frequencies`."""
    real, imaginary = gradient[0] * frequencies, gradient[1] * frequencies
    mixing = jnp.block([[imaginary, -real], [-real, -imaginary]])
    return share * jnp.sum(left * (mixing @ right), axis=0)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def ecf_on_line(
    angles: Float[Array, "N"], share: Float[Array, "N"], count: int
) -> tuple[Float[Array, "A B"], Float[Array, "A B"]]:
    """Sum over rows of share * exp(i k angle) for k = 0 .. at least count - 1.

    Real and imaginary part as matrices that hold k in row-major order. Rows' shares are
    taken as given: no gradient flows to them.
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
    """Sum over rows of share * exp(i (j angle_1 + k angle_2)), j = 0 .. reach.

    k = -reach .. reach. Real and imaginary part [reach + 1, 2 reach + 1].
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
