"""Characteristic functions by powers and products, against their definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncai.stats.characteristic_function import ecf_on_half_plane, ecf_on_line


def rows(dims, num_rows=37):
    rng = np.random.default_rng(dims)
    angles = jnp.asarray(rng.normal(size=(num_rows, dims)), jnp.float32)
    share = rng.uniform(size=num_rows)
    return angles, jnp.asarray(share / share.sum(), jnp.float32)


def by_definition(angles, share, frequencies):
    phase = angles @ frequencies.T
    return share @ jnp.cos(phase), share @ jnp.sin(phase)


def value_and_gradient(function, angles):
    """A smooth function of both parts, with different factors for each frequency."""

    def total(angles):
        real, imaginary = function(angles)
        factors = jnp.cos(jnp.arange(real.size, dtype=jnp.float32))
        return factors @ real**2 + factors[::-1] @ imaginary

    return jax.value_and_grad(total)(angles)


@pytest.mark.parametrize("count", [2, 33, 50, 90])
def test_on_a_line(count):
    angles, share = rows(1)
    frequencies = jnp.arange(count, dtype=jnp.float32)[:, None]

    def quick(angles):
        parts = ecf_on_line(angles[:, 0], share, count)
        return tuple(part.ravel()[:count] for part in parts)

    found = value_and_gradient(quick, angles)
    expected = value_and_gradient(
        lambda a: by_definition(a, share, frequencies), angles
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-3, atol=1e-4)


def test_on_half_a_plane():
    reach = 6
    angles, share = rows(2)
    first, second = np.meshgrid(
        np.arange(reach + 1), np.arange(-reach, reach + 1), indexing="ij"
    )
    frequencies = jnp.asarray(np.stack([first.ravel(), second.ravel()], axis=1))

    def quick(angles):
        parts = ecf_on_half_plane(angles, share, reach)
        return tuple(part.ravel() for part in parts)

    found = value_and_gradient(quick, angles)
    expected = value_and_gradient(
        lambda a: by_definition(a, share, frequencies.astype(jnp.float32)), angles
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-3, atol=1e-4)
