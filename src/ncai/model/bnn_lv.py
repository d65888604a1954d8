"""The probabilistic model: priors, output noise and the terms of the log joint.

W ~ N(0, s_w I),  z_n ~ N(0, s_z I),  y_n = f(x_n, z_n; W) + eps_n,
eps_n ~ N(0, diag(s_eps))                                        (paper, Eq. 1)

Each of the three variances is set in one of the ways of `Variance.mode`.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, PRNGKeyArray

from ncai.model.networks import FlatNetwork
from ncai.runtime.jax_setup import RUN_ONCE
from ncai.types import Data, Unknowns

LOG_2PI = 1.8378770664093453


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["value", "alpha", "beta"],
    meta_fields=["mode", "form"],
)
@dataclass(frozen=True)
class Variance:
    """How one variance of the model is set.

    Args:
        value: the variance where it is fixed, and the start where it is learned. For
            the output noise, one number for each output.
        mode: "fixed"; "empirical": Type-II MAP under an inverse-gamma prior, by its
            closed form after every step; for the output noise also "map" and
            "variational": an unknown of its own, found by gradient.
        alpha: shape of the inverse-gamma prior.
        beta: scale of the inverse-gamma prior.
        form: "paper" or "exact", see `empirical_variance`.
    """

    value: Float[Array, "*outputs"]
    mode: str = "fixed"
    alpha: float | Float[Array, ""] = 3.0
    beta: float | Float[Array, ""] = 0.5
    form: str = "paper"


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["weight_variance", "latent_variance", "noise_variance"],
    meta_fields=["network", "weight_groups"],
)
@dataclass(frozen=True)
class Model:
    """A BNN+LV; with `network.latent_dim == 0`, a plain BNN.

    Numbers are traced by JAX and may change freely; the network and the modes of the
    variances are structure, and a change of those compiles anew.

    Args:
        network: f.
        weight_variance: s_w.
        latent_variance: s_z.
        noise_variance: s_eps.
        weight_groups: which weights share an empirical s_w: "all" (the paper's), those
            of a "layer" (its matrix, bias and the weights of z apart), or those of an
            "input" in the first layer, and of a layer in the others.
    """

    network: FlatNetwork
    weight_variance: Variance
    latent_variance: Variance
    noise_variance: Variance
    weight_groups: str = "all"

    @property
    def weight_blocks(self) -> tuple[int, ...] | None:
        """Sizes of the runs of weights with a variance of their own; None for one."""
        if self.weight_groups == "all" or self.weight_variance.mode != "empirical":
            return None
        return self.network.blocks(by_input=self.weight_groups == "input")

    @property
    def noise_is_unknown(self) -> bool:
        """Whether the output noise is an unknown found by gradient."""
        return self.noise_variance.mode in ("map", "variational")


class PriorState(NamedTuple):
    """The three variances as they stand at one moment of a fit.

    That of the weights is one number, or one for each weight, equal within a group.
    """

    weight_variance: Float[Array, "*P"]
    latent_variance: Float[Array, ""]
    noise_variance: Float[Array, "L"]


class NoiseMoments(NamedTuple):
    """E[log s_eps] and E[1 / s_eps]: all that a Gaussian likelihood needs of s_eps."""

    log_variance: Float[Array, "L"]
    precision: Float[Array, "L"]


def initial_priors(key: PRNGKeyArray, model: Model) -> PriorState:
    """The variances at the start: fixed values, or draws from the hyper-prior."""
    one = initial_priors_of(jnp.reshape(key, (1,)), model)
    return jax.tree.map(lambda a: a[0], one)


def initial_priors_of(keys: PRNGKeyArray, model: Model) -> PriorState:
    """`initial_priors` for each key."""
    weights, latents, noise = _first_variances(
        keys, (model.weight_variance, model.latent_variance, model.noise_variance)
    )
    if model.weight_blocks is not None:
        weights = jnp.broadcast_to(
            weights[:, None], (len(keys), model.network.num_weights)
        )
    return PriorState(weights, latents, noise)


# A program of its own, which knows no network and no data: drawing from a gamma
# distribution takes a second to compile, and one for every shape would be too many.
@jax.jit(compiler_options=RUN_ONCE)
def _first_variances(keys, variances: tuple[Variance, ...]) -> tuple[Array, ...]:
    def first(key, variance: Variance):
        if variance.mode == "empirical":
            gamma = jax.random.gamma(key, variance.alpha, jnp.shape(variance.value))
            return variance.beta / jnp.maximum(gamma, 1e-3)
        return jnp.asarray(variance.value, float)

    def one(key):
        each = jax.random.split(key, len(variances))
        return tuple(first(k, v) for k, v in zip(each, variances, strict=True))

    return jax.vmap(one)(keys)


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
    For W, which is one row, the two differ only by that mean and mode.
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
    weight_squares: Float[Array, "P"],
    latent_sum_of_squares: Float[Array, ""],
    squared_error: Float[Array, "L"],
    num_rows: Float[Array, ""],
) -> PriorState:
    """One step of coordinate descent on the variances that are empirical.

    The sums are expectations under the current posterior. That of the noise is a
    Monte Carlo estimate, so it moves by a tenth of the way each step; and it always
    has the `exact` form, since the paper's would keep it above 0.2.
    """
    weight, latent, noise = priors
    if model.weight_variance.mode == "empirical":
        weight = _empirical_weight_variance(model, weight_squares)
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


def _empirical_weight_variance(model: Model, squares: Float[Array, "P"]):
    """One for all weights, or for each that of its group."""
    blocks = model.weight_blocks
    if blocks is None:
        return empirical_variance(
            model.weight_variance, jnp.sum(squares), 1.0, model.network.num_weights
        )
    sizes = np.asarray(blocks)
    group = np.repeat(np.arange(len(sizes)), sizes)
    sums = jax.ops.segment_sum(squares, group, len(sizes), indices_are_sorted=True)
    return empirical_variance(model.weight_variance, sums, 1.0, sizes)[group]


def log_hyperprior(model: Model, priors: PriorState) -> Float[Array, ""]:
    """Log p(s) of the variances that empirical Bayes sets."""
    total = jnp.zeros(())
    weight_variances = priors.weight_variance
    if model.weight_blocks is not None:  # each group counts once
        firsts = np.cumsum((0, *model.weight_blocks[:-1]))
        weight_variances = weight_variances[firsts]
    variances = [
        (model.weight_variance, weight_variances),
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


def point_noise(
    model: Model, priors: PriorState, log_noise_var: Float[Array, "L"]
) -> NoiseMoments:
    """Moments of the noise where it is a single value."""
    log_variance = (
        log_noise_var if model.noise_is_unknown else jnp.log(priors.noise_variance)
    )
    return NoiseMoments(log_variance, jnp.exp(-log_variance))


def squared_errors(
    model: Model,
    data: Data,
    weights: Float[Array, "P"],
    latents: Float[Array, "N K"],
) -> Float[Array, "L"]:
    """sum_n (y_n - f(x_n, z_n; W))^2 for each output."""
    outputs = model.network.apply_rows(weights, data.inputs, latents)
    return data.row_weights @ (data.targets - outputs) ** 2


def log_likelihood(
    noise: NoiseMoments, squared_error: Float[Array, "L"], num_rows: Float[Array, ""]
) -> Float[Array, ""]:
    """E[log p(Y | X, W, Z)] over the noise, given the squared errors."""
    return -0.5 * jnp.sum(
        num_rows * (LOG_2PI + noise.log_variance) + squared_error * noise.precision
    )


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
