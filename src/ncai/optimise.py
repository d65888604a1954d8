"""The one compiled training loop, and the short Python loop that drives it in chunks.

Compiled: a chunk of Adam steps for a few restarts at once. Python sees one small
summary a chunk, from which come progress, plateaus, time limits and lost restarts;
there is no other path, with or without a progress bar, and no host sync within a chunk.

Many restarts are trained in groups, side by side on threads: a group is small enough
for its arrays to stay in a core's cache, and XLA's own threads gain nothing on arrays
of this size. The groups do not depend on the number of cores, so neither do the bits
of the result.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ncai.compilation import RUN_ONCE, keep_compiled_programs, num_threads
from ncai.model import Model, PriorState
from ncai.types import Data

CHUNK_STEPS = 250
LARGEST_GROUP = 5

_ADAM = optax.scale_by_adam()


class TrainState(NamedTuple):
    """What the next step needs; every leaf has a leading restart axis."""

    params: Any
    adam: Any
    priors: PriorState
    key: PRNGKeyArray


class ChunkSummary(NamedTuple):
    """Averages over the steps of a chunk, for each restart."""

    value: Float[Array, "R"]
    terms: dict[str, Float[Array, "R"]]
    finite: Float[Array, "R"]


@jax.jit
def initial_state(params: Any, priors: PriorState, keys: PRNGKeyArray) -> TrainState:
    """State before the first step; all arguments have a leading restart axis."""
    flat = jax.vmap(lambda p: ravel_pytree(p)[0])(params)
    return TrainState(params, jax.vmap(_ADAM.init)(flat), priors, keys)


def _run_one(
    objective, model, data, trainable, state, rate, first_step, num_steps, decay_steps
):
    """`num_steps` steps of Adam for one restart."""
    flat, unravel = ravel_pytree(state.params)
    mask = ravel_pytree(
        jax.tree.map(
            lambda flag, part: jax.tree.map(lambda a: jnp.full_like(a, flag), part),
            trainable,
            state.params,
        )
    )[0]

    def normals_at(step):
        key = jax.random.fold_in(state.key, step)
        return jax.random.normal(key, objective.num_normals(state.params), flat.dtype)

    def prepare(flat, normals):
        return objective.prepare(unravel(flat), normals)

    def value_and_report(prepared, priors, step):
        return objective.value(prepared, priors, model, data, step.astype(flat.dtype))

    def body(i, carry):
        flat, adam, priors, normals, prepared, value_sum, term_sums = carry
        step = first_step + i
        (value, report), gradient = jax.value_and_grad(value_and_report, has_aux=True)(
            prepared, priors, step
        )
        (gradient,) = jax.vjp(lambda flat: prepare(flat, normals), flat)[1](gradient)
        direction, adam = _ADAM.update(gradient * mask, adam)
        progress = jnp.minimum(step / decay_steps, 1.0).astype(flat.dtype)
        rate_now = rate * 0.5 * (1.0 + jnp.cos(jnp.pi * progress))
        flat = flat - rate_now * mask * direction
        normals = normals_at(step + 1)
        prepared = prepare(flat, normals)
        priors = objective.update_priors(prepared, priors, model, data, report)
        term_sums = jax.tree.map(jnp.add, term_sums, report.terms)
        return flat, adam, priors, normals, prepared, value_sum + value, term_sums

    first_normals = normals_at(first_step)
    first = prepare(flat, first_normals)
    shapes = jax.eval_shape(value_and_report, first, state.priors, first_step)
    no_terms = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes[1].terms)
    # fori_loop, not scan: nothing is stacked, and the number of steps is a traced
    # number, so a last chunk of another length compiles nothing.
    flat, adam, priors, _, _, value_sum, term_sums = jax.lax.fori_loop(
        0,
        num_steps,
        body,
        (
            flat,
            state.adam,
            state.priors,
            first_normals,
            first,
            jnp.zeros((), flat.dtype),
            no_terms,
        ),
    )
    summary = ChunkSummary(
        value_sum / num_steps,
        jax.tree.map(lambda total: total / num_steps, term_sums),
        jnp.isfinite(value_sum) & jnp.all(jnp.isfinite(flat)),
    )
    return TrainState(unravel(flat), adam, priors, state.key), summary


@jax.jit(compiler_options=RUN_ONCE)
def _new_stage(state: TrainState, step: int) -> TrainState:
    """The same restarts before the first step of another stage.

    Adam starts anew: its averages belong to the objective of the last stage.
    """
    keys = jax.vmap(lambda key: jax.random.fold_in(key, step))(state.key)
    return initial_state(state.params, state.priors, keys)


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


@jax.jit
def run_chunk(
    objective,
    model: Model,
    data: Data,
    trainable: Any,
    state: TrainState,
    rates: Float[Array, "R"],
    first_step: int,
    num_steps: int,
    decay_steps: float = float("inf"),
) -> tuple[TrainState, ChunkSummary]:
    """A chunk of steps for all restarts.

    The numbers of `objective` have a leading restart axis. `trainable` is a tree prefix
    of the parameters with 1 where they learn and 0 where they are held. Rates fall to 0
    over `decay_steps`, along half a cosine. The weights of the rows may have a leading
    restart axis too: restarts then learn from rows of their own.
    """
    own_rows = Data(None, None, 0 if jnp.ndim(data.row_weights) == 2 else None)  # pyright: ignore
    return jax.vmap(
        _run_one, in_axes=(0, None, own_rows, None, 0, 0, None, None, None)
    )(
        objective,
        model,
        data,
        trainable,
        state,
        rates,
        first_step,
        num_steps,
        decay_steps,
    )


class FitFailedError(RuntimeError):
    """Every restart became non-finite."""


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


@dataclass
class Driver:
    """Runs stages one after another, within one time limit.

    Args:
        on_progress: called after each chunk, from the one and only loop.
        time_limit: seconds for all stages together.
    """

    on_progress: Callable[[Progress], None] | None = None
    time_limit: float | None = None
    history: History = field(default_factory=History)
    alive: np.ndarray | None = None
    steps: int = 0
    stop_reasons: list[str] = field(default_factory=list)
    interrupted: bool = False
    has_fit: bool = False
    started: float = field(default_factory=time.monotonic)

    def out_of_time(self) -> bool:
        """Whether the time limit is used up."""
        return (
            self.time_limit is not None
            and time.monotonic() - self.started > self.time_limit
        )

    def run_from(
        self, stage: Stage, model: Model, data: Data, state: TrainState
    ) -> TrainState:
        """Run a stage after another; nothing, if there is no time left."""
        if self.interrupted or self.out_of_time():
            return state
        return self.run(stage, model, data, _new_stage(state, self.steps))

    def run(
        self, stage: Stage, model: Model, data: Data, state: TrainState
    ) -> TrainState:
        """Run a stage to its end: steps, plateau, time, or Ctrl-C.

        On Ctrl-C the state of the last whole chunk is returned and `interrupted` set:
        the caller decides whether that is worth keeping.
        """
        keep_compiled_programs()
        num_restarts = state.key.shape[0]
        if self.alive is None:
            self.alive = np.ones(num_restarts, bool)
        plateau = _PlateauWatch(stage, num_restarts, _num_rows(data))
        step, reason = 0, "step limit"
        groups = _Groups(stage, model, data, state)
        try:
            while step < stage.max_steps:
                num_steps = min(CHUNK_STEPS, stage.max_steps - step)
                summary = groups.run(plateau.rates, step, num_steps)
                self.alive = self.alive & summary.finite
                step += num_steps
                self.steps += num_steps
                self.has_fit |= stage.worth_keeping
                self._record(stage, step, summary)
                if not self.alive.any():
                    raise FitFailedError(
                        f"all {num_restarts} restarts became non-finite in the stage "
                        f"'{stage.name}' by step {step}: try a smaller learning_rate, "
                        "more restarts, or check X and y for extreme values."
                    )
                value = np.asarray(summary.value)
                if stage.plateau and plateau.all_done(value, step, self.alive):
                    reason = "plateau"
                    break
                if self.out_of_time():
                    reason = "time limit"
                    break
        except KeyboardInterrupt:
            # Before the first chunk of a stage, the fit is that of an earlier one.
            if not (stage.worth_keeping and self.has_fit):
                raise
            self.interrupted = True
            reason = "interrupted"
        finally:
            groups.close()
        self.stop_reasons.append(f"{stage.name}: {reason} after {step} steps")
        return groups.state()

    def _record(self, stage: Stage, step: int, summary: ChunkSummary) -> None:
        value = np.asarray(summary.value)
        terms = {name: np.asarray(term) for name, term in summary.terms.items()}
        self.history.stage.append(stage.name)
        self.history.step.append(self.steps)
        self.history.value.append(value)
        self.history.terms.append(terms)
        if self.on_progress is not None and self.alive is not None:
            best = int(np.nanargmin(np.where(self.alive, value, np.inf)))
            self.on_progress(
                Progress(
                    stage.name,
                    step,
                    stage.max_steps,
                    float(value[best]),
                    {name: float(term[best]) for name, term in terms.items()},
                    int(self.alive.sum()),
                    len(self.alive),
                )
            )


class _Groups:
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
            self.objectives[index],
            self.model,
            self._rows_of(index),
            self.trainable,
            self.states[index],
            group_rates,
            first_step,
            num_steps,
            self.decay_steps,
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


def _num_rows(data: Data) -> float:
    """Rows that a restart learns from."""
    return float(np.asarray(data.row_weights).sum(axis=-1).mean())


class _PlateauWatch:
    """Learning rates of each restart, lowered as it stops improving."""

    def __init__(self, stage: Stage, num_restarts: int, num_rows: float):
        self.stage = stage
        self.rates = np.full(num_restarts, stage.learning_rate)
        self.drops = np.zeros(num_restarts, int)
        self.done = np.zeros(num_restarts, bool)
        self.values: list[list[float]] = [[] for _ in range(num_restarts)]
        self.chunks = max(stage.window // CHUNK_STEPS, 1)
        self.tolerance = stage.tolerance * (num_rows if stage.per_row else 1.0)

    def all_done(self, value: np.ndarray, step: int, alive: np.ndarray) -> bool:
        """Take in a chunk's values; say whether every living restart is done."""
        if step <= self.stage.settle_steps:
            return False
        for i in np.flatnonzero(alive & ~self.done):
            self.values[i].append(float(value[i]))
            if len(self.values[i]) < 2 * self.chunks:
                continue
            before, after = (
                np.mean(self.values[i][-2 * self.chunks : -self.chunks]),
                np.mean(self.values[i][-self.chunks :]),
            )
            if before - after < self.tolerance:
                if self.drops[i] < self.stage.rate_drops:
                    self.drops[i] += 1
                    self.rates[i] /= 3
                    self.values[i].clear()
                else:
                    self.done[i] = True
        # A restart that is done rests: its rate is 0 while others go on.
        self.rates[self.done] = 0.0
        return bool(np.all(self.done | ~alive))
