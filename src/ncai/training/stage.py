"""One leg of a fit: what is minimised, for how long, and when to stop."""

from dataclasses import dataclass
from typing import Any

LARGEST_GROUP = 5  # restarts that are trained as one array


@dataclass(frozen=True)
class Stage:
    """One leg of a fit.

    Args:
        name: what the progress bar and the history call it.
        objective: see `ncai.objectives`; or a tuple of them, one for each restart, that
            differ in numbers only.
        max_steps: the step limit.
        learning_rate: Adam's.
        schedule: "constant", or "cosine": the rate falls to 0 along half a cosine over
            the steps of the stage. That takes the noise of the gradients out of the
            result, in far fewer steps than a constant rate needs.
        plateau: stop once no restart improves by `tolerance` nats a row from one window
            of steps to the next.
        rate_drops: at a plateau a restart's rate falls to a third, so many times,
            before it counts as done.
        settle_steps: steps at the start that never count as a plateau (while penalties
            ramp in, say).
        tolerance: in units of the objective per row.
        per_row: whether the objective is a sum over rows (nats) or an average.
        trainable: a tree prefix of the parameters: 1 to learn, 0 to hold.
        largest_group: restarts trained as one array; fewer where each has large
            arrays of its own.
        worth_keeping: whether a fit stopped by Ctrl-C in this stage is a fit at all;
            if not, the interrupt goes on to the caller.
    """

    name: str
    objective: Any
    max_steps: int
    learning_rate: float = 0.01
    schedule: str = "constant"
    plateau: bool = False
    rate_drops: int = 0
    settle_steps: int = 0
    tolerance: float = 1e-3
    window: int = 1000
    per_row: bool = True
    trainable: Any = 1.0
    largest_group: int = LARGEST_GROUP
    worth_keeping: bool = True
