"""The settings of a fit: an estimator's arguments, resolved and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from ncai.inference.base import Method
from ncai.inference.registry import METHODS, PRESETS, method_of
from ncai.model.networks import MLP, Network, layer_widths
from ncai.preprocessing.target_transforms import NAMES as TRANSFORMS
from ncai.runtime.arguments import (
    check_fields,
    count,
    flag,
    one_of,
    positive,
    setting,
    variance_or,
    whole_number,
    word,
)

NOISE_MODES = ("empirical", "map", "variational")


@dataclass(frozen=True)
class Settings:
    """All settings of a fit; each has the value that is used.

    Args:
        method: the method with its own settings.
        preset: the preset that gave the values that the user left out.
        latent_dim: number of latent inputs.
        network: the network; if it offers choices, held-out rows make them.
        n_restarts: number of random starts.
        max_steps: limit on the steps of the main training.
        time_limit: seconds; None for no limit.
        noise_variance: the variance of the output noise, or how it is learned.
        target_transform: the transform of y; "auto" until held-out rows have chosen.
        rounding: how a rounded y is treated.
        keep: which restarts predict.
        standardize: whether X and y are scaled.
        progress: whether a progress bar is shown.
        rounding_steps: the lattice step of a rounded y, one for each output; known
            after a fit.
    """

    method: Method
    preset: str
    latent_dim: int
    network: Network
    n_restarts: int = setting(1, count())
    max_steps: int = setting(1, count())
    time_limit: float | None = setting(None, positive)
    noise_variance: float | str | Sequence[float] | np.ndarray = setting(
        1.0, variance_or(*NOISE_MODES, may_be_several=True)
    )
    target_transform: str = setting("none", word("auto", *TRANSFORMS))
    rounding: str = setting("ignore", word("auto", "smooth", "ignore"))
    keep: str = setting("best", word("best", "equal", "weighted"))
    standardize: bool = setting(True, flag)
    progress: bool = setting(False, flag)
    rounding_steps: tuple[float, ...] = ()
    # Derived settings: the number of folds, whether each restart holds out its own
    # fold, and whether held-out rows recalibrate the learned noise.
    num_folds: int = field(init=False, repr=False)
    has_folds: bool = field(init=False, repr=False)
    recalibrates_noise: bool = field(init=False, repr=False)

    def __post_init__(self):
        check_fields(self)
        num_folds = int(self.method.n_folds or 0)
        learned = isinstance(self.noise_variance, str) and self.keep == "weighted"
        follows = {
            "n_restarts": int(self.n_restarts),  # whole numbers may come as floats
            "max_steps": int(self.max_steps),
            "num_folds": num_folds,
            "has_folds": num_folds > 1 and self.keep != "best",
            "recalibrates_noise": learned and bool(self.method.recalibrate_noise),
        }
        for name, value in follows.items():
            object.__setattr__(self, name, value)
        self._check_support()

    def _check_support(self) -> None:
        """Reject settings that the method does not support."""
        supports, name = self.method.supports, self.method.name
        most = supports.most_latents
        if most is not None and self.latent_dim > most:
            others = [
                other.name
                for other in METHODS.values()
                if other.supports.most_latents is None
                and other.supports.exact_latents
                and other.supports.sampling == supports.sampling
            ]
            raise ValueError(
                f"inference={name!r} integrates z by quadrature, for latent_dim of at "
                f"most {most}, not {self.latent_dim}: use {others[0]!r}."
            )
        if self.noise_variance == "empirical" and not supports.empirical_noise:
            raise ValueError(
                f"noise_variance='empirical' is not available with inference={name!r}: "
                "use a number, 'map' or 'variational'."
            )

    @classmethod
    def resolve(cls, params: Mapping[str, Any]) -> "Settings":
        """Resolve an estimator's arguments: fill in the values of the preset."""
        preset, latent_dim = params["preset"], params["latent_dim"]
        one_of("preset", preset, PRESETS)
        whole_number("latent_dim", latent_dim, 0)
        method = method_of(params["inference"], preset, latent_dim)
        values = method.presets[preset]
        filled = {
            name: getattr(values, name) if params[name] is None else params[name]
            for name in (
                "n_restarts",
                "max_steps",
                "noise_variance",
                "target_transform",
                "rounding",
                "keep",
            )
        }
        return cls(
            method=method,
            preset=preset,
            latent_dim=int(latent_dim),
            network=_network(params, values.network),
            time_limit=params["time_limit"],
            standardize=params["standardize"],
            progress=params["progress"],
            **filled,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all settings in a flat dict, with the method by its name."""
        own = {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.init and one.name not in ("method", "network", "progress")
        }
        network: dict[str, Any] = {"network": self.network}
        if isinstance(self.network, MLP):
            network = {
                one.name: getattr(self.network, one.name)
                for one in fields(self.network)
            }
        method = {
            name: value
            for name, value in self.method.get_params().items()
            if not (name == "start" and isinstance(value, Mapping))
        }
        return {"inference": self.method.name} | own | network | method


def _network(params: Mapping[str, Any], usual: MLP) -> Network:
    """Return the user's network, or the preset's with the user's layer arguments."""
    network, hidden, activation = (
        params[name] for name in ("network", "hidden", "activation")
    )
    if network is None:
        if hidden is not None:
            usual = replace(usual, hidden=layer_widths("hidden", hidden))
        if activation is not None:
            usual = replace(usual, activation=activation)
        return usual
    for name, value in (("hidden", hidden), ("activation", activation)):
        if value is not None:
            raise ValueError(
                f"{name}={value!r} has no effect beside network={network!r}: leave one "
                "of them out."
            )
    if isinstance(network, type):
        name = network.__name__
        raise ValueError(
            f"network={name} is a class; give an instance, such as {name}()."
        )
    if not isinstance(network, Network):
        raise ValueError(
            f"network={network!r} must have the methods init(key, input_dim, "
            "latent_dim, output_dim) and apply(weights, inputs, latents)."
        )
    return network
