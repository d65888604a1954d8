"""`divergence`: which divergence from the prior makes the latent means Gaussian?

The means of q(z_n) start uniform in a triangle and their widths at random, so that the
aggregated posterior q(z) = mean_n q(z_n) looks Gaussian but its means do not. Gradient
steps on the means and the widths then lower a divergence of q(z) from p(z) = N(0, I),
or the Henze-Zirkler statistic of the means (paper, Appendix D.2).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.special import logsumexp

from ncai.stats.henze_zirkler import henze_zirkler_statistic, henze_zirkler_test
from ncai.study.engine import Cell, Outcome, Scale
from ncai.study.engine.store import Store
from ncai.study.output.tables import Table, done_cells

DIVERGENCES = {
    "js": "Jensen-Shannon",
    "forward_kl": "forward KL(p, q)",
    "reverse_kl": "reverse KL(q, p)",
    "mmd": "MMD",
    "hz": "Henze-Zirkler of the means",
}
# Points and gradient steps of each scale; the paper does not state its numbers.
SIZES = {"smoke": (60, 40), "small": (200, 1_000), "paper": (500, 3_000)}
LEARNING_RATE = 0.01
TRIANGLE = np.array([[-1.6, -1.0], [1.6, -1.0], [0.0, 1.8]])
SMALLEST_START, LARGEST_START = 0.5, 0.9  # standard deviations of q(z_n)
# Nodes that integrate over the plane: 0.25 apart, less than any width that occurs.
REACH, NODES_PER_AXIS = 5.0, 41
# The kernel of MMD is as wide as the prior.
KERNEL_VARIANCE = 1.0
LEVEL = 0.05


@dataclass(frozen=True)
class Divergence:
    """The study `divergence`."""

    name: str = "divergence"
    title: str = "Means in a triangle under five divergences (fig:div-pathology)"

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """A cell for each divergence; all start at the same points."""
        del store
        num_rows, steps = SIZES[scale.name]
        return [
            Cell.of(self.name, part=name, num_rows=num_rows, steps=steps)
            for name in DIVERGENCES
        ]

    def run(self, cell: Cell) -> Outcome:
        """Minimise the divergence, and test the means before and after."""
        means, stds = start(cell["num_rows"])
        value, steps = VALUES[cell["part"]], cell["steps"]
        new_means, new_stds, before, after = descend(value, means, stds, steps)
        row: dict = {"value_before": before, "value_after": after}
        for when, m, s in (("before", means, stds), ("after", new_means, new_stds)):
            tested = henze_zirkler_test(m)
            row |= {
                f"hz_{when}": tested.statistic,
                f"p_value_{when}": tested.p_value,
                f"std_{when}": float(np.mean(s)),
                f"js_{when}": float(jensen_shannon(m, s)),
            }
        moved = np.linalg.norm(new_means - means, axis=1)
        row["moved"] = float(np.mean(moved))
        arrays = {
            "means_before": means,
            "stds_before": stds,
            "means_after": new_means,
            "stds_after": new_stds,
        }
        return Outcome(row, {k: np.asarray(v, np.float32) for k, v in arrays.items()})


def start(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Means uniform in the triangle, [N, 2], and random widths of the same shape."""
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(3), num_rows)
    means = shares @ (TRIANGLE - TRIANGLE.mean(axis=0))
    return means, rng.uniform(SMALLEST_START, LARGEST_START, means.shape)


def descend(value, means, stds, steps: int):
    """Run Adam on the means and log widths; also return the value before and after."""
    optimiser = optax.adam(LEARNING_RATE)
    params = (jnp.asarray(means, jnp.float32), jnp.log(jnp.asarray(stds, jnp.float32)))

    def loss(params):
        return value(params[0], jnp.exp(params[1]))

    def body(carry, _):
        params, state = carry
        updates, state = optimiser.update(jax.grad(loss)(params), state)
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    def run(params):
        (final, _), _ = jax.lax.scan(
            body, (params, optimiser.init(params)), None, length=steps
        )
        return final, loss(params), loss(final)

    final, before, after = run(params)
    new_means, new_stds = np.asarray(final[0]), np.exp(np.asarray(final[1]))
    return new_means, new_stds, float(before), float(after)


# ----- The divergences, as functions of the means and widths, both [N, 2] ----------


def _plane() -> tuple[np.ndarray, np.ndarray]:
    """Return equally weighted nodes over the plane, and log p(z) at the nodes."""
    axis = np.linspace(-REACH, REACH, NODES_PER_AXIS)
    nodes = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    return nodes, -0.5 * np.sum(nodes**2, axis=1) - np.log(2 * np.pi)


def _log_densities(means, stds):
    """Return log p and log q at the nodes, and the area of a node."""
    nodes, log_p = _plane()
    gaps = (jnp.asarray(nodes, jnp.float32)[:, None] - means) / stds
    log_parts = -0.5 * jnp.sum(gaps**2, axis=-1) - jnp.sum(jnp.log(stds), axis=-1)
    log_q = logsumexp(log_parts, axis=1) - np.log(2 * np.pi * len(means))
    area = (2 * REACH / (NODES_PER_AXIS - 1)) ** 2
    return jnp.asarray(log_p, jnp.float32), log_q, area


def _integral_kl(log_a, log_b, area):
    return area * jnp.sum(jnp.exp(log_a) * (log_a - log_b))


def forward_kl(means, stds):
    """KL(p, q)."""
    log_p, log_q, area = _log_densities(means, stds)
    return _integral_kl(log_p, log_q, area)


def reverse_kl(means, stds):
    """KL(q, p)."""
    log_p, log_q, area = _log_densities(means, stds)
    return _integral_kl(log_q, log_p, area)


@jax.jit
def jensen_shannon(means, stds):
    """The mean KL divergence of p and q from their average density."""
    log_p, log_q, area = _log_densities(means, stds)
    log_half = jnp.logaddexp(log_p, log_q) - np.log(2)
    return 0.5 * (
        _integral_kl(log_p, log_half, area) + _integral_kl(log_q, log_half, area)
    )


def mmd(means, stds):
    """Squared maximum mean discrepancy with a Gaussian kernel, in closed form."""

    def expected_kernel(gaps, variances):
        wide = KERNEL_VARIANCE + variances
        ratio = KERNEL_VARIANCE / wide
        return jnp.prod(jnp.sqrt(ratio) * jnp.exp(-0.5 * gaps**2 / wide), axis=-1)

    variances = stds**2
    among_q = expected_kernel(
        means[:, None] - means, variances[:, None] + variances
    ).mean()
    between = expected_kernel(means, variances + 1.0).mean()
    among_p = KERNEL_VARIANCE / (KERNEL_VARIANCE + 2.0)  # both dimensions
    return among_q - 2 * between + among_p


def hz_of_means(means, stds):
    """The statistic that NCAI penalises, which does not depend on the widths."""
    del stds
    return henze_zirkler_statistic(means, jnp.ones(len(means)))


VALUES = {
    "js": jensen_shannon,
    "forward_kl": forward_kl,
    "reverse_kl": reverse_kl,
    "mmd": mmd,
    "hz": hz_of_means,
}


def tables(scale: Scale, store: Store) -> list[Table]:
    """Return a table that shows whether the means became Gaussian."""
    rows = []
    for cell, row in done_cells(DIVERGENCE, scale, store):
        gaussian = "yes" if row["p_value_after"] > LEVEL else "no"
        rows.append(
            (
                DIVERGENCES[cell["part"]],
                *(f"{row[f'value_{w}']:.4f}" for w in ("before", "after")),
                *(f"{row[f'js_{w}']:.4f}" for w in ("before", "after")),
                *(f"{row[f'std_{w}']:.3f}" for w in ("before", "after")),
                f"{row['moved']:.3f}",
                f"{row['hz_before']:.3f} (p = {row['p_value_before']:.3f})",
                f"{row['hz_after']:.3f} (p = {row['p_value_after']:.3f})",
                gaussian,
            )
        )
    if not rows:
        return []
    columns = (
        "minimised",
        "its value before",
        "after",
        "JS(q(z), p(z)) before",
        "after",
        "mean width of q(z_n) before",
        "after",
        "means moved by",
        "HZ of the means before",
        "after",
        f"Gaussian at {LEVEL:.0%}",
    )
    note = "HZ with the chance of a larger value for Gaussian points."
    return [Table("divergence", DIVERGENCE.title, columns, tuple(rows), note)]


DIVERGENCE = Divergence()
