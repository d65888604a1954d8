"""What is recorded while a model is trained, and what a progress bar is given."""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class History:
    """Chunk averages over a fit: arrays [chunks, restarts] under each name."""

    stage: list[str] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    value: list[np.ndarray] = field(default_factory=list)
    terms: list[dict[str, np.ndarray]] = field(default_factory=list)

    def stacked(self) -> dict[str, np.ndarray]:
        """All as arrays; a term that a stage does not have is NaN there."""
        names = sorted({name for terms in self.terms for name in terms})
        blank = np.full_like(self.value[0], np.nan) if self.value else np.zeros(0)
        out = {"step": np.array(self.step), "value": np.array(self.value)}
        for name in names:
            out[name] = np.array([terms.get(name, blank) for terms in self.terms])
        return out


@dataclass(frozen=True)
class Progress:
    """What a progress bar is told after each chunk."""

    stage: str
    step: int
    max_steps: int
    value: float
    terms: dict[str, float]
    alive: int
    restarts: int
