"""Monotone transforms of y: the network then works on t = g(y).

A density of t is one of y once multiplied by g'(y), so scores stay comparable.
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

    Beyond the targets that it was learned from g goes on as a straight line: an
    exponential that goes on for ever would turn a tail too thin to be seen in t into
    most of a mean of y, and a guess far from the data into an absurd number.

    Args:
        name: "none", "log", or "yeo_johnson" (Yeo and Johnson, 2000).
        powers: of "yeo_johnson", one for each output; 1 is the identity.
        lower: the y below which g is a straight line, one for each output.
        upper: the y above which it is.
    """

    name: str
    powers: Float[np.ndarray, "L"]
    lower: Float[np.ndarray, "L"] | float = -np.inf
    upper: Float[np.ndarray, "L"] | float = np.inf

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
                powers[output] = _best_power(targets[:, output])
        # A logarithm stays one towards 0, so that y stays positive.
        lower = targets.min(axis=0)
        if name != "yeo_johnson":
            lower = np.full(num_outputs, -np.inf)
        powers = np.clip(powers, SMALLEST_POWER, LARGEST_POWER)
        return cls(name, powers, lower, targets.max(axis=0))

    def of_output(self, output: int) -> "TargetTransform":
        """The one of a single output."""
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
        """Powers, and the t between which g is not a straight line: see `inverse`."""
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
    """By maximum likelihood; 1, the identity, where all powers are alike.

    They are for values that are the same, and in units in which values are so small
    that 1 + y is 1, or so large that powers of y overflow.
    """
    if np.ptp(targets) == 0:
        return 1.0
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            power = np.asarray(yeojohnson_normmax(targets, brack=(-1, 2))).item()
    except RuntimeError:  # no bracket of a best one was found
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

    `xp` is NumPy or JAX's.
    """
    if name == "none":
        return t
    y = _inverse(name, xp.clip(t, low, high), power, xp)
    # The slopes are those at the two ends: one number each, however many t there are.
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
    """Where Yeo-Johnson reaches no further than some t, y is held far out."""
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
