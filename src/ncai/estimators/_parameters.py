"""The parameters of the estimators: method objects, presets, and names of 0.1."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

from sklearn.base import BaseEstimator

from ncai.fitting.settings import Settings
from ncai.inference.registry import open_method

METHOD = "inference"
# The arguments of the constructor that a preset may fill in.
FILLED = (
    "n_restarts",
    "max_steps",
    "noise_variance",
    "target_transform",
    "rounding",
    "keep",
)


class MethodParameters(BaseEstimator):
    """Parameters of an estimator whose method is a frozen object with settings."""

    latent_dim: int
    preset: str
    inference: Any

    def __new__(cls, *args, **kwargs):
        """Reject arguments of version 0.1; the message names their new place."""
        del args
        refuse_moved(kwargs, cls._get_param_names())
        return super().__new__(cls)

    def set_params(self, **params) -> Self:
        """Set parameters; `inference__name` sets one of the method's settings.

        A method that was given by name, or left to the preset, becomes an object.
        """
        refuse_moved(params, self._get_param_names())
        nested = {
            name.removeprefix(f"{METHOD}__"): value
            for name, value in params.items()
            if name.startswith(f"{METHOD}__")
        }
        direct = {
            name: value
            for name, value in params.items()
            if not name.startswith(f"{METHOD}__")
        }
        super().set_params(**direct)
        if nested:
            method = open_method(self.inference, self.preset)
            self.inference = method.set_params(**nested)
        return self

    def _arguments(self) -> dict[str, Any]:
        """Return the present arguments of the constructor."""
        return {name: getattr(self, name) for name in self._get_param_names()}

    def resolved_settings(self) -> Settings:
        """Return the settings that `fit` would use, with the preset filled in.

        Raises:
            ValueError: an argument is invalid; the message names it.
        """
        return Settings.resolve(self._arguments())

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Show the arguments with the values that the preset gives."""
        try:
            settings = self.resolved_settings()
        except (ValueError, TypeError, KeyError):  # show invalid arguments as given
            return super().__repr__(N_CHAR_MAX)
        shown = self._arguments() | {METHOD: settings.method}
        for name in FILLED:
            if name in shown:
                shown[name] = getattr(settings, name)
        if shown.get("network") is None:
            shown["network"] = settings.network
        hidden = ("hidden", "activation")  # the network shows them
        listed = [
            f"{name}={value!r}" for name, value in shown.items() if name not in hidden
        ]
        return f"{type(self).__name__}({', '.join(listed)})"


# ----- Arguments of version 0.1 that moved or were removed ----------------------------

_ANY = ("Marginal", "NCAI", "MFVI", "IWAE", "MAP", "HMC")
_TRAINED = _ANY[:-1]
# The method classes that now have each setting; the message shows the first.
METHOD_SETTINGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "weight_variance",
            "latent_variance",
            "variance_prior",
            "variance_form",
            "noise_prior",
            "noise_starts",
            "learning_rate",
            "n_weight_draws",
            "n_latent_draws",
            "start",
        ),
        _ANY,
    ),
    **dict.fromkeys(("schedule", "plateau", "validation_fraction"), _TRAINED),
    **dict.fromkeys(("temperature", "n_folds"), ("Marginal", "IWAE")),
    "n_mc_samples": ("Marginal", "MFVI", "NCAI"),
    "hold_means": ("MFVI", "NCAI"),
    **dict.fromkeys(
        (
            "hz_weight",
            "offdiagonal_weight",
            "dependence_weight",
            "hz_tolerance",
            "input_tolerance",
            "target_tolerance",
            "penalise",
            "ramp_fraction",
        ),
        ("NCAI",),
    ),
    **dict.fromkeys(("n_chains", "n_warmup", "n_draws"), ("HMC", "HMCMarginal")),
}
RENAMED = {"tune_noise": ("recalibrate_noise", ("Marginal", "IWAE"))}
NETWORK_SETTINGS = ("latent_layer", "latent_hidden")
REMOVED = (
    "weight_groups",
    "multipliers",
    "hz_slack",
    "posterior_rank",
    "n_snapshots",
    "refit",
)


def place_of(name: str, value: Any) -> str | None:
    """Return a sentence on the new place of an argument of 0.1; None for others."""
    if name in METHOD_SETTINGS:
        first, *others = METHOD_SETTINGS[name]
        rest = f" ({', '.join([first, *others])} have it)" if others else ""
        return (
            f"{name} is a setting of the method now: "
            f"inference={first}({name}={value!r}){rest}."
        )
    if name in RENAMED:
        new, classes = RENAMED[name]
        return (
            f"{name} is called {new} now, a setting of the method: "
            f"inference={classes[0]}({new}={value!r})."
        )
    if name in NETWORK_SETTINGS:
        return f"{name} is a setting of the network now: network=MLP({name}={value!r})."
    if name in REMOVED:
        return f"{name}={value!r} was removed in version 0.2: it made no fit better."
    return None


def refuse_moved(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise an error that names the new place of an argument of version 0.1."""
    known = set(known)
    for name, value in given.items():
        sentence = None if name in known else place_of(name, value)
        if sentence is not None:
            raise TypeError(sentence)
