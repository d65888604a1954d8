"""The interface of an objective, a small pytree that the training loop minimises.

Its numbers are traced, its structure is static, and the loop in `ncai.training.step`
calls it for one restart. It has two steps: `prepare` does the cheap elementwise work on
the parameters (scales, reparameterised draws), and `value` does the work on the data.
The loop keeps the prepared values in a buffer. If both were a single function, XLA
would recompute the random numbers and the softplus for every hidden node of every row.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Float

from ncai.model.bnn_lv import Model, PriorState
from ncai.types import Data


class Report(NamedTuple):
    """The information that an evaluation returns in addition to the value."""

    terms: dict[str, Float[Array, ""]]
    squared_error: Float[Array, "L"]


@runtime_checkable
class Objective(Protocol):
    """The interface that the training loop calls."""

    def num_normals(self, params: Any) -> tuple[int, ...]:
        """Shape of the standard normals that `prepare` takes."""
        ...

    def prepare(self, params: Any, normals: Float[Array, "*S"]) -> Any:
        """Compute what `value` needs from the parameters and fresh random numbers."""
        ...

    def value(
        self,
        prepared: Any,
        priors: PriorState,
        model: Model,
        data: Data,
        step: Float[Array, ""],
    ) -> tuple[Float[Array, ""], Report]:
        """The value to minimise for one restart, and its terms."""
        ...

    def update_priors(
        self,
        prepared: Any,
        priors: PriorState,
        model: Model,
        data: Data,
        report: Report,
    ) -> PriorState:
        """The empirical-Bayes variances after a step."""
        ...
