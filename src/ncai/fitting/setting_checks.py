"""What arguments of an estimator may be; one sentence each where they are not."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ncai.inference.mean_field import STARTS
from ncai.preprocessing.target_transforms import NAMES as TRANSFORMS

FOLDED = ("marginal", "iwae")  # methods whose restarts may hold out rows of their own
SCHEDULES = ("constant", "cosine")
KEEPS = ("best", "equal", "weighted")
COUNTS = (
    "n_restarts",
    "max_steps",
    "n_mc_samples",
    "n_chains",
    "n_draws",
    "n_weight_draws",
    "n_latent_draws",
)
COUNTS_FROM_ZERO = (
    "latent_dim",
    "n_warmup",
    "n_folds",
    "n_snapshots",
)
FLAGS = ("plateau", "tune_noise", "hold_means", "refit", "standardize", "progress")

PENALISED = ("hz", "offdiagonal", "dependence")


def check(s: Mapping[str, Any]) -> None:
    """Refuse what cannot be, in one sentence each."""
    one_of("keep", s["keep"], KEEPS)
    one_of("schedule", s["schedule"], SCHEDULES)
    one_of("target_transform", s["target_transform"], ("auto", *TRANSFORMS))
    one_of("rounding", s["rounding"], ("auto", "smooth", "ignore"))
    one_of("weight_groups", s["weight_groups"], ("all", "layer", "input"))
    one_of("penalise", s["penalise"], ("means", "samples"))
    one_of("variance_form", s["variance_form"], ("paper", "exact"))
    for name in COUNTS:
        _whole(name, s[name], 4 if name == "n_draws" else 1)  # R-hat needs 4
    for name in COUNTS_FROM_ZERO:
        _whole(name, s[name], 0)
    if s["posterior_rank"] != "last_layer":
        _whole("posterior_rank", s["posterior_rank"], 0, ", or 'last_layer'")
    for name in FLAGS:
        _flag(name, s[name])
    for name in ("learning_rate", "hz_tolerance", "input_tolerance"):
        _positive(name, s[name])
    _positive("target_tolerance", s["target_tolerance"])
    for name in (f"{part}_weight" for part in PENALISED):
        if not _is_number(s[name]) or s[name] < 0:
            raise ValueError(f"{name}={s[name]!r} must be a number of at least 0.")
    _variance("weight_variance", s["weight_variance"], ("empirical",))
    _variance("latent_variance", s["latent_variance"], ("empirical",))
    _variance(
        "noise_variance", s["noise_variance"], ("empirical", "map", "variational")
    )
    for name in ("variance_prior", "noise_prior"):
        value = s[name]
        two = isinstance(value, list | tuple | np.ndarray) and len(value) == 2
        if not two or not all(_is_number(v) and v > 0 for v in value):
            raise ValueError(
                f"{name}={value!r} must be two positive numbers: the shape and scale "
                "of an inverse-gamma distribution."
            )
    if not _is_number(s["ramp_fraction"]) or not 0 <= s["ramp_fraction"] <= 1:
        raise ValueError(
            f"ramp_fraction={s['ramp_fraction']!r} must be between 0 and 1."
        )
    fraction = s["validation_fraction"]
    if not _is_number(fraction) or not 0 <= fraction < 1:
        raise ValueError(
            f"validation_fraction={fraction!r} must be at least 0 and below 1."
        )
    if s["time_limit"] is not None:
        _positive("time_limit", s["time_limit"])
    temperatures = np.atleast_1d(s["temperature"]).tolist()
    if not temperatures or not all(_is_number(t) and t > 0 for t in temperatures):
        raise ValueError(
            f"temperature={s['temperature']!r} must be a positive number, or a list of "
            "them."
        )
    starts = s["noise_starts"]
    listed = isinstance(starts, list | tuple | np.ndarray) and len(starts) > 0
    if not listed or not all(_is_number(v) and v > 0 for v in starts):
        raise ValueError(
            f"noise_starts={starts!r} must be a list of positive numbers, at least one."
        )
    variational = s["inference"] in ("mfvi", "ncai0", "ncai", "marginal", "iwae")
    if isinstance(s["start"], str):
        one_of("start", s["start"], STARTS)
        if not variational:
            raise ValueError(
                f"start={s['start']!r} is for the variational methods; with inference="
                f"{s['inference']!r} give values or None."
            )
    if s["hold_means"] and not variational:
        raise ValueError(
            f"hold_means=True is for the variational methods, not for inference="
            f"{s['inference']!r}."
        )
    if s["refit"] and s["inference"] == "map":
        raise ValueError(
            "refit=True is not possible with inference='map': use "
            "validation_fraction=0 to train on every row."
        )
    by_quadrature = {"hmc_marginal": "hmc", "marginal": "iwae"}
    if s["inference"] in by_quadrature and s["latent_dim"] > 2:
        raise ValueError(
            f"inference={s['inference']!r} integrates z by quadrature, for latent_dim "
            f"of at most 2, not {s['latent_dim']}: use "
            f"{by_quadrature[s['inference']]!r}."
        )
    if s["n_folds"] == 1:
        raise ValueError("n_folds=1 must be 0, which is off, or at least 2.")
    if s["n_folds"] > 1 and s["inference"] not in FOLDED:
        raise ValueError(
            f"n_folds={s['n_folds']!r} is for inference='marginal' or 'iwae', not "
            f"{s['inference']!r}."
        )
    if s["inference"] in ("marginal", "iwae"):
        name = s["inference"]
        if s["noise_variance"] == "empirical":
            raise ValueError(
                f"noise_variance='empirical' is not available with inference={name!r}:"
                " use a number, 'map' or 'variational'."
            )
        if s["start"] == "map" or s["hold_means"]:
            raise ValueError(
                f"inference={name!r} starts at 'random', 'ncai' or given values, and "
                "holds no means."
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


def one_of(name: str, value: Any, choices) -> None:
    """A word, checked."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={value!r} must be one of {list(choices)}.")


def _flag(name: str, value: Any) -> None:
    whole = isinstance(value, bool | np.bool_ | int | np.integer)
    if not whole or value not in (0, 1):
        raise ValueError(f"{name}={value!r} must be True or False.")


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float | np.integer | np.floating)
        and not isinstance(value, bool)
        and not math.isnan(value)
    )


def whole_number(name: str, value: Any) -> int:
    """A count, checked: arguments may be set after a fit too."""
    _whole(name, value, 1)
    return int(value)


def _whole(name: str, value: Any, least: int, other: str = "") -> None:
    if not _is_number(value) or value % 1 != 0 or value < least:
        raise ValueError(
            f"{name}={value!r} must be a whole number of at least {least}{other}."
        )


def _positive(name: str, value: Any) -> None:
    if not _is_number(value) or value <= 0:
        raise ValueError(f"{name}={value!r} must be a positive number.")


def _variance(name: str, value: Any, modes: tuple[str, ...]) -> None:
    if isinstance(value, str):
        if value not in modes:
            raise ValueError(
                f"{name}={value!r} must be a positive number or one of {list(modes)}."
            )
        return
    values = np.asarray(value)
    numeric = values.dtype.kind in "fiu" and values.size > 0
    several = values.ndim > 0 and name != "noise_variance"
    if not numeric or several or not np.all(np.isfinite(values) & (values > 0)):
        raise ValueError(
            f"{name}={value!r} must be a positive number or one of {list(modes)}."
        )
