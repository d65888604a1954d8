"""A density as a small picture: one colour, as opaque as the density is large."""

import base64
import struct
import zlib

import numpy as np

# The root of the density is shown, so that thin tails are seen.
POWER = 0.5


def shading(density: np.ndarray, darkest: float, colour: str) -> str:
    """A data URI of p(y|x) [G, H], x across and y up.

    A palette of one colour in 256 degrees of opacity: on any background, light or
    dark, nothing of the density is nothing of the colour.
    """
    share = np.clip(density.T[::-1] / darkest, 0, 1) ** POWER
    pixels = np.round(255 * share).astype(np.uint8)
    return "data:image/png;base64," + base64.b64encode(_png(pixels, colour)).decode()


def packed(density: np.ndarray, darkest: float | np.ndarray) -> str:
    """Numbers as bytes, 255 for the darkest, for the script to read."""
    share = np.clip(density / darkest, 0, 1)
    return base64.b64encode(np.round(255 * share).astype(np.uint8).tobytes()).decode()


def _png(pixels: np.ndarray, colour: str) -> bytes:
    height, width = pixels.shape
    red_green_blue = bytes.fromhex(colour.removeprefix("#"))
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", red_green_blue * 256),
            _chunk(b"tRNS", bytes(range(256))),
            _chunk(b"IDAT", zlib.compress(lines, 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return b"".join(
        (
            struct.pack(">I", len(content)),
            kind,
            content,
            struct.pack(">I", zlib.crc32(kind + content)),
        )
    )
