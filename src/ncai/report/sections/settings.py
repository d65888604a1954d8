"""Settings, versions and seed: what repeats the fit."""

import platform
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from ncai.report.subject import Subject, shared
from ncai.report.words import shorten

_PACKAGES = ("jax", "numpy", "scipy", "scikit-learn", "pandas")


@dataclass(frozen=True, eq=False)
class Settings:
    """The contents of the section, which the template shows.

    Attributes:
        values: names and values of all settings, including values from the preset.
        versions: names and versions of the packages.
        seed: the seed that was used, given or drawn.
        seed_is_given: whether the user gave it.
    """

    values: list[tuple[str, str]]
    versions: list[tuple[str, str]]
    seed: Any
    seed_is_given: bool


@shared
def settings(subject: Subject) -> Settings:
    """List the settings and versions."""
    model = subject.model
    given = model.random_state is not None
    return Settings(
        values=[
            (str(name), _text(value))
            for name, value in sorted(model.settings_.to_dict().items())
        ],
        versions=_versions(),
        seed=model.random_state if given else model.seed_,
        seed_is_given=given,
    )


def _text(value: Any) -> str:
    return "not set" if value is None else shorten(str(value), 80)


def _versions() -> list[tuple[str, str]]:
    from ncai import __version__

    found = [("ncai", __version__), ("Python", platform.python_version())]
    for package in _PACKAGES:
        try:
            found.append((package, metadata.version(package)))
        except metadata.PackageNotFoundError:  # vendored, or a frozen program
            continue
    return found
