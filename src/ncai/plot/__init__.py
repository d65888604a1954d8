"""Pictures: each function draws on an axis, given or new, and returns it.

All take a fitted model; the docstring says where arrays can take its place.
"""

from ncai.plot.calibration import calibration, pit
from ncai.plot.decomposition import decomposition
from ncai.plot.density import DensityStyle, density
from ncai.plot.fit import latent, latent_values, training
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
