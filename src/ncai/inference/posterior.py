"""What a fit leaves behind: a Gaussian for each restart, or the draws of a sampler.

After `draw`, no code knows which method was used.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike

from ncai.model.bnn_lv import Model, PriorState
from ncai.model.mean_field import MeanField, scale_of
from ncai.training.driver import Driver
from ncai.types import Unknowns, WeightDraws

Latents = Float[Array | np.ndarray, "N K"]
# Vectors of normals have a power of two of numbers, and at least so many: all small
# posteriors then share one compiled program.
_FEWEST_NORMALS = 4096


def split_draws(num_draws: int, shares: ArrayLike) -> np.ndarray:
    """How many draws each component gets: in proportion, by largest remainder."""
    exact = num_draws * np.asarray(shares, float) / np.sum(shares)
    counts = np.floor(exact).astype(int)
    rest = num_draws - counts.sum()
    counts[np.argsort(counts - exact, kind="stable")[:rest]] += 1
    return counts


def _normals(key: PRNGKeyArray, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers of `jax.random.normal`, without a compilation for every shape.

    The first numbers of a longer vector are those of a shorter one.
    """
    count = int(np.prod(shape))
    size = max(_FEWEST_NORMALS, 1 << (count - 1).bit_length()) if count else 0
    return np.asarray(_normal_vector(key, size))[:count].reshape(shape)


@jax.jit(static_argnames=("size",))
def _normal_vector(key, size):
    return jax.random.normal(key, (size,))


def _draws_from(model: Model, unknowns: Unknowns, priors: PriorState) -> WeightDraws:
    """WeightDraws from stacked unknowns and the variances that go with each."""
    if model.noise_is_unknown:
        noise_std = jnp.exp(0.5 * unknowns.log_noise_var)
    else:
        noise_std = jnp.sqrt(priors.noise_variance)
    return WeightDraws(
        np.asarray(unknowns.weights),
        np.asarray(noise_std),
        np.asarray(jnp.sqrt(priors.latent_variance)),
    )


@dataclass(frozen=True)
class GaussianPosterior:
    """A factorised Gaussian for each restart; MAP is the one of zero width.

    Every array has a leading restart axis. `shares` are the stacking weights of the
    restarts in the mixture that predicts.
    """

    model: Model
    mean: Unknowns
    scale: Unknowns
    priors: PriorState
    shares: np.ndarray

    @property
    def num_components(self) -> int:
        """Number of restarts kept."""
        return len(self.shares)

    def draw(self, key: PRNGKeyArray, num_draws: int) -> WeightDraws:
        """Equally weighted draws of W, divided between restarts by their shares."""
        component = np.repeat(
            np.arange(self.num_components), split_draws(num_draws, self.shares)
        )
        mean, scale, priors = jax.tree.map(
            lambda a: np.asarray(a)[component], (self.mean, self.scale, self.priors)
        )
        weight_key, noise_key = jax.random.split(key)
        weights = mean.weights + scale.weights * _normals(
            weight_key, mean.weights.shape
        )
        log_noise = mean.log_noise_var
        if scale.log_noise_var.shape[-1]:
            log_noise = log_noise + scale.log_noise_var * _normals(
                noise_key, log_noise.shape
            )
        draws = Unknowns(weights, mean.latents[:, :0], log_noise)
        return _draws_from(self.model, draws, priors)

    def latent_moments(self) -> tuple[Latents, Latents]:
        """Mean and standard deviation of z for each training row.

        Those of the restart with the largest share: z has no meaning across restarts.
        """
        best = int(np.argmax(self.shares))
        return self.mean.latents[best], self.scale.latents[best]

    def latent_prior_std(self) -> float:
        """Prior standard deviation of z in the restart that `latent_moments` uses."""
        best = int(np.argmax(self.shares))
        return float(np.sqrt(self.priors.latent_variance[best]))

    def with_noise(
        self, factors: Float[np.ndarray, "R"], spreads: Float[np.ndarray, "R"]
    ) -> "GaussianPosterior":
        """The same with output noise of each restart so many times as wide.

        Spreads are standard deviations of its log variance between draws, beside what
        there is; they need noise that is variational.
        """
        factors, spreads = factors[:, None], spreads[:, None]
        noise = self.priors.noise_variance * factors**2
        log_noise = self.mean.log_noise_var
        log_noise = log_noise + 2 * np.log(factors) * np.ones_like(log_noise)
        spread = self.scale.log_noise_var
        spread = np.sqrt(np.square(spread) + spreads**2 * np.ones_like(spread))
        return replace(
            self,
            mean=self.mean._replace(log_noise_var=log_noise),
            scale=self.scale._replace(log_noise_var=spread),
            priors=self.priors._replace(noise_variance=noise),
        )

    def select(self, indices, shares=None) -> "GaussianPosterior":
        """Only these restarts, with these shares (equal if not given)."""
        indices = np.atleast_1d(indices)
        if shares is None:
            shares = np.full(len(indices), 1 / len(indices))
        mean, scale, priors = jax.tree.map(
            lambda a: np.asarray(a)[indices], (self.mean, self.scale, self.priors)
        )
        return GaussianPosterior(self.model, mean, scale, priors, np.asarray(shares))


@dataclass(frozen=True)
class SamplePosterior:
    """Draws of a sampler, [chains, draws, ...] under each unknown."""

    model: Model
    samples: Unknowns
    priors: PriorState
    shares: np.ndarray

    @property
    def num_components(self) -> int:
        """Number of chains kept."""
        return len(self.shares)

    def draw(self, key: PRNGKeyArray, num_draws: int) -> WeightDraws:
        """Draws of W, evenly spaced along each chain (the key is not needed)."""
        del key
        chain, place = self._spread(num_draws)
        samples = jax.tree.map(lambda a: jnp.asarray(a)[chain, place], self.samples)
        priors = jax.tree.map(lambda a: jnp.asarray(a)[chain], self.priors)
        return _draws_from(self.model, samples, priors)

    def draw_latents(self, num_draws: int) -> Float[np.ndarray, "S N K"]:
        """Z of the training rows as they were sampled beside the W of `draw`."""
        chain, place = self._spread(num_draws)
        return np.asarray(self.samples.latents)[chain, place]

    def _spread(self, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
        """Chain and place in it of so many draws."""
        counts = split_draws(num_draws, self.shares)
        length = self.samples.weights.shape[1]
        places = [
            np.round(np.linspace(0, length - 1, count)).astype(int) for count in counts
        ]
        chain = np.repeat(np.arange(self.num_components), counts)
        return chain, np.concatenate(places)

    def latent_moments(self) -> tuple[Latents, Latents]:
        """Mean and standard deviation of z for each training row.

        Those of one chain, the first of those with the largest share: the sign of z may
        be another in each chain, and their average would then say nothing.
        """
        latents = self.samples.latents[int(np.argmax(self.shares))]
        return jnp.mean(latents, axis=0), jnp.std(latents, axis=0)

    def latent_prior_std(self) -> float:
        """Prior standard deviation of z."""
        return float(np.sqrt(self.priors.latent_variance[0]))

    def select(self, indices, shares=None) -> "SamplePosterior":
        """Only these chains."""
        indices = np.atleast_1d(indices)
        if shares is None:
            shares = np.full(len(indices), 1 / len(indices))
        samples, priors = jax.tree.map(
            lambda a: a[indices], (self.samples, self.priors)
        )
        return SamplePosterior(self.model, samples, priors, np.asarray(shares))


Posterior = GaussianPosterior | SamplePosterior


@dataclass(frozen=True)
class SamplerReport:
    """How well a sampler did, judged on predictions (weights permute freely)."""

    max_rhat: float
    min_ess: float
    num_divergences: int
    acceptance_rate: float
    num_draws: int
    num_chains: int
    mean_leapfrogs: float

    @property
    def mixed(self) -> bool:
        """R-hat at most 1.05 and effective sample size at least 400."""
        return self.max_rhat <= 1.05 and self.min_ess >= 400

    def __str__(self) -> str:
        verdict = (
            "the chains agree"
            if self.mixed
            else "the chains have NOT mixed: treat these draws as a rough picture, "
            "not as the posterior, or draw more"
        )
        return (
            f"{self.num_chains} chains x {self.num_draws} draws: largest R-hat "
            f"{self.max_rhat:.3f} (want <= 1.05), smallest effective sample size "
            f"{self.min_ess:.0f} (want >= 400), {self.num_divergences} divergences, "
            f"acceptance {self.acceptance_rate:.2f}; {verdict}."
        )


@dataclass(frozen=True)
class Fit:
    """The one result type of every method: all restarts or chains, nothing chosen."""

    posterior: Posterior
    history: dict[str, Any]
    alive: np.ndarray
    stop_reasons: list[str]
    num_steps: int
    interrupted: bool = False
    sampler: SamplerReport | None = None
    # Restarts of a group share a stacking weight; None: each has its own.
    groups: np.ndarray | None = None


def gaussian_fit(
    model: Model,
    q: MeanField,
    priors: PriorState,
    driver: Driver,
    groups: np.ndarray | None = None,
) -> Fit:
    """The result of a variational method."""
    num_restarts = q.mean.weights.shape[0]
    shares = np.full(num_restarts, 1 / num_restarts)
    posterior = GaussianPosterior(model, q.mean, _scale_of(q), priors, shares)
    return replace(driver_fit(posterior, driver), groups=groups)


_scale_of = jax.jit(scale_of)


def driver_fit(posterior: GaussianPosterior, driver: Driver) -> Fit:
    """A `Fit` from what the driver saw."""
    alive = driver.alive
    if alive is None:
        alive = np.ones(posterior.num_components, bool)
    return Fit(
        posterior,
        driver.history.stacked() | {"stage": list(driver.history.stage)},
        alive,
        driver.stop_reasons,
        driver.steps,
        driver.interrupted,
    )
