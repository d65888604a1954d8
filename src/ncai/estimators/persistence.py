"""Model files: safetensors with a JSON header. Reading one never runs code.

The header says what the file is and holds the settings; the tensors are the posterior
over the weights (or a sampler's draws) and the scaling. Per-row latents and training
rows are left out unless asked for. A checksum over all of it tells damage.
"""

import json
import math
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from ncai.estimators.model_file import (
    CHECKSUM,
    FORMAT,
    FORMAT_VERSION,
    ModelFileError,
    checksum,
    read_file,
)
from ncai.fitting.settings import build_model
from ncai.inference.latents import LatentPosterior
from ncai.inference.posterior import GaussianPosterior, SamplePosterior, SamplerReport
from ncai.model.bnn_lv import PriorState
from ncai.model.networks import MLP, FlatNetwork
from ncai.preprocessing.rounding import Lattice
from ncai.preprocessing.scaling import Scaling
from ncai.preprocessing.target_transforms import TargetTransform
from ncai.runtime.atomic_write import replacing
from ncai.types import Rows, Unknowns

NOT_STORED = ("network", "start")
# Older files name these settings, which only mattered during training.
REMOVED_SETTINGS = ("multipliers", "hz_slack")


def save_model(
    estimator, path, include_training: bool = False, table: dict | None = None
) -> None:
    """Write a fitted estimator; an existing file is replaced in one step.

    Args:
        estimator: fitted.
        path: of the file.
        include_training: whether the training rows and their latents go along.
        table: of a `TableModel`, how it prepares tables and what its fit found.
    """
    path = Path(path)
    header, arrays = describe(estimator, include_training)
    header["table"] = _plain(table)
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    header[CHECKSUM] = checksum(header, arrays)
    content = save(arrays, metadata={"ncai": json.dumps(header)})
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def describe(estimator, include_training: bool) -> tuple[dict, dict[str, np.ndarray]]:
    """Header and arrays of a fitted estimator."""
    from ncai import __version__

    posterior, sampler = estimator.posterior_, estimator.sampler_report_
    network = posterior.model.network
    custom = type(network.network) is not MLP
    header = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "ncai": __version__,
        "versions": _versions(),
        "estimator": type(estimator).__name__,
        "params": _plain(_storable(estimator.get_params(deep=False))),
        "settings": _plain(_storable(estimator.settings_)),
        "dims": [network.input_dim, network.latent_dim, network.output_dim],
        "num_weights": network.num_weights,
        "custom_network": repr(network.network) if custom else None,
        "mlp": None if custom else _plain(asdict(network.network)),
        "seed": estimator.seed_,
        "single_output": estimator.single_output_,
        "feature_names": _feature_names(estimator),
        "posterior": "gaussian"
        if isinstance(posterior, GaussianPosterior)
        else "samples",
        "stop_reasons": estimator.stop_reasons_,
        "restarts_lost": estimator.restarts_lost_,
        "interrupted": estimator.interrupted_,
        "n_iter": estimator.n_iter_,
        "fit_seconds": estimator.fit_seconds_,
        "score_name": estimator.score_name_,
        "restart_scores": _plain(estimator.restart_scores_.tolist()),
        "sampler_report": _plain(sampler and asdict(sampler)),
    }
    scaling = estimator.scaling_
    arrays = {
        "shares": posterior.shares,
        "input_shift": scaling.input_shift,
        "input_scale": scaling.input_scale,
        "target_shift": scaling.target_shift,
        "target_scale": scaling.target_scale,
        "target_powers": scaling.transform.powers,
        "target_lower": np.broadcast_to(
            scaling.transform.lower, scaling.target_shift.shape
        ),
        "target_upper": np.broadcast_to(
            scaling.transform.upper, scaling.target_shift.shape
        ),
        "lattice_origin": scaling.lattice.origin,
        "lattice_step": scaling.lattice.step,
        **{f"priors.{k}": v for k, v in posterior.priors._asdict().items()},
    }
    parts = (
        {"mean": posterior.mean, "scale": posterior.scale}
        if isinstance(posterior, GaussianPosterior)
        else {"samples": posterior.samples}
    )
    for part, unknowns in parts.items():
        arrays[f"{part}.weights"] = unknowns.weights
        arrays[f"{part}.log_noise_var"] = unknowns.log_noise_var
    if isinstance(posterior, GaussianPosterior) and posterior.factor is not None:
        arrays["factor.weights"] = posterior.factor
    if include_training:
        rows = estimator.training_rows_
        if rows is None:
            raise ValueError(
                "include_training=True needs the training rows, and this model was "
                "read from a file without them."
            )
        arrays |= {
            "training.inputs": rows.inputs,
            "training.targets": rows.targets,
            "training.weights": rows.weights,
            "training.index": estimator.train_index_,
        }
        if estimator.latent_posterior_ is not None:
            arrays["latents.mean"] = estimator.latent_posterior_.mean
            arrays["latents.std"] = estimator.latent_posterior_.std
        if isinstance(posterior, SamplePosterior) and posterior.samples.latents.size:
            arrays["samples.latents"] = posterior.samples.latents
    return header, {name: np.asarray(array) for name, array in arrays.items()}


def load_model(cls, path, network=None):
    """An estimator as `save_model` left it."""
    header, arrays = read_file(path)
    try:
        return _restore(cls, header, arrays, network, path)
    except ModelFileError:
        raise
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise ModelFileError(
            f"{path} lacks part of a model ({type(error).__name__}: {error})."
        ) from None


def _restore(cls, header: dict, arrays: dict, network, path):
    from ncai.estimators.bnn import BNNRegressor
    from ncai.estimators.bnn_lv import BNNLVRegressor

    known = {c.__name__: c for c in (BNNLVRegressor, BNNRegressor)}
    stored = known[header["estimator"]]
    if not issubclass(stored, cls):
        raise ModelFileError(
            f"{path} holds a {stored.__name__}; load it with {stored.__name__}.load."
        )
    params = {
        name: value
        for name, value in _tuples(header["params"]).items()
        if name not in REMOVED_SETTINGS
    }
    if header["custom_network"] is not None and network is None:
        raise ModelFileError(
            f"{path} was fitted with a network of its own "
            f"({header['custom_network']}): give it as load(path, network=...)."
        )
    estimator = stored(**params, network=network)
    # Files older than these settings do not have them.
    settings = {
        "weight_groups": "all",
        "target_transform": "none",
        "latent_layer": "first",
        "latent_hidden": (),
        "n_folds": 0,
        "rounding": "ignore",
    }
    settings |= _tuples(header["settings"])
    if network is None:
        mlp = MLP(**_tuples(header["mlp"]))
        if mlp != estimator._network(settings):  # it was given as network=MLP(...)
            estimator.network = mlp
    flat = FlatNetwork(estimator._network(settings), *header["dims"])
    if flat.num_weights != header["num_weights"]:
        raise ModelFileError(
            f"{path} holds {header['num_weights']} weights; this network has "
            f"{flat.num_weights}."
        )
    _check_shapes(path, arrays, header["posterior"], flat)
    _check_finite(path, arrays)
    model = build_model(settings, flat)
    priors = PriorState(*(arrays[f"priors.{name}"] for name in PriorState._fields))

    def unknowns(part):
        weights = arrays[f"{part}.weights"]
        none = np.zeros((*weights.shape[:-1], 0, flat.latent_dim), weights.dtype)
        latents: Any = arrays.get(f"{part}.latents", none)
        return Unknowns(weights, latents, arrays[f"{part}.log_noise_var"])

    if header["posterior"] == "gaussian":
        estimator.posterior_ = GaussianPosterior(
            model,
            unknowns("mean"),
            unknowns("scale"),
            priors,
            arrays["shares"],
            arrays.get("factor.weights"),
        )
    else:
        estimator.posterior_ = SamplePosterior(
            model, unknowns("samples"), priors, arrays["shares"]
        )
    estimator.scaling_ = Scaling(
        arrays["input_shift"],
        arrays["input_scale"],
        arrays["target_shift"],
        arrays["target_scale"],
        TargetTransform(
            settings["target_transform"],
            arrays.get("target_powers", np.ones(flat.output_dim)),
            arrays.get("target_lower", -np.inf),
            arrays.get("target_upper", np.inf),
        ),
        Lattice(arrays["lattice_origin"], arrays["lattice_step"])
        if "lattice_step" in arrays
        else None,
    )
    estimator.settings_ = settings
    estimator.seed_ = header["seed"]
    estimator.single_output_ = header["single_output"]
    estimator.n_features_in_ = flat.input_dim
    if header["feature_names"] is not None:
        estimator.feature_names_in_ = np.asarray(header["feature_names"], object)
    for name in (
        "stop_reasons",
        "restarts_lost",
        "interrupted",
        "n_iter",
        "fit_seconds",
        "score_name",
    ):
        setattr(estimator, f"{name}_", header[name])
    estimator.restart_scores_ = np.asarray(
        [-np.inf if s is None else s for s in header["restart_scores"]], float
    )
    estimator.sampler_report_ = _sampler_report(header.get("sampler_report"))
    estimator.history_ = None
    estimator.kept_restarts_ = None
    estimator.held_out_score_ = None
    estimator.training_rows_ = None
    estimator.train_index_ = None
    estimator.latent_posterior_ = None
    if "training.inputs" in arrays:
        estimator.training_rows_ = Rows(
            arrays["training.inputs"],
            arrays["training.targets"],
            arrays["training.weights"],
        )
        estimator.train_index_ = arrays["training.index"]
    if "latents.mean" in arrays:
        estimator.latent_posterior_ = LatentPosterior(
            arrays["latents.mean"], arrays["latents.std"]
        )
    return estimator


def _sampler_report(found: dict | None) -> SamplerReport | None:
    """None for a method that does not sample, and for files older than the report."""
    if found is None:
        return None
    numbers = {name: math.nan if v is None else v for name, v in found.items()}
    return SamplerReport(**_tuples(numbers))


def _check_shapes(path, arrays: dict, posterior: str, network: FlatNetwork) -> None:
    """Refuse arrays that do not fit together, before a prediction stumbles on them."""
    parts = ("mean", "scale") if posterior == "gaussian" else ("samples",)
    components = len(arrays["shares"])
    draws = arrays[f"{parts[0]}.weights"].shape[1:-1]  # of a sampler's chain
    inputs, outputs = (network.input_dim,), (network.output_dim,)
    expected = {
        "input_shift": inputs,
        "input_scale": inputs,
        "target_shift": outputs,
        "target_scale": outputs,
        # One for all weights, or one for each.
        "priors.weight_variance": (components, network.num_weights)
        if arrays["priors.weight_variance"].ndim > 1
        else (components,),
        "priors.latent_variance": (components,),
        "priors.noise_variance": (components, *outputs),
        **{
            f"{part}.weights": (components, *draws, network.num_weights)
            for part in parts
        },
    }
    if "samples.latents" in arrays:
        rows = arrays["training.inputs"].shape[:1]
        latents = (components, *draws, *rows, network.latent_dim)
        expected["samples.latents"] = latents
    if "factor.weights" in arrays:
        shape = arrays["factor.weights"].shape
        rows = min(shape[-2:][0], network.num_weights)  # of the last weights, or of all
        expected["factor.weights"] = (components, rows, shape[-1])
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise ModelFileError(
                f"{path} is damaged: {name} has shape {arrays[name].shape}, "
                f"not {shape}."
            )


def _check_finite(path, arrays: dict) -> None:
    for name, array in arrays.items():
        # A transform may go on without bound, and a constant input has no scale.
        boundless = name in ("target_lower", "target_upper", "input_scale")
        if np.isnan(array).any() or not (boundless or np.isfinite(array).all()):
            raise ModelFileError(f"{path} is damaged: {name} holds NaN or infinity.")


def _versions() -> dict[str, str]:
    """What a result may depend on beside the seed."""
    names = ("jax", "numpy", "scikit-learn")
    return {"python": platform.python_version()} | {
        name: version(name) for name in names
    }


def _storable(params: dict) -> dict:
    """Without what a file cannot hold: networks, starts, and generators as seeds."""
    seed = params.get("random_state")
    left_out = NOT_STORED
    if seed is not None and not isinstance(seed, int | np.integer):
        left_out += ("random_state",)
    return {name: value for name, value in params.items() if name not in left_out}


def _feature_names(estimator) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _plain(value: Any) -> Any:
    """Only what JSON has; infinities as strings, since JSON has none."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value) if value > 0 else None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise ValueError(f"{value!r} cannot be written to a model file.")


def _tuples(params: dict) -> dict:
    """Lists back to tuples, "inf" back to a number, as the estimator had them."""

    def restore(value):
        if isinstance(value, list):
            return tuple(restore(v) for v in value)
        return math.inf if value == "inf" else value

    return {name: restore(value) for name, value in params.items()}
