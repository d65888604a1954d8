"""The parts of the uncertainty of one row, each an average over draws of W.

Every measure gives two values to each draw of W. The aleatoric value is the uncertainty
of y given W. The epistemic value is the distance between the distribution of y given W
and the distribution of y. The averages of these values over the draws are the two
parts, and the sum of the two parts is the total. All parts come from the same draws.

If the parts are conditional on the ensemble member, the draws of a member are pooled
first: the distribution given the member takes the place of the distribution given W.

The Monte Carlo standard errors come from the spread, within each member, of the
influence of a draw: how much a part changes as the draw gets more weight. Without
pooling, the influence is the value of the draw itself.

The functions have the signature that `map_mixtures` requires.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ncai.predictive import mixture
from ncai.predictive.components import (
    NUM_FEWEST,
    Components,
    by_draw,
    few_of,
    log_components,
    one_output,
    shares_of_draws,
)
from ncai.predictive.mixture import Mixture
from ncai.predictive.moments import draw_moments, for_each_transform
from ncai.predictive.row_statistics import over_outputs
from ncai.preprocessing.target_transforms import inverse

# Number of points at which cdfs are computed, in rounds as `mixture.GRID_SIZES`.
CDF_GRID_SIZES = (32, 64, 192)
# Which neighbour determines the blur of a component if z has several dimensions.
NEIGHBOURS = 8


class Grouping(NamedTuple):
    """Which draws of W belong together.

    Args:
        members: 1 where a draw belongs to an ensemble member, and 0 elsewhere.
        pooled: the same if the parts are conditional on the member; None if they are
            conditional on W.
    """

    members: Float[Array | np.ndarray, "R S"]
    pooled: Float[Array | np.ndarray, "R S"] | None = None

    def shares(self, of_draws: Float[Array, "S"]) -> Float[Array | np.ndarray, "Q"]:
        """The weight of each member, or of each draw."""
        return of_draws if self.pooled is None else self.pooled @ of_draws

    def averages(self, values: Float[Array, "S *V"], shares: Float[Array, "S"]):
        """Averages over the draws of each member; the same values without pooling."""
        if self.pooled is None:
            return values
        weights = self.pooled * shares
        return jnp.tensordot(weights / weights.sum(1, keepdims=True), values, 1)

    def at_draws(self, values: Float[Array, "Q *V"]):
        """The value of the member of each draw."""
        return (
            values if self.pooled is None else jnp.tensordot(self.pooled.T, values, 1)
        )


def variance_split(name: str, components: Components, row, shared):
    """E_W Var[y|W] and Var_W E[y|W] of each output, [L, 3] with errors [L, 3]."""
    del row
    constants, grouping = shared
    found = draw_moments(name, components, constants)
    shares = found.shares[:, 0]
    mean = shares @ found.means
    of_units = grouping.averages(found.means, shares)
    own = grouping.at_draws(of_units)
    # The variance given the member has a part between its draws.
    within = found.variances + jnp.square(found.means - own)
    aleatoric = grouping.averages(within, shares)
    epistemic = jnp.square(of_units - mean)
    influences = aleatoric, epistemic
    if grouping.pooled is not None:
        influences = within, 2 * (own - mean) * (found.means - mean)
    return _parts((aleatoric, epistemic), influences, shares, grouping)


def crps_split(name: str, components: Components, row, shared):
    """The expected CRPS of y, which is the integral of F(1 - F), split over W.

    The aleatoric part is the mean over W of the integral of F_W (1 - F_W). The
    epistemic part is the integral of Var_W[F_W]. The same points of y serve for both.
    Between two points each cdf counts as a straight line, so no part can be negative.
    """
    del row
    constants, grouping = shared
    shares = shares_of_draws(components)
    of_units = grouping.shares(shares)

    def one(output, _):
        points, cdfs = _cdfs_of_draws(components, output)
        values = points
        if constants:
            shift, scale, *shape = (constant[output] for constant in constants)
            values = inverse(name, shift + scale * points, *shape)
        widths = jnp.diff(values)
        given = grouping.averages(cdfs, shares)
        average = of_units @ given
        apart = given - average
        aleatoric = _line_integral(given, 1 - given) @ widths
        epistemic = _line_integral(apart, apart) @ widths
        if grouping.pooled is None:
            return (aleatoric, epistemic), (aleatoric, epistemic)
        own = grouping.at_draws(given)
        on_aleatoric = _line_integral(cdfs, 1 - 2 * own) @ widths
        on_epistemic = _line_integral(cdfs, 2 * (own - average)) @ widths
        return (aleatoric, epistemic), (on_aleatoric, on_epistemic)

    count = components.means.shape[-1]
    found = over_outputs(one, components, jnp.zeros(count))
    values, influences = jax.tree.map(jnp.transpose, found)
    return _parts(values, influences, shares, grouping)


def _line_integral(one: Float[Array, "S G"], two: Float[Array, "S G"]):
    """Integrals of a product of two straight lines over each unit interval."""
    ends = one[:, :-1] * two[:, :-1] + one[:, 1:] * two[:, 1:]
    across = one[:, :-1] * two[:, 1:] + one[:, 1:] * two[:, :-1]
    return (2 * ends + across) / 6


def entropy_split(neighbours: int, components: Components, row, grouping: Grouping):
    """E_W H[u|W] and E_W KL(u|W to u), by quadrature; one output, [3] with errors [3].

    If `neighbours` is above 0, each component is blurred by its distance to that
    neighbour.
    """
    del row
    shares = shares_of_draws(components)
    centre = one_output(components, 0).mean()
    components = components._replace(means=components.means - centre)
    points, cdfs = _cdfs_of_draws(components, 0, neighbours)
    masses = jnp.maximum(jnp.diff(cdfs, axis=1), 0)
    log_widths = _log_where(jnp.diff(points))
    from_all = masses @ (log_widths - _log_where(shares @ masses))
    if grouping.pooled is not None:
        of_members = grouping.averages(masses, shares)
        log_densities = grouping.at_draws(_log_where(of_members)) - log_widths
        from_own = -jnp.sum(masses * log_densities, axis=1)
        return _entropy_parts(from_own, from_all, shares, grouping)

    def own(draw: Mixture):
        draw = mixture.smoothed(draw, neighbours) if neighbours else draw
        return mixture.entropy(draw, draw)

    given = jax.lax.map(own, by_draw(components, 0))
    return _entropy_parts(given, from_all, shares, grouping)


def _log_where(values: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Logarithms of the positive values; 0 elsewhere, where no mass is."""
    return jnp.log(jnp.where(values > 0, values, 1.0))


def _entropy_parts(
    from_own: Float[Array, "S"],
    from_all: Float[Array, "S"],
    shares: Float[Array, "S"],
    grouping: Grouping,
):
    """The parts from the average of -log p(u|W), or of the member, and of -log p(u).

    Both are averages over u given each draw of W. So they are influences as well: the
    derivative of the logarithms averages to zero.
    """
    aleatoric, epistemic = from_own[:, None], (from_all - from_own)[:, None]
    averages = (
        grouping.averages(aleatoric, shares),
        grouping.averages(epistemic, shares),
    )
    parts, errors = _parts(averages, (aleatoric, epistemic), shares, grouping)
    return parts[0], errors[0]


def sampled_entropy_split(components: Components, samples, grouping: Grouping):
    """`entropy_split` for several outputs together, from samples [S, n, L] of u."""
    shares = shares_of_draws(components)

    def of_sample(of_units, sample):
        """-log p(u|W), or that of the member, and -log p(u)."""
        given = logsumexp(log_components(components, sample), axis=(1, 2))
        own = logsumexp(jnp.where(of_units > 0, given, -jnp.inf))
        return jnp.log(of_units @ shares) - own, -logsumexp(given)

    def of_draw(draw):
        index, of_samples = draw
        same = jax.nn.one_hot(index, len(shares))
        if grouping.pooled is not None:
            same = grouping.pooled[:, index] @ grouping.pooled
        found = jax.lax.map(partial(of_sample, same), of_samples)
        return jax.tree.map(jnp.mean, found)

    from_own, from_all = jax.lax.map(of_draw, (jnp.arange(len(shares)), samples))
    return _entropy_parts(from_own, from_all, shares, grouping)


def noisy(components: Components, row, noise):
    """Samples of u, one for each component with one value of the noise: [S, n, L]."""
    del row
    widths = components.noise_std * components.noise_factors
    return components.means + widths[:, None, :] * noise


def _cdfs_of_draws(components: Components, output: int | Array, neighbours: int = 0):
    """Points over the range of one output, and the cdf of each draw there, [S, G]."""
    whole = one_output(components, output)
    few = few_of(components, whole, NUM_FEWEST)
    points = mixture.mass_grid(whole, few, CDF_GRID_SIZES)

    def cdf(draw: Mixture):
        draw = mixture.smoothed(draw, neighbours) if neighbours else draw
        return mixture.cdf_grid(draw, points)

    return points, jax.lax.map(cdf, by_draw(components, output))


def _parts(
    values: tuple[Float[Array, "Q L"], Float[Array, "Q L"]],
    influences: tuple[Float[Array, "S L"], Float[Array, "S L"]],
    shares: Float[Array, "S"],
    grouping: Grouping,
) -> tuple[Float[Array, "L 3"], Float[Array, "L 3"]]:
    """Total, aleatoric and epistemic part, and their Monte Carlo standard errors.

    The members and their shares are fixed, so only the draws within a member are
    random. For a member with a single draw, the spread of all draws is used.

    Args:
        values: aleatoric and epistemic value of each draw, or of each member.
        influences: the influence of each draw on the two parts.
        shares: weights of the draws.
        grouping: which draws belong together.
    """
    parts = jnp.tensordot(grouping.shares(shares), _with_total(*values), 1)
    found, members = _with_total(*influences), grouping.members
    counts = members.sum(1)[:, None, None]
    apart = found - jnp.tensordot(
        members.T, jnp.tensordot(members, found, 1) / counts, 1
    )
    within = jnp.tensordot(members, jnp.square(apart), 1) / jnp.maximum(counts - 1, 1)
    average = jnp.tensordot(shares, found, 1)
    overall = jnp.tensordot(shares, jnp.square(found - average), 1)
    variances = jnp.where(counts > 1, within, overall) / counts
    shares_of_members = (members @ shares)[:, None, None]
    return parts, jnp.sqrt(jnp.sum(jnp.square(shares_of_members) * variances, axis=0))


def _with_total(aleatoric: Float[Array, "Q L"], epistemic: Float[Array, "Q L"]):
    return jnp.stack([aleatoric + epistemic, aleatoric, epistemic], axis=-1)


VARIANCE_SPLIT = {n: f[0] for n, f in for_each_transform(variance_split).items()}
CRPS_SPLIT = {n: f[0] for n, f in for_each_transform(crps_split).items()}
# With one latent, components have an order and are smooth already; with several, they
# are blurred. The functions are made once, because a new one would compile again.
ENTROPY_SPLIT = tuple(partial(entropy_split, count) for count in (0, NEIGHBOURS))
