"""Pictures: each function draws on an axis, given or new, and returns it.

All take a fitted model; where arrays can stand in its place, the function says so.
"""

from ncai.plot.calibration import calibration, pit
from ncai.plot.decomposition import decomposition
from ncai.plot.density import density
from ncai.plot.latent import latent, latent_values
from ncai.plot.style import COLOURS
from ncai.plot.training import training

__all__ = [
    "COLOURS",
    "calibration",
    "decomposition",
    "density",
    "latent",
    "latent_values",
    "pit",
    "training",
]
