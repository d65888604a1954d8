"""The restarts of a stage in groups, trained side by side on threads.

A group is small enough for its arrays to stay in a core's cache, and XLA's own threads
gain nothing on arrays of this size. The groups do not depend on the number of cores, so
neither do the bits of the result.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ncai.model.bnn_lv import Model
from ncai.runtime.jax_setup import RUN_ONCE, num_threads
from ncai.training.stage import Stage
from ncai.training.step import ChunkSummary, Problem, Steps, TrainState, run_chunk
from ncai.types import Data


@jax.jit(compiler_options=RUN_ONCE)
def _take(tree: Any, indices: Int[Array, "G"]) -> Any:
    return jax.tree.map(lambda a: a[indices], tree)


@jax.jit(static_argnames=("length",), compiler_options=RUN_ONCE)
def _join(parts: list, length: int) -> Any:
    return jax.tree.map(lambda *p: jnp.concatenate(p)[:length], *parts)


def stack_objectives(objectives: list) -> Any:
    """One objective whose numbers have a leading restart axis."""
    real = jnp.result_type(float)
    # NumPy: with JAX each of these would be a small program to compile.
    return jax.tree.map(
        lambda *numbers: np.stack([np.asarray(n, real) for n in numbers]), *objectives
    )


class RestartGroups:
    """The restarts of a stage in groups of equal size, each a call of `run_chunk`.

    The last group is filled up with copies of the last restart, so that all groups run
    the same compiled program.
    """

    def __init__(self, stage: Stage, model: Model, data: Data, state: TrainState):
        self.model, self.data, self.trainable = model, data, stage.trainable
        self.decay_steps = float(
            stage.max_steps if stage.schedule == "cosine" else "inf"
        )
        self.num_restarts = state.key.shape[0]
        count = -(-self.num_restarts // stage.largest_group)
        size = -(-self.num_restarts // count)
        self.picks = np.minimum(
            np.arange(count * size).reshape(count, size), self.num_restarts - 1
        )
        each = stage.objective
        if not isinstance(each, tuple):
            each = (each,) * self.num_restarts
        self.objectives = [stack_objectives([each[i] for i in p]) for p in self.picks]
        self.summaries: list[ChunkSummary | None] = [None] * count
        self.pool = None
        if count == 1:
            self.states = [state]
            return
        self.states = [_take(state, picks) for picks in self.picks]
        self.pool = ThreadPoolExecutor(min(count, num_threads()))
        # No steps: compiles, where threads that start together would each compile.
        self._run_group(0, np.zeros(self.num_restarts), 0, 0)

    def _run_group(self, index: int, rates: np.ndarray, first_step, num_steps):
        group_rates = rates[self.picks[index]].astype(np.float32)
        state, summary = run_chunk(
            Problem(
                self.objectives[index], self.model, self._rows_of(index), self.trainable
            ),
            self.states[index],
            Steps(group_rates, first_step, num_steps, self.decay_steps),
        )
        return state, jax.tree.map(np.asarray, summary)

    def _rows_of(self, index: int) -> Data:
        weights = self.data.row_weights
        if weights.ndim == 1:
            return self.data
        return self.data._replace(row_weights=weights[self.picks[index]])

    def run(self, rates: np.ndarray, first_step: int, num_steps: int) -> ChunkSummary:
        """A chunk of steps for all; interrupted, no group keeps what it did."""
        # A group whose restarts are all done rests.
        busy = [
            i
            for i, pick in enumerate(self.picks)
            if rates[pick].any() or self.summaries[i] is None
        ]
        if self.pool is None:
            results = [self._run_group(i, rates, first_step, num_steps) for i in busy]
        else:
            futures = [
                self.pool.submit(self._run_group, i, rates, first_step, num_steps)
                for i in busy
            ]
            results = [future.result() for future in futures]
        for i, (state, summary) in zip(busy, results, strict=True):
            self.states[i], self.summaries[i] = state, summary
        return jax.tree.map(
            lambda *parts: np.concatenate(parts)[: self.num_restarts], *self.summaries
        )

    def state(self) -> TrainState:
        """Where the restarts are now."""
        if len(self.states) == 1:
            return self.states[0]
        return _join(self.states, self.num_restarts)

    def close(self) -> None:
        """Wait for what still runs."""
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
