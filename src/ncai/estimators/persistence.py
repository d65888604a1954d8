"""Write a fitted estimator to a model file, and read it.

A model file is a safetensors file with a JSON header, so reading one never runs code.
The header identifies the file and contains the settings. The tensors are the posterior
over the weights (or the draws of a sampler) and the scaling. The training rows and
their latents are stored only on request. A checksum over the whole file detects damage.
"""

import json
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from ncai.estimators._restore import restore
from ncai.estimators._schema import (
    MOST_HEADER_BYTES,
    HeaderError,
    brief,
    check_draws,
    check_header,
    parse_header,
)
from ncai.estimators.model_file import (
    CHECKSUM,
    FORMAT,
    FORMAT_VERSION,
    ModelFileError,
    checksum,
    read_file,
)
from ncai.fitting.settings import Settings
from ncai.inference.base import Method
from ncai.inference.posterior import GaussianPosterior, Posterior, SamplePosterior
from ncai.model.networks import MLP
from ncai.preprocessing.scaling import Scaling
from ncai.runtime.atomic_write import replacing


def save_model(
    estimator, path, include_training: bool = False, table: dict | None = None
) -> None:
    """Write a fitted estimator to a file; an existing file is replaced in one step.

    Args:
        estimator: the fitted estimator.
        path: the file.
        include_training: whether to store the training rows and their latents.
        table: for a `TableModel`, how it prepares tables, and the record of its fit.
    """
    path = Path(path)
    header = describe(estimator) | {"table": plain(table)}
    arrays = arrays_of(estimator, include_training)
    header[CHECKSUM] = checksum(header, arrays)
    text = json.dumps(header)
    content = save(arrays, metadata={"ncai": text})
    _check_readable(text, content)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def _check_readable(text: str, content: bytes) -> None:
    """Reject, before a file is written, what `load_model` would reject."""
    length = int.from_bytes(content[:8], "little")
    if length > MOST_HEADER_BYTES:
        raise ValueError(
            f"the names and levels of the model take {length} bytes, and a model file "
            f"has room for {MOST_HEADER_BYTES}: leave out columns with many levels."
        )
    try:
        header = parse_header(text)
        check_header(header, len(content))
        check_draws(header["settings"]["method"]["settings"])
    except HeaderError as error:
        raise ValueError(f"the model cannot be saved, because it {error}.") from None


def load_model(cls, path, network=None):
    """Read an estimator that `save_model` wrote.

    Args:
        cls: the expected class; the file may also contain a subclass.
        path: the file.
        network: the user's own network, if the model was fitted with one.
    """
    header, arrays = read_file(path)
    try:
        return restore(cls, header, arrays, network, path)
    except ModelFileError:
        raise
    except HeaderError as error:
        raise ModelFileError(f"{path} {error}.") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(
            f"{path} lacks part of a model ({type(error).__name__}: "
            f"{brief(str(error))})."
        ) from None


# ----- The header ---------------------------------------------------------------------


def describe(estimator) -> dict[str, Any]:
    """Return the header of a fitted estimator."""
    from ncai import __version__

    posterior, sampler = estimator.posterior_, estimator.sampler_report_
    network = posterior.model.network
    custom = type(network.network) is not MLP
    gaussian = isinstance(posterior, GaussianPosterior)
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "ncai": __version__,
        "versions": _versions(),
        "estimator": type(estimator).__name__,
        "params": plain(_storable(estimator.get_params(deep=False))),
        "settings": plain(_settings_header(estimator.settings_)),
        "dims": [network.input_dim, network.latent_dim, network.output_dim],
        "num_weights": network.num_weights,
        "custom_network": repr(network.network) if custom else None,
        "mlp": None if custom else plain(asdict(network.network)),
        "seed": estimator.seed_,
        "single_output": estimator.single_output_,
        "feature_names": _feature_names(estimator),
        "posterior": "gaussian" if gaussian else "samples",
        "stop_reasons": estimator.stop_reasons_,
        "restarts_lost": estimator.restarts_lost_,
        "interrupted": estimator.interrupted_,
        "n_iter": estimator.n_iter_,
        "fit_seconds": estimator.fit_seconds_,
        "score_name": estimator.score_name_,
        "restart_scores": plain(estimator.restart_scores_.tolist()),
        "sampler_report": plain(sampler and asdict(sampler)),
    }


def method_header(method: Method) -> dict[str, Any]:
    """Return a method as its name and settings, without a start given as values."""
    settings = {
        name: value
        for name, value in method.get_params().items()
        if not (name == "start" and isinstance(value, Mapping))
    }
    return {"name": method.name, "settings": settings}


def _settings_header(settings: Settings) -> dict[str, Any]:
    """Return all settings but the network, which has its own entry in the header."""
    own = {
        one.name: getattr(settings, one.name)
        for one in fields(settings)
        if one.init and one.name not in ("method", "network")
    }
    return own | {"method": method_header(settings.method)}


def _storable(params: dict) -> dict:
    """Return the arguments of the constructor that a file can hold.

    The user passes a custom network again when reading the file. A random generator
    cannot be stored, but the seed that it gave is in the file.
    """
    network, seed = params.get("network"), params.get("random_state")
    stored = {name: params[name] for name in params if name != "network"}
    if isinstance(network, MLP):
        stored["network"] = asdict(network)
    if isinstance(params["inference"], Method):
        stored["inference"] = method_header(params["inference"])
    if seed is not None and not isinstance(seed, int | np.integer):
        del stored["random_state"]
    return stored


def _versions() -> dict[str, str]:
    """Return the versions that a result may depend on."""
    names = ("jax", "numpy", "scikit-learn")
    return {"python": platform.python_version()} | {
        name: version(name) for name in names
    }


def _feature_names(estimator) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def plain(value: Any) -> Any:
    """Convert a value to types that JSON has; infinities become strings."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value) if value > 0 else None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise ValueError(f"{value!r} cannot be written to a model file.")


# ----- The arrays ---------------------------------------------------------------------


def arrays_of(estimator, include_training: bool) -> dict[str, np.ndarray]:
    """Return the arrays of the posterior and the scaling, and of training rows."""
    posterior = estimator.posterior_
    arrays = _scaling_arrays(estimator.scaling_) | _posterior_arrays(posterior)
    if include_training:
        arrays |= _training_arrays(estimator, posterior)
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _scaling_arrays(scaling: Scaling) -> dict[str, Any]:
    transform, shape = scaling.transform, scaling.target_shift.shape
    return {
        "input_shift": scaling.input_shift,
        "input_scale": scaling.input_scale,
        "target_shift": scaling.target_shift,
        "target_scale": scaling.target_scale,
        "target_powers": transform.powers,
        "target_lower": np.broadcast_to(transform.lower, shape),
        "target_upper": np.broadcast_to(transform.upper, shape),
        "lattice_origin": scaling.rounding.origin,
        "lattice_step": scaling.rounding.step,
    }


def _posterior_arrays(posterior: Posterior) -> dict[str, Any]:
    if isinstance(posterior, GaussianPosterior):
        parts = {"mean": posterior.mean, "scale": posterior.scale}
    else:
        parts = {"samples": posterior.samples}
    arrays: dict[str, Any] = {"shares": posterior.shares}
    arrays |= {f"priors.{k}": v for k, v in posterior.priors._asdict().items()}
    if isinstance(posterior, GaussianPosterior) and posterior.noise_spread is not None:
        spread = posterior.noise_spread._asdict()
        arrays |= {f"noise_spread.{name}": values for name, values in spread.items()}
    for part, unknowns in parts.items():
        arrays[f"{part}.weights"] = unknowns.weights
        arrays[f"{part}.log_noise_var"] = unknowns.log_noise_var
    return arrays


def _training_arrays(estimator, posterior: Posterior) -> dict[str, Any]:
    rows = estimator.training_rows_
    if rows is None:
        raise ValueError(
            "include_training=True needs the training rows, and this model was read "
            "from a file without them."
        )
    arrays = {
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
    return arrays
