"""Pictures: each function draws on an axis, given or new, and returns it.

All take a fitted model; their docstrings say whether they also take arrays.
"""

from ncai.plot.checks import calibration, latent, latent_values, pit, training
from ncai.plot.predictions import COLOURS, DensityStyle, decomposition, density

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
