"""The header of a model file alone: quick, and without the package that runs models."""

import json
from pathlib import Path
from typing import Any

from ncai.atomic import require_file

FORMAT = "ncai-model"
FORMAT_VERSION = 1
# Of a safetensors file: eight bytes hold the length of the JSON text after them.
_LENGTH_BYTES = 8
_LONGEST = 100_000_000


class ModelFileError(ValueError):
    """A file that is not a model we can read."""


def read_header(path: str | Path) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Header of a model file, and the shapes of its arrays, which are not read."""
    path = Path(path)
    require_file(path, "model file")
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if not 2 <= length <= min(_LONGEST, path.stat().st_size - _LENGTH_BYTES):
                raise ValueError("it has no header")
            words = json.loads(file.read(length))
        metadata = words.pop("__metadata__", {})
        shapes = {name: list(entry["shape"]) for name, entry in words.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ModelFileError(
            f"{path} is not a readable ncai model: it is damaged, or another kind of "
            "file."
        ) from None
    return parse_header(metadata, path), shapes


def parse_header(metadata, path: str | Path) -> dict[str, Any]:
    """What ncai wrote into the metadata of a safetensors file; refuses other files."""
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
