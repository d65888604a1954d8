"""Checks of arguments; errors name the value received and what would be right."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np

Check = Callable[[str, Any], object]


def setting(default: Any, check: Check) -> Any:
    """A field of a dataclass of settings, together with the check of its value."""
    return field(default=default, metadata={"check": check})


def check_fields(settings: Any) -> None:
    """Check every field that is a `setting`; None is accepted if it is the default."""
    for one in fields(settings):
        if "check" in one.metadata:
            value = getattr(settings, one.name)
            if value is not None or one.default is not None:
                one.metadata["check"](one.name, value)


def word(*choices: str) -> Check:
    """A check: one of these words."""
    return lambda name, value: one_of(name, value, choices)


def count(least: int = 1) -> Check:
    """A check: a whole number of at least `least`."""
    return lambda name, value: whole_number(name, value, least)


def variance_or(*modes: str, may_be_several: bool = False) -> Check:
    """A check: a positive number, or one of these words for how to learn it."""
    return lambda name, value: variance(name, value, modes, may_be_several)


def one_of(name: str, value: Any, choices: Collection[str]) -> None:
    """Check that a value is one of the known words."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={value!r} must be one of {list(choices)}.")


def start_name(value: str, choices: Collection[str]) -> None:
    """Check that a value is the name of a start that the method knows."""
    if not choices:
        raise ValueError(
            f"start={value!r} must be None, or a dict with 'weights' and 'latents': "
            "this method knows no start by name."
        )
    one_of("start", value, choices)


def flag(name: str, value: Any) -> None:
    """Check that a value is True or False; 0 and 1 are accepted, too."""
    whole = isinstance(value, bool | np.bool_ | int | np.integer)
    if not whole or value not in (0, 1):
        raise ValueError(f"{name}={value!r} must be True or False.")


def is_number(value: Any) -> bool:
    """Whether a value is a real number, and neither a truth value nor NaN."""
    return (
        isinstance(value, int | float | np.integer | np.floating)
        and not isinstance(value, bool)
        and not math.isnan(value)
    )


def whole_number(name: str, value: Any, least: int = 1, otherwise: str = "") -> int:
    """Return a whole number of at least `least`; reject other values."""
    if not is_number(value) or value % 1 != 0 or value < least:
        raise ValueError(
            f"{name}={value!r} must be a whole number of at least {least}{otherwise}."
        )
    return int(value)


def positive(name: str, value: Any) -> None:
    """Check that a value is a number above 0; infinity is accepted."""
    if not is_number(value) or value <= 0:
        raise ValueError(f"{name}={value!r} must be a positive number.")


def at_least_zero(name: str, value: Any) -> None:
    """Check that a value is a number of 0 or more."""
    if not is_number(value) or value < 0:
        raise ValueError(f"{name}={value!r} must be a number of at least 0.")


def share(name: str, value: Any) -> None:
    """Check that a value is a number from 0 to below 1."""
    if not is_number(value) or not 0 <= value < 1:
        raise ValueError(f"{name}={value!r} must be at least 0 and below 1.")


def portion(name: str, value: Any) -> None:
    """Check that a value is a number from 0 to 1."""
    if not is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{name}={value!r} must be at least 0 and at most 1.")


def folds(name: str, value: Any) -> None:
    """Check a number of folds: 0 for none, but not 1, which would be all rows."""
    if whole_number(name, value, 0) == 1:
        raise ValueError(f"{name}=1 must be 0, which is off, or at least 2.")


def positive_numbers(name: str, value: Any) -> tuple[float, ...]:
    """Return a positive number, or a list of such numbers, as a tuple."""
    values = [value] if is_number(value) else value
    listed = isinstance(values, list | tuple | np.ndarray) and len(values) > 0
    if not listed or not all(is_number(v) and v > 0 for v in values):
        raise ValueError(
            f"{name}={value!r} must be a positive number, or a list of them."
        )
    return tuple(float(v) for v in values)


def inverse_gamma(name: str, value: Any) -> None:
    """Check the shape and scale of an inverse-gamma distribution."""
    two = isinstance(value, list | tuple | np.ndarray) and len(value) == 2
    if not two or not all(is_number(v) and v > 0 for v in value):
        raise ValueError(
            f"{name}={value!r} must be two positive numbers: the shape and scale "
            "of an inverse-gamma distribution."
        )


def variance(
    name: str, value: Any, modes: Collection[str], may_be_several: bool = False
) -> None:
    """Check a positive number (or one for each output), or a word for learning it."""
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


@dataclass(frozen=True, repr=False)
class FrozenParameters:
    """scikit-learn's interface of parameters, for a frozen dataclass of settings."""

    def __post_init__(self):
        check_fields(self)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name."""
        del deep  # no setting has settings of its own
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def set_params(self, **changes) -> Self:
        """Return a new object with other settings, because this one is frozen."""
        known = [one.name for one in fields(self)]
        for name in changes:
            if name not in known:
                raise ValueError(
                    f"{name!r} is no setting of {type(self).__name__}; it has {known}."
                )
        return replace(self, **changes)

    def __repr__(self) -> str:
        given = [
            f"{one.name}={getattr(self, one.name)!r}"
            for one in fields(self)
            if getattr(self, one.name) is not one.default
            and getattr(self, one.name) != one.default
        ]
        return f"{type(self).__name__}({', '.join(given)})"
