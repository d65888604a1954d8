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
