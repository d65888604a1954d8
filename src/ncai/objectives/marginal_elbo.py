"""The bound on log p(Y | X) with z integrated out: q is over W alone.

The loose bound of the ELBO in z is what lets z memorise the data (paper, Appendix C).
Here z is not an unknown: the likelihood of a row is an integral over the prior of z,
computed by quadrature. So z is independent of x and follows its prior by construction.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp, ndtr
from jaxtyping import Array, Float

from ncai.model.bnn_lv import LOG_2PI, Model, NoiseMoments, PriorState
from ncai.model.empirical_bayes import log_hyperprior, update_priors
from ncai.model.latent_grid import outputs_at_nodes
from ncai.model.mean_field import (
    Draw,
    MeanField,
    gaussian_kl,
    noise_kl,
    noise_moments,
    reparameterise,
)
from ncai.model.quadrature import LatentRule, marginal_log_likelihood
from ncai.objectives.base import Report
from ncai.types import Data, Number

BLUR = 0.25  # c of `smoothed_log_likelihood`


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["nodes", "temperature"],
    meta_fields=["num_samples", "smooth", "batch_rows"],
)
@dataclass(frozen=True)
class NegativeMarginalElbo:
    """-(E_q[sum_n log p(y_n | x_n, W)] - temperature * KL[q(W) || p(W)]).

    At temperature 1 this is a bound on log p(Y | X). Below 1 the posterior is *cold*:
    the prior has less weight, because its pull is too strong for a small network with a
    factorised q.

    Args:
        nodes: equispaced nodes of z in units of its prior standard deviation, [M, K].
            They are shifted at random in each step, so that no z always falls between
            two nodes.
        temperature: factor of the KL divergence.
        num_samples: number of draws of W per step.
        smooth: for one latent dimension, replace each node by a narrow Gaussian of z
            around it, over which f is treated as linear (see
            `smoothed_log_likelihood`). Without it the noise must fill the gaps between
            nodes and cannot become small.
        batch_rows: number of rows in a step, or 0 for all. Steps use one batch after
            the other, so the rows should be in random order and their number a multiple
            of this.
    """

    nodes: Float[Any, "*restarts M K"]
    temperature: Number = 1.0
    num_samples: int = 1
    smooth: bool = False
    batch_rows: int = 0

    def num_normals(self, q: MeanField) -> tuple[int, int]:
        """Shape of the standard normals that `prepare` takes: for W, then shifts."""
        return self.num_samples, q.mean.weights.size + self.nodes.shape[1]

    def prepare(
        self, q: MeanField, normals: Float[Array, "S T"]
    ) -> tuple[Draw, Float[Array, "S K"]]:
        """Draws of W, and shifts of the nodes, uniform over half a spacing each way."""
        num_weights = q.mean.weights.size
        draw = reparameterise(q, normals[:, :num_weights])
        return draw, ndtr(normals[:, num_weights:]) - 0.5

    def value(
        self,
        prepared: tuple[Draw, Float[Array, "S K"]],
        priors: PriorState,
        model: Model,
        data: Data,
        step: Float[Array, ""],
    ) -> tuple[Float[Array, ""], Report]:
        """The value for one restart, and its terms."""
        draw, shifts = prepared
        data, num_batches = self._batch(data, step)
        noise = noise_moments(model, priors, draw.mean, draw.scale)
        spacing = self.nodes[-1] - self.nodes[-2]

        def log_likelihood(weights, shift):
            nodes = self.nodes + spacing * jax.lax.stop_gradient(shift)
            if self.smooth:
                return smoothed_log_likelihood(
                    model, data, nodes, weights, noise, priors.latent_variance
                )
            log_weights = -0.5 * jnp.sum(nodes**2, axis=1)
            rule = LatentRule(nodes, log_weights - logsumexp(log_weights))
            return marginal_log_likelihood(
                model, data, rule, weights, noise, priors.latent_variance
            )

        expected = jnp.mean(
            jnp.stack(
                [
                    log_likelihood(draw.weights[s], shifts[s])
                    for s in range(self.num_samples)
                ]
            )
        )
        return tempered_bound(
            num_batches * expected, draw, priors, model, self.temperature
        )

    def _batch(self, data: Data, step) -> tuple[Data, int]:
        """Return the batch of rows of this step, and the number of batches."""
        num_rows = data.inputs.shape[0]
        if not 0 < self.batch_rows < num_rows:
            return data, 1
        num_batches = num_rows // self.batch_rows
        start = (step.astype(int) % num_batches) * self.batch_rows
        block = jax.tree.map(
            lambda a: jax.lax.dynamic_slice_in_dim(a, start, self.batch_rows), data
        )
        return block, num_batches

    def update_priors(
        self,
        prepared: tuple[Draw, Float[Array, "S K"]],
        priors: PriorState,
        model: Model,
        data: Data,
        report: Report,
    ) -> PriorState:
        """Coordinate descent on the variance of W alone: the width of z is fixed."""
        del data, report
        return with_weight_variance(model, priors, prepared[0])


def tempered_bound(
    expected_log_likelihood: Float[Array, ""],
    draw: Draw,
    priors: PriorState,
    model: Model,
    temperature: Number,
) -> tuple[Float[Array, ""], Report]:
    """Return temperature times the KL terms of W and noise, minus the likelihood."""
    terms = {
        "expected_log_likelihood": expected_log_likelihood,
        "kl_weights": gaussian_kl(
            draw.mean.weights, draw.scale.weights, priors.weight_variance
        ),
        "log_hyperprior": log_hyperprior(model, priors),
    }
    if model.noise_is_unknown:
        terms["kl_noise"] = noise_kl(model, draw.mean, draw.scale)
    prior_terms = (
        terms["kl_weights"] + terms.get("kl_noise", 0.0) - terms["log_hyperprior"]
    )
    terms["elbo"] = expected_log_likelihood - prior_terms
    value = temperature * prior_terms - expected_log_likelihood
    return value, Report(terms, jnp.zeros(model.network.output_dim))


def with_weight_variance(model: Model, priors: PriorState, draw: Draw) -> PriorState:
    """Coordinate descent on the variance of W alone: the width of z is fixed."""
    squares = jnp.sum(draw.mean.weights**2 + draw.scale.weights**2)
    nothing = jnp.zeros(model.network.output_dim)
    updated = update_priors(
        model, priors, squares, jnp.zeros(()), nothing, jnp.ones(())
    )
    return priors._replace(weight_variance=updated.weight_variance)


def smoothed_log_likelihood(
    model: Model,
    data: Data,
    nodes: Float[Array, "M 1"],
    weights: Float[Array, "P"],
    noise: NoiseMoments,
    latent_variance: Float[Array, ""],
) -> Float[Array, ""]:
    """Return log p(Y | X, W) with a mixture of narrow Gaussians as prior of z.

    Nodes at distances h with weights of N(0, 1 - c h^2), each blurred by N(0, c h^2),
    add up to N(0, 1), except for a ripple of 2 exp(-2 pi^2 c), which is 1.4 % at c =
    1/4. Within the blur, f is treated as linear, with the rise between the neighbouring
    nodes (see `limited_rise`). So the density of y at a node is Gaussian with
    covariance s_eps + c rise rise^T. For a linear f this is the exact density for any
    noise.
    """
    spacing = nodes[1, 0] - nodes[0, 0]
    latents = jnp.sqrt(latent_variance) * nodes
    outputs = outputs_at_nodes(model.network, weights, data.inputs, latents)
    before, after = outputs[:, :1], outputs[:, -1:]
    padded = jnp.concatenate(
        [2 * before - outputs[:, 1:2], outputs, 2 * after - outputs[:, -2:-1]], axis=1
    )
    rise = limited_rise(outputs - padded[:, :-2], padded[:, 2:] - outputs)
    residuals = data.targets.T[:, None] - outputs  # [L, M, N]
    precision = noise.precision[:, None, None]
    # The covariance of y is diagonal plus c rise rise^T. We complete the square in the
    # position within the blur, which gives a sum of squares that loses no digits.
    spread = 1 + BLUR * jnp.sum(precision * rise**2, axis=0)
    place = BLUR * jnp.sum(precision * rise * residuals, axis=0) / spread
    squares = jnp.sum(precision * (residuals - rise * place) ** 2, axis=0)
    squares = squares + place**2 / BLUR
    log_scale = jnp.log(spread) + jnp.sum(noise.log_variance)
    log_weights = -0.5 * nodes**2 / (1 - BLUR * spacing**2)
    log_weights = log_weights - logsumexp(log_weights)
    log_parts = log_weights - 0.5 * (
        model.network.output_dim * LOG_2PI + log_scale + squares
    )
    return data.row_weights @ logsumexp(log_parts, axis=0)


def limited_rise(
    left: Float[Array, "*S"], right: Float[Array, "*S"]
) -> Float[Array, "*S"]:
    """Return the rise of f at a node: the average of the rises to its neighbours.

    It is limited to twice the smaller rise, and it is 0 at a peak. Next to a step of f,
    the average would be half of the step and would blur both sides, such as two peaks.
    """
    most = 2 * jnp.minimum(jnp.abs(left), jnp.abs(right))
    limited = jnp.clip(0.5 * (left + right), -most, most)
    return jnp.where(left * right > 0, limited, 0.0)
