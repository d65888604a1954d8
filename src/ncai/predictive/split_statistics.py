"""The parts of the uncertainty of one row, each an average over draws of W.

Every measure gives two values to each draw of W. The aleatoric value is the uncertainty
of y given W. The epistemic value is the distance between the distribution of y given W
and the distribution of y. The averages of these values over the draws are the two
parts, and the sum of the two parts is the total. All parts come from the same draws.
The spread of the values within each ensemble member gives the Monte Carlo standard
errors.

The functions have the signature that `map_mixtures` requires.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ncai.predictive import mixture
from ncai.predictive.components import (
    NUM_FEWEST,
    Components,
    by_draw,
    few_of,
    joint_log_density,
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


def variance_split(name: str, components: Components, row, shared):
    """E_W Var[y|W] and Var_W E[y|W] of each output, [L, 3] with errors [L, 3]."""
    del row
    constants, members = shared
    found = draw_moments(name, components, constants)
    mean = jnp.sum(found.shares * found.means, axis=0)
    epistemic = jnp.square(found.means - mean)
    return _parts(found.variances, epistemic, found.shares[:, 0], members)


def crps_split(name: str, components: Components, row, shared):
    """The expected CRPS of y, which is the integral of F(1 - F), split over W.

    The aleatoric part is the mean over W of the integral of F_W (1 - F_W). The
    epistemic part is the integral of Var_W[F_W]. The same points of y serve for both.
    Between two points each cdf counts as a straight line, so no part can be negative.
    """
    del row
    constants, members = shared
    shares = shares_of_draws(components)

    def one(output, _):
        points, cdfs = _cdfs_of_draws(components, output)
        values = points
        if constants:
            shift, scale, *shape = (constant[output] for constant in constants)
            values = inverse(name, shift + scale * points, *shape)
        widths = jnp.diff(values)
        apart = cdfs - shares @ cdfs
        aleatoric = _line_integral(cdfs, 1 - cdfs) @ widths
        epistemic = _line_integral(apart, apart) @ widths
        return aleatoric, epistemic

    count = components.means.shape[-1]
    aleatoric, epistemic = over_outputs(one, components, jnp.zeros(count))
    return _parts(aleatoric.T, epistemic.T, shares, members)


def _line_integral(one: Float[Array, "S G"], two: Float[Array, "S G"]):
    """Integrals of a product of two straight lines over each unit interval."""
    ends = one[:, :-1] * two[:, :-1] + one[:, 1:] * two[:, 1:]
    across = one[:, :-1] * two[:, 1:] + one[:, 1:] * two[:, :-1]
    return (2 * ends + across) / 6


def entropy_split(neighbours: int, components: Components, row, members):
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
    widths = jnp.diff(points)
    average = shares @ masses
    log_density = jnp.log(jnp.where(average > 0, average, 1.0)) - jnp.log(
        jnp.where(widths > 0, widths, 1.0)
    )
    from_all = -masses @ log_density

    def own(draw: Mixture):
        draw = mixture.smoothed(draw, neighbours) if neighbours else draw
        return mixture.entropy(draw, draw)

    given = jax.lax.map(own, by_draw(components, 0))
    parts, errors = _parts(given[:, None], (from_all - given)[:, None], shares, members)
    return parts[0], errors[0]


def sampled_entropy_split(components: Components, samples, members):
    """`entropy_split` for several outputs together, from samples [S, n, L] of u."""
    shares = shares_of_draws(components)

    def of_draw(index):
        *of_draws, few = components
        means, blur, noise, factors, log_weights = (
            leaf[index][None] for leaf in of_draws
        )
        log_weights = log_weights - jnp.log(shares[index])
        one = Components(means, blur, noise, factors, log_weights, few)
        whole, given = (
            jax.lax.map(lambda y, c=c: joint_log_density(c, y), samples[index])
            for c in (components, one)
        )
        return -given.mean(), (given - whole).mean()

    given, apart = jax.lax.map(of_draw, jnp.arange(len(shares)))
    parts, errors = _parts(given[:, None], apart[:, None], shares, members)
    return parts[0], errors[0]


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
    aleatoric: Float[Array, "S L"],
    epistemic: Float[Array, "S L"],
    shares: Float[Array, "S"],
    members: Float[Array | np.ndarray, "R S"],
) -> tuple[Float[Array, "L 3"], Float[Array, "L 3"]]:
    """Total, aleatoric and epistemic part, and their Monte Carlo standard errors.

    The members and their shares are fixed, so only the draws within a member are
    random. For a member with a single draw, the spread of all draws is used.
    """
    values = jnp.stack([aleatoric + epistemic, aleatoric, epistemic], axis=-1)
    parts = jnp.tensordot(shares, values, 1)
    of_members = jnp.tensordot(members, values, 1)
    counts = members.sum(1)[:, None, None]
    apart = values - jnp.tensordot(members.T, of_members / counts, 1)
    within = jnp.tensordot(members, jnp.square(apart), 1) / jnp.maximum(counts - 1, 1)
    overall = jnp.tensordot(shares, jnp.square(values - parts), 1)
    variances = jnp.where(counts > 1, within, overall) / counts
    shares_of_members = (members @ shares)[:, None, None]
    return parts, jnp.sqrt(jnp.sum(jnp.square(shares_of_members) * variances, axis=0))


VARIANCE_SPLIT = {n: f[0] for n, f in for_each_transform(variance_split).items()}
CRPS_SPLIT = {n: f[0] for n, f in for_each_transform(crps_split).items()}
# With one latent, components have an order and are smooth already; with several, they
# are blurred. The functions are made once, because a new one would compile again.
ENTROPY_SPLIT = tuple(partial(entropy_split, count) for count in (0, NEIGHBOURS))
