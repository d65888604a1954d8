"""The result of a fit: a Gaussian for each restart, or the draws of a sampler.

After `draw`, no code depends on the method that was used.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

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
# The length of a vector of normals is a power of two, and at least this. So all small
# posteriors share one compiled program.
_FEWEST_NORMALS = 4096


def split_draws(num_draws: int, shares: ArrayLike) -> np.ndarray:
    """Divide draws between components in proportion to shares, by largest remainder."""
    exact = num_draws * np.asarray(shares, float) / np.sum(shares)
    counts = np.floor(exact).astype(int)
    rest = num_draws - counts.sum()
    counts[np.argsort(counts - exact, kind="stable")[:rest]] += 1
    return counts


def _normals(key: PRNGKeyArray, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normals from JAX, without a compilation for every shape.

    A longer vector begins with the numbers of a shorter one.
    """
    count = int(np.prod(shape))
    size = max(_FEWEST_NORMALS, 1 << (count - 1).bit_length()) if count else 0
    return np.asarray(_normal_vector(key, size))[:count].reshape(shape)


@jax.jit(static_argnames=("size",))
def _normal_vector(key, size):
    return jax.random.normal(key, (size,))


def draws_of_members(num_draws: int, shares: ArrayLike) -> np.ndarray:
    """Divide draws between members: at least 2 for each, if there are enough.

    The other draws are divided in proportion to `shares`. If these are stacking weights
    times the spread of each member, the Monte Carlo error is smallest (Neyman
    allocation).
    """
    shares = np.asarray(shares, float)
    rest = num_draws - 2 * len(shares)
    return split_draws(num_draws, shares) if rest < 0 else 2 + split_draws(rest, shares)


NUM_NOISE_WIDTHS = 5


class NoiseSpread(NamedTuple):
    """Noise of each restart as a mixture of Gaussians; wider ones are rarer.

    Args:
        steps: half octaves between one width and the next; 0 for Gaussian noise.
        ratios: weight of each width, divided by the weight of the width before it.
    """

    steps: Float[np.ndarray, "R"]
    ratios: Float[np.ndarray, "R"]

    @classmethod
    def none(cls, count: int) -> "NoiseSpread":
        """Gaussian noise for all restarts."""
        return cls(np.zeros(count), np.full(count, 0.5))

    def pick(self, index) -> "NoiseSpread":
        """Return the noise of some restarts."""
        return NoiseSpread(self.steps[index], self.ratios[index])

    def widths(self) -> tuple[Float[np.ndarray, "R J"], Float[np.ndarray, "R J"]]:
        """Widths as multiples of the narrowest width, and their weights.

        With a few fixed widths, unlike with random ones, all moments exist and sums are
        exact. If no restart has a spread, there is one width.
        """
        if not self.steps.any():
            ones = np.ones((len(self.steps), 1))
            return ones, ones
        powers = np.arange(NUM_NOISE_WIDTHS)
        weights = self.ratios[:, None] ** powers
        factors = 2.0 ** (0.5 * self.steps[:, None] * powers)
        return factors, weights / weights.sum(axis=1, keepdims=True)


def _noise_and_latent_std(model: Model, unknowns: Unknowns, priors: PriorState):
    """Widths of the noise and of the prior of z, from unknowns and variances."""
    if model.noise_is_unknown:
        noise_std = jnp.exp(0.5 * unknowns.log_noise_var)
    else:
        noise_std = jnp.sqrt(priors.noise_variance)
    return np.asarray(noise_std), np.asarray(jnp.sqrt(priors.latent_variance))


@dataclass(frozen=True)
class GaussianPosterior:
    """A factorised Gaussian for each restart, of zero width for MAP.

    Every array has a leading restart axis. `shares` are the weights of the restarts in
    the mixture that predicts. `noise_spread` makes the noise of a restart a mixture of
    several widths; None means Gaussian noise.
    """

    model: Model
    mean: Unknowns
    scale: Unknowns
    priors: PriorState
    shares: np.ndarray
    noise_spread: NoiseSpread | None = None

    @property
    def num_components(self) -> int:
        """Number of restarts kept."""
        return len(self.shares)

    def draw(self, key: PRNGKeyArray, num_draws: int) -> WeightDraws:
        """Draw W from all restarts; each draw has a weight in the mixture."""
        counts = draws_of_members(num_draws, self.shares * self._spreads())
        component = np.repeat(np.arange(self.num_components), counts)
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
        # Shares of restarts stay exact, even if a restart has few draws.
        shares = np.asarray(self.shares, float)[component] / counts[component]
        factors, of_noise = self._spread_of_noise().pick(component).widths()
        return WeightDraws(
            np.asarray(weights),
            *_noise_and_latent_std(self.model, draws, priors),
            shares / shares.sum(),
            component,
            factors,
            of_noise,
        )

    def _spreads(self) -> Float[np.ndarray, "R"]:
        """How much the weights of each restart vary; more spread needs more draws."""
        spread = np.sqrt(np.mean(np.square(self.scale.weights), axis=-1))
        largest = spread.max()
        return np.maximum(spread, 1e-3 * largest) if largest > 0 else 1 + spread

    def _spread_of_noise(self) -> NoiseSpread:
        return self.noise_spread or NoiseSpread.none(self.num_components)

    def latent_moments(self) -> tuple[Latents, Latents]:
        """Mean and standard deviation of z for each training row.

        They come from the restart with the largest share, because z means something
        else in each restart.
        """
        best = int(np.argmax(self.shares))
        return self.mean.latents[best], self.scale.latents[best]

    def latent_prior_std(self) -> float:
        """Prior standard deviation of z in the restart that `latent_moments` uses."""
        best = int(np.argmax(self.shares))
        return float(np.sqrt(self.priors.latent_variance[best]))

    def with_noise(
        self, factors: Float[np.ndarray, "R"], spread: NoiseSpread | None = None
    ) -> "GaussianPosterior":
        """Return the posterior with the noise width of each restart times a factor.

        The spread of the noise does not change unless a new one is given.
        """
        factors = factors[:, None]
        noise = self.priors.noise_variance * factors**2
        log_noise = self.mean.log_noise_var
        log_noise = log_noise + 2 * np.log(factors) * np.ones_like(log_noise)
        return replace(
            self,
            mean=self.mean._replace(log_noise_var=log_noise),
            priors=self.priors._replace(noise_variance=noise),
            noise_spread=spread or self.noise_spread,
        )

    def select(self, indices, shares=None) -> "GaussianPosterior":
        """Return only these restarts, with these shares (equal if not given)."""
        indices = np.atleast_1d(indices)
        if shares is None:
            shares = np.full(len(indices), 1 / len(indices))
        mean, scale, priors = jax.tree.map(
            lambda a: np.asarray(a)[indices], (self.mean, self.scale, self.priors)
        )
        spread = self._spread_of_noise().pick(indices)
        return GaussianPosterior(
            self.model, mean, scale, priors, np.asarray(shares), spread
        )


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
        """Return draws of W, evenly spaced along each chain (the key is not used)."""
        del key
        chain, place = self._spread(num_draws)
        samples = jax.tree.map(lambda a: jnp.asarray(a)[chain, place], self.samples)
        priors = jax.tree.map(lambda a: jnp.asarray(a)[chain], self.priors)
        stds = _noise_and_latent_std(self.model, samples, priors)
        draws = WeightDraws.equal(np.asarray(samples.weights), *stds)
        return draws._replace(members=chain)

    def draw_latents(self, num_draws: int) -> Float[np.ndarray, "S N K"]:
        """Return the z of the training rows that were sampled with the W of `draw`."""
        chain, place = self._spread(num_draws)
        return np.asarray(self.samples.latents)[chain, place]

    def _spread(self, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the chain of each draw, and its position in the chain."""
        counts = split_draws(num_draws, self.shares)
        length = self.samples.weights.shape[1]
        places = [
            np.round(np.linspace(0, length - 1, count)).astype(int) for count in counts
        ]
        chain = np.repeat(np.arange(self.num_components), counts)
        return chain, np.concatenate(places)

    def latent_moments(self) -> tuple[Latents, Latents]:
        """Mean and standard deviation of z for each training row.

        They come from one chain, the first with the largest share. The sign of z can
        differ between chains, so an average over chains would mean nothing.
        """
        latents = self.samples.latents[int(np.argmax(self.shares))]
        return jnp.mean(latents, axis=0), jnp.std(latents, axis=0)

    def latent_prior_std(self) -> float:
        """Prior standard deviation of z."""
        return float(np.sqrt(self.priors.latent_variance[0]))

    def select(self, indices, shares=None) -> "SamplePosterior":
        """Return only these chains."""
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
    """How well the chains mixed, by predictions (hidden nodes can be permuted)."""

    max_rhat: float
    min_ess: float
    num_divergences: int
    acceptance_rate: float
    num_draws: int
    num_chains: int
    mean_leapfrogs: float

    @property
    def mixed(self) -> bool:
        """Whether R-hat is at most 1.05 and the effective sample size at least 400."""
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
    """The result of every method: all restarts or chains, before any choice."""

    posterior: Posterior
    history: dict[str, Any]
    alive: np.ndarray
    stop_reasons: list[str]
    num_steps: int
    interrupted: bool = False
    sampler: SamplerReport | None = None
    # Restarts of a group share a stacking weight; with None, each has its own.
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
    """Create a `Fit` from the records of the driver."""
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
