"""The compiled training loop: chunks of Adam steps for groups of restarts.

A group is so small that its arrays stay in the cache of a core. XLA's own threads gain
nothing on arrays of this size, so each group is trained on its own thread. The groups
do not depend on the number of cores, so any number of cores gives the same results bit
for bit.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, Key

from ncai.model.bnn_lv import Model, PriorState
from ncai.runtime.jax_setup import RUN_ONCE, num_threads
from ncai.types import Data

_ADAM = optax.scale_by_adam()
LARGEST_GROUP = 5  # restarts that are trained as one array


@dataclass(frozen=True)
class Stage:
    """One stage of a fit.

    Args:
        name: its name in the progress bar and the history.
        objective: an objective (see `ncai.objectives`), or a tuple with one for each
            restart; these may differ only in numbers.
        max_steps: limit on the number of steps.
        learning_rate: the learning rate of Adam.
        schedule: "constant", or "cosine", where the rate falls to 0 along half a cosine
            over the steps of the stage. This removes the noise of the gradients from
            the result, in far fewer steps than a constant rate needs.
        plateau: stop once no restart improves by `tolerance` nats per row from one
            window of steps to the next.
        rate_drops: how often the rate of a restart falls to a third at a plateau before
            the restart counts as done.
        settle_steps: initial steps that never count as a plateau, for example while
            penalties grow.
        tolerance: in units of the objective per row.
        per_row: whether the objective is a sum over rows (nats) or an average.
        trainable: a tree prefix of the parameters: 1 to train, 0 to hold fixed.
        largest_group: number of restarts trained as one array; smaller if each restart
            has large arrays.
        worth_keeping: whether Ctrl-C in this stage leaves a usable fit; if not, the
            interrupt is passed on to the caller.
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


class TrainState(NamedTuple):
    """The state before a step; every leaf has a leading restart axis."""

    params: Any
    adam: Any
    priors: PriorState
    key: Key[Array, "*R"]


class ChunkSummary(NamedTuple):
    """Averages over the steps of a chunk, for each restart."""

    value: Float[Array | np.ndarray, "*R"]
    terms: dict[str, Float[Array | np.ndarray, "*R"]]
    finite: Bool[Array | np.ndarray, "*R"]


@jax.jit
def initial_state(params: Any, priors: PriorState, keys: Key[Array, "R"]) -> TrainState:
    """State before the first step; all arguments have a leading restart axis."""
    flat = jax.vmap(lambda p: ravel_pytree(p)[0])(params)
    return TrainState(params, jax.vmap(_ADAM.init)(flat), priors, keys)


class Problem(NamedTuple):
    """What is minimised.

    Args:
        objective: see `ncai.objectives.base`; its numbers have a leading restart axis.
        model: the model.
        data: the rows. Their weights may have a leading restart axis; each restart then
            trains on its own rows.
        trainable: a tree prefix of the parameters: 1 for those that are trained, 0 for
            those that are held fixed.
    """

    objective: Any
    model: Model
    data: Data
    trainable: Any


class Steps(NamedTuple):
    """Which steps to take.

    Args:
        rates: the learning rate of each restart.
        first: number of the first step.
        count: how many steps.
        decay: number of steps over which rates fall to 0 along half a cosine.
    """

    rates: Float[Array | np.ndarray, "*R"]
    first: int | Int[Array, ""]
    count: int | Int[Array, ""]
    decay: float | Float[Array, ""] = float("inf")

    def rate_at(self, step, dtype):
        """Return the rate of a step."""
        progress = jnp.minimum(step / self.decay, 1.0).astype(dtype)
        return self.rates * 0.5 * (1.0 + jnp.cos(jnp.pi * progress))


class _Carry(NamedTuple):
    """The state that one step passes to the next, for one restart."""

    flat: Float[Array, "P"]
    adam: Any
    priors: PriorState
    normals: Float[Array, "*S"]
    prepared: Any
    value_sum: Float[Array, ""]
    term_sums: dict[str, Float[Array, ""]]


def _mask(trainable: Any, params: Any) -> Float[Array, "P"]:
    """Return 1 for each number that is trained and 0 for each that is held fixed."""
    return ravel_pytree(
        jax.tree.map(
            lambda flag, part: jax.tree.map(lambda a: jnp.full_like(a, flag), part),
            trainable,
            params,
        )
    )[0]


def _run_one(problem: Problem, state: TrainState, steps: Steps):
    """Steps of Adam for one restart."""
    objective, model, data, trainable = problem
    flat, unravel = ravel_pytree(state.params)
    mask = _mask(trainable, state.params)

    def normals_at(step):
        key = jax.random.fold_in(state.key, step)
        return jax.random.normal(key, objective.num_normals(state.params), flat.dtype)

    def prepare(flat, normals):
        return objective.prepare(unravel(flat), normals)

    def value_and_report(prepared, priors, step):
        return objective.value(prepared, priors, model, data, step.astype(flat.dtype))

    def body(i, carry: _Carry) -> _Carry:
        step = steps.first + i
        (value, report), gradient = jax.value_and_grad(value_and_report, has_aux=True)(
            carry.prepared, carry.priors, step
        )
        pull_back = jax.vjp(lambda flat: prepare(flat, carry.normals), carry.flat)[1]
        (gradient,) = pull_back(gradient)
        direction: Any  # optax types it as any tree
        direction, adam = _ADAM.update(gradient * mask, carry.adam)
        flat = carry.flat - steps.rate_at(step, carry.flat.dtype) * mask * direction
        normals = normals_at(step + 1)
        prepared = prepare(flat, normals)
        priors = objective.update_priors(prepared, carry.priors, model, data, report)
        value_sum = carry.value_sum + value
        term_sums = jax.tree.map(jnp.add, carry.term_sums, report.terms)
        return _Carry(flat, adam, priors, normals, prepared, value_sum, term_sums)

    normals = normals_at(steps.first)
    prepared = prepare(flat, normals)
    shapes = jax.eval_shape(value_and_report, prepared, state.priors, steps.first)
    no_terms = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes[1].terms)
    nothing = jnp.zeros((), flat.dtype)
    first = _Carry(flat, state.adam, state.priors, normals, prepared, nothing, no_terms)
    # Use fori_loop, not scan: it stacks nothing, and the number of steps is traced, so
    # a last chunk of another length needs no compilation.
    last = jax.lax.fori_loop(0, steps.count, body, first)
    summary = ChunkSummary(
        last.value_sum / steps.count,
        jax.tree.map(lambda total: total / steps.count, last.term_sums),
        jnp.isfinite(last.value_sum) & jnp.all(jnp.isfinite(last.flat)),
    )
    return TrainState(unravel(last.flat), last.adam, last.priors, state.key), summary


@jax.jit
def run_chunk(
    problem: Problem, state: TrainState, steps: Steps
) -> tuple[TrainState, ChunkSummary]:
    """A chunk of steps for all restarts."""
    weights = problem.data.row_weights
    own_rows: Any = Data(None, None, 0 if jnp.ndim(weights) == 2 else None)  # pyright: ignore
    axes: Any = Problem(0, None, own_rows, None), 0, Steps(0, None, None, None)  # pyright: ignore
    return jax.vmap(_run_one, in_axes=axes)(problem, state, steps)


@jax.jit(compiler_options=RUN_ONCE)
def _take(tree: Any, indices: Int[Array, "G"]) -> Any:
    return jax.tree.map(lambda a: a[indices], tree)


@jax.jit(static_argnames=("length",), compiler_options=RUN_ONCE)
def _join(parts: list, length: int) -> Any:
    return jax.tree.map(lambda *p: jnp.concatenate(p)[:length], *parts)


def stack_objectives(objectives: list) -> Any:
    """One objective whose numbers have a leading restart axis."""
    real = jnp.result_type(float)
    # Use NumPy, because JAX would compile a small program for each of these.
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
        # Run no steps, only to compile: threads that start together would each compile.
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
        """Run a chunk of steps for all groups; an interrupt discards all of them."""
        # Skip a group whose restarts are all done.
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
        """Return the present state of all restarts."""
        if len(self.states) == 1:
            return self.states[0]
        return _join(self.states, self.num_restarts)

    def close(self) -> None:
        """Wait for groups that are still running."""
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
