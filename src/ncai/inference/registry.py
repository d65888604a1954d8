"""The registry of methods by name.

To add one: write a file with a frozen subclass of `Method` (or of `GradientMethod`)
that has `name`, `label`, `supports`, `fit` and `continue_from`, and add its class here,
or call `register` from outside the package.
"""

from typing import TypeVar

from ncai.inference.base import Method
from ncai.inference.hmc import HMC, HMCMarginal
from ncai.inference.iwae import IWAE
from ncai.inference.map import MAP
from ncai.inference.marginal import Marginal
from ncai.inference.mean_field import MFVI
from ncai.inference.ncai import NCAI, NCAI0

MethodClass = TypeVar("MethodClass", bound=type[Method])

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (MAP, MFVI, NCAI0, NCAI, Marginal, IWAE, HMC, HMCMarginal)
}
PRESETS = ("default", "paper")
# The method of each preset if the user gives none.
PRESET_METHODS = {"default": "marginal", "paper": "ncai"}


def register(method: MethodClass) -> MethodClass:
    """Register a method by its name; can be used as a decorator of its class."""
    METHODS[method.name] = method
    return method


def method_of(
    inference: str | Method | None, preset: str, latent_dim: int = 1
) -> Method:
    """Return the method of an estimator, with the settings of the preset filled in."""
    method = open_method(inference, preset)
    if latent_dim == 0:
        method = method.without_latents()
    return method.resolved(preset)


def open_method(inference: str | Method | None, preset: str) -> Method:
    """Return the method of an estimator; settings left to the preset stay None."""
    if inference is None:
        inference = PRESET_METHODS[preset]
    if isinstance(inference, Method):
        return inference
    if isinstance(inference, type) and issubclass(inference, Method):
        name = inference.__name__
        raise ValueError(
            f"inference={name} is a class; give an instance, such as {name}()."
        )
    if not isinstance(inference, str) or inference not in METHODS:
        raise ValueError(
            f"inference={inference!r} must be one of {list(METHODS)}, or a method with "
            "settings, such as ncai.NCAI(hz_weight=0.5)."
        )
    return METHODS[inference]()
