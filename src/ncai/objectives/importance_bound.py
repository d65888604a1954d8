"""The importance-weighted bound in z, which is tighter than the ELBO for any K.

For each row, log (1/M) sum_m p(y | x, z_m, W) p(z_m) / q(z_m) with z_m drawn from q(z)
(Burda et al., 2016). For M = 1 it is the ELBO. As M grows it rises to log p(y | x, W)
for any q(z), so the errors of q(z) no longer bias W (paper, Appendix C).
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ncai.model.bnn_lv import LOG_2PI, Model, NoiseMoments, PriorState
from ncai.model.mean_field import Draw, MeanField, noise_moments, scale_of
from ncai.objectives.base import Report
from ncai.objectives.marginal_elbo import tempered_bound, with_weight_variance
from ncai.types import Data, Number


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["temperature"],
    meta_fields=["num_latent_samples"],
)
@dataclass(frozen=True)
class NegativeImportanceBound:
    """-(sum_n of the bound in z - temperature * KL[q(W) || p(W)]), one draw of W.

    The gradients of q(z) are doubly reparameterised (Tucker et al., 2019), so their
    noise does not grow with M.

    Args:
        temperature: factor of the KL divergence, as in `NegativeMarginalElbo`.
        num_latent_samples: M.
    """

    temperature: Number = 1.0
    num_latent_samples: int = 8

    def num_normals(self, q: MeanField) -> tuple[int]:
        """Shape of the standard normals that `prepare` takes: for W, then for z."""
        return (q.mean.weights.size + self.num_latent_samples * q.mean.latents.size,)

    def prepare(self, q: MeanField, normals: Float[Array, "T"]) -> Draw:
        """A draw of W, and M draws of every z."""
        scale = scale_of(q)
        num_weights = q.mean.weights.size
        weights = q.mean.weights + scale.weights * normals[:num_weights]
        shape = (self.num_latent_samples, *q.mean.latents.shape)
        noise = normals[num_weights:].reshape(shape)
        latents = q.mean.latents + scale.latents * noise
        return Draw(q.mean, scale, weights[None], latents)

    def value(
        self,
        draw: Draw,
        priors: PriorState,
        model: Model,
        data: Data,
        step: Float[Array, ""],
    ) -> tuple[Float[Array, ""], Report]:
        """The value for one restart, and its terms."""
        del step
        noise = noise_moments(model, priors, draw.mean, draw.scale)
        bound = importance_bound(model, data, draw, noise, priors.latent_variance)
        return tempered_bound(
            data.row_weights @ bound, draw, priors, model, self.temperature
        )

    def update_priors(
        self, draw: Draw, priors: PriorState, model: Model, data: Data, report: Report
    ) -> PriorState:
        """Update the variance of W alone by coordinate descent."""
        del data, report
        return with_weight_variance(model, priors, draw)


def importance_bound(
    model: Model,
    data: Data,
    draw: Draw,
    noise: NoiseMoments,
    latent_variance: Float[Array, ""],
) -> Float[Array, "N"]:
    """Return the bound of each row from draws of z [M, N, K] and one draw of W."""
    # The gradient of q flows only through the draws of z: its part through log q has
    # mean zero or is converted into such a part (Tucker et al., 2019).
    mean = jax.lax.stop_gradient(draw.mean.latents)
    scale = jax.lax.stop_gradient(draw.scale.latents)

    def log_ratios(latents):
        outputs = jax.vmap(
            lambda z: model.network.apply_rows(draw.weights[0], data.inputs, z)
        )(latents)
        log_likelihood = -0.5 * jnp.sum(
            LOG_2PI
            + noise.log_variance
            + (data.targets - outputs) ** 2 * noise.precision,
            axis=-1,
        )
        # The constants of the two Gaussians cancel.
        log_prior = -0.5 * (jnp.log(latent_variance) + latents**2 / latent_variance)
        log_q = -jnp.log(scale) - 0.5 * ((latents - mean) / scale) ** 2
        return log_likelihood + jnp.sum(log_prior - log_q, axis=-1)

    # Weight the gradient with respect to z by the share of its sample once more, in
    # addition to the weight from logsumexp.
    shares = jax.nn.softmax(jax.lax.stop_gradient(log_ratios(draw.latents)), axis=0)
    held = jax.lax.stop_gradient(draw.latents)
    latents = held + shares[..., None] * (draw.latents - held)
    return logsumexp(log_ratios(latents), axis=0) - jnp.log(len(draw.latents))
