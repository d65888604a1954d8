"""The probabilistic model: a network, three variances, and the Gaussian likelihood.

W ~ N(0, s_w I),  z_n ~ N(0, s_z I),  y_n = f(x_n, z_n; W) + eps_n,
eps_n ~ N(0, diag(s_eps))                                        (paper, Eq. 1)

Each of the three variances is set in one of the ways of `Variance.mode`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ncai.model.networks import FlatNetwork
from ncai.types import Data, Number

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
        value: the fixed variance, or the initial value of a learned one. For the output
            noise, one number for each output.
        mode: "fixed"; "empirical", which is Type-II MAP under an inverse-gamma prior,
            by its closed form after every step; and for the output noise also "map" and
            "variational", where the variance is an unknown of its own that gradient
            steps learn.
        alpha: shape of the inverse-gamma prior.
        beta: scale of the inverse-gamma prior.
        form: "paper" or "exact", see `empirical_variance`.
    """

    value: Float[Any, "*outputs"]
    mode: str = "fixed"
    alpha: Number = 3.0
    beta: Number = 0.5
    form: str = "paper"


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["weight_variance", "latent_variance", "noise_variance"],
    meta_fields=["network"],
)
@dataclass(frozen=True)
class Model:
    """A BNN+LV; with `network.latent_dim == 0`, a plain BNN.

    Numbers are traced by JAX and may change freely. The network and the modes of the
    variances are static structure, and a change of those compiles again.

    Args:
        network: f.
        weight_variance: s_w.
        latent_variance: s_z.
        noise_variance: s_eps.
    """

    network: FlatNetwork
    weight_variance: Variance
    latent_variance: Variance
    noise_variance: Variance

    @property
    def noise_is_unknown(self) -> bool:
        """Whether the output noise is an unknown found by gradient."""
        return self.noise_variance.mode in ("map", "variational")


def noise_start(model: Model) -> jax.Array:
    """Return the initial log variance of learned noise (empty if it is not learned)."""
    if model.noise_is_unknown:
        return jnp.log(jnp.asarray(model.noise_variance.value, float))
    return jnp.zeros(0)


class PriorState(NamedTuple):
    """The present values of the three variances during a fit."""

    weight_variance: Float[Array, ""]
    latent_variance: Float[Array, ""]
    noise_variance: Float[Array, "L"]


class NoiseMoments(NamedTuple):
    """E[log s_eps] and E[1 / s_eps]: all that a Gaussian likelihood needs of s_eps."""

    log_variance: Float[Array, "L"]
    precision: Float[Array, "L"]


def point_noise(
    model: Model, priors: PriorState, log_noise_var: Float[Array, "L"]
) -> NoiseMoments:
    """Return the moments of noise with a single known variance."""
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
