"""Empirical Bayes: set variances of the model to their Type-II MAP value.

Each variance has an inverse-gamma hyper-prior. The closed form of its best value, given
the second moments of what it governs, is applied after every step of training
(coordinate descent).
"""

import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from ncai.model.bnn_lv import Model, PriorState, Variance


def inverse_gamma_log_density(
    variance: Float[Array, "*s"], alpha, beta
) -> Float[Array, "*s"]:
    """Log IG(s | alpha, beta)."""
    return (
        alpha * jnp.log(beta)
        - gammaln(alpha)
        - (alpha + 1) * jnp.log(variance)
        - beta / variance
    )


def empirical_variance(prior: Variance, sum_of_squares, num_rows, num_dims):
    """Type-II MAP value of a variance, given E[sum of squares] under q.

    `exact` is the mode of the inverse-gamma posterior,
        (2 beta + sum) / (num_rows num_dims + 2 alpha + 2),
    which minimises KL[q || p(.|s) p(s)]. `paper` is the value the paper prints: the
    *mean* of the inverse-gamma posterior for one averaged row,
        (2 beta + sum / num_rows) / (num_dims + 2 alpha - 2).
    For W, which is one row, the two differ only in that one is the mean and the other
    is the mode.
    """
    if prior.form == "paper":
        return (2 * prior.beta + sum_of_squares / num_rows) / (
            num_dims + 2 * prior.alpha - 2
        )
    return (2 * prior.beta + sum_of_squares) / (
        num_rows * num_dims + 2 * prior.alpha + 2
    )


def update_priors(
    model: Model,
    priors: PriorState,
    weight_sum_of_squares: Float[Array, ""],
    latent_sum_of_squares: Float[Array, ""],
    squared_error: Float[Array, "L"],
    num_rows: Float[Array, ""],
) -> PriorState:
    """One step of coordinate descent on the variances that are empirical.

    The sums are expectations under the current posterior. The sum for the noise is a
    Monte Carlo estimate, so the noise moves only a tenth of the way in each step. It
    always uses the `exact` form, because the paper's form would keep it above 0.2.
    """
    weight, latent, noise = priors
    if model.weight_variance.mode == "empirical":
        weight = empirical_variance(
            model.weight_variance,
            weight_sum_of_squares,
            1.0,
            model.network.num_weights,
        )
    if model.latent_variance.mode == "empirical" and model.network.latent_dim:
        latent = empirical_variance(
            model.latent_variance,
            latent_sum_of_squares,
            num_rows,
            model.network.latent_dim,
        )
    if model.noise_variance.mode == "empirical":
        prior = model.noise_variance
        target = (2 * prior.beta + squared_error) / (num_rows + 2 * prior.alpha + 2)
        noise = 0.9 * noise + 0.1 * target
    return PriorState(weight, latent, noise)


def log_hyperprior(model: Model, priors: PriorState) -> Float[Array, ""]:
    """Log p(s) of the variances that empirical Bayes sets."""
    total = jnp.zeros(())
    variances = [
        (model.weight_variance, priors.weight_variance),
        (model.noise_variance, priors.noise_variance),
    ]
    if model.network.latent_dim:
        variances.append((model.latent_variance, priors.latent_variance))
    for variance, value in variances:
        if variance.mode == "empirical":
            total += jnp.sum(
                inverse_gamma_log_density(value, variance.alpha, variance.beta)
            )
    return total
