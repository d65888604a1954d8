"""The compiled training loop: a chunk of Adam steps for a few restarts at once."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from ncai.model.bnn_lv import Model, PriorState
from ncai.types import Data

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


class Problem(NamedTuple):
    """What is minimised.

    Args:
        objective: see `ncai.objectives.base`; its numbers have a leading restart axis.
        model: the model.
        data: the rows; their weights may have a leading restart axis too: restarts
            then learn from rows of their own.
        trainable: a tree prefix of the parameters with 1 where they learn and 0 where
            they are held.
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
        decay: rates fall to 0 over so many steps, along half a cosine.
    """

    rates: Float[Array, "*R"]
    first: int
    count: int
    decay: float = float("inf")

    def rate_at(self, step, dtype):
        """The rate of a step."""
        progress = jnp.minimum(step / self.decay, 1.0).astype(dtype)
        return self.rates * 0.5 * (1.0 + jnp.cos(jnp.pi * progress))


class _Carry(NamedTuple):
    """What one step hands to the next, for one restart."""

    flat: Float[Array, "P"]
    adam: Any
    priors: PriorState
    normals: Float[Array, "*S"]
    prepared: Any
    value_sum: Float[Array, ""]
    term_sums: dict[str, Float[Array, ""]]


def _mask(trainable: Any, params: Any) -> Float[Array, "P"]:
    """1 for each number that learns and 0 for each that is held."""
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
    # fori_loop, not scan: nothing is stacked, and the number of steps is a traced
    # number, so a last chunk of another length compiles nothing.
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
