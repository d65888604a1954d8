"""The bound on log p(Y | X) with z integrated out: q is over W alone.

The loose bound of the ELBO in z is what lets z memorise the data (paper, Appendix C).
Here z is no unknown at all: each row's likelihood is its integral over the prior of z,
by quadrature, so z is independent of x and distributed like its prior by construction.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp, ndtr
from jaxtyping import Array, Float

from ncai.model import Model, PriorState, log_hyperprior, update_priors
from ncai.objectives.elbo import Report
from ncai.quadrature import LatentRule, marginal_log_likelihood
from ncai.types import Data
from ncai.variational import (
    Draw,
    MeanField,
    gaussian_kl,
    noise_kl,
    noise_moments,
    reparameterise,
)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["nodes", "temperature"],
    meta_fields=["num_samples"],
)
@dataclass(frozen=True)
class NegativeMarginalElbo:
    """-(E_q[sum_n log p(y_n | x_n, W)] - temperature * KL[q(W) || p(W)]).

    At temperature 1 this is a bound on log p(Y | X). Below 1 the posterior is *cold*:
    the prior, of which a small network feels too much under a factorised q, pulls less.

    Args:
        nodes: equispaced nodes of z in units of its prior width, [M, K]. They are
            shifted at random from step to step, so that what falls between two nodes
            in one step is seen in the next.
        temperature: of the prior.
        num_samples: draws of W a step.
    """

    nodes: Float[Array, "M K"]
    temperature: float | Float[Array, ""] = 1.0
    num_samples: int = 1

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
        del step
        draw, shifts = prepared
        noise = noise_moments(model, priors, draw.mean, draw.scale)
        spacing = self.nodes[-1] - self.nodes[-2]

        def log_likelihood(weights, shift):
            nodes = self.nodes + spacing * jax.lax.stop_gradient(shift)
            log_weights = -0.5 * jnp.sum(nodes**2, axis=1)
            rule = LatentRule(nodes, log_weights - logsumexp(log_weights))
            return marginal_log_likelihood(
                model, data, rule, weights, noise, priors.latent_variance
            )

        terms = {
            "expected_log_likelihood": jnp.mean(
                jnp.stack(
                    [
                        log_likelihood(draw.weights[s], shifts[s])
                        for s in range(self.num_samples)
                    ]
                )
            ),
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
        terms["elbo"] = terms["expected_log_likelihood"] - prior_terms
        value = self.temperature * prior_terms - terms["expected_log_likelihood"]
        return value, Report(terms, jnp.zeros(data.targets.shape[1]))

    def update_priors(
        self,
        prepared: tuple[Draw, Float[Array, "S K"]],
        priors: PriorState,
        model: Model,
        data: Data,
        report: Report,
    ) -> PriorState:
        """Coordinate descent on the variance of W; that of z has no say here."""
        draw, _ = prepared
        weights = jnp.sum(draw.mean.weights**2 + draw.scale.weights**2)
        updated = update_priors(
            model,
            priors,
            weights,
            jnp.zeros(()),
            report.squared_error,
            jnp.sum(data.row_weights),
        )
        return priors._replace(weight_variance=updated.weight_variance)
