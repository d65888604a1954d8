"""`hmc` and `hmc_marginal`: the No-U-Turn sampler (BlackJAX), the gold standard.

`hmc` samples (W, Z); `hmc_marginal` samples W alone, with z integrated out by
quadrature (one or two latent dimensions): fewer unknowns, and none of the strong
dependence between W and Z, so it mixes better for the time it takes.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.staged_adaptation import build_schedule
from jaxtyping import PRNGKeyArray

from ncai.inference.base import Inference, Training, stack_starts
from ncai.inference.mean_field import MeanFieldVI
from ncai.inference.nuts import (
    DrawInfo,
    Target,
    draw_chunk,
    finish_warmup,
    warm_start,
    warmup_chunk,
)
from ncai.inference.posterior import (
    Fit,
    GaussianPosterior,
    SamplePosterior,
    SamplerReport,
)
from ncai.model.bnn_lv import Model, PriorState
from ncai.model.latent_nodes import latent_nodes
from ncai.model.quadrature import latent_rule
from ncai.runtime.interrupt import noticing_ctrl_c
from ncai.training.driver import Driver, Progress
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
        if not self.marginal:
            _refuse_weights(model, data)
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
        with noticing_ctrl_c() as raise_if_pressed:
            tell = partial(_tell, driver, raise_if_pressed)
            state, tuned = self._warm_up(target, position, warmup_key, driver, tell)
            chains, report = self._draw(target, state, tuned, draw_key, driver, tell)
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
            warnings.warn(
                f"{(~fit.alive).sum()} of {self.num_chains} chains had a start that "
                "became non-finite: they start where others do. A smaller "
                "learning_rate may keep them apart.",
                stacklevel=2,
            )
        posterior = fit.posterior
        assert isinstance(posterior, GaussianPosterior)
        living = np.flatnonzero(fit.alive)
        posterior = posterior.select(living[np.arange(self.num_chains) % len(living)])
        if self.start is not None:
            point = stack_starts(self.start, self.num_chains, model)
        else:
            point = posterior.mean
        priors = jax.tree.map(lambda a: jnp.mean(a, axis=0), posterior.priors)
        driver.alive = None
        return point, priors

    def _warm_up(self, target, position, warmup_key, driver, tell):
        """Chains at typical points, and step sizes and metric tuned to them."""
        num_warmup = CHUNK_DRAWS * -(-max(self.num_warmup, CHUNK_DRAWS) // CHUNK_DRAWS)
        schedule = jnp.asarray(build_schedule(num_warmup))
        warm = warm_start(target, position, self.target_acceptance)
        reason = "all draws made"
        for start in range(0, num_warmup, CHUNK_DRAWS):
            keys = _keys(warmup_key, start, self.num_chains)
            made = start + CHUNK_DRAWS
            warm, info = warmup_chunk(
                target,
                warm,
                keys,
                schedule[start:made],
                self.target_acceptance,
                self.max_doublings,
            )
            tell("warm-up", made, num_warmup, info)
            if made < num_warmup and driver.out_of_time():
                reason = f"time limit after {made} draws"
                break
        driver.stop_reasons.append(f"warm-up: {reason}")
        return finish_warmup(warm, self.target_acceptance)

    def _draw(self, target, state, tuned, draw_key, driver, tell):
        """The draws, and a report on how well they mixed."""
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
                made = start + CHUNK_DRAWS
                tell("sampling", made, self.num_draws, info)
                if made < self.num_draws and driver.out_of_time():
                    reason = f"time limit after {made} draws"
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


def _refuse_weights(model: Model, data: Data) -> None:
    """One z of a row seen twice is not two z: its likelihood would be squared."""
    weights = np.asarray(data.row_weights)
    if model.network.latent_dim and not np.isin(weights, (0, 1)).all():
        raise ValueError(
            "sample_weight must be 0 or 1 with inference='hmc', which samples one z a "
            "row: use 'hmc_marginal', or repeat the rows."
        )


def _keys(key, start, num_chains):
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(
        jnp.arange(start, start + CHUNK_DRAWS)
    )
    return jax.vmap(lambda k: jax.random.split(k, num_chains))(keys)


def check_points(target: Target, count: int = 40):
    """Rows and latents at which mixing is judged: spread over the data.

    Of fewer rows some come twice, so that tables of any size share a program.
    """
    rows = np.flatnonzero(np.asarray(target.data.row_weights) > 0)
    rows = rows[np.linspace(0, len(rows) - 1, count).astype(int)]
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


@jax.jit  # one program that is kept, in place of many small ones
def _rhat_and_ess(chains):
    return blackjax.rhat(chains), blackjax.ess(chains)


def judge_mixing(summary: np.ndarray, info: DrawInfo) -> SamplerReport:
    """R-hat (rank-normalised, split) and effective sample size of the predictions."""
    chains = jnp.asarray(np.swapaxes(summary, 0, 1))
    rhat, ess = (np.asarray(found) for found in _rhat_and_ess(chains))
    # What does not vary has no R-hat; where nothing does, no chain has moved.
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


def _tell(
    driver: Driver,
    raise_if_pressed: Callable[[], None],
    stage: str,
    step: int,
    total: int,
    info: DrawInfo,
) -> None:
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
    raise_if_pressed()
