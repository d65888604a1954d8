"""The fully factorised Gaussian family q(W, Z) of the paper (Eq. 4).

W may have a few directions more in which its weights move together.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from ncai.model.bnn_lv import Model, NoiseMoments, PriorState, point_noise
from ncai.types import Data, Unknowns

SMALLEST_SCALE = 1e-6  # where a q begins at values that have none, as MAP's


class MeanField(NamedTuple):
    """Variational parameters phi: a mean and an unconstrained scale for each unknown.

    The standard deviation is softplus(raw_scale). Where the noise is learned by MAP it
    has a mean and no scale. With a `factor` the covariance of W has U U' added, where U
    is the factor with each row in units of that weight's scale: a step of training then
    moves it by as much as the scale. One with fewer rows than W has weights is of the
    last of them.
    """

    mean: Unknowns
    raw_scale: Unknowns
    factor: Float[Array, "F R"] | None = None


def scale_of(q: MeanField) -> Unknowns:
    """Standard deviations of q."""
    return jax.tree.map(jax.nn.softplus, q.raw_scale)


def raw_scale_of(scale):
    """Inverse of softplus, for starting values."""
    return jnp.log(jnp.expm1(scale))


def raw_scales_of(scale: Unknowns) -> Unknowns:
    """The same for every unknown; a scale of 0, as MAP's, becomes a tiny one."""
    return jax.tree.map(lambda s: raw_scale_of(jnp.maximum(s, SMALLEST_SCALE)), scale)


def mean_field_of(
    mean: Unknowns, scale: Unknowns, factor: Float[Array, "*r F R"] | None
) -> MeanField:
    """The parameters of a q with these standard deviations, and this U."""
    raw_scale = raw_scales_of(scale)
    if factor is not None:
        positive = jnp.maximum(scale.weights, SMALLEST_SCALE)
        factor = factor / scale_of_rows(factor, positive)
    return MeanField(mean, raw_scale, factor)


class Draw(NamedTuple):
    """q with its standard deviations and reparameterised draws of (W, Z) worked out.

    Its factor is U itself.
    """

    mean: Unknowns
    scale: Unknowns
    weights: Float[Array, "S P"]
    latents: Float[Array, "S N K"]
    factor: Float[Array, "F R"] | None = None


def rank_of(q: MeanField) -> int:
    """Directions in which weights move together."""
    return 0 if q.factor is None else q.factor.shape[-1]


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


def with_factor(q: MeanField, draw: Draw, normals: Float[Array, "S R"]) -> Draw:
    """A draw of W that moves along the directions of q's factor too."""
    if q.factor is None:
        return draw
    factor = q.factor * scale_of_rows(q.factor, draw.scale.weights)
    moves = before_them_zeros(normals @ factor.T, draw.weights.shape[1])
    return draw._replace(weights=draw.weights + moves, factor=factor)


def scale_of_rows(
    factor: Float[Array, "*r F R"], scale: Float[Array, "*r P"]
) -> Float[Array, "*r F 1"]:
    """Scales of the weights that the rows of a factor are of."""
    return scale[..., scale.shape[-1] - factor.shape[-2] :, None]


def before_them_zeros(last: Float[Array, "*s F"], size: int) -> Float[Array, "*s P"]:
    """Numbers for all weights from those for the last."""
    missing = size - last.shape[-1]
    return jnp.pad(last, [(0, 0)] * (last.ndim - 1) + [(missing, 0)])


def gaussian_kl(
    mean: Float[Array, "*s"],
    scale: Float[Array, "*s"],
    prior_variance: Float[Array, "*v"],
    counts: Float[Array, "*s"] | float = 1.0,
) -> Float[Array, ""]:
    """KL[N(mean, scale^2) || N(0, prior_variance)], each entry counted `counts` times.

    The closed form of BBB's complexity term; `counts` are row weights.
    """
    ratio = scale**2 / prior_variance
    return 0.5 * jnp.sum(
        counts * (ratio + mean**2 / prior_variance - 1.0 - jnp.log(ratio))
    )


def factor_kl(
    factor: Float[Array, "F R"] | None,
    scale: Float[Array, "P"],
    prior_variance: Float[Array, "*v"],
) -> Float[Array, ""] | float:
    """What a factor U adds to `gaussian_kl`.

    (tr(U' V^-1 U) - log det(I + U' D^-1 U)) / 2, for prior variances V and D = scale^2:
    the determinant of D + U U' by the matrix determinant lemma.
    """
    if factor is None:
        return 0.0
    first = scale.shape[0] - factor.shape[0]
    prior_variance = jnp.broadcast_to(prior_variance, scale.shape)[first:]
    scale = scale[first:]
    spread = jnp.sum(jnp.sum(factor**2, axis=1) / prior_variance)
    inner = jnp.eye(factor.shape[1]) + factor.T @ (factor / (scale**2)[:, None])
    return 0.5 * spread - 0.5 * log_det(inner)


def log_det(matrix: Float[Array, "R R"]) -> Float[Array, ""]:
    """Logarithm of the determinant of a positive definite matrix, by elimination.

    Not by `jnp.linalg.cholesky`: with matrices of 51 rows, and groups of restarts
    trained side by side, its programs never came back (jaxlib 0.10.2 on two cores).
    """

    def eliminate(left, i):
        row = left[i]
        return left - jnp.outer(row, row) / row[i], jnp.log(row[i])

    _, logs = jax.lax.scan(eliminate, matrix, jnp.arange(matrix.shape[0]))
    return jnp.sum(logs)


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
        # Mode in log s rather than in s: the prior's density carries the Jacobian, so
        # that MAP is the zero-width limit of the variational form.
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
) -> tuple[Float[Array, "P"], Float[Array, ""]]:
    """E_q[w^2] of each weight and sum_n E_q[z_n' z_n]: what empirical Bayes needs."""
    weights = mean.weights**2 + scale.weights**2
    latents = jnp.sum(data.row_weights[:, None] * (mean.latents**2 + scale.latents**2))
    return weights, latents
