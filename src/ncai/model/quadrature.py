"""Integrals over z: p(y | x, W) and p(z | x, y, W) by quadrature, for one or two z."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float
from scipy.stats import norm

from ncai.model.bnn_lv import LOG_2PI, Model, NoiseMoments
from ncai.model.latent_grid import outputs_at_nodes
from ncai.types import Data

LARGEST_DIM = 2


class LatentRule(NamedTuple):
    """Nodes and log weights of a rule for integrals against N(0, I)."""

    nodes: Float[Array, "M K"]
    log_weights: Float[Array, "M"]


def latent_rule(latent_dim: int, num_nodes: int = 64, reach: float = 5.0) -> LatentRule:
    """Equispaced nodes on [-reach, reach] in each dimension.

    A network of LeakyReLU is not smooth in z, and the likelihood can be much narrower
    than the prior: equispaced nodes resolve both evenly, Gauss-Hermite neither.
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
    """Log p(y_n, z_m | x_n, W) at each node, the rule's weight included."""
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
