"""How the estimators treat their parameters: method objects, presets, old names."""

from typing import Any, Self

from sklearn.base import BaseEstimator

from ncai.estimators._moved import refuse_moved
from ncai.fitting.settings import Settings
from ncai.inference.registry import method_of

METHOD = "inference"
# What a preset may fill in, as the constructor names it.
FILLED = (
    "n_restarts",
    "max_steps",
    "noise_variance",
    "target_transform",
    "rounding",
    "keep",
)


class MethodParameters(BaseEstimator):
    """Parameters of an estimator whose method is a frozen object with its own."""

    latent_dim: int
    preset: str
    inference: Any

    def __new__(cls, *args, **kwargs):
        """Refuse arguments of version 0.1 with one sentence on their new place."""
        del args
        refuse_moved(kwargs, cls._get_param_names())
        return super().__new__(cls)

    def set_params(self, **params) -> Self:
        """Set parameters; `inference__name` sets one of the method's settings.

        A method given by name, or left to the preset, then becomes an object.
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
            method = method_of(self.inference, self.preset)
            self.inference = method.set_params(**nested)
        return self

    def _arguments(self) -> dict[str, Any]:
        """The constructor's arguments as they stand."""
        return {name: getattr(self, name) for name in self._get_param_names()}

    def resolved_settings(self) -> Settings:
        """The settings that `fit` would use, with the preset filled in.

        Raises:
            ValueError: an argument cannot be; the sentence names it.
        """
        return Settings.resolve(self._arguments())

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The arguments, with the values that the preset gives."""
        try:
            settings = self.resolved_settings()
        except (ValueError, TypeError, KeyError):  # as given, if it cannot be resolved
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
