"""The posterior of a network with one hidden layer of leaky ReLU, and moves on it.

Its density with z integrated out, the coordinates (a `Frame`) in which chains move, and
Gibbs sweeps that jump over modes. The loops are in `leaky.c`, which is compiled by `cc`
when first used.
"""

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import ndtri

SOURCE = Path(__file__).with_name("leaky.c")
# Infinities are used, so the flag for them stays off.
FLAGS = ("-O3", "-march=native", "-ffast-math", "-fno-finite-math-only")
FLAGS = (*FLAGS, "-shared", "-fPIC")
LANES, ALIGNMENT = 16, 64
SIDE = 65  # as in leaky.c
RESCALING_MOVES, RESCALING_STEP = 10, 0.8
STRENGTH_A_ROW = 10.7
STEP_FACTORS = (0.7, 1.1)  # some regions are stiffer than those of the warm-up
CELLS = 8192  # of the table that finds rows
INT, DOUBLE, POINTER = ctypes.c_int, ctypes.c_double, ctypes.c_void_p


@functools.cache
def library():
    """The compiled code, from a cache in the folder of temporary files."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    name = f"ncai-leaky-{digest}.so"
    path = Path(tempfile.gettempdir()) / name
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        command = ["cc", *FLAGS, "-o", str(part), str(SOURCE), "-lm"]
        subprocess.run(command, check=True)
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


def aligned(values, kind: type = np.float32) -> np.ndarray:
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
        strength: s_w times how well rows tell a component, in the unit 1 / variance;
            None for what was measured on Depeweg.
    """

    POINTS, LATENTS = 48, 8

    def __init__(self, density: LeakyDensity, powers, values=None, strength=None):
        rows = density.rows
        x = rows[np.linspace(0, len(rows) - 1, self.POINTS).astype(int)]
        z = ndtri((np.arange(self.LATENTS) + 0.5) / self.LATENTS)
        x, z = (a.ravel() for a in np.meshgrid(x, z / z.std(), indexing="ij"))
        scaled = x / np.abs(x).max()
        columns = [scaled**i * z**j for j, n in enumerate(powers) for i in range(n)]
        basis = np.linalg.qr(np.array(columns).T)[0] * np.sqrt(len(x))
        self.basis = basis * np.sign(basis[0] + 1e-300)
        strength = STRENGTH_A_ROW * len(rows) if strength is None else strength
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


# ----- Moves ------------------------------------------------------------------------


class Moved(NamedTuple):
    """The end of a trajectory."""

    position: np.ndarray
    acceptance: float
    divergent: bool


def trajectory(rng, chain, position, num_steps) -> Moved:
    """Leapfrogs from a fresh momentum, and the accept step.

    The leapfrogs have a cheaper rule for z than the density that is sampled: the accept
    step makes up for it.
    """
    density, frame = chain.cheap, chain.frame
    step = float(np.exp(chain.log_step)) * rng.uniform(*STEP_FACTORS)
    space = frame or density
    value, gradient = space.value_and_gradient(position)
    end, momentum = position.copy(), rng.standard_normal(density.size)
    end_value = np.zeros(1)
    change = library().trajectory(
        density.address,
        frame.address if frame else None,
        *(a.ctypes.data for a in (end, momentum, gradient)),
        step,
        num_steps,
        value,
        end_value.ctypes.data,
    )
    if np.isfinite(change):
        change += chain.excess(position) - chain.excess(end)
    acceptance = float(np.exp(-max(change, 0.0))) if np.isfinite(change) else 0.0
    taken = rng.random() < acceptance
    divergent = not np.isfinite(change) or change > 1000
    return Moved(end if taken else position, acceptance, divergent)


def log_norm_density(log_norm, product, prior_var):
    """Of the log norm r of the weights into a node, given r v and their direction.

    With (b, a, c) = r u and v = p / r, the volume is r^2 dr du dp / r, which is
    r^2 dlog(r) du dp; the likelihood depends on u and p alone.
    """
    square = np.exp(2 * log_norm)
    return 2 * log_norm - (square + product**2 / square) / (2 * prior_var)


def rescale(rng: np.random.Generator, density: LeakyDensity, weights) -> np.ndarray:
    """Weights of the same function, with other norms into and out of each node."""
    b, a, c, bias, v = density.unpack(weights)
    start = 0.5 * np.log(b * b + a * a + c * c)
    product, log_norm = np.exp(start) * v, start
    here = log_norm_density(log_norm, product, density.prior_var)
    for _ in range(RESCALING_MOVES):
        there = log_norm + RESCALING_STEP * rng.standard_normal(len(v))
        value = log_norm_density(there, product, density.prior_var)
        taken = np.log(rng.random(len(v))) < value - here
        log_norm = np.where(taken, there, log_norm)
        here = np.where(taken, value, here)
    factor = np.exp(log_norm - start)
    return np.concatenate([b * factor, a * factor, c * factor, bias, v / factor])


def _state(rng: np.random.Generator) -> np.ndarray:
    """Of the random numbers of the compiled code."""
    return rng.integers(1, 2**63, size=4, dtype=np.uint64)


def draw_latents(rng, inputs, targets, weights, noise_var) -> np.ndarray:
    """A draw of z for each row from p(z | x, y, W)."""
    inputs, targets, weights = (
        np.ascontiguousarray(a, float) for a in (inputs, targets, weights)
    )
    latents, state = np.empty_like(inputs), _state(rng)
    library().draw_latents(
        inputs.ctypes.data,
        targets.ctypes.data,
        len(inputs),
        len(weights) // 4,
        weights.ctypes.data,
        noise_var,
        state.ctypes.data,
        latents.ctypes.data,
    )
    return latents


def slice_nodes(rng, inputs, latents, targets, weights, variances, passes=1):
    """Weights with other hidden nodes; gram and moment of the features at the end.

    The features are a one and the hidden nodes at (x_n, z_n). The output weights have
    no part in it.
    """
    arrays = [np.ascontiguousarray(a, float) for a in (inputs, latents, targets)]
    weights, state = np.array(weights, float), _state(rng)
    gram, moment = np.empty((SIDE, SIDE)), np.empty(SIDE)
    library().slice_nodes(
        *(a.ctypes.data for a in arrays),
        len(arrays[0]),
        len(weights) // 4,
        *variances,
        passes,
        *(a.ctypes.data for a in (weights, state, gram, moment)),
    )
    size = len(weights) // 4 + 1
    return weights, gram[:size, :size], moment[:size]


def draw_outputs(rng, gram, moment, variances) -> np.ndarray:
    """The output bias and the output weights, given the features."""
    noise_var, prior_var = variances
    precision = gram / noise_var + np.eye(len(gram)) / prior_var
    lower = np.linalg.cholesky(precision)
    mean = cho_solve((lower, True), moment / noise_var)
    noise = rng.standard_normal(len(mean))
    return mean + solve_triangular(lower, noise, lower=True, trans=1)


def sweep(rng, inputs, targets, weights, variances, passes=1) -> np.ndarray:
    """Weights after z, all hidden nodes and the outputs have moved.

    Args:
        rng: random numbers.
        inputs: x of each row.
        targets: y of each row.
        weights: in the order of `FlatNetwork`.
        variances: s_eps and s_w.
        passes: how often each hidden node moves with the same z.
    """
    latents = draw_latents(rng, inputs, targets, weights, variances[0])
    weights, gram, moment = slice_nodes(
        rng, inputs, latents, targets, weights, variances, passes
    )
    start = 3 * (len(weights) // 4)
    weights[start:] = draw_outputs(rng, gram, moment, variances)
    return weights
