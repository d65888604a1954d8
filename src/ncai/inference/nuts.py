"""The compiled parts of the No-U-Turn sampler (BlackJAX), and checks of mixing.

R-hat and effective sample size are computed for predictions instead of weights, because
hidden nodes can be permuted between chains.
"""

from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
from blackjax.adaptation.staged_adaptation import build_schedule
from blackjax.adaptation.step_size import dual_averaging_adaptation
from jaxtyping import Array, Float

from ncai.inference.posterior import SamplePosterior, SamplerReport
from ncai.inference.warm_start import initial_priors
from ncai.model.bnn_lv import Model, PriorState, point_noise
from ncai.model.log_joint import gaussian_log_prior, log_joint, log_joint_terms
from ncai.model.quadrature import LatentRule, even_latents, marginal_log_likelihood
from ncai.types import Data, Unknowns


class Target(NamedTuple):
    """The density to sample: of (W, Z), or of W if there is a quadrature rule."""

    model: Model
    data: Data
    priors: PriorState
    rule: LatentRule | None

    def log_density(self, position: Unknowns) -> Float[Array, ""]:
        """Unnormalised log posterior."""
        if self.rule is None:
            # Padding rows have no likelihood. Without a density their z would drift,
            # and no trajectory would turn, so these z follow the prior.
            padding = 1.0 * (self.data.row_weights == 0)[:, None]
            return log_joint(
                self.model, self.data, position, self.priors
            ) + gaussian_log_prior(
                position.latents, self.priors.latent_variance, padding
            )
        noise = point_noise(self.model, self.priors, position.log_noise_var)
        likelihood = marginal_log_likelihood(
            self.model,
            self.data,
            self.rule,
            position.weights,
            noise,
            self.priors.latent_variance,
        )
        no_rows = jax.tree.map(lambda a: a[:0], self.data)
        terms = log_joint_terms(self.model, no_rows, position, self.priors)
        return likelihood + sum(
            terms.get(name, 0.0) for name in ("log_prior_weights", "log_prior_noise")
        )


class Tuned(NamedTuple):
    """The results of the warm-up."""

    step_size: Float[Array, "C"]
    inverse_mass: Float[Array, "C U"]


class DrawInfo(NamedTuple):
    """The information that is kept about each transition."""

    acceptance: Float[Array, "T C"]
    divergent: Float[Array, "T C"]
    leapfrogs: Float[Array, "T C"]
    log_density: Float[Array, "T C"]


def _step(target, key, state, step_size, inverse_mass, max_doublings):
    state, info = blackjax.nuts.build_kernel()(
        key, state, target.log_density, step_size, inverse_mass, max_doublings
    )
    kept = DrawInfo(
        info.acceptance_rate,
        info.is_divergent,
        info.num_integration_steps,
        state.logdensity,
    )
    return state, kept


class Adaptation(NamedTuple):
    """The state of the warm-up of one chain."""

    step: Any
    mass: Any
    inverse_mass: Float[Array, "U"]


def window_adaptation(target_acceptance):
    """Stan's warm-up in three functions (begin, update, final), from BlackJAX's parts.

    BlackJAX's own function runs it in one call, so no progress bar could follow it.
    """
    mass_init, mass_update, mass_final = mass_matrix_adaptation(True)
    step_init, step_update, step_final = dual_averaging_adaptation(target_acceptance)

    def begin(position):
        mass = mass_init(sum(leaf.size for leaf in jax.tree.leaves(position)))
        return Adaptation(step_init(0.01), mass, mass.inverse_mass_matrix)

    def end_window(adaptation):
        mass = mass_final(adaptation.mass)
        step = step_init(step_final(adaptation.step))
        return Adaptation(step, mass, mass.inverse_mass_matrix)

    def update(adaptation, in_slow_window, is_its_last, position, acceptance):
        step = step_update(adaptation.step, acceptance)
        mass = jax.lax.cond(
            in_slow_window,
            mass_update,
            lambda mass, _: mass,
            adaptation.mass,
            position,
        )
        adaptation = Adaptation(step, mass, adaptation.inverse_mass)
        return jax.lax.cond(is_its_last, end_window, lambda a: a, adaptation)

    def final(adaptation):
        step = adaptation.step
        # There is no average yet if a time limit ends the warm-up right after a window.
        log_size = jnp.where(step.step > 1, step.log_step_size_avg, step.log_step_size)
        return Tuned(jnp.exp(log_size), adaptation.mass.inverse_mass_matrix)

    return begin, update, final


def warmup_schedule(num_draws: int) -> Array:
    """Stan's stages of warm-up: for each draw its kind, and whether a window ends."""
    return jnp.asarray(build_schedule(num_draws))


@jax.jit(static_argnames=("target_acceptance",))
def warm_start(target, position, target_acceptance):
    """Sampler and adaptation states before the first draw, for each chain."""
    begin, _, _ = window_adaptation(target_acceptance)

    def one(position):
        state = blackjax.nuts.init(position, target.log_density)
        # Python floats make weakly typed arrays, which a chunk returns as strongly
        # typed ones. Without this conversion, the first three chunks would each compile
        # again.
        return jax.tree.map(
            lambda a: jax.lax.convert_element_type(a, jnp.result_type(a)),
            (state, begin(position)),
        )

    return jax.vmap(one)(position)


@jax.jit(static_argnames=("target_acceptance", "max_doublings"))
def warmup_chunk(target, warm, keys, schedule, target_acceptance, max_doublings):
    """Make a chunk of warm-up draws for all chains."""
    _, update, _ = window_adaptation(target_acceptance)

    def body(warm, per_draw):
        draw_keys, stage = per_draw

        def one(key, state, adaptation):
            state, info = _step(
                target,
                key,
                state,
                jnp.exp(adaptation.step.log_step_size),
                adaptation.inverse_mass,
                max_doublings,
            )
            adaptation = update(
                adaptation, stage[0] > 0, stage[1] > 0, state.position, info.acceptance
            )
            return state, adaptation, info

        state, adaptation, info = jax.vmap(one)(draw_keys, *warm)
        return (state, adaptation), info

    return jax.lax.scan(body, warm, (keys, schedule))


def finish_warmup(warm, target_acceptance):
    """Return the states of the sampler and the results of the warm-up."""
    _, _, final = window_adaptation(target_acceptance)
    state, adaptation = warm
    return state, jax.vmap(final)(adaptation)


@jax.jit(static_argnames=("max_doublings",))
def draw_chunk(target, state, tuned, keys, max_doublings):
    """Make a chunk of draws for all chains: positions [draws, chains, ...]."""

    def body(state, draw_keys):
        state, info = jax.vmap(
            lambda k, s, e, m: _step(target, k, s, e, m, max_doublings)
        )(draw_keys, state, *tuned)
        return state, (state.position, info)

    state, (positions, info) = jax.lax.scan(body, state, keys)
    return state, positions, info


def check_points(target: Target, count: int = 40):
    """Choose rows and latents, spread over the data, at which mixing is judged.

    If there are too few rows, some are repeated, so that tables of any size share a
    compiled program.
    """
    rows = np.flatnonzero(np.asarray(target.data.row_weights) > 0)
    rows = rows[np.linspace(0, len(rows) - 1, count).astype(int)]
    dims = target.model.network.latent_dim
    nodes = jnp.asarray(even_latents(1, 32, dims)[0])
    scale = jnp.sqrt(target.priors.latent_variance)
    return target.data.inputs[rows], scale * nodes


@jax.jit
def predictive_summary(target, positions, inputs, nodes):
    """Mean and spread over z of f at the check points: [draws, chains, 2 x points]."""

    def one(weights):
        outputs = jax.vmap(
            lambda x: jax.vmap(lambda z: target.model.network.apply(weights, x, z))(
                nodes
            )
        )(inputs)
        mean = jnp.mean(outputs, axis=1)
        parts = [mean.ravel()]
        if nodes.shape[0] > 1:
            parts.append(jnp.std(outputs, axis=1).ravel())
        return jnp.concatenate(parts)

    return jax.vmap(jax.vmap(one))(positions.weights)


@jax.jit  # one cached program instead of many small ones
def _rhat_and_ess(chains):
    return blackjax.rhat(chains), blackjax.ess(chains)


def judge_mixing(summary: np.ndarray, info: DrawInfo) -> SamplerReport:
    """R-hat (rank-normalised, split) and effective sample size of the predictions."""
    chains = jnp.asarray(np.swapaxes(summary, 0, 1))
    rhat, ess = (np.asarray(found) for found in _rhat_and_ess(chains))
    # A constant quantity has no R-hat; if all are constant, no chain has moved.
    rhat = rhat[~np.isnan(rhat)]
    return SamplerReport(
        max_rhat=float(rhat.max()) if rhat.size else np.inf,
        min_ess=float(np.nanmin(ess)),
        num_divergences=int(info.divergent.sum()),
        acceptance_rate=float(info.acceptance.mean()),
        num_draws=summary.shape[0],
        num_chains=summary.shape[1],
        mean_leapfrogs=float(info.leapfrogs.mean()),
    )


def summary_of_weights(model: Model, data: Data, weights) -> np.ndarray:
    """The predictive summary of draws [chains, draws, W]; variances are fixed."""
    target = Target(model, data, initial_priors(jax.random.key(0), model), None)
    by_draw = jnp.asarray(np.swapaxes(weights, 0, 1), jnp.float32)
    nothing = jnp.zeros((*by_draw.shape[:2], 0))
    positions = Unknowns(by_draw, nothing[..., None], nothing)
    return np.asarray(predictive_summary(target, positions, *check_points(target)))


def judge_weights(model: Model, data: Data, weights) -> SamplerReport:
    """How well chains mixed of which nothing but the draws of W is known."""
    nothing = jnp.zeros((weights.shape[1], weights.shape[0]))
    info = DrawInfo(nothing, nothing, nothing, nothing)
    return judge_mixing(summary_of_weights(model, data, weights), info)


def posterior_of_weights(model: Model, weights) -> SamplePosterior:
    """Of draws [chains, draws, W] that an earlier run kept; variances are fixed."""
    num_weights = model.network.num_weights
    if weights.ndim != 3 or weights.shape[2] != num_weights:
        raise ValueError(
            f"the draws are weights of shape {list(weights.shape)}; it must be "
            f"[chains, draws, {num_weights}]."
        )
    chains, draws, _ = weights.shape
    nothing = jnp.zeros((chains, draws, 0))
    samples = Unknowns(jnp.asarray(weights, jnp.float32), nothing[..., None], nothing)
    priors = initial_priors(jax.random.key(0), model)
    priors = jax.tree.map(lambda a: jnp.broadcast_to(a, (chains, *a.shape)), priors)
    return SamplePosterior(model, samples, priors, np.full(chains, 1 / chains))
