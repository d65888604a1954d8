"""Monotone transforms of y: the network then works on t = g(y).

A density of t is one of y once multiplied by g'(y), so scores stay comparable.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.stats import yeojohnson_normmax

NAMES = ("none", "log", "yeo_johnson")
# Beyond these powers a fitted Yeo-Johnson transform is nearly a step.
SMALLEST_POWER, LARGEST_POWER = -2.0, 4.0


@dataclass(frozen=True, eq=False)
class TargetTransform:
    """g, its inverse and its slope, for each output.

    Args:
        name: "none", "log", or "yeo_johnson" (Yeo and Johnson, 2000).
        powers: of "yeo_johnson", one for each output; 1 is the identity.
    """

    name: str
    powers: Float[np.ndarray, "L"]

    @classmethod
    def learn(cls, name: str, targets: Float[np.ndarray, "N L"]) -> "TargetTransform":
        """The transform of this name; powers by maximum likelihood of a Gaussian t."""
        num_outputs = targets.shape[1]
        if name == "log" and not (targets > 0).all():
            raise ValueError(
                f"target_transform='log' needs a positive y; its smallest value is "
                f"{targets.min():g}: use 'yeo_johnson'."
            )
        powers = np.ones(num_outputs)
        if name == "yeo_johnson":
            for output in range(num_outputs):
                column = targets[:, output]
                if np.ptp(column) > 0:
                    powers[output] = yeojohnson_normmax(column, brack=(-1, 2))
        return cls(name, np.clip(powers, SMALLEST_POWER, LARGEST_POWER))

    def forward(self, y):
        """g(y); NaN where "log" has no value."""
        if self.name == "none":
            return y
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.name == "log":
                return np.log(y)
            return _yeo_johnson(y, self.powers)

    def log_slope(self, y):
        """Log g'(y)."""
        if self.name == "none":
            return np.zeros_like(y)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.name == "log":
                return -np.log(y)
            return np.sign(y) * (self.powers - 1) * np.log1p(np.abs(y))

    def inverse(self, t):
        """The y whose g(y) is t."""
        return inverse(self.name, t, self.powers, np)


def _yeo_johnson(y, power):
    """((1 + y)^p - 1) / p above 0, -((1 - y)^(2 - p) - 1) / (2 - p) below."""
    side = np.where(y >= 0, 1.0, -1.0)
    exponent = np.where(y >= 0, power, 2 - power)
    log_part = np.log1p(np.abs(y))
    safe = np.where(exponent == 0, 1.0, exponent)
    grown = np.where(exponent == 0, log_part, np.expm1(exponent * log_part) / safe)
    return side * grown


def inverse(name: str, t, power, xp=jnp):
    """The inverse of g; `xp` is NumPy or JAX's.

    Where Yeo-Johnson reaches no further than some t, what lies beyond it is held at a
    y far out: a Gaussian t has a little mass there.
    """
    if name == "none":
        return t
    if name == "log":
        return xp.exp(t)
    side = xp.where(t >= 0, 1.0, -1.0)
    exponent = xp.where(t >= 0, power, 2 - power)
    safe = xp.where(exponent == 0, 1.0, exponent)
    inner = xp.maximum(exponent * xp.abs(t), -1 + 1e-6)
    log_part = xp.where(exponent == 0, xp.abs(t), xp.log1p(inner) / safe)
    return side * xp.expm1(log_part)


def log_inverse_slope(name: str, t, power, xp=jnp):
    """Log dy/dt at t."""
    if name == "none":
        return xp.zeros_like(t)
    if name == "log":
        return t
    y = inverse(name, t, power, xp)
    return -xp.where(y >= 0, 1.0, -1.0) * (power - 1) * xp.log1p(xp.abs(y))
