"""The compiled density of a network with one hidden layer of leaky ReLU, and its frame.

`leaky_density.c` has the log posterior with z integrated out, and `leaky_frame.c` the
coordinates in which chains move. They are compiled by `cc` when first used.
"""

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from scipy.special import ndtri

HERE = Path(__file__).parent
SOURCES = ("leaky_density.c", "leaky_frame.c", "leaky_gibbs.c")
# Infinities are used, so the flag for them stays off.
FLAGS = ("-O3", "-march=native", "-ffast-math", "-fno-finite-math-only")
FLAGS = (*FLAGS, "-shared", "-fPIC")
LANES, ALIGNMENT = 16, 64
CELLS = 8192  # of the table that finds rows
INT, DOUBLE, POINTER = ctypes.c_int, ctypes.c_double, ctypes.c_void_p


@functools.cache
def library():
    """The compiled code, from a cache in the folder of temporary files."""
    text = b"".join((HERE / name).read_bytes() for name in SOURCES)
    name = f"ncai-leaky-{hashlib.sha256(text).hexdigest()[:16]}.so"
    path = Path(tempfile.gettempdir()) / name
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        # The frame includes the density.
        sources = [str(HERE / name) for name in SOURCES[1:]]
        subprocess.run(["cc", *FLAGS, "-o", str(part), *sources, "-lm"], check=True)
        part.replace(path)
    found = ctypes.CDLL(str(path))
    rows = [POINTER, POINTER, INT, INT]
    found.draw_latents.argtypes = [*rows, POINTER, DOUBLE, POINTER, POINTER]
    found.slice_nodes.argtypes = [
        *[POINTER, *rows, DOUBLE, DOUBLE, INT],
        *[POINTER] * 4,
    ]
    for function, arguments in (
        (found.log_density, [POINTER] * 3),
        (found.frame_density, [POINTER] * 5),
        (found.trajectory, [*[POINTER] * 5, DOUBLE, INT, DOUBLE, POINTER]),
    ):
        function.restype, function.argtypes = DOUBLE, arguments
    return found


def aligned(values, kind=np.float32) -> np.ndarray:
    """A flat copy at an address that vector instructions can read."""
    values = np.asarray(values, kind).ravel()
    room = np.empty(values.nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    out = room[start : start + values.nbytes].view(kind)
    out[:] = values
    return out


class _Problem(ctypes.Structure):
    _fields_ = (
        *((name, INT) for name in ("num_rows", "num_hidden", "num_nodes", "num_cells")),
        *((name, POINTER) for name in ("inputs", "targets", "cells")),
        ("cells_start", DOUBLE),
        ("cells_per_unit", DOUBLE),
        *((name, POINTER) for name in ("nodes", "log_weights")),
        ("precision", DOUBLE),
        ("prior_variance", DOUBLE),
    )


class LeakyDensity:
    """Log p(W | D) up to a constant, by equispaced nodes of z.

    The latent has variance 1. One density computes at a time: it is not for threads.

    Args:
        inputs: x of each row.
        targets: y of each row.
        hidden: the number of hidden nodes.
        variances: s_eps and s_w.
        rule: how many nodes of z there are, and from where to where in standard
            deviations.
    """

    def __init__(self, inputs, targets, hidden, variances=(0.1, 10.0), rule=(512, 5.0)):
        num_nodes, reach = rule
        noise_var, prior_var = variances
        order = np.argsort(np.asarray(inputs, np.float32), kind="stable")
        rows = np.asarray(inputs, np.float32)[order]
        edges = np.linspace(rows[0], rows[-1], CELLS + 1, dtype=float)
        nodes = np.linspace(-reach, reach, num_nodes)
        log_weights = -0.5 * nodes**2
        log_weights -= np.logaddexp.reduce(log_weights)
        padding = -num_nodes % LANES
        width = edges[1] - edges[0]
        self.hidden, self.size = hidden, 4 * hidden + 1
        self.noise_var, self.prior_var = noise_var, prior_var
        self.rows = rows.astype(float)
        self.targets = np.asarray(targets, float)[order]
        self._kept = (
            aligned(np.append(rows, np.inf)),
            aligned(self.targets),
            aligned(np.searchsorted(rows, edges[:-1] - 1e-3 * width), np.int32),
            aligned(np.pad(nodes, (0, padding))),
            aligned(np.pad(log_weights, (0, padding), constant_values=-1e30)),
        )
        x, y, cells, z, log_w = (a.ctypes.data for a in self._kept)
        sizes = len(rows), hidden, num_nodes + padding, CELLS
        scales = 1 / noise_var, prior_var
        self._struct = _Problem(
            *sizes, x, y, cells, edges[0], 1 / width, z, log_w, *scales
        )
        self.address = ctypes.addressof(self._struct)

    def value_and_gradient(self, weights) -> tuple[float, np.ndarray]:
        """At weights in the order of `FlatNetwork`."""
        weights = np.ascontiguousarray(weights, float)
        gradient = np.empty_like(weights)
        value = library().log_density(
            self.address, weights.ctypes.data, gradient.ctypes.data
        )
        return value, gradient

    def unpack(self, weights) -> tuple[np.ndarray, ...]:
        """Biases b, input weights a, latent weights c, the output bias, weights v."""
        size = self.hidden
        return tuple(np.split(weights, [size, 2 * size, 3 * size, 3 * size + 1]))


class _Frame(ctypes.Structure):
    _fields_ = (
        ("num_parts", INT),
        ("num_points", INT),
        *((name, POINTER) for name in ("inputs", "latents", "parts", "values")),
        ("strength", DOUBLE),
    )


class Frame:
    """Coordinates in which a few components of the function move apart from the rest.

    Args:
        density: the density of the weights.
        powers: how many powers of x go with z^0, z^1 and so on: the functions phi_j.
        values: t, about where the chain has these components.
        strength: s_w times how well rows tell a component, in the unit 1 / variance.
    """

    POINTS, LATENTS = 48, 8

    def __init__(self, density: LeakyDensity, powers, values=None, strength=8_000.0):
        rows = density.rows
        x = rows[np.linspace(0, len(rows) - 1, self.POINTS).astype(int)]
        z = ndtri((np.arange(self.LATENTS) + 0.5) / self.LATENTS)
        x, z = (a.ravel() for a in np.meshgrid(x, z / z.std(), indexing="ij"))
        scaled = x / np.abs(x).max()
        columns = [scaled**i * z**j for j, n in enumerate(powers) for i in range(n)]
        basis = np.linalg.qr(np.array(columns).T)[0] * np.sqrt(len(x))
        self.basis = basis * np.sign(basis[0] + 1e-300)
        self.num_parts, self.strength = basis.shape[1], strength
        self.density, self.x, self.z = density, x, z
        self.values = np.zeros(self.num_parts) if values is None else np.array(values)
        self._kept = (
            aligned(x),
            aligned(z),
            aligned(self.basis.T / len(x)),
            np.concatenate([self.values, self.basis.mean(axis=0)]),
        )
        pointers = (a.ctypes.data for a in self._kept)
        self._struct = _Frame(self.num_parts, len(x), *pointers, strength)
        self.address = ctypes.addressof(self._struct)

    def products(self, weights) -> np.ndarray:
        """B: inner products of the output bias (a one) and hidden nodes with phi_j."""
        b, a, c, _, _ = self.density.unpack(weights)
        before = b + np.outer(self.x, a) + np.outer(self.z, c)
        after = np.maximum(before, 0.01 * before)
        ones = np.ones((len(after), 1))
        return np.concatenate([ones, after], axis=1).T @ self.basis / len(after)

    def components(self, weights) -> np.ndarray:
        """B' v: what `values` should be near."""
        return self.products(weights).T @ weights[3 * self.density.hidden :]

    def matrix(self, products) -> np.ndarray:
        """A, with A A' = (I + strength B B')^-1."""
        out = np.eye(len(products))
        for product in products.T:
            # T_(j-1) ... T_1 B_j is the transpose of the product so far, times B_j.
            e = out.T @ product
            n = e @ e + 1e-12
            out += np.outer(out @ e, e) * ((1 + self.strength * n) ** -0.5 - 1) / n
        return out

    def to_weights(self, position) -> np.ndarray:
        """Weights at these coordinates."""
        products = self.products(position)
        matrix, start = self.matrix(products), 3 * self.density.hidden
        moved = position[start:] + self.strength * matrix.T @ products @ self.values
        return np.concatenate([position[:start], matrix @ moved])

    def to_position(self, weights) -> np.ndarray:
        """Coordinates of these weights."""
        products = self.products(weights)
        matrix, start = self.matrix(products), 3 * self.density.hidden
        moved = np.linalg.solve(matrix, weights[start:])
        moved -= self.strength * matrix.T @ products @ self.values
        return np.concatenate([weights[:start], moved])

    def value_and_gradient(self, position) -> tuple[float, np.ndarray]:
        """Log density of the coordinates, the volume included."""
        position = np.ascontiguousarray(position, float)
        gradient, weights = np.empty_like(position), np.empty_like(position)
        value = library().frame_density(
            self.density.address,
            self.address,
            *(a.ctypes.data for a in (position, weights, gradient)),
        )
        return value, gradient
