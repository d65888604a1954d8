"""Monotone transforms of y: the network then works on t = g(y).

A density of t becomes a density of y when multiplied by g'(y), so scores stay
comparable.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.stats import yeojohnson_normmax

NAMES = ("none", "log", "yeo_johnson")
WORDS = {"none": "y", "log": "log y", "yeo_johnson": "power of y"}
# Beyond these powers a fitted Yeo-Johnson transform is nearly a step.
SMALLEST_POWER, LARGEST_POWER = -2.0, 4.0


@dataclass(frozen=True, eq=False)
class TargetTransform:
    """g, its inverse and its slope, for each output.

    Beyond the training targets, g continues as a straight line. Otherwise the
    exponential would let an invisibly thin tail in t dominate the mean of y, and it
    would turn a poor extrapolation into an absurd number.

    Args:
        name: "none", "log", or "yeo_johnson" (Yeo and Johnson, 2000).
        powers: the powers of "yeo_johnson", one for each output; 1 is the identity.
        lower: the y below which g is a straight line, one for each output.
        upper: the y above which g is a straight line, one for each output.
    """

    name: str
    powers: Float[np.ndarray, "L"]
    lower: Float[np.ndarray, "L"] | float = -np.inf
    upper: Float[np.ndarray, "L"] | float = np.inf

    @classmethod
    def learn(cls, name: str, targets: Float[np.ndarray, "N L"]) -> "TargetTransform":
        """Create the transform; powers maximise the likelihood of a Gaussian t."""
        num_outputs = targets.shape[1]
        if name == "log" and not (targets > 0).all():
            raise ValueError(
                f"target_transform='log' needs a positive y; its smallest value is "
                f"{targets.min():g}: use 'yeo_johnson'."
            )
        powers = np.ones(num_outputs)
        if name == "yeo_johnson":
            for output in range(num_outputs):
                powers[output] = _best_power(targets[:, output])
        # A logarithm is not made linear towards 0, so that y stays positive.
        lower = targets.min(axis=0)
        if name != "yeo_johnson":
            lower = np.full(num_outputs, -np.inf)
        powers = np.clip(powers, SMALLEST_POWER, LARGEST_POWER)
        return cls(name, powers, lower, targets.max(axis=0))

    def of_output(self, output: int) -> "TargetTransform":
        """Return the transform of a single output."""
        lower, upper = (
            np.broadcast_to(bound, self.powers.shape)[output]
            for bound in (self.lower, self.upper)
        )
        return TargetTransform(self.name, self.powers[output], lower, upper)

    def forward(self, y):
        """g(y); NaN where "log" has no value."""
        if self.name == "none":
            return y
        inside = np.clip(y, self.lower, self.upper)
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = np.where(y == inside, 0.0, y - inside)
            slope = np.where(y == inside, 1.0, np.exp(self._log_slope(inside)))
            return self._forward(inside) + beyond * slope

    def log_slope(self, y):
        """Log g'(y)."""
        if self.name == "none":
            return np.zeros_like(y)
        return self._log_slope(np.clip(y, self.lower, self.upper))

    def inverse(self, t):
        """The y whose g(y) is t."""
        return inverse(self.name, t, *self.shape, np)

    @property
    def shape(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Powers, and the t below and above which g is a straight line."""
        if self.name == "none":
            return self.powers, np.asarray(self.lower), np.asarray(self.upper)
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = self._forward(self.lower), self._forward(self.upper)
        low = np.where(np.isfinite(self.lower), low, -np.inf)
        high = np.where(np.isfinite(self.upper), high, np.inf)
        return self.powers, low, high

    def _forward(self, y):
        return np.log(y) if self.name == "log" else _yeo_johnson(y, self.powers)

    def _log_slope(self, y):
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.name == "log":
                return -np.log(y)
            return np.sign(y) * (self.powers - 1) * np.log1p(np.abs(y))


def _best_power(targets: Float[np.ndarray, "N"]) -> float:
    """Find the power by maximum likelihood; 1 (the identity) if none is best.

    None is best if all values are equal, if they are so small that 1 + y is 1, or if
    they are so large that powers of y overflow.
    """
    if np.ptp(targets) == 0:
        return 1.0
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            power = np.asarray(yeojohnson_normmax(targets, brack=(-1, 2))).item()
    except RuntimeError:  # it found no bracket of the best power
        return 1.0
    return power if np.isfinite(power) else 1.0


def _yeo_johnson(y, power):
    """((1 + y)^p - 1) / p above 0, -((1 - y)^(2 - p) - 1) / (2 - p) below."""
    side = np.where(y >= 0, 1.0, -1.0)
    exponent = np.where(y >= 0, power, 2 - power)
    log_part = np.log1p(np.abs(y))
    safe = np.where(exponent == 0, 1.0, exponent)
    grown = np.where(exponent == 0, log_part, np.expm1(exponent * log_part) / safe)
    return side * grown


def inverse(name: str, t, power, low, high, xp=jnp):
    """The inverse of g, a straight line below `low` and above `high`.

    `xp` is `numpy` or `jax.numpy`.
    """
    if name == "none":
        return t
    y = _inverse(name, xp.clip(t, low, high), power, xp)
    # Only the slopes at the two ends are needed, one number each for any number of t.
    for end, beyond in ((low, xp.minimum), (high, xp.maximum)):
        known = xp.where(xp.isfinite(end), end, 0.0)
        slope = xp.exp(_log_inverse_slope(name, known, power, xp))
        y = y + xp.where(xp.isfinite(end), slope, 0.0) * beyond(t - known, 0.0)
    return y


def log_inverse_slope(name: str, t, power, low, high, xp=jnp):
    """Log dy/dt at t."""
    if name == "none":
        return xp.zeros_like(t)
    return _log_inverse_slope(name, xp.clip(t, low, high), power, xp)


def _inverse(name: str, t, power, xp):
    """The inverse between the ends; beyond the range of Yeo-Johnson, a far y."""
    if name == "log":
        return xp.exp(t)
    side = xp.where(t >= 0, 1.0, -1.0)
    exponent = xp.where(t >= 0, power, 2 - power)
    safe = xp.where(exponent == 0, 1.0, exponent)
    inner = xp.maximum(exponent * xp.abs(t), -1 + 1e-6)
    log_part = xp.where(exponent == 0, xp.abs(t), xp.log1p(inner) / safe)
    return side * xp.expm1(log_part)


def _log_inverse_slope(name: str, t, power, xp):
    if name == "log":
        return t
    y = _inverse(name, t, power, xp)
    return -xp.where(y >= 0, 1.0, -1.0) * (power - 1) * xp.log1p(xp.abs(y))
