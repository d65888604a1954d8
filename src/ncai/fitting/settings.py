"""Presets, and the way from an estimator's arguments to a model and a method.

A preset fills what the user leaves None; what the user gives wins.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from ncai.fitting.setting_checks import (
    COUNTS,
    COUNTS_FROM_ZERO,
    PENALISED,
    check,
    layer_widths,
    one_of,
)
from ncai.inference.base import Inference, Training
from ncai.inference.iwae import ImportanceWeighted
from ncai.inference.map import MAP
from ncai.inference.marginal import Marginal
from ncai.inference.mean_field import MeanFieldVI
from ncai.model.bnn_lv import Model, Variance
from ncai.model.networks import FlatNetwork
from ncai.objectives.penalties import Penalties
from ncai.types import Unknowns

METHODS = (
    "map",
    "mfvi",
    "ncai0",
    "ncai",
    "marginal",
    "iwae",
    "hmc",
    "hmc_marginal",
)
# Methods under which z has its true posterior given W, or nearly so.
EXACT_IN_LATENTS = ("marginal", "iwae", "hmc", "hmc_marginal")

# The paper's network: one hidden layer, z beside x.
_SMALL_NETWORK = {
    "hidden": (50,),
    "activation": "leaky_relu",
    "latent_layer": "first",
    "latent_hidden": (),
    "n_restarts": 10,
    "n_folds": 0,
    "validation_fraction": 0.1,
    "rounding": "ignore",
    "tune_noise": False,
}
_PENALTIES = {
    "hz_weight": 1.0,
    "offdiagonal_weight": 10.0,
    "dependence_weight": 1.0,
    "hz_tolerance": 0.01,
    "input_tolerance": 0.5,
    "target_tolerance": 1.0,
    "penalise": "means",
    "ramp_fraction": 0.5,
}

PRESETS: dict[str, dict[str, Any]] = {
    # The paper's settings: 30,000 steps of Adam at 0.01, one Monte Carlo sample,
    # empirical Bayes for the priors, noise fixed (its grid has 0.1 and 0.01).
    "paper": {
        "inference": "ncai",
        "max_steps": 30_000,
        "learning_rate": 0.01,
        "schedule": "constant",
        "temperature": 1.0,
        "n_mc_samples": 1,
        "plateau": False,
        "weight_variance": "empirical",
        "weight_groups": "all",
        "target_transform": "none",
        "latent_variance": "empirical",
        "noise_variance": 0.1,
        "variance_prior": (3.0, 0.5),
        "noise_prior": (3.0, 0.5),
        "noise_starts": (0.1,),
        "variance_form": "paper",
        "keep": "best",
        **_SMALL_NETWORK,
        **_PENALTIES,
    },
    # What works unattended: learned noise under a weak prior, a rate that falls at a
    # plateau, and a stop when that no longer helps.
    "default": {
        "inference": "marginal",
        "max_steps": 20_000,
        "learning_rate": 0.01,
        "schedule": "constant",
        "temperature": 1.0,
        "n_mc_samples": 1,
        "plateau": True,
        "weight_variance": "empirical",
        "weight_groups": "all",
        "target_transform": "none",
        "latent_variance": 1.0,
        "noise_variance": "variational",
        "variance_prior": (3.0, 0.5),
        "noise_prior": (1.0, 0.02),
        "noise_starts": (0.01, 0.03, 0.1),
        "variance_form": "paper",
        "keep": "best",
        **_SMALL_NETWORK,
        **_PENALTIES,
    },
}

# Where a preset has other settings for a method.
METHOD_PRESETS: dict[tuple[str, str], dict[str, Any]] = {
    # Chosen on held-out rows of training parts: see docs/quality.md.
    ("default", "marginal"): {
        "hidden": (50, 50),
        "activation": "silu",
        "latent_layer": "last",
        "latent_hidden": "auto",
        "n_restarts": 16,
        "n_folds": 8,
        "max_steps": 4_000,
        "learning_rate": 0.05,
        "schedule": "cosine",
        "temperature": (0.001, 0.1),
        "noise_starts": (0.1,),
        "target_transform": "auto",
        "latent_variance": 4.0,  # wide: f starts out steep in z
        "rounding": "auto",
        "tune_noise": True,
        "keep": "weighted",
    },
    ("default", "iwae"): {
        "max_steps": 6_000,
        "learning_rate": 0.03,
        "schedule": "cosine",
        "temperature": 0.1,
        "noise_starts": (0.1,),
        "n_mc_samples": 8,
    },
    ("paper", "iwae"): {"n_mc_samples": 8},
}


def resolve(params: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with the preset filled in, all checked.

    NCAI's start and penalties act on z: without one, it is mean-field inference.
    """
    preset = params["preset"]
    one_of("preset", preset, PRESETS)
    filled = dict(params)
    method = params["inference"]
    if method is None:
        method = PRESETS[preset]["inference"]
    one_of("inference", method, METHODS)
    if params["latent_dim"] == 0 and method in ("ncai", "ncai0", "marginal", "iwae"):
        method = "mfvi"
    if params["validation_fraction"] is not None and params["n_folds"] is None:
        filled["n_folds"] = 0  # one part is held out, not each in turn
    own = METHOD_PRESETS.get((preset, method), {})
    for name, value in (PRESETS[preset] | own).items():
        if filled.get(name) is None:
            filled[name] = value
    filled["inference"] = method
    check(filled)
    return filled | {name: int(filled[name]) for name in (*COUNTS, *COUNTS_FROM_ZERO)}


# What latent_hidden="auto" chooses among; the first if nothing tells which is better.
LATENT_LAYERS: tuple[tuple[int, ...], ...] = ((20,), ())


def latent_layers(value: Any) -> tuple[tuple[int, ...], ...]:
    """The layers of z to choose among: one, but for "auto"."""
    if isinstance(value, str) and value == "auto":
        return LATENT_LAYERS
    return (layer_widths("latent_hidden", value, ", or 'auto'"),)


def build_model(s: Mapping[str, Any], network: FlatNetwork) -> Model:
    """The model that the settings describe."""
    alpha, beta = s["variance_prior"]

    def prior(value):
        mode = value if isinstance(value, str) else "fixed"
        start = 1.0 if isinstance(value, str) else value
        return Variance(
            jnp.asarray(float(start)), mode, alpha, beta, s["variance_form"]
        )

    noise = s["noise_variance"]
    mode = noise if isinstance(noise, str) else "fixed"
    start = s["noise_starts"][0] if isinstance(noise, str) else noise
    start = np.asarray(start, float).reshape(-1)
    if start.size not in (1, network.output_dim):
        raise ValueError(
            f"noise_variance has {start.size} numbers; it must have 1, or "
            f"{network.output_dim}, one for each output."
        )
    noise_alpha, noise_beta = s["noise_prior"]
    return Model(
        network,
        prior(s["weight_variance"]),
        prior(s["latent_variance"]),
        Variance(
            jnp.asarray(np.broadcast_to(start, network.output_dim), float),
            mode,
            noise_alpha,
            noise_beta,
        ),
        s["weight_groups"],
    )


def build_method(s: Mapping[str, Any], start: Unknowns | None) -> Inference:
    """The method that the settings describe; `start` is one given by value."""
    training = Training(
        num_restarts=s["n_restarts"],
        max_steps=s["max_steps"],
        learning_rate=s["learning_rate"],
        schedule=s["schedule"],
        num_samples=s["n_mc_samples"],
        plateau=s["plateau"],
        rate_drops=2 if s["plateau"] else 0,
        warm_start_steps=max(min(5_000, s["max_steps"] // 3), 1),
        settle_steps=max(s["max_steps"] // 10, 1),
        noise_starts=tuple(float(v) for v in s["noise_starts"]),
    )
    name = s["inference"]
    if name == "map":
        return MAP(training, given=start)
    if name in ("hmc", "hmc_marginal"):
        from ncai.inference.hmc import HMC  # BlackJAX takes a while to import

        return HMC(
            marginal=name == "hmc_marginal",
            num_chains=s["n_chains"],
            num_warmup=s["n_warmup"],
            num_draws=s["n_draws"],
            training=Training(
                max_steps=min(3000, s["max_steps"]),
                learning_rate=s["learning_rate"],
                warm_start_steps=min(3000, s["max_steps"]),
            ),
            start=start,
        )
    begin = start if start is not None else s["start"]
    if begin is None:
        begin = "random" if name in ("mfvi", "marginal") else "ncai"
    temperatures = restart_temperatures(s)
    if name == "marginal":
        rank = s["posterior_rank"]
        return Marginal(
            training,
            begin,
            temperatures,
            rank if isinstance(rank, str) else int(rank),
        )
    if name == "iwae":
        return ImportanceWeighted(
            training,
            begin,
            temperatures,
            s["n_mc_samples"],
        )
    return MeanFieldVI(
        training,
        start=begin,
        hold_means=bool(s["hold_means"]),
        penalties=_penalties(s) if name == "ncai" else None,
        ramp_fraction=float(s["ramp_fraction"]),
    )


def _penalties(s: Mapping[str, Any]) -> Penalties:
    return Penalties(
        *(float(s[f"{part}_weight"]) for part in PENALISED),
        *(float(s[f"{part}_tolerance"]) for part in ("hz", "input", "target")),
        on=s["penalise"],
    )


def has_folds(s: Mapping[str, Any]) -> bool:
    """Whether each restart holds out rows of its own."""
    return s["n_folds"] > 1 and s["keep"] != "best"


def restart_temperatures(s: Mapping[str, Any]) -> tuple[float, ...]:
    """The temperature of each restart.

    Of several, with folds, each is used on every fold before the next has its turn.
    """
    listed = [float(t) for t in np.atleast_1d(s["temperature"])]
    block = s["n_folds"] if has_folds(s) else 1
    return tuple(listed[i // block % len(listed)] for i in range(s["n_restarts"]))
