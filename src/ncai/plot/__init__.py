"""Pictures: each function draws on an axis, given or new, and returns it.

All take a fitted model; the docstring says where arrays can take its place.
"""

from ncai.plot.checks import calibration, latent, latent_values, pit, training
from ncai.plot.predictions import DensityStyle, decomposition, density
from ncai.plot.style import COLOURS

__all__ = [
    "COLOURS",
    "DensityStyle",
    "calibration",
    "decomposition",
    "density",
    "latent",
    "latent_values",
    "pit",
    "training",
]
