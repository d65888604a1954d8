"""Quadrature over z: p(y | x, W) and p(z | x, y, W) in training, and predictions.

`latent_rule` gives the nodes for training, `latent_nodes` the nodes for predictions.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from scipy.special import ndtri
from scipy.stats import norm

from ncai.model.bnn_lv import LOG_2PI, Model, NoiseMoments
from ncai.model.latent_grid import outputs_at_nodes
from ncai.types import Data

LARGEST_DIM = 2
REACH = 5.5  # standard deviations of z: one value in 26 million lies beyond
# Nodes of one z lie closer together in the middle: z = REACH sinh(BEND t) / sinh(BEND)
# for equally spaced t, which needs half as many nodes as equal spacing does.
BEND = 1.5
# A node represents all z around it, so it is widened by this share of the distance to
# the next node. This makes the density given W smooth. Far out, a width would raise the
# tail by the factor exp(width^2 z^2 / 2), so it is at most LARGEST_LIFT / |z| there.
BLUR, LARGEST_LIFT = 0.5, 0.5
# With fewer nodes than this, the trapezoidal rule is inaccurate, and slices of equal
# probability are better.
FEWEST_NODES = 8
# Number of Sobol points that replace a node if z has several dimensions.
POINTS_A_NODE = 4


class LatentRule(NamedTuple):
    """Nodes and log weights of a rule for integrals against N(0, I)."""

    nodes: Float[Array, "M K"]
    log_weights: Float[Array, "M"]


def latent_rule(latent_dim: int, num_nodes: int = 64, reach: float = 5.0) -> LatentRule:
    """Equispaced nodes on [-reach, reach] in each dimension.

    A network with leaky ReLU is not smooth in z, and the likelihood can be much
    narrower than the prior. Equispaced nodes handle both; Gauss-Hermite nodes handle
    neither.
    """
    if not 0 <= latent_dim <= LARGEST_DIM:
        raise ValueError(
            f"latent_dim={latent_dim} cannot be integrated by quadrature; "
            f"at most {LARGEST_DIM} can."
        )
    axis = np.linspace(-reach, reach, num_nodes)
    mesh = np.meshgrid(*[axis] * latent_dim, indexing="ij")
    nodes = np.stack([m.ravel() for m in mesh], axis=1) if mesh else np.zeros((1, 0))
    log_weights = norm.logpdf(nodes).sum(axis=1)
    log_weights -= np.logaddexp.reduce(log_weights)
    return LatentRule(
        jnp.asarray(nodes, jnp.result_type(float)),
        jnp.asarray(log_weights, jnp.result_type(float)),
    )


def node_log_joint(
    model: Model,
    data: Data,
    rule: LatentRule,
    weights: Float[Array, "P"],
    noise: NoiseMoments,
    latent_variance: Float[Array, ""],
) -> Float[Array, "M N"]:
    """Log p(y_n, z_m | x_n, W) at each node, including the weight of the node."""
    latents = jnp.sqrt(latent_variance) * rule.nodes
    outputs = outputs_at_nodes(model.network, weights, data.inputs, latents)
    residuals = data.targets.T[:, None, :] - outputs
    log_density = -0.5 * jnp.sum(
        LOG_2PI
        + noise.log_variance[:, None, None]
        + residuals**2 * noise.precision[:, None, None],
        axis=0,
    )
    return log_density + rule.log_weights[:, None]


def marginal_log_likelihood(
    model: Model,
    data: Data,
    rule: LatentRule,
    weights: Float[Array, "P"],
    noise: NoiseMoments,
    latent_variance: Float[Array, ""],
) -> Float[Array, ""]:
    """Log p(Y | X, W) = sum_n log E_{p(z)} p(y_n | x_n, z, W) (paper, Appendix C)."""
    terms = node_log_joint(model, data, rule, weights, noise, latent_variance)
    return data.row_weights @ logsumexp(terms, axis=0)


# ----- Nodes of predictions ---------------------------------------------------------


class LatentNodes(NamedTuple):
    """Values of a standard-normal z for every weight draw.

    Args:
        values: the values of z.
        log_weights: the log weight of each value; the weights of a draw add up to 1.
        blur: how much the component of each value is widened, as a share of the
            distance to the next component; 0 if the values have no order.
    """

    values: Float[np.ndarray, "S M K"]
    log_weights: Float[np.ndarray, "S M"]
    blur: Float[np.ndarray, "S M"]


def latent_nodes(num_draws: int, num_latent: int, latent_dim: int) -> LatentNodes:
    """Nodes for the inner integral of the posterior predictive.

    A sum over the nodes replaces the integral over z in Eq. `posterior-predictive`.
    Each weight draw has its own values, so that all draws together cover z far more
    finely than a single draw does. Nothing here is random, so two predictions agree.

    Args:
        num_draws: number S of weight draws.
        num_latent: number M of nodes for each weight draw.
        latent_dim: dimension K of z. Without a latent (K = 0) one empty value is enough
            and M is not used; for K > 1 there are 4 M Sobol points.
    """
    if num_draws < 1 or num_latent < 1:
        raise ValueError(
            f"num_draws={num_draws} and num_latent={num_latent} must be at least 1."
        )
    if latent_dim == 1 and num_latent >= FEWEST_NODES:
        return _trapezoidal_nodes(num_draws, num_latent)
    each = num_latent if latent_dim < 2 else POINTS_A_NODE * num_latent
    values = even_latents(num_draws, each, latent_dim)
    weights = np.full(values.shape[:2], -np.log(values.shape[1]), np.float32)
    return LatentNodes(values, weights, np.zeros_like(weights))


def even_latents(
    num_draws: int, num_latent: int, latent_dim: int
) -> Float[np.ndarray, "S M K"]:
    """Equally weighted standard-normal values of z for every weight draw.

    With one latent, there is a value in each of M slices of equal probability; with
    several, the values are Sobol points.
    """
    if latent_dim == 0:
        return np.zeros((num_draws, 1, 0), np.float32)
    if latent_dim == 1:
        uniform = (np.arange(num_latent) + _shifts(num_draws))[..., None] / num_latent
    else:
        uniform = _even_points(num_draws * num_latent, latent_dim)
        uniform = uniform.reshape(num_draws, num_latent, latent_dim)
    return ndtri(np.clip(uniform, 1e-6, 1 - 1e-6)).astype(np.float32)


def _shifts(num_draws: int) -> Float[np.ndarray, "S 1"]:
    """Shifts of the nodes of each draw, by the golden ratio; no two are equal."""
    return (0.5 + np.arange(num_draws)[:, None] * (np.sqrt(5) - 1) / 2) % 1.0


def _trapezoidal_nodes(num_draws: int, num_latent: int) -> LatentNodes:
    """Trapezoidal nodes of one z, which reach far into both tails.

    For smooth functions of z, the rule is exact to many digits with a few nodes.
    Widening a node increases the variance of z, so the node is moved towards 0 to
    compensate.
    """
    step = 2 / num_latent
    places = step * (np.arange(num_latent) + _shifts(num_draws)) - 1
    nodes = REACH * np.sinh(BEND * places) / np.sinh(BEND)
    slopes = REACH * BEND * np.cosh(BEND * places) / np.sinh(BEND)
    log_weights = np.log(slopes) - 0.5 * nodes**2
    log_weights -= np.logaddexp.reduce(log_weights, axis=1, keepdims=True)
    gaps = step * slopes
    blur = np.minimum(BLUR, LARGEST_LIFT / np.maximum(np.abs(nodes), 1e-9) / gaps)
    nodes = nodes / np.sqrt(1 + (blur * gaps) ** 2)
    return LatentNodes(
        nodes[..., None].astype(np.float32),
        log_weights.astype(np.float32),
        blur.astype(np.float32),
    )


def _even_points(num_points: int, dim: int) -> Float[np.ndarray, "points dim"]:
    """Return a Sobol sequence, moved off the edges of the unit cube.

    A run of M = 2^k consecutive points is a digital shift of the first run. So the
    values of every weight draw are equally even, and so are the values of all draws
    together.
    """
    from scipy.stats import qmc  # slow to import, and rarely needed

    num_bits = max(num_points - 1, 1).bit_length()
    points = qmc.Sobol(dim, scramble=False).random_base2(num_bits)[:num_points]
    return points + 0.5 / 2**num_bits
