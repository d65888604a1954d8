"""Model files of version 0.1: their flat settings, put where they belong now."""

from typing import Any

from ncai.estimators._parameters import NETWORK_SETTINGS, REMOVED
from ncai.estimators.model_file import ModelFileError
from ncai.inference.registry import METHODS

# What settings of the first files lack, as they were then.
EARLIEST = {
    "weight_groups": "all",
    "target_transform": "none",
    "n_folds": 0,
    "rounding": "ignore",
}
RENAMED = {"tune_noise": "recalibrate_noise"}
# Settings that a posterior of today cannot have.
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
    """The header in the form of today; refused if the model cannot be had any more."""
    settings = EARLIEST | header["settings"]
    for name, kept in GONE.items():
        if settings.get(name) not in kept or "factor.weights" in arrays:
            raise ModelFileError(
                f"{path} was fitted by ncai 0.1 with {name}={settings.get(name)!r}, "
                "which ncai 0.2 no longer has: fit the model again to convert it."
            )
    resolved = {name: settings[name] for name in OF_THE_ESTIMATOR if name in settings}
    resolved["time_limit"] = settings.get("time_limit")
    resolved["rounding_steps"] = settings.get("rounding_steps", ())
    resolved["method"] = _method(settings)
    params = header["params"]
    given = {name: params[name] for name in CONSTRUCTOR if name in params}
    if header["estimator"] == "BNNRegressor":
        given.pop("latent_dim", None)
    given["inference"] = _given_method(params, settings["inference"])
    if any(params.get(name) is not None for name in NETWORK_SETTINGS):
        given |= {"network": header["mlp"], "hidden": None, "activation": None}
    return header | {"settings": resolved, "params": given}


def _method(settings: dict[str, Any]) -> dict[str, Any]:
    """A method with those of the flat settings that are its own."""
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
    """The method as the user gave it: by name, or with the settings given."""
    given = {key: value for key, value in params.items() if value is not None}
    method = _method({"inference": used} | given)
    defaults = METHODS[method["name"]]().get_params()
    changed = {
        key: value
        for key, value in method["settings"].items()
        if value != _as_in_json(defaults[key])
    }
    return method | {"settings": changed} if changed else params.get("inference")


def _as_in_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
