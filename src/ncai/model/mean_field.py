"""The fully factorised Gaussian family q(W, Z) of the paper (Eq. 4)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from ncai.model.bnn_lv import Model, NoiseMoments, PriorState, point_noise
from ncai.types import Data, Unknowns

SMALLEST_SCALE = 1e-6  # initial scale of q at points without one, such as modes


class MeanField(NamedTuple):
    """Variational parameters phi: a mean and an unconstrained scale for each unknown.

    The standard deviation is softplus(raw_scale). Noise learned by MAP has a mean but
    no scale.
    """

    mean: Unknowns
    raw_scale: Unknowns


def scale_of(q: MeanField) -> Unknowns:
    """Standard deviations of q."""
    return jax.tree.map(jax.nn.softplus, q.raw_scale)


def raw_scale_of(scale):
    """Inverse of softplus, for starting values."""
    return jnp.log(jnp.expm1(scale))


def raw_scales_of(scale: Unknowns) -> Unknowns:
    """Apply `raw_scale_of` to every unknown; a scale of 0 becomes a tiny one."""
    return jax.tree.map(lambda s: raw_scale_of(jnp.maximum(s, SMALLEST_SCALE)), scale)


def mean_field_of(mean: Unknowns, scale: Unknowns) -> MeanField:
    """The parameters of a q with these means and standard deviations."""
    return MeanField(mean, raw_scales_of(scale))


class Draw(NamedTuple):
    """q with its standard deviations and reparameterised draws of (W, Z)."""

    mean: Unknowns
    scale: Unknowns
    weights: Float[Array, "S P"]
    latents: Float[Array, "S N K"]


def num_normals(q: MeanField) -> int:
    """How many standard normal numbers one draw of (W, Z) takes."""
    return q.mean.weights.size + q.mean.latents.size


def reparameterise(q: MeanField, normals: Float[Array, "S T"]) -> Draw:
    """Draws mean + scale * normal of (W, Z)."""
    scale = scale_of(q)
    num_weights = q.mean.weights.size
    weights = q.mean.weights + scale.weights * normals[:, :num_weights]
    latents = q.mean.latents + scale.latents * normals[:, num_weights:].reshape(
        len(normals), *q.mean.latents.shape
    )
    return Draw(q.mean, scale, weights, latents)


def gaussian_kl(
    mean: Float[Array, "*s"],
    scale: Float[Array, "*s"],
    prior_variance: Float[Array, "*v"] | float,
    counts: Float[Array, "#*s"] | float = 1.0,
) -> Float[Array, ""]:
    """KL[N(mean, scale^2) || N(0, prior_variance)], each entry counted `counts` times.

    This is the complexity cost of Bayes by Backprop in closed form; `counts` are row
    weights.
    """
    ratio = scale**2 / prior_variance
    return 0.5 * jnp.sum(
        counts * (ratio + mean**2 / prior_variance - 1.0 - jnp.log(ratio))
    )


def noise_moments(
    model: Model, priors: PriorState, mean: Unknowns, scale: Unknowns
) -> NoiseMoments:
    """E[log s], E[1/s] of the output variance under q (log-normal if variational)."""
    if model.noise_variance.mode == "variational":
        log_mean, log_std = mean.log_noise_var, scale.log_noise_var
        return NoiseMoments(log_mean, jnp.exp(-log_mean + 0.5 * log_std**2))
    return point_noise(model, priors, mean.log_noise_var)


def noise_kl(model: Model, mean: Unknowns, scale: Unknowns) -> Float[Array, ""]:
    """KL from q(log s_eps) to the inverse-gamma prior; for MAP, minus its log density.

    For log s ~ N(m, v^2):  E log q = -1/2 log(2 pi e v^2)  and, with the Jacobian of
    s = exp(.),  E log p = a log b - log Gamma(a) - a m - b exp(-m + v^2/2).
    """
    prior = model.noise_variance
    log_mean = mean.log_noise_var
    if prior.mode == "map":
        # This is the mode in log s, not in s: the density of the prior contains the
        # Jacobian, so that MAP is the zero-width limit of the variational form.
        std = jnp.zeros_like(log_mean)
        negative_entropy = 0.0
    else:
        std = scale.log_noise_var
        negative_entropy = -0.5 * jnp.log(2 * jnp.pi * jnp.e * std**2)
    expected_log_prior = (
        prior.alpha * jnp.log(prior.beta)
        - gammaln(prior.alpha)
        - prior.alpha * log_mean
        - prior.beta * jnp.exp(-log_mean + 0.5 * std**2)
    )
    return jnp.sum(negative_entropy - expected_log_prior)


def second_moments(
    mean: Unknowns, scale: Unknowns, data: Data
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """E_q[w'w] and sum_n E_q[z_n' z_n]: what empirical Bayes needs."""
    weights = jnp.sum(mean.weights**2 + scale.weights**2)
    latents = jnp.sum(data.row_weights[:, None] * (mean.latents**2 + scale.latents**2))
    return weights, latents
