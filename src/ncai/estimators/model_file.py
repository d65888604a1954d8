"""Read the header and the arrays of a model file, without importing JAX."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from ncai.runtime.atomic_write import require_file

FORMAT = "ncai-model"
FORMAT_VERSION = 2
CHECKSUM = "sha256"


class ModelFileError(ValueError):
    """A file is not a model that this version can read."""


def read_file(path) -> tuple[dict, dict[str, np.ndarray]]:
    """Read header and arrays of a model file; raise a clear error for other files."""
    path = Path(path)
    require_file(path, "model file")
    path.open("rb").close()  # raises a clear error if the file cannot be read
    try:
        with safe_open(path, framework="numpy") as handle:
            metadata = handle.metadata() or {}
            arrays = {name: handle.get_tensor(name) for name in handle.keys()}
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(
            f"{path} is not a readable ncai model: it is damaged, or another kind of "
            f"file ({error})."
        ) from None
    header = _parse_header(metadata, path)
    expected = header.get(CHECKSUM)  # the first files have none
    if expected is not None and expected != checksum(header, arrays):
        raise ModelFileError(
            f"{path} is damaged: its contents do not match its checksum."
        )
    return header, arrays


def read_table_part(path) -> dict[str, Any] | None:
    """Read what `ncai fit` stored with the model; None for one saved in Python."""
    header, _ = read_file(path)
    return header.get("table")


def flat_settings(header: dict[str, Any]) -> dict[str, Any]:
    """Return all settings by name, including those from the preset."""
    settings = dict(header.get("settings") or {})
    method = settings.pop("method", None)
    if method is None:  # files of version 0.1 are flat
        return {**(header.get("params") or {}), **settings}
    network = header.get("mlp") or {"network": header.get("custom_network")}
    own = method.get("settings") or {}
    return {"inference": method.get("name")} | settings | network | own


def checksum(header: dict, arrays: dict[str, np.ndarray]) -> str:
    """Return SHA-256 of the header (without the checksum itself) and of all arrays."""
    digest = hashlib.sha256()
    words = {name: value for name, value in header.items() if name != CHECKSUM}
    digest.update(json.dumps(words, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _parse_header(metadata, path: str | Path) -> dict[str, Any]:
    """Parse the header that ncai wrote into a safetensors file; reject other files."""
    try:
        header = json.loads(metadata["ncai"])
        kind, version = header["format"], int(header["version"])
    except (KeyError, TypeError, ValueError):
        raise ModelFileError(
            f"{path} is a safetensors file, but not one that ncai wrote."
        ) from None
    if kind != FORMAT:
        raise ModelFileError(f"{path} holds {kind!r}, not an ncai model.")
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format version {version}, written by ncai "
            f"{header.get('ncai', '?')}; this ncai reads up to version "
            f"{FORMAT_VERSION}: upgrade ncai."
        )
    return header
