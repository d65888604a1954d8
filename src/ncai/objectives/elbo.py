"""The negative ELBO, the negative log joint, and the error of NCAI's warm start."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ncai.model.bnn_lv import Model, PriorState, log_likelihood, squared_errors
from ncai.model.empirical_bayes import log_hyperprior, update_priors
from ncai.model.log_joint import log_joint_terms
from ncai.model.mean_field import (
    Draw,
    MeanField,
    gaussian_kl,
    noise_kl,
    noise_moments,
    num_normals,
    reparameterise,
    second_moments,
)
from ncai.objectives.base import Report
from ncai.objectives.penalties import Penalties
from ncai.types import Data, Number, Unknowns


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["penalties", "ramp_steps"],
    meta_fields=["num_samples"],
)
@dataclass(frozen=True)
class NegativeElbo:
    """-ELBO (paper, Eq. 5), with the penalties of NCAI (Eq. 27) if there are any.

    Args:
        num_samples: reparameterised draws of (W, Z) for the expected log-likelihood;
            the KL terms are closed forms.
        penalties: None for plain variational inference.
        ramp_steps: number of steps over which the penalties grow linearly from 0.
    """

    num_samples: int = 1
    penalties: Penalties | None = None
    ramp_steps: Number = 1.0

    def num_normals(self, q: MeanField) -> tuple[int, int]:
        """Shape of the standard normals that `prepare` takes."""
        return self.num_samples, num_normals(q)

    def prepare(self, q: MeanField, normals: Float[Array, "S T"]) -> Draw:
        """Standard deviations and reparameterised draws."""
        return reparameterise(q, normals)

    def value(
        self,
        draw: Draw,
        priors: PriorState,
        model: Model,
        data: Data,
        step: Float[Array, ""],
    ) -> tuple[Float[Array, ""], Report]:
        """The value for one restart, and its terms."""
        mean, scale = draw.mean, draw.scale
        num_rows = jnp.sum(data.row_weights)
        if self.num_samples == 1:
            errors = squared_errors(model, data, draw.weights[0], draw.latents[0])
        else:
            errors = jnp.mean(
                jax.vmap(lambda w, z: squared_errors(model, data, w, z))(
                    draw.weights, draw.latents
                ),
                axis=0,
            )
        noise = noise_moments(model, priors, mean, scale)
        terms = {
            "expected_log_likelihood": log_likelihood(noise, errors, num_rows),
            "kl_weights": gaussian_kl(
                mean.weights, scale.weights, priors.weight_variance
            ),
            "kl_latents": gaussian_kl(
                mean.latents,
                scale.latents,
                priors.latent_variance,
                data.row_weights[:, None],
            ),
            "log_hyperprior": log_hyperprior(model, priors),
        }
        if model.noise_is_unknown:
            terms["kl_noise"] = noise_kl(model, mean, scale)
        elbo = (
            terms["expected_log_likelihood"]
            - terms["kl_weights"]
            - terms["kl_latents"]
            - terms.get("kl_noise", 0.0)
            + terms["log_hyperprior"]
        )
        terms["elbo"] = elbo
        value = -elbo
        if self.penalties is not None:
            more = penalty_terms(self.penalties, draw, data)
            terms |= more
            value += jnp.minimum(step / self.ramp_steps, 1.0) * more["penalty"]
        return value, Report(terms, errors)

    def update_priors(
        self, draw: Draw, priors: PriorState, model: Model, data: Data, report: Report
    ) -> PriorState:
        """Coordinate descent on the empirical-Bayes variances."""
        moments = second_moments(draw.mean, draw.scale, data)
        num_rows = jnp.sum(data.row_weights)
        return update_priors(model, priors, *moments, report.squared_error, num_rows)


def penalty_terms(
    penalties: Penalties, draw: Draw, data: Data
) -> dict[str, Float[Array, ""]]:
    """Return the penalised statistics by name, and the total "penalty" in nats."""
    latents = draw.mean.latents if penalties.on == "means" else draw.latents[0]
    found = penalties.values(latents, data.inputs, data.targets, data.row_weights)
    num_rows = jnp.sum(data.row_weights)
    return found | {"penalty": penalties.total(found, num_rows)}


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=[])
@dataclass(frozen=True)
class NegativeLogJoint:
    """-log p(Y, W, Z | X), minimal at the joint mode that the paper warns against."""

    def num_normals(self, unknowns: Unknowns) -> tuple[int, int]:
        """No randomness."""
        del unknowns
        return 0, 0

    def prepare(self, unknowns: Unknowns, normals: Float[Array, "0 0"]):
        """Nothing to prepare."""
        del normals
        return unknowns

    def value(
        self,
        unknowns: Unknowns,
        priors: PriorState,
        model: Model,
        data: Data,
        step: Float[Array, ""],
    ) -> tuple[Float[Array, ""], Report]:
        """The value for one restart, and its terms."""
        del step
        terms = log_joint_terms(model, data, unknowns, priors)
        errors = squared_errors(model, data, unknowns.weights, unknowns.latents)
        total = jnp.sum(jnp.stack(list(terms.values())))
        return -total, Report(terms | {"log_joint": total}, errors)

    def update_priors(
        self,
        unknowns: Unknowns,
        priors: PriorState,
        model: Model,
        data: Data,
        report: Report,
    ) -> PriorState:
        """Coordinate descent on the empirical-Bayes variances."""
        weights = jnp.sum(unknowns.weights**2)
        latents = jnp.sum(data.row_weights[:, None] * unknowns.latents**2)
        num_rows = jnp.sum(data.row_weights)
        return update_priors(
            model, priors, weights, latents, report.squared_error, num_rows
        )


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=[])
@dataclass(frozen=True)
class DeterministicError:
    """Half the mean squared error of the network at z = 0: NCAI's warm start.

    In any network, weights that multiply z have no gradient at z = 0, so they keep
    their random initial values; the code needs no list of these weights.
    """

    def num_normals(self, weights: Float[Array, "P"]) -> tuple[int, int]:
        """No randomness."""
        del weights
        return 0, 0

    def prepare(self, weights: Float[Array, "P"], normals: Float[Array, "0 0"]):
        """Nothing to prepare."""
        del normals
        return weights

    def value(
        self,
        weights: Float[Array, "P"],
        priors: PriorState,
        model: Model,
        data: Data,
        step: Float[Array, ""],
    ) -> tuple[Float[Array, ""], Report]:
        """The value for one restart, and its terms."""
        del step, priors
        latents = jnp.zeros((data.inputs.shape[0], model.network.latent_dim))
        errors = squared_errors(model, data, weights, latents)
        mean = jnp.sum(errors) / jnp.sum(data.row_weights)
        return 0.5 * mean, Report({"mean_squared_error": mean}, errors)

    def update_priors(self, weights, priors, model, data, report) -> PriorState:
        """Return the priors unchanged, because this objective has none."""
        del weights, model, data, report
        return priors
