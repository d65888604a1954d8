"""The interface of a method: a frozen object with settings that can fit a model.

A method is one file and one entry of `ncai.inference.registry`. The rest of the package
uses only this interface and never tests for the class or name of a method.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ncai.inference.posterior import Fit, Posterior
from ncai.model.bnn_lv import Model, Variance
from ncai.model.networks import MLP, FlatNetwork
from ncai.runtime.arguments import (
    FrozenParameters,
    count,
    flag,
    inverse_gamma,
    positive,
    positive_numbers,
    setting,
    share,
    start_name,
    variance_or,
    word,
)
from ncai.training.driver import Driver
from ncai.training.step import Stage
from ncai.types import Data, Unknowns


@dataclass(frozen=True)
class Supports:
    """What a method can do.

    Args:
        folds: each of its restarts may hold out its own fold.
        sampling: it draws chains from the posterior instead of training restarts, so no
            rows are held out and there is nothing to choose.
        most_latents: the largest latent_dim; None for any.
        row_latents: its posterior includes a z for each training row.
        exact_latents: z has (nearly) its exact posterior given W. Diagnostics then use
            samples of z, because the means of an exact posterior need not be Gaussian.
        empirical_noise: the noise may be set by empirical Bayes.
    """

    folds: bool = False
    sampling: bool = False
    most_latents: int | None = None
    row_latents: bool = True
    exact_latents: bool = False
    empirical_noise: bool = True


@dataclass(frozen=True)
class Preset:
    """The values that a preset gives to arguments that the user leaves None.

    Args:
        network: the network.
        n_restarts: random starts.
        max_steps: limit on the steps of the main training.
        noise_variance: variance of the output noise.
        target_transform: transform of y.
        rounding: how a rounded y is treated.
        keep: which restarts predict.
        method: values of the method's own settings, by name.
    """

    network: MLP
    n_restarts: int
    max_steps: int
    noise_variance: float | str
    target_transform: str
    rounding: str
    keep: str
    method: Mapping[str, Any]


# The paper's settings: 30,000 steps of Adam at 0.01, one hidden layer with z next to x,
# empirical Bayes for the priors, and fixed noise (its grid has 0.1 and 0.01).
PAPER = Preset(
    network=MLP(),
    n_restarts=10,
    max_steps=30_000,
    noise_variance=0.1,
    target_transform="none",
    rounding="ignore",
    keep="best",
    method={
        "learning_rate": 0.01,
        "latent_variance": "empirical",
        "noise_prior": (3.0, 0.5),
        "noise_starts": (0.1,),
        "validation_fraction": 0.1,
        "schedule": "constant",
        "plateau": False,
        "temperature": 1.0,
        "n_folds": 0,
        "recalibrate_noise": False,
    },
)
# Settings that work without tuning: noise learned under a weak prior, a learning rate
# that falls at a plateau, and a stop when that no longer helps.
DEFAULT = replace(
    PAPER,
    max_steps=20_000,
    noise_variance="variational",
    method={
        **PAPER.method,
        "latent_variance": 1.0,
        "noise_prior": (1.0, 0.02),
        "noise_starts": (0.01, 0.03, 0.1),
        "plateau": True,
    },
)


@dataclass(frozen=True)
class Training:
    """The arguments of one training run, in addition to the method's own settings.

    Args:
        num_restarts: number of random starts, trained in parallel.
        max_steps: limit on the steps of the main training.
        warm_start_steps: steps of NCAI's warm start, which trains the network at z = 0.
        settle_steps: steps that train only the scales, if the means of a start are
            given.
        start: a start given as values; None for the method's own.
        fixed_noise: values of fixed noise, which the restarts use in turn (a grid in
            one run); if empty, the model's value.
        folded: whether each restart holds out its own fold.
    """

    num_restarts: int = 10
    max_steps: int = 30_000
    warm_start_steps: int = 5_000
    settle_steps: int = 3_000
    start: Unknowns | None = None
    fixed_noise: tuple[float, ...] = ()
    folded: bool = False

    @classmethod
    def of(cls, num_restarts: int, max_steps: int, **more) -> Self:
        """Create a run whose first stages are proportional to `max_steps`."""
        return cls(
            num_restarts,
            max_steps,
            warm_start_steps=max(min(5_000, max_steps // 3), 1),
            settle_steps=max(max_steps // 10, 1),
            **more,
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Method(FrozenParameters, ABC):
    """A method with its settings; one call gives a `Fit` with every restart.

    A setting that is None takes the value of the estimator's preset.

    Args:
        weight_variance: s_w, the prior variance of weights: a number or "empirical".
        latent_variance: s_z, the prior variance of z: a number or "empirical". If z is
            integrated out, "empirical" means 1, because the weights that multiply z can
            scale it.
        variance_prior: shape and scale of the inverse-gamma prior on s_w and s_z.
        variance_form: "paper" or "exact" empirical Bayes.
        noise_prior: shape and scale of the inverse-gamma prior on the noise.
        noise_starts: initial values of learned noise, which the restarts use in turn.
        learning_rate: the learning rate of Adam.
        n_weight_draws: number of draws of W in a prediction.
        n_latent_draws: number of nodes of z for each draw of W.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    supports: ClassVar[Supports] = Supports()
    presets: ClassVar[Mapping[str, Preset]] = {"default": DEFAULT, "paper": PAPER}

    # Settings that only some methods have, with the values that hold for the others.
    n_folds: ClassVar[int | None] = 0
    recalibrate_noise: ClassVar[bool | None] = False
    validation_fraction: ClassVar[float | None] = 0.0
    start: ClassVar[Any] = None
    n_chains: ClassVar[int] = 0
    n_draws: ClassVar[int] = 0
    # The size of one training step, for the estimate of memory.
    nodes_a_latent: ClassVar[int] = 1
    batch_rows: ClassVar[int | None] = None

    weight_variance: float | str = setting("empirical", variance_or("empirical"))
    latent_variance: float | str | None = setting(None, variance_or("empirical"))
    variance_prior: tuple[float, float] = setting((3.0, 0.5), inverse_gamma)
    variance_form: str = setting("paper", word("paper", "exact"))
    noise_prior: tuple[float, float] | None = setting(None, inverse_gamma)
    noise_starts: tuple[float, ...] | None = setting(None, positive_numbers)
    learning_rate: float | None = setting(None, positive)
    n_weight_draws: int = setting(512, count())
    n_latent_draws: int = setting(16, count())

    # ----- What a method must do -----------------------------------------------------

    @abstractmethod
    def fit(
        self,
        key: PRNGKeyArray,
        model: Model,
        data: Data,
        training: Training,
        driver: Driver | None = None,
    ) -> Fit:
        """Approximate the posterior of the model given the data."""

    @abstractmethod
    def continue_from(
        self,
        key: PRNGKeyArray,
        model: Model,
        data: Data,
        posterior: Posterior,
        training: Training,
        driver: Driver | None = None,
    ) -> Fit:
        """Continue from a posterior; further rows, if any, come last in `data`."""

    # ----- What a method may override ------------------------------------------------

    def decomposed_given(self) -> str:
        """What the aleatoric part of its predictions is conditional on.

        "weights", or "member" if only the disagreement of ensemble members is
        epistemic.
        """
        return "weights"

    def resolved(self, preset: str) -> Self:
        """Return the method with every None replaced by the preset's value.

        There are no folds if the user holds out the same rows from all restarts.
        """
        values = dict(self.presets[preset].method)
        if self.validation_fraction is not None:
            values["n_folds"] = 0
        filled = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if value is None and one.name in values:
                filled[one.name] = values[one.name]
            elif one.type in (int, int | None) and value is not None:
                filled[one.name] = int(value)  # whole numbers may come as floats
        return replace(self, **filled)

    def without_latents(self) -> "Method":
        """Return the method for a plain BNN: this one, unless it differs only in z."""
        return self

    def for_trial(self) -> Self:
        """Return the method of a trial fit."""
        return self

    # ----- The model -----------------------------------------------------------------

    def build_model(
        self,
        network: FlatNetwork,
        noise_variance: float | str | Sequence[float] | np.ndarray,
    ) -> Model:
        """Build the model with this method's priors and the given output noise."""
        learned = isinstance(noise_variance, str)
        assert self.noise_prior is not None  # settings are resolved by now
        assert self.noise_starts is not None
        assert self.latent_variance is not None
        start = self.noise_starts[0] if learned else noise_variance
        start = np.asarray(start, float).reshape(-1)
        if start.size not in (1, network.output_dim):
            raise ValueError(
                f"noise_variance has {start.size} numbers; it must have 1, or "
                f"{network.output_dim}, one for each output."
            )
        return Model(
            network,
            self._prior(self.weight_variance),
            self._prior(self.latent_variance),
            Variance(
                jnp.asarray(np.broadcast_to(start, network.output_dim), float),
                noise_variance if learned else "fixed",
                *_shape_and_scale(self.noise_prior),
            ),
        )

    def _prior(self, value: float | str) -> Variance:
        alpha, beta = _shape_and_scale(self.variance_prior)
        if isinstance(value, str):
            return Variance(jnp.asarray(1.0), value, alpha, beta, self.variance_form)
        start = jnp.asarray(float(value))
        return Variance(start, "fixed", alpha, beta, self.variance_form)


def _shape_and_scale(prior: Sequence[float]) -> tuple[float, float]:
    """Return shape and scale of an inverse-gamma distribution as plain numbers."""
    alpha, beta = prior
    return float(alpha), float(beta)


@dataclass(frozen=True, kw_only=True, repr=False)
class GradientMethod(Method):
    """A method that trains restarts by gradient steps.

    Args:
        schedule: "constant", as in the paper, or "cosine", which lowers the rate to 0
            in each stage and needs far fewer steps; `plateau` then has no effect.
        plateau: stop when no restart improves any more, if that is before `max_steps`.
        rate_drops: how often the rate of a restart falls to a third at a plateau before
            the restart counts as finished.
        validation_fraction: share of the rows that is held out to choose among
            restarts, drawn with the seed. If that is fewer than 5 rows, none are held
            out and the training objective chooses.
        start: the starting point: a name that the method knows, or a dict with
            "weights" (a vector, or the network's own pytree) and "latents" [N, K]; None
            for the method's own.
    """

    starts: ClassVar[tuple[str, ...]] = ()

    schedule: str | None = setting(None, word("constant", "cosine"))
    plateau: bool | None = setting(None, flag)
    rate_drops: int = setting(2, count(0))
    validation_fraction: float | None = setting(None, share)
    start: str | Mapping[str, Any] | None = None

    def __post_init__(self):
        super().__post_init__()
        if isinstance(self.start, str):
            start_name(self.start, self.starts)

    def stage(self, name: str, objective: Any, training: Training, **changes) -> Stage:
        """Create a stage of training with these settings."""
        assert self.learning_rate is not None
        assert self.schedule is not None
        usual = {
            "max_steps": training.max_steps,
            "learning_rate": self.learning_rate,
            "schedule": self.schedule,
            # In the second half of a cosine the rate is too small to detect a plateau.
            "plateau": bool(self.plateau) and self.schedule == "constant",
            "rate_drops": self.rate_drops if self.plateau else 0,
        }
        return Stage(name, objective, **(usual | changes))

    def continued_stage(self, objective: Any, training: Training, **changes) -> Stage:
        """Create a short stage at a low rate, for weights that are already trained."""
        assert self.learning_rate is not None
        usual = {
            "max_steps": max(training.max_steps // 5, 1),
            "learning_rate": self.learning_rate / 3,
        }
        return self.stage("continued", objective, training, **(usual | changes))
