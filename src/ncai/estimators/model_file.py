"""Read the header and the arrays of a model file, without importing JAX."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from ncai.estimators._schema import (
    MOST_HEADER_BYTES,
    HeaderError,
    brief,
    check_header,
    parse_header,
)
from ncai.runtime.atomic_write import require_file

FORMAT = "ncai-model"
FORMAT_VERSION = 2
CHECKSUM = "sha256"
_KINDS = ("F32", "F64", "I64")
_MOST_ARRAYS, _MOST_AXES = 100, 8


class ModelFileError(ValueError):
    """A file is not a model that this version can read."""


def read_file(path) -> tuple[dict, dict[str, np.ndarray]]:
    """Read header and arrays of a model file; raise a clear error for other files.

    Nothing is made from the header before all of it was checked.
    """
    path = Path(path)
    require_file(path, "model file")
    _check_start(path)
    try:
        with safe_open(path, framework="numpy") as handle:
            header = _parse(handle.metadata() or {}, path)
            _check_kinds(handle, path)
            arrays = {name: handle.get_tensor(name) for name in handle.keys()}
    except ModelFileError:
        raise
    except (SafetensorError, OSError, ValueError) as error:
        raise _unreadable(path, brief(str(error))) from None
    expected = header.get(CHECKSUM)
    if expected is None:
        raise ModelFileError(
            f"{path} has no checksum, which every model file of ncai has: it was "
            "changed or damaged."
        )
    if expected != checksum(header, arrays):
        raise ModelFileError(
            f"{path} is damaged: its contents do not match its checksum."
        )
    try:
        check_header(header, path.stat().st_size)
    except HeaderError as error:
        raise ModelFileError(f"{path} {error}.") from None
    return header, arrays


def _check_start(path: Path) -> None:
    """Reject a file whose header is longer than the file or than a header can be."""
    with path.open("rb") as file:  # raises a clear error if the file cannot be read
        start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > path.stat().st_size:
        raise _unreadable(path, "it does not start with a header")
    if length > MOST_HEADER_BYTES:
        raise _unreadable(path, f"its header has {length} bytes")


def _check_kinds(handle, path: Path) -> None:
    """Reject arrays of other types than a model has, before they are read."""
    names = handle.keys()
    if len(names) > _MOST_ARRAYS:
        raise ModelFileError(f"{path} is damaged: it has {len(names)} arrays.")
    for name in names:
        part = handle.get_slice(name)
        if part.get_dtype() not in _KINDS or len(part.get_shape()) > _MOST_AXES:
            raise ModelFileError(
                f"{path} is damaged: {brief(name)} is not an array of a model."
            )


def _unreadable(path: Path, reason: str) -> ModelFileError:
    return ModelFileError(
        f"{path} is not a readable ncai model: it is damaged, or another kind of file "
        f"({reason})."
    )


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
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _parse(metadata, path: str | Path) -> dict[str, Any]:
    """Parse the header that ncai wrote into a safetensors file; reject other files."""
    foreign = f"{path} is a safetensors file, but not one that ncai wrote."
    try:
        header = parse_header(metadata["ncai"])
        kind, version = header["format"], header["version"]
    except HeaderError as error:  # which is a ValueError, too
        raise ModelFileError(f"the header of {path} {error}.") from None
    except (KeyError, ValueError):
        raise ModelFileError(foreign) from None
    if type(version) is not int or version < 1:
        raise ModelFileError(foreign)
    if kind != FORMAT:
        raise ModelFileError(f"{path} holds {brief(repr(kind))}, not an ncai model.")
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} has format version {brief(str(version))}, written by ncai "
            f"{brief(header.get('ncai', '?'))}; this ncai reads up to version "
            f"{FORMAT_VERSION}: upgrade ncai."
        )
    return header
