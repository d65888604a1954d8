"""Checks of arguments, and settings as parameters: what came, what would be right."""

import math
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np


def one_of(name: str, value: Any, choices: Collection[str]) -> None:
    """A word among those that are known."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={value!r} must be one of {list(choices)}.")


def start_name(value: str, choices: Collection[str]) -> None:
    """The name of a start that the method knows."""
    if not choices:
        raise ValueError(
            f"start={value!r} must be None, or a dict with 'weights' and 'latents': "
            "this method knows no start by name."
        )
    one_of("start", value, choices)


def flag(name: str, value: Any) -> None:
    """True or False; 0 and 1 are taken too."""
    whole = isinstance(value, bool | np.bool_ | int | np.integer)
    if not whole or value not in (0, 1):
        raise ValueError(f"{name}={value!r} must be True or False.")


def is_number(value: Any) -> bool:
    """Whether it is a real number, and neither a truth value nor NaN."""
    return (
        isinstance(value, int | float | np.integer | np.floating)
        and not isinstance(value, bool)
        and not math.isnan(value)
    )


def whole_number(name: str, value: Any, least: int = 1, otherwise: str = "") -> int:
    """A count of at least `least`."""
    if not is_number(value) or value % 1 != 0 or value < least:
        raise ValueError(
            f"{name}={value!r} must be a whole number of at least {least}{otherwise}."
        )
    return int(value)


def positive(name: str, value: Any) -> None:
    """A number above 0, infinity included."""
    if not is_number(value) or value <= 0:
        raise ValueError(f"{name}={value!r} must be a positive number.")


def at_least_zero(name: str, value: Any) -> None:
    """A number of 0 or more."""
    if not is_number(value) or value < 0:
        raise ValueError(f"{name}={value!r} must be a number of at least 0.")


def share(name: str, value: Any, most: float, may_reach_it: bool) -> None:
    """A number from 0 to `most`."""
    inside = is_number(value) and 0 <= value <= most
    if not inside or (value == most and not may_reach_it):
        limit = f"at most {most:g}" if may_reach_it else f"below {most:g}"
        raise ValueError(f"{name}={value!r} must be at least 0 and {limit}.")


def positive_numbers(name: str, value: Any) -> tuple[float, ...]:
    """A positive number, or a list of them, as a tuple."""
    values = [value] if is_number(value) else value
    listed = isinstance(values, list | tuple | np.ndarray) and len(values) > 0
    if not listed or not all(is_number(v) and v > 0 for v in values):
        raise ValueError(
            f"{name}={value!r} must be a positive number, or a list of them."
        )
    return tuple(float(v) for v in values)


def inverse_gamma(name: str, value: Any) -> None:
    """Shape and scale of an inverse-gamma distribution."""
    two = isinstance(value, list | tuple | np.ndarray) and len(value) == 2
    if not two or not all(is_number(v) and v > 0 for v in value):
        raise ValueError(
            f"{name}={value!r} must be two positive numbers: the shape and scale "
            "of an inverse-gamma distribution."
        )


def variance(
    name: str, value: Any, modes: Collection[str], may_be_several: bool = False
) -> None:
    """A positive number (or one for each output), or the word for how to learn it."""
    values = np.asarray(value)
    if isinstance(value, str):
        right = value in modes
    else:
        numeric = values.dtype.kind in "fiu" and values.size > 0
        right = numeric and bool(np.all(np.isfinite(values) & (values > 0)))
        right = right and (values.ndim == 0 or may_be_several)
    if not right:
        raise ValueError(
            f"{name}={value!r} must be a positive number or one of {list(modes)}."
        )


def layer_widths(name: str, value: Any, otherwise: str = "") -> tuple[int, ...]:
    """Nodes of hidden layers, from a whole number or a list of them."""
    widths = np.atleast_1d(np.asarray(value, object))
    if widths.ndim > 1 or not all(
        isinstance(width, int | np.integer) and not isinstance(width, bool)
        for width in widths
    ):
        raise ValueError(
            f"{name}={value!r} must be a list of whole numbers{otherwise}."
        )
    return tuple(int(width) for width in widths)


@dataclass(frozen=True, repr=False)
class FrozenParameters:
    """scikit-learn's interface of parameters, for a frozen dataclass."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name."""
        del deep  # no setting has settings of its own
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **changes) -> Self:
        """A new object with other settings: this one is frozen."""
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                raise ValueError(
                    f"{name!r} is no setting of {type(self).__name__}; it has {known}."
                )
        return replace(self, **changes)

    def __repr__(self) -> str:
        given = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) is not field.default
            and getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(given)})"
