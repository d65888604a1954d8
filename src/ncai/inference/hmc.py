"""`hmc` and `hmc_marginal`: the No-U-Turn sampler (BlackJAX), the gold standard.

`hmc` samples (W, Z); `hmc_marginal` samples W alone, with z integrated out by
quadrature (one or two latent dimensions): fewer unknowns, and none of the strong
dependence between W and Z, so it mixes better for the time it takes.
"""

import warnings
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
from blackjax.adaptation.staged_adaptation import build_schedule
from blackjax.adaptation.step_size import dual_averaging_adaptation
from jaxtyping import Array, Float, PRNGKeyArray

from ncai.inference.base import Inference, Training, stack_starts
from ncai.inference.mean_field import MeanFieldVI
from ncai.latent_nodes import latent_nodes
from ncai.model import (
    Model,
    PriorState,
    gaussian_log_prior,
    log_joint,
    log_joint_terms,
    point_noise,
)
from ncai.optimise import Driver, Progress
from ncai.posterior import Fit, GaussianPosterior, SamplePosterior, SamplerReport
from ncai.quadrature import LatentRule, latent_rule, marginal_log_likelihood
from ncai.types import Data, Unknowns

CHUNK_DRAWS = 25


@dataclass(frozen=True)
class HMC(Inference):
    """Several NUTS chains, side by side.

    Variances that the model sets by empirical Bayes are held at the values that the
    variational start found; learned noise is sampled.

    Args:
        marginal: integrate z out by quadrature instead of sampling it.
        num_chains: chains, each from another start.
        num_warmup: draws that tune step size and mass matrix, then are dropped.
        num_draws: draws kept from each chain.
        num_nodes: quadrature nodes in each latent dimension (`marginal` only).
        max_doublings: limit on a trajectory: 2 to this power leapfrog steps.
        target_acceptance: what the step size is tuned for.
        training: of the variational start (NCAI's warm start, then a plain ELBO).
        start: None for that start, or values (the truth, say).
    """

    marginal: bool = False
    num_chains: int = 4
    num_warmup: int = 500
    num_draws: int = 1000
    num_nodes: int = 64
    max_doublings: int = 10
    target_acceptance: float = 0.8
    training: Training = field(default_factory=lambda: Training(max_steps=3000))
    start: Unknowns | None = None

    def fit(
        self, key: PRNGKeyArray, model: Model, data: Data, driver: Driver | None = None
    ) -> Fit:
        """Draws from the posterior, with a report on how well they mixed."""
        driver = driver or Driver()
        start_key, warmup_key, draw_key = jax.random.split(key, 3)
        position, priors = self._starts(start_key, model, data, driver)
        if driver.interrupted:
            raise KeyboardInterrupt  # a start without a single draw is no fit
        rule = None
        if self.marginal:
            rule = latent_rule(model.network.latent_dim, self.num_nodes)
            position = position._replace(latents=position.latents[:, :0])
        target = Target(model, data, priors, rule)
        chains, report = self._sample(target, position, warmup_key, draw_key, driver)
        samples = jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), chains)
        shares = np.full(self.num_chains, 1 / self.num_chains)
        priors = jax.tree.map(
            lambda a: jnp.broadcast_to(a, (self.num_chains, *a.shape)), priors
        )
        return Fit(
            SamplePosterior(model, samples, priors, shares),
            driver.history.stacked() | {"stage": list(driver.history.stage)},
            np.ones(self.num_chains, bool),
            driver.stop_reasons,
            driver.steps,
            driver.interrupted,
            report,
        )

    def _starts(self, key, model, data, driver) -> tuple[Unknowns, PriorState]:
        """A point for each chain, and variances shared by all."""
        training = replace(self.training, num_restarts=self.num_chains)
        held = self.start is not None
        method = MeanFieldVI(
            training,
            start="ncai" if self.start is None else self.start,
            hold_means=held,
        )
        fit = method.fit(key, model, data, driver)
        if not fit.alive.all():
            raise RuntimeError(
                f"{(~fit.alive).sum()} of {self.num_chains} chains had a start that "
                "became non-finite: try a smaller learning_rate."
            )
        posterior = fit.posterior
        assert isinstance(posterior, GaussianPosterior)
        if self.start is not None:
            point = stack_starts(self.start, self.num_chains, model)
        else:
            point = posterior.mean
        priors = jax.tree.map(lambda a: jnp.mean(a, axis=0), posterior.priors)
        driver.alive = None
        return point, priors

    def _sample(self, target, position, warmup_key, draw_key, driver):
        num_warmup = CHUNK_DRAWS * -(-max(self.num_warmup, CHUNK_DRAWS) // CHUNK_DRAWS)
        schedule = jnp.asarray(build_schedule(num_warmup))
        warm = warm_start(target, position, self.target_acceptance)
        for start in range(0, num_warmup, CHUNK_DRAWS):
            keys = _keys(warmup_key, start, self.num_chains)
            part = schedule[start : start + CHUNK_DRAWS]
            warm, info = warmup_chunk(
                target, warm, keys, part, self.target_acceptance, self.max_doublings
            )
            _tell(driver, "warm-up", start + CHUNK_DRAWS, num_warmup, info)
        state, tuned = finish_warmup(warm, self.target_acceptance)

        positions, infos, functionals = [], [], []
        inputs, nodes = check_points(target)
        reason = "all draws made"
        try:
            for start in range(0, self.num_draws, CHUNK_DRAWS):
                keys = _keys(draw_key, start, self.num_chains)
                state, chunk, info = draw_chunk(
                    target, state, tuned, keys, self.max_doublings
                )
                functionals.append(predictive_summary(target, chunk, inputs, nodes))
                positions.append(jax.tree.map(np.asarray, chunk))
                infos.append(jax.tree.map(np.asarray, info))
                _tell(driver, "sampling", start + CHUNK_DRAWS, self.num_draws, info)
                if driver.out_of_time():
                    reason = f"time limit after {start + CHUNK_DRAWS} draws"
                    break
        except KeyboardInterrupt:
            if not positions:
                raise
            driver.interrupted = True
            reason = f"interrupted after {CHUNK_DRAWS * len(positions)} draws"
        driver.stop_reasons.append(f"sampling: {reason}")

        chains = jax.tree.map(
            lambda *parts: np.concatenate(parts)[: self.num_draws], *positions
        )
        info = jax.tree.map(lambda *parts: np.concatenate(parts), *infos)
        summary = np.concatenate(functionals)[: self.num_draws]
        report = judge_mixing(summary, info)
        if not report.mixed:
            warnings.warn(str(report), stacklevel=4)
        return chains, report


class Target(NamedTuple):
    """The density to sample: of (W, Z), or of W where there is a quadrature rule."""

    model: Model
    data: Data
    priors: PriorState
    rule: LatentRule | None

    def log_density(self, position: Unknowns) -> Float[Array, ""]:
        """Unnormalised log posterior."""
        if self.rule is None:
            # Padding says nothing of its z: left flat, those would drift for ever and
            # no trajectory would turn. So they follow the prior.
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
    """What warm-up found."""

    step_size: Float[Array, "C"]
    inverse_mass: Float[Array, "C U"]


class DrawInfo(NamedTuple):
    """What is kept of each transition."""

    acceptance: Float[Array, "T C"]
    divergent: Float[Array, "T C"]
    leapfrogs: Float[Array, "T C"]
    log_density: Float[Array, "T C"]


def _keys(key, start, num_chains):
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(
        jnp.arange(start, start + CHUNK_DRAWS)
    )
    return jax.vmap(lambda k: jax.random.split(k, num_chains))(keys)


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
    """What warm-up has learned so far, for one chain."""

    step: Any
    mass: Any
    inverse_mass: Float[Array, "U"]


def window_adaptation(target_acceptance):
    """Stan's warm-up, put together from BlackJAX's parts: begin, update and final.

    BlackJAX's own runs all of it in one call, which no progress bar could follow.
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
        step_size = jnp.exp(adaptation.step.log_step_size_avg)
        return Tuned(step_size, adaptation.mass.inverse_mass_matrix)

    return begin, update, final


def warm_start(target, position, target_acceptance):
    """Sampler and adaptation states before the first draw, for each chain."""
    begin, _, _ = window_adaptation(target_acceptance)

    def one(position):
        state = blackjax.nuts.init(position, target.log_density)
        # Python floats make weakly typed arrays, which a chunk returns as plain ones:
        # without this, the first three chunks would each compile anew.
        return jax.tree.map(
            lambda a: jax.lax.convert_element_type(a, jnp.result_type(a)),
            (state, begin(position)),
        )

    return jax.jit(jax.vmap(one))(position)


@jax.jit(static_argnames=("target_acceptance", "max_doublings"))
def warmup_chunk(target, warm, keys, schedule, target_acceptance, max_doublings):
    """A chunk of warm-up draws for all chains."""
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
    """The sampler's states and what it was tuned to."""
    _, _, final = window_adaptation(target_acceptance)
    state, adaptation = warm
    return state, jax.vmap(final)(adaptation)


@jax.jit(static_argnames=("max_doublings",))
def draw_chunk(target, state, tuned, keys, max_doublings):
    """A chunk of draws for all chains: positions [draws, chains, ...]."""

    def body(state, draw_keys):
        state, info = jax.vmap(
            lambda k, s, e, m: _step(target, k, s, e, m, max_doublings)
        )(draw_keys, state, *tuned)
        return state, (state.position, info)

    state, (positions, info) = jax.lax.scan(body, state, keys)
    return state, positions, info


def check_points(target: Target, most: int = 40):
    """Rows and latents at which mixing is judged: spread over the data."""
    rows = np.flatnonzero(np.asarray(target.data.row_weights) > 0)
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, most).astype(int))]
    dims = target.model.network.latent_dim
    nodes = jnp.asarray(latent_nodes(1, 32, dims)[0])
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


def judge_mixing(summary: np.ndarray, info: DrawInfo) -> SamplerReport:
    """R-hat (rank-normalised, split) and effective sample size of the predictions."""
    chains = jnp.asarray(np.swapaxes(summary, 0, 1))
    rhat = np.asarray(blackjax.rhat(chains))
    ess = np.asarray(blackjax.ess(chains))
    return SamplerReport(
        max_rhat=float(np.nanmax(rhat)),
        min_ess=float(np.nanmin(ess)),
        num_divergences=int(info.divergent.sum()),
        acceptance_rate=float(info.acceptance.mean()),
        num_draws=summary.shape[0],
        num_chains=summary.shape[1],
        mean_leapfrogs=float(info.leapfrogs.mean()),
    )


def _tell(driver: Driver, stage: str, step: int, total: int, info: DrawInfo) -> None:
    driver.steps += CHUNK_DRAWS
    value = -np.asarray(info.log_density).mean(axis=0)
    terms = {
        "acceptance": np.asarray(info.acceptance).mean(axis=0),
        "divergences": np.asarray(info.divergent).sum(axis=0).astype(float),
        "leapfrogs": np.asarray(info.leapfrogs).mean(axis=0),
    }
    driver.history.stage.append(stage)
    driver.history.step.append(driver.steps)
    driver.history.value.append(value)
    driver.history.terms.append(terms)
    if driver.on_progress is not None:
        means = {name: float(term.mean()) for name, term in terms.items()}
        chains = len(value)
        driver.on_progress(
            Progress(
                stage,
                min(step, total),
                total,
                float(value.mean()),
                means,
                chains,
                chains,
            )
        )
