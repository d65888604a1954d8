"""`tightness`: does the ELBO prefer the joint mode because it is a loose bound?

The paper conjectures that the global optimum of the ELBO lies near the joint mode if
the ELBO is a loose bound (Bimodal), and that only local optima do if it is tight. Here
W is held fixed, at the truth and at the joint mode. The best factorised Gaussian q(Z)
is then the best one for each row separately, and the gap between its bound and log
E_p(Z) p(Y|X, W, Z) is the looseness of the conjecture. Let the gap at the truth exceed
the gap at the mode. If the difference is larger than the advantage of the truth in log
marginal likelihood, the ELBO prefers the mode, whatever optimum a search finds.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from ncai.inference.base import Training
from ncai.inference.posterior import GaussianPosterior
from ncai.model.bnn_lv import Model, NoiseMoments
from ncai.model.quadrature import latent_rule, node_log_joint
from ncai.study.engine import Cell, Outcome, Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.fits import paper_method
from ncai.study.experiments.map_bias import best_mode
from ncai.study.experiments.problems import (
    GROUND_TRUTH_SETS,
    KnownProblem,
    cells_of,
    known_problem,
)
from ncai.study.output.tables import Entry, Table, pick, tidy
from ncai.types import Data

NUM_NODES = 1024  # nodes of z; the noise of Heavy-Tail is far narrower than the prior
# Starts of q(z) of each row: where the posterior of z has its mass, narrow and wide.
START_WIDTHS = (0.03, 0.3, 1.0)
RATE = 0.02
_HERMITE, _HERMITE_WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_HERMITE_WEIGHTS = _HERMITE_WEIGHTS / _HERMITE_WEIGHTS.sum()


@dataclass(frozen=True)
class Tightness:
    """The study `tightness`."""

    name: str = "tightness"
    title: str = "Looseness of the ELBO in z, at the truth and at the joint mode"

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """A cell for each set and draw."""
        del store
        return cells_of(self.name, scale)

    def run(self, cell: Cell) -> Outcome:
        """Compute log marginal likelihood, best bound and their gap, at both W."""
        known = known_problem(cell["dataset"], cell["draw"])
        row: dict = {}
        steps = cell["max_steps"] // 10
        for name, weights in (
            ("truth", known.truth.weights),
            ("mode", _mode(cell, known)),
        ):
            marginal, bound = marginal_and_bound(known, weights, steps)
            row |= {
                f"marginal_at_{name}": float(marginal.sum()),
                f"bound_at_{name}": float(bound.sum()),
                f"gap_at_{name}": float((marginal - bound).mean()),
            }
        return Outcome(row, {})


def _mode(cell: Cell, known: KnownProblem) -> Float[Array, "P"]:
    """Return W at the best joint mode of one start at the truth and random starts."""
    training = Training(
        num_restarts=cell["restarts"], max_steps=cell["max_steps"], start=known.truth
    )
    key = jax.random.key(cell.seed)
    fit = paper_method("map").fit(key, known.model, known.data, training)
    posterior = fit.posterior
    assert isinstance(posterior, GaussianPosterior)
    return best_mode(known, posterior, fit.alive).point.weights


def marginal_and_bound(
    known: KnownProblem, weights: Float[Array, "P"], num_steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Log p(y_n | x_n, W) and its best Gaussian bound, [N] each, in nats."""
    model, data = known.model, known.data
    joint = _log_joint_of_nodes(model, data, weights)
    marginal = np.asarray(jax.scipy.special.logsumexp(joint, axis=0), float)
    centres = _centres(np.asarray(joint), model)
    bounds = [
        np.asarray(_best_bound(num_steps, model, data, weights, centre, width), float)
        for centre in centres
        for width in START_WIDTHS
    ]
    return marginal, np.max(bounds, axis=0)


@jax.jit
def _log_joint_of_nodes(model: Model, data: Data, weights) -> Float[Array, "M N"]:
    rule, variance = latent_rule(1, NUM_NODES), model.latent_variance.value
    return node_log_joint(model, data, rule, weights, _noise(model), variance)


def _noise(model: Model) -> NoiseMoments:
    """Return the noise of a model whose noise is known."""
    variance = model.noise_variance.value
    return NoiseMoments(jnp.log(variance), 1 / variance)


def _centres(joint: np.ndarray, model: Model) -> list[Float[Array, "N"]]:
    """Return the most likely z of each row below 0 and above 0, to try two modes."""
    nodes = np.asarray(latent_rule(1, NUM_NODES).nodes)[:, 0]
    width = float(np.sqrt(model.latent_variance.value))
    found = []
    for side in (nodes < 0, nodes >= 0):
        best = np.argmax(np.where(side[:, None], joint, -np.inf), axis=0)
        found.append(jnp.asarray(width * nodes[best], jnp.float32))
    return found


@partial(jax.jit, static_argnames="num_steps")
def _best_bound(num_steps: int, model: Model, data: Data, weights, centre, width):
    """Maximise the bounds of all rows together; each depends only on its own q(z)."""
    noise, prior_std = _noise(model), jnp.sqrt(model.latent_variance.value)
    nodes, shares = jnp.asarray(_HERMITE), jnp.asarray(_HERMITE_WEIGHTS)

    def bounds(params, nodes=nodes, shares=shares):
        mean, log_std = params
        std = jnp.exp(log_std)

        def at(node):
            latents = (mean + std * node)[:, None]
            outputs = model.network.apply_rows(weights, data.inputs, latents)
            squares = jnp.square(data.targets - outputs) * noise.precision
            constants = jnp.log(2 * jnp.pi) + noise.log_variance
            return -0.5 * jnp.sum(squares + constants, axis=1)

        expected = shares @ jax.lax.map(at, nodes)
        ratio = std / prior_std
        squares = jnp.square(ratio) + jnp.square(mean / prior_std)
        return expected - 0.5 * (squares - 1 - 2 * jnp.log(ratio))

    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, num_steps))
    start = (centre, jnp.log(width * prior_std) * jnp.ones_like(centre))

    def step(carry, _):
        params, state = carry
        gradient = jax.grad(lambda p: -bounds(p).sum())(params)
        updates, state = optimiser.update(gradient, state)
        return (optax.apply_updates(params, updates), state), None

    carry = (start, optimiser.init(start))
    params, _ = jax.lax.scan(step, carry, None, length=num_steps)[0]
    # This takes many nodes: with few, a bound with narrow noise may be overestimated.
    fine = latent_rule(1, NUM_NODES)
    return bounds(params, fine.nodes[:, 0], jnp.exp(fine.log_weights))


def tables(scale: Scale, store: Store) -> list[Table]:
    """Return a table of the gaps in nats per row, and of the weights preferred."""
    found = tidy(TIGHTNESS, scale, store)
    rows = []
    for dataset in GROUND_TRUTH_SETS:
        own = pick(found, dataset=dataset) if len(found) else found
        if not len(own):
            continue
        gaps = [str(Entry.of(own[f"gap_at_{w}"].tolist())) for w in ("truth", "mode")]
        differences = [
            str(Entry.of((own[f"{what}_at_truth"] - own[f"{what}_at_mode"]).tolist()))
            for what in ("marginal", "bound")
        ]
        rows.append((dataset, *gaps, *differences))
    columns = (
        "data set",
        "gap at the truth, nats a row",
        "gap at the mode",
        "log marginal likelihood, truth less mode",
        "best bound, truth less mode",
    )
    note = (
        "Mean ± std over draws. W is held, at the truth or at the best joint mode of "
        "ten. A gap of 0 is a tight bound. The prior of W is not part of these numbers."
    )
    if not rows:
        return []
    return [Table("tightness", TIGHTNESS.title, columns, tuple(rows), note)]


TIGHTNESS = Tightness()
