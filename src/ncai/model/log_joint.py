"""The log joint density log p(Y, W, Z | X) and its terms."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ncai.model.bnn_lv import (
    LOG_2PI,
    Model,
    PriorState,
    log_likelihood,
    point_noise,
    squared_errors,
)
from ncai.model.empirical_bayes import inverse_gamma_log_density, log_hyperprior
from ncai.types import Data, Unknowns


def gaussian_log_prior(
    values: Float[Array, "*s"],
    variance: Float[Array, "*v"],
    counts: Float[Array, "*s"],
) -> Float[Array, ""]:
    """Log density of independent N(0, variance), each value counted `counts` times."""
    return -0.5 * jnp.sum(counts * (LOG_2PI + jnp.log(variance) + values**2 / variance))


def log_joint_terms(
    model: Model, data: Data, unknowns: Unknowns, priors: PriorState
) -> dict[str, Float[Array, ""]]:
    """The terms of log p(Y, W, Z | X), normalising constants included (Eq. 2)."""
    num_rows = jnp.sum(data.row_weights)
    errors = squared_errors(model, data, unknowns.weights, unknowns.latents)
    noise = point_noise(model, priors, unknowns.log_noise_var)
    terms = {
        "log_likelihood": log_likelihood(noise, errors, num_rows),
        "log_prior_weights": gaussian_log_prior(
            unknowns.weights,
            priors.weight_variance,
            jnp.ones_like(unknowns.weights),
        ),
        "log_prior_latents": gaussian_log_prior(
            unknowns.latents,
            priors.latent_variance,
            jnp.broadcast_to(data.row_weights[:, None], unknowns.latents.shape),
        ),
        "log_hyperprior": log_hyperprior(model, priors),
    }
    if model.noise_is_unknown:
        # The unknown is log s, so its density carries the Jacobian s.
        terms["log_prior_noise"] = jnp.sum(
            unknowns.log_noise_var
            + inverse_gamma_log_density(
                jnp.exp(unknowns.log_noise_var),
                model.noise_variance.alpha,
                model.noise_variance.beta,
            )
        )
    return terms


def log_joint(model: Model, data: Data, unknowns: Unknowns, priors: PriorState):
    """Log p(Y, W, Z | X), which is log p(W, Z | D) up to the log evidence."""
    return sum(log_joint_terms(model, data, unknowns, priors).values())
