"""Restore a fitted estimator from the header and the arrays of a model file.

Files of version 0.1 have flat settings, which are moved to their present places.
"""

import math
from importlib import import_module
from typing import Any

import numpy as np

from ncai.estimators._parameters import NETWORK_SETTINGS, REMOVED
from ncai.estimators._schema import ANY_NUMBER, brief, check, check_draws, form_of
from ncai.estimators.model_file import ModelFileError
from ncai.fitting.settings import Settings
from ncai.inference.base import Method
from ncai.inference.latents import LatentPosterior
from ncai.inference.posterior import (
    GaussianPosterior,
    NoiseSpread,
    SamplePosterior,
    SamplerReport,
)
from ncai.inference.registry import METHODS
from ncai.model.bnn_lv import PriorState
from ncai.model.networks import MLP, FlatNetwork
from ncai.preprocessing.rounding import Lattice
from ncai.preprocessing.scaling import Scaling
from ncai.preprocessing.target_transforms import TargetTransform
from ncai.types import TrainingRows, Unknowns

# The modules of the estimators that a file may name.
HOMES = {
    "BNNLVRegressor": "ncai.estimators.bnn_lv",
    "BNNRegressor": "ncai.estimators.bnn",
}
PLAIN_ATTRIBUTES = (
    "stop_reasons",
    "restarts_lost",
    "interrupted",
    "n_iter",
    "fit_seconds",
    "score_name",
)
NOT_STORED = ("history_", "kept_restarts_", "held_out_score_")


def restore(cls, header: dict, arrays: dict, network, path):
    """Return the saved estimator, an instance of `cls` or of a subclass."""
    stored = _class_of(header["estimator"])
    if not issubclass(stored, cls):
        raise ModelFileError(
            f"{path} holds a {stored.__name__}; load it with {stored.__name__}.load."
        )
    if header["custom_network"] is not None and network is None:
        raise ModelFileError(
            f"{path} was fitted with a custom network "
            f"({brief(header['custom_network'])}): pass it as load(path, network=...)."
        )
    if header["version"] == 1:
        header = upgraded(header, arrays, path)
    _check_arrays(path, header, arrays)
    estimator = stored(**_params(header["params"], network, path))
    mlp = network if network is not None else MLP(**tuples(header["mlp"]))
    settings = _settings(header["settings"], mlp, path)
    flat = FlatNetwork(mlp, *header["dims"])
    if flat.num_weights != header["num_weights"]:
        raise ModelFileError(
            f"{path} holds {header['num_weights']} weights; this network has "
            f"{flat.num_weights}."
        )
    estimator.settings_ = settings
    estimator.scaling_ = _scaling(settings, arrays, flat.output_dim)
    _set_attributes(estimator, header, flat)
    _set_training_part(estimator, arrays)
    estimator.posterior_ = _posterior(header["posterior"], settings, flat, arrays)
    return estimator


def _class_of(name: str) -> type:
    return getattr(import_module(HOMES[name]), name)


# ----- Settings -----------------------------------------------------------------------


def _params(stored: dict[str, Any], network, path) -> dict[str, Any]:
    """Return the arguments of the constructor."""
    params = tuples(stored)
    if isinstance(params.get("inference"), dict):
        params["inference"] = _method(params["inference"], path)
    if isinstance(params.get("network"), dict):
        params["network"] = MLP(**tuples(params["network"]))
    return params if network is None else params | {"network": network}


def _method(stored: dict[str, Any], path) -> Method:
    name = stored["name"]
    if name not in METHODS:
        raise ModelFileError(
            f"{path} was fitted by the method {brief(repr(name))}, which is not known "
            "here: register it with ncai.inference.registry.register."
        )
    method = METHODS[name](**tuples(stored["settings"]))
    check_draws(method.get_params())
    return method


def _settings(stored: dict[str, Any], network, path) -> Settings:
    values = tuples(stored)
    # A stored method has all its values. A file may lack some that a preset gives.
    method = _method(values.pop("method"), path).resolved(values["preset"])
    return Settings(method=method, network=network, **values)


def tuples(params: dict) -> dict:
    """Turn lists back into tuples and "inf" back into a number."""

    def restored(value):
        if isinstance(value, list):
            return tuple(restored(v) for v in value)
        return math.inf if value == "inf" else value

    return {name: restored(value) for name, value in params.items()}


# ----- Fitted attributes --------------------------------------------------------------


def _posterior(kind: str, settings: Settings, flat: FlatNetwork, arrays: dict):
    model = settings.method.build_model(flat, settings.noise_variance)
    priors = PriorState(*(arrays[f"priors.{name}"] for name in PriorState._fields))

    def unknowns(part: str) -> Unknowns:
        weights = arrays[f"{part}.weights"]
        none = np.zeros((*weights.shape[:-1], 0, flat.latent_dim), weights.dtype)
        latents: Any = arrays.get(f"{part}.latents", none)
        return Unknowns(weights, latents, arrays[f"{part}.log_noise_var"])

    if kind == "gaussian":
        mean, scale = unknowns("mean"), unknowns("scale")
        spread = None
        if "noise_spread.steps" in arrays:
            names = (f"noise_spread.{name}" for name in NoiseSpread._fields)
            spread = NoiseSpread(*(arrays[name] for name in names))
        return GaussianPosterior(model, mean, scale, priors, arrays["shares"], spread)
    return SamplePosterior(model, unknowns("samples"), priors, arrays["shares"])


def _scaling(settings: Settings, arrays: dict, num_outputs: int) -> Scaling:
    transform = TargetTransform(
        settings.target_transform,
        arrays.get("target_powers", np.ones(num_outputs)),
        arrays.get("target_lower", -np.inf),
        arrays.get("target_upper", np.inf),
    )
    rounding = None
    if "lattice_step" in arrays:
        rounding = Lattice(arrays["lattice_origin"], arrays["lattice_step"])
    return Scaling(
        arrays["input_shift"],
        arrays["input_scale"],
        arrays["target_shift"],
        arrays["target_scale"],
        transform,
        rounding,
        settings.rounding == "auto",
    )


def _set_attributes(estimator, header: dict, flat: FlatNetwork) -> None:
    estimator.seed_ = header["seed"]
    estimator.single_output_ = header["single_output"]
    estimator.n_features_in_ = flat.input_dim
    if header["feature_names"] is not None:
        estimator.feature_names_in_ = np.asarray(header["feature_names"], object)
    for name in PLAIN_ATTRIBUTES:
        setattr(estimator, f"{name}_", header[name])
    estimator.restart_scores_ = np.asarray(
        [-np.inf if s is None else s for s in header["restart_scores"]], float
    )
    estimator.sampler_report_ = _sampler_report(header.get("sampler_report"))
    for name in NOT_STORED:
        setattr(estimator, name, None)


def _set_training_part(estimator, arrays: dict) -> None:
    """Set the training rows and their latents, if the file has them."""
    estimator.training_rows_ = None
    estimator.train_index_ = None
    estimator.latent_posterior_ = None
    if "training.inputs" in arrays:
        estimator.training_rows_ = TrainingRows(
            arrays["training.inputs"],
            arrays["training.targets"],
            arrays["training.weights"],
        )
        estimator.train_index_ = arrays["training.index"]
    if "latents.mean" in arrays:
        estimator.latent_posterior_ = LatentPosterior(
            arrays["latents.mean"], arrays["latents.std"]
        )


def _sampler_report(found: dict | None) -> SamplerReport | None:
    """Return the sampler's report; None for other methods and for older files."""
    if found is None:
        return None
    check(found, form_of(SamplerReport, ANY_NUMBER), "sampler_report")
    numbers = {name: math.nan if v is None else v for name, v in found.items()}
    return SamplerReport(**tuples(numbers))


# ----- Checks -------------------------------------------------------------------------


def _check_arrays(path, header: dict, arrays: dict) -> None:
    """Reject arrays that do not match the header, before the network is made.

    The sizes in the header are then those of arrays that the file really contains.
    """
    gaussian = {"gaussian": ("mean", "scale"), "samples": ("samples",)}
    parts = gaussian[header["posterior"]]
    num_components = len(_array(path, arrays, "shares"))
    weights = _array(path, arrays, f"{parts[0]}.weights")
    if not weights.size:
        raise ModelFileError(
            f"{path} is damaged: {parts[0]}.weights has shape {weights.shape}, which "
            "holds no weights."
        )
    draws = weights.shape[1:-1]  # axes of a sampler's chain
    expected = _shapes(header, arrays, parts, (num_components, *draws))
    for name, shape in expected.items():
        found = _array(path, arrays, name)
        if found.shape != shape:
            raise ModelFileError(
                f"{path} is damaged: {name} has shape {found.shape}, not {shape}."
            )
    for name, array in arrays.items():
        if (array.dtype.kind == "i") != (name == "training.index"):
            raise ModelFileError(
                f"{path} is damaged: {brief(name)} has values of type {array.dtype}."
            )
    _check_finite(path, arrays)


def _array(path, arrays: dict, name: str) -> np.ndarray:
    if name not in arrays or not arrays[name].ndim:
        raise ModelFileError(f"{path} lacks part of a model (the array {name}).")
    return arrays[name]


def _shapes(
    header: dict, arrays: dict, parts: tuple[str, ...], draws: tuple[int, ...]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all arrays that a file with this header has."""
    num_inputs, num_latents, num_outputs = header["dims"]
    inputs, outputs, components = (num_inputs,), (num_outputs,), draws[:1]
    expected = {
        "input_shift": inputs,
        "input_scale": inputs,
        "target_shift": outputs,
        "target_scale": outputs,
        "shares": components,
        "priors.weight_variance": components,
        "priors.latent_variance": components,
        "priors.noise_variance": (*components, *outputs),
    }
    for part in parts:
        expected[f"{part}.weights"] = (*draws, header["num_weights"])
        # Noise that is not learned has no values.
        noise = arrays.get(f"{part}.log_noise_var")
        empty = noise is not None and noise.shape == (*draws, 0)
        expected[f"{part}.log_noise_var"] = (*draws, 0 if empty else num_outputs)
    rows = arrays["training.inputs"].shape[:1] if "training.inputs" in arrays else ()
    given = {
        **dict.fromkeys(("target_powers", "target_lower", "target_upper"), outputs),
        **dict.fromkeys(("lattice_origin", "lattice_step"), outputs),
        **{f"noise_spread.{name}": components for name in NoiseSpread._fields},
        "training.inputs": (*rows, *inputs),
        "training.targets": (*rows, *outputs),
        "training.weights": rows,
        "training.index": rows,
        "latents.mean": (*rows, num_latents),
        "latents.std": (*rows, num_latents),
        "samples.latents": (*draws, *rows, num_latents),
    }
    return expected | {name: given[name] for name in given if name in arrays}


def _check_finite(path, arrays: dict) -> None:
    for name, array in arrays.items():
        # The range of a transform may be unbounded, and a constant input has no scale.
        boundless = name in ("target_lower", "target_upper", "input_scale")
        if np.isnan(array).any() or not (boundless or np.isfinite(array).all()):
            raise ModelFileError(
                f"{path} is damaged: {brief(name)} holds NaN or infinity."
            )


# Settings that the first files lack, with the values of that time.
EARLIEST = {
    "weight_groups": "all",
    "target_transform": "none",
    "n_folds": 0,
    "rounding": "ignore",
}
RENAMED = {"tune_noise": "recalibrate_noise"}
# Settings whose posteriors the present code does not support.
GONE = {"posterior_rank": (0, None), "weight_groups": ("all", None)}
OF_THE_ESTIMATOR = (
    "latent_dim",
    "preset",
    "n_restarts",
    "max_steps",
    "time_limit",
    "noise_variance",
    "target_transform",
    "rounding",
    "keep",
    "standardize",
)
CONSTRUCTOR = (*OF_THE_ESTIMATOR, "hidden", "activation", "progress", "random_state")


def upgraded(header: dict[str, Any], arrays: dict, path) -> dict[str, Any]:
    """Convert a header to the present format; reject unsupported models."""
    settings = EARLIEST | header["settings"]
    for name, kept in GONE.items():
        if settings.get(name) not in kept or "factor.weights" in arrays:
            raise ModelFileError(
                f"{path} was fitted by ncai 0.1 with {name}="
                f"{brief(repr(settings.get(name)))}, which ncai 0.2 no longer has: fit "
                "the model again to convert it."
            )
    resolved = {name: settings[name] for name in OF_THE_ESTIMATOR if name in settings}
    resolved["time_limit"] = settings.get("time_limit")
    resolved["rounding_steps"] = settings.get("rounding_steps", ())
    resolved["method"] = _upgraded_method(settings)
    params = header["params"]
    given = {name: params[name] for name in CONSTRUCTOR if name in params}
    if header["estimator"] == "BNNRegressor":
        given.pop("latent_dim", None)
    given["inference"] = _given_method(params, settings["inference"])
    if any(params.get(name) is not None for name in NETWORK_SETTINGS):
        given |= {"network": header["mlp"], "hidden": None, "activation": None}
    return header | {"settings": resolved, "params": given}


def _upgraded_method(settings: dict[str, Any]) -> dict[str, Any]:
    """Create the method from the flat settings that belong to it."""
    name = settings["inference"]
    known = METHODS[name]().get_params()
    flat = {RENAMED.get(key, key): value for key, value in settings.items()}
    if "n_latent_samples" in known:
        flat["n_latent_samples"] = flat.get("n_mc_samples", 8)
    own = {
        key: value
        for key, value in flat.items()
        if key in known and key not in REMOVED and value is not None
    }
    return {"name": name, "settings": own}


def _given_method(params: dict[str, Any], used: str) -> Any:
    """Return the method as the user gave it: a name, or an object with settings."""
    given = {key: value for key, value in params.items() if value is not None}
    method = _upgraded_method({"inference": used} | given)
    defaults = METHODS[method["name"]]().get_params()
    changed = {
        key: value
        for key, value in method["settings"].items()
        if value != _as_in_json(defaults[key])
    }
    return method | {"settings": changed} if changed else params.get("inference")


def _as_in_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
