"""`hmc` and `hmc_marginal`: the No-U-Turn sampler (BlackJAX), as a reference.

`hmc` samples (W, Z); `hmc_marginal` samples W alone, with z integrated out by
quadrature (one or two latent dimensions). This has fewer unknowns and avoids the strong
dependence between W and Z, so it mixes better in the same time.

BlackJAX is imported only when a sampler runs, because the import is slow.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ncai.inference.base import Method, Supports, Training
from ncai.inference.ncai import NCAI0
from ncai.inference.posterior import Fit, GaussianPosterior, Posterior, SamplePosterior
from ncai.inference.warm_start import stack_starts
from ncai.model.bnn_lv import Model, PriorState
from ncai.model.quadrature import LARGEST_DIM, latent_rule
from ncai.runtime.arguments import count, setting, share, start_name
from ncai.runtime.interrupt import noticing_ctrl_c
from ncai.training.driver import Driver, Progress
from ncai.types import Data, Unknowns

CHUNK_DRAWS = 25
FEWEST_DRAWS = 4  # R-hat needs at least these
NUM_NODES = 64  # of the quadrature over z, in each latent dimension


@dataclass(frozen=True, kw_only=True, repr=False)
class Sampler(Method):
    """Several NUTS chains in parallel.

    Variances that the model sets by empirical Bayes are held at the values that the
    variational start found; learned noise is sampled.

    Args:
        n_chains: number of chains, each with its own start.
        n_warmup: draws that tune the step size and the mass matrix and are then
            discarded.
        n_draws: draws kept from each chain, at least 4.
        start_steps: steps of the variational start (NCAI's warm start, then a plain
            ELBO), or fewer if the estimator's `max_steps` is smaller.
        max_doublings: limit on the length of a trajectory, as a power of 2 of leapfrog
            steps.
        target_acceptance: the acceptance rate that the step size is tuned for.
        start: None for the variational start, or values: see `GradientMethod`.
    """

    integrates_latents: ClassVar[bool]

    n_chains: int = setting(4, count())
    n_warmup: int = setting(500, count(0))
    n_draws: int = setting(1000, count(FEWEST_DRAWS))
    start_steps: int = setting(3_000, count())
    max_doublings: int = setting(10, count())
    target_acceptance: float = setting(0.8, share)
    start: Mapping[str, Any] | None = None

    def __post_init__(self):
        super().__post_init__()
        if isinstance(self.start, str):
            start_name(self.start, ())

    def fit(
        self,
        key: PRNGKeyArray,
        model: Model,
        data: Data,
        training: Training,
        driver: Driver | None = None,
    ) -> Fit:
        """Draw from the posterior, and report how well the chains mixed."""
        if not self.integrates_latents:
            _refuse_weights(model, data)
        driver = driver or Driver()
        start_key, *keys = jax.random.split(key, 3)
        position, priors = self._starts(start_key, model, data, training, driver)
        if driver.interrupted:
            raise KeyboardInterrupt  # there is no fit before the first draw
        return self._sample(keys, model, data, position, priors, driver)

    def continue_from(
        self,
        key: PRNGKeyArray,
        model: Model,
        data: Data,
        posterior: Posterior,
        training: Training,
        driver: Driver | None = None,
    ) -> Fit:
        """Continue from the last draws with a new warm-up, because data may differ."""
        del training
        if not isinstance(posterior, SamplePosterior):
            raise ValueError(f"{self.label} goes on from draws of a sampler alone.")
        if not self.integrates_latents:
            _refuse_weights(model, data)
        chains = np.arange(self.n_chains) % posterior.num_components
        last = jax.tree.map(lambda a: jnp.asarray(a)[chains, -1], posterior.samples)
        missing = data.inputs.shape[0] - last.latents.shape[1]
        if not self.integrates_latents and missing > 0:
            latents = jnp.pad(last.latents, [(0, 0), (0, missing), (0, 0)])
            last = last._replace(latents=latents)
        priors = jax.tree.map(lambda a: jnp.asarray(a)[0], posterior.priors)
        keys = jax.random.split(key, 2)
        return self._sample(keys, model, data, last, priors, driver or Driver())

    def _sample(self, keys, model, data, position, priors, driver: Driver) -> Fit:
        """Run the warm-up and draw, starting from these points."""
        from ncai.inference.nuts import Target

        rule = None
        if self.integrates_latents:
            rule = latent_rule(model.network.latent_dim, NUM_NODES)
            position = position._replace(latents=position.latents[:, :0])
        target = Target(model, data, priors, rule)
        with noticing_ctrl_c() as raise_if_pressed:
            tell = partial(_tell, driver, raise_if_pressed)
            state, tuned = self._warm_up(target, position, keys[0], driver, tell)
            chains, report = self._draw(target, state, tuned, keys[1], driver, tell)
        samples = jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), chains)
        shares = np.full(self.n_chains, 1 / self.n_chains)
        priors = jax.tree.map(
            lambda a: jnp.broadcast_to(a, (self.n_chains, *a.shape)), priors
        )
        return Fit(
            SamplePosterior(model, samples, priors, shares),
            driver.history.stacked() | {"stage": list(driver.history.stage)},
            np.ones(self.n_chains, bool),
            driver.stop_reasons,
            driver.steps,
            driver.interrupted,
            report,
        )

    def _starts(
        self, key, model: Model, data: Data, training: Training, driver: Driver
    ) -> tuple[Unknowns, PriorState]:
        """Return a starting point for each chain, and variances shared by all."""
        steps = min(self.start_steps, training.max_steps)
        given = training.start
        method = NCAI0(
            learning_rate=self.learning_rate,
            schedule="constant",
            plateau=False,
            hold_means=given is not None,
        )
        run = Training(self.n_chains, steps, warm_start_steps=steps, start=given)
        fit = method.fit(key, model, data, run, driver)
        if not fit.alive.all():
            warnings.warn(
                f"{(~fit.alive).sum()} of {self.n_chains} chains had a start that "
                "became non-finite: they start where others do. A smaller "
                "learning_rate may keep them apart.",
                stacklevel=2,
            )
        posterior = fit.posterior
        assert isinstance(posterior, GaussianPosterior)
        living = np.flatnonzero(fit.alive)
        posterior = posterior.select(living[np.arange(self.n_chains) % len(living)])
        point = posterior.mean
        if given is not None:
            point = stack_starts(given, self.n_chains, model)
        priors = jax.tree.map(lambda a: jnp.mean(a, axis=0), posterior.priors)
        driver.alive = None
        return point, priors

    def _warm_up(self, target, position, warmup_key, driver, tell):
        """Run the warm-up, which tunes the step sizes and the metric."""
        from ncai.inference import nuts

        num_warmup = CHUNK_DRAWS * -(-max(self.n_warmup, CHUNK_DRAWS) // CHUNK_DRAWS)
        schedule = nuts.warmup_schedule(num_warmup)
        warm = nuts.warm_start(target, position, self.target_acceptance)
        reason = "all draws made"
        for start in range(0, num_warmup, CHUNK_DRAWS):
            keys = _keys(warmup_key, start, self.n_chains)
            made = start + CHUNK_DRAWS
            warm, info = nuts.warmup_chunk(
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
        return nuts.finish_warmup(warm, self.target_acceptance)

    def _draw(self, target, state, tuned, draw_key, driver, tell):
        """Return the draws, and a report on how well the chains mixed."""
        from ncai.inference import nuts

        positions, infos, functionals = [], [], []
        inputs, nodes = nuts.check_points(target)
        reason = "all draws made"
        try:
            for start in range(0, self.n_draws, CHUNK_DRAWS):
                keys = _keys(draw_key, start, self.n_chains)
                state, chunk, info = nuts.draw_chunk(
                    target, state, tuned, keys, self.max_doublings
                )
                functionals.append(
                    nuts.predictive_summary(target, chunk, inputs, nodes)
                )
                positions.append(jax.tree.map(np.asarray, chunk))
                infos.append(jax.tree.map(np.asarray, info))
                made = start + CHUNK_DRAWS
                tell("sampling", made, self.n_draws, info)
                if made < self.n_draws and driver.out_of_time():
                    reason = f"time limit after {made} draws"
                    break
        except KeyboardInterrupt:
            if not positions:
                raise
            driver.interrupted = True
            reason = f"interrupted after {CHUNK_DRAWS * len(positions)} draws"
        driver.stop_reasons.append(f"sampling: {reason}")

        chains = jax.tree.map(
            lambda *parts: np.concatenate(parts)[: self.n_draws], *positions
        )
        info = jax.tree.map(lambda *parts: np.concatenate(parts), *infos)
        summary = np.concatenate(functionals)[: self.n_draws]
        report = nuts.judge_mixing(summary, info)
        if not report.mixed:
            warnings.warn(str(report), stacklevel=4)
        return chains, report


@dataclass(frozen=True, kw_only=True, repr=False)
class HMC(Sampler):
    """NUTS over W and z. The settings are those of `Sampler`."""

    name: ClassVar[str] = "hmc"
    label: ClassVar[str] = "HMC"
    supports: ClassVar[Supports] = Supports(sampling=True, exact_latents=True)
    integrates_latents: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True, repr=False)
class HMCMarginal(Sampler):
    """NUTS over W, with z integrated out; the settings are those of `Sampler`."""

    name: ClassVar[str] = "hmc_marginal"
    label: ClassVar[str] = "HMC, z integrated out"
    supports: ClassVar[Supports] = Supports(
        sampling=True, most_latents=LARGEST_DIM, row_latents=False, exact_latents=True
    )
    integrates_latents: ClassVar[bool] = True
    nodes_a_latent: ClassVar[int] = NUM_NODES


def _refuse_weights(model: Model, data: Data) -> None:
    """Reject weights other than 0 and 1: a row of weight 2 would need two z."""
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


def _tell(
    driver: Driver,
    raise_if_pressed: Callable[[], None],
    stage: str,
    step: int,
    total: int,
    info,
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
