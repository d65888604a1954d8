"""The short Python loop that runs the compiled loop in chunks.

Python receives one small summary per chunk, which it uses for progress, plateaus, time
limits and lost restarts. This is the only code path, with or without a progress bar,
and there is no synchronisation with the host within a chunk.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import numpy as np
from jaxtyping import Array, Int

from ncai.model.bnn_lv import Model
from ncai.runtime.interrupt import noticing_ctrl_c
from ncai.runtime.jax_setup import RUN_ONCE, prepare_jax
from ncai.training.step import (
    ChunkSummary,
    RestartGroups,
    Stage,
    TrainState,
    initial_state,
)
from ncai.types import Data

CHUNK_STEPS = 250


@jax.jit(compiler_options=RUN_ONCE)
def _new_stage(state: TrainState, step: int | Int[Array, ""]) -> TrainState:
    """Return the state of the restarts before the first step of a new stage.

    The averages of Adam are reset, because they belong to the previous objective.
    """
    keys = jax.vmap(lambda key: jax.random.fold_in(key, step))(state.key)
    return initial_state(state.params, state.priors, keys)


class FitFailedError(RuntimeError):
    """Every restart became non-finite."""


@dataclass
class History:
    """Chunk averages over a fit: arrays [chunks, restarts] under each name."""

    stage: list[str] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    value: list[np.ndarray] = field(default_factory=list)
    terms: list[dict[str, np.ndarray]] = field(default_factory=list)

    def stacked(self) -> dict[str, np.ndarray]:
        """Return all values as arrays; a term that a stage lacks is NaN there."""
        names = sorted({name for terms in self.terms for name in terms})
        blank = np.full_like(self.value[0], np.nan) if self.value else np.zeros(0)
        out = {"step": np.array(self.step), "value": np.array(self.value)}
        for name in names:
            out[name] = np.array([terms.get(name, blank) for terms in self.terms])
        return out


@dataclass(frozen=True)
class Progress:
    """The information that a progress bar receives after each chunk."""

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
        on_progress: called after each chunk.
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
        """Run a stage from the state of another, unless the time limit is used up."""
        if self.interrupted or self.out_of_time():
            return state
        return self.run(stage, model, data, _new_stage(state, self.steps))

    def run(
        self, stage: Stage, model: Model, data: Data, state: TrainState
    ) -> TrainState:
        """Run a stage until its last step, a plateau, the time limit or Ctrl-C.

        On Ctrl-C the method returns the state of the last complete chunk and sets
        `interrupted`; the caller decides whether to keep it.
        """
        prepare_jax()
        num_restarts = state.key.shape[0]
        if self.alive is None:
            self.alive = np.ones(num_restarts, bool)
        plateau = _PlateauWatch(stage, num_restarts, _num_rows(data))
        # A cosine schedule runs to its end, so nothing was cut short.
        step, reason = 0, "step limit" if stage.schedule == "constant" else "done"
        groups = None
        try:
            with noticing_ctrl_c() as raise_if_pressed:
                raise_if_pressed()
                groups = RestartGroups(stage, model, data, state)  # which may compile
                while step < stage.max_steps:
                    num_steps = min(CHUNK_STEPS, stage.max_steps - step)
                    summary = groups.run(plateau.rates, step, num_steps)
                    self.alive = self.alive & summary.finite
                    step += num_steps
                    self.steps += num_steps
                    self.has_fit |= stage.worth_keeping
                    self._record(stage, step, summary)
                    raise_if_pressed()
                    if not self.alive.any():
                        raise _all_lost(num_restarts, stage.name, step)
                    value = np.asarray(summary.value)
                    if stage.plateau and plateau.all_done(value, step, self.alive):
                        reason = "plateau"
                        break
                    if step < stage.max_steps and self.out_of_time():
                        reason = "time limit"
                        break
        except KeyboardInterrupt:
            # Before the first chunk of a stage, the state is from an earlier stage.
            if not (stage.worth_keeping and self.has_fit):
                raise
            self.interrupted = True
            reason = "interrupted"
        finally:
            if groups is not None:
                groups.close()
        self.stop_reasons.append(f"{stage.name}: {reason} after {step} steps")
        return state if groups is None else groups.state()

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


def _all_lost(num_restarts: int, stage: str, step: int) -> FitFailedError:
    return FitFailedError(
        f"all {num_restarts} restarts became non-finite in the stage '{stage}' by step "
        f"{step}: try a smaller learning_rate, more restarts, or check X and y for "
        "extreme values."
    )


def _num_rows(data: Data) -> float:
    """Return the number of rows that a restart trains on."""
    return float(np.asarray(data.row_weights).sum(axis=-1).mean())


class _PlateauWatch:
    """The learning rate of each restart, which falls when it stops improving."""

    def __init__(self, stage: Stage, num_restarts: int, num_rows: float):
        self.stage = stage
        self.rates = np.full(num_restarts, stage.learning_rate)
        self.drops = np.zeros(num_restarts, int)
        self.done = np.zeros(num_restarts, bool)
        self.values: list[list[float]] = [[] for _ in range(num_restarts)]
        self.chunks = max(stage.window // CHUNK_STEPS, 1)
        self.tolerance = stage.tolerance * (num_rows if stage.per_row else 1.0)

    def all_done(self, value: np.ndarray, step: int, alive: np.ndarray) -> bool:
        """Record the values of a chunk; return whether every finite restart is done."""
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
        # A finished restart has rate 0 while others continue.
        self.rates[self.done] = 0.0
        return bool(np.all(self.done | ~alive))
