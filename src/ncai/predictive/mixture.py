"""The predictive density of one row as a mixture of Gaussians: pure functions.

A row's mixture has S·M equally weighted components: one for each weight draw s and each
value of z that goes with it. `means[s, m]` is f(x, z_sm; W_s) and `noise_std[s]` the
output noise of that draw. Functions named "joint" take all outputs (means [S, M, L],
noise_std [S, L]); the others take one, from `one_output`, with components in any two
axes A and B.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, logsumexp, ndtri
from jaxtyping import Array, Float

LOG_2PI = float(np.log(2 * np.pi))
_BELL = float((2 * np.pi) ** -0.5)
_ERFC_FIT = (
    0.17087277,
    -0.82215223,
    1.48851587,
    -1.13520398,
    0.27886807,
    -0.18628806,
    0.09678418,
    0.37409196,
    1.00002368,
    -1.26551223,
)

# How many points a density is looked at: at first evenly, then where it has mass.
GRID_SIZES = (32, 32, 128)
# Values that stand for a mixture where its tails matter.
SAMPLE_SIZE = 8192
FINE_GRID_SIZES = (32, 64, 256)


def joint_moments(
    means: Float[Array, "S M L"], noise_std: Float[Array, "S L"]
) -> tuple[Float[Array, "L"], Float[Array, "L"]]:
    """Mean and variance of every output."""
    aleatoric, epistemic, centre = joint_variance_parts(means, noise_std)
    return centre, aleatoric + epistemic


def joint_variance_parts(
    means: Float[Array, "S M L"], noise_std: Float[Array, "S L"]
) -> tuple[Float[Array, "L"], Float[Array, "L"], Float[Array, "L"]]:
    """The law of total variance: E_W Var[y|W], Var_W E[y|W], and the mean E[y]."""
    given_weights = means.mean(1)
    within = jnp.square(means - given_weights[:, None, :]).mean(1)
    centre = given_weights.mean(0)
    between = jnp.square(given_weights - centre[None, :]).mean(0)
    return (within + jnp.square(noise_std)).mean(0), between, centre


def one_output(
    means: Float[Array, "S M L"], noise_std: Float[Array, "S L"], output: int | Array
) -> tuple[Float[Array, "A B"], Float[Array, "A #B"]]:
    """The mixture of one output, as the functions below take it."""
    means, noise_std = means[..., output], noise_std[:, None, output]
    # Compiled loops run over the last axis: it must not be the one of length 1.
    return (means.T, noise_std.T) if means.shape[1] == 1 else (means, noise_std)


def joint_log_density(
    means: Float[Array, "S M L"],
    noise_std: Float[Array, "S L"],
    targets: Float[Array, "L"],
    log_weights: Float[Array, "S M"] | None = None,
) -> Float[Array, ""]:
    """Log p(y|x) of all outputs together (Eq. `posterior-predictive`).

    Components count the same, unless they have weights, which add up to 1.
    """
    log_parts = log_components(means, noise_std, targets)
    # logsumexp keeps far tails finite, where every component alone underflows.
    if log_weights is not None:
        return logsumexp(log_parts + log_weights)
    return logsumexp(log_parts) - float(np.log(log_parts.size))


def log_components(
    means: Float[Array, "S M L"],
    noise_std: Float[Array, "S L"],
    targets: Float[Array, "L"],
) -> Float[Array, "A B"]:
    """Log density of the targets under each component, laid out as by `one_output`."""
    log_parts = jnp.zeros((), means.dtype)
    for output in range(means.shape[-1]):
        mean, std = one_output(means, noise_std, output)
        scaled = (targets[output] - mean) * (1 / std)
        log_parts = log_parts - 0.5 * jnp.square(scaled) - jnp.log(std) - 0.5 * LOG_2PI
    return log_parts


def normal_cdf(scaled: Float[Array, "..."]) -> Float[Array, "..."]:
    """Standard normal cdf, accurate to 2e-7 and, in the lower tail, to 2e-5 of itself.

    Chebyshev's fit of log(erfc(x) exp(x^2)) in 1 / (1 + x/2), as in Numerical Recipes.
    `jax.scipy.special.ndtr` chooses between formulas element by element; without such
    choices the compiler uses vector instructions, which is five times as fast.
    """
    distance = jnp.abs(scaled) * np.float32(0.5**0.5)
    ratio = 2 / (2 + distance)
    log_part = jnp.full_like(ratio, _ERFC_FIT[0])
    for coefficient in _ERFC_FIT[1:]:
        log_part = log_part * ratio + np.float32(coefficient)
    tail = 0.5 * ratio * jnp.exp(log_part - jnp.square(distance))
    side = jnp.sign(scaled + np.float32(1e-30))  # 1 at zero
    return jnp.maximum(side, 0) - side * tail


def cdf(
    means: Float[Array, "A B"], noise_std: Float[Array, "A #B"], value: Float[Array, ""]
) -> Float[Array, ""]:
    """P(y <= value)."""
    return normal_cdf((value - means) * (1 / noise_std)).mean()


def pdf(
    means: Float[Array, "A B"], noise_std: Float[Array, "A #B"], value: Float[Array, ""]
) -> Float[Array, ""]:
    """Density at `value`; underflows to 0 in far tails, unlike `joint_log_density`."""
    scaled = (value - means) * (1 / noise_std)
    return (jnp.exp(-0.5 * jnp.square(scaled)) * (_BELL / noise_std)).mean()


def cdf_grid(
    means: Float[Array, "A B"],
    noise_std: Float[Array, "A #B"],
    points: Float[Array, "G"],
) -> Float[Array, "G"]:
    """P(y <= point) at every point, to about 1e-7."""
    scaled = _to_points(means, noise_std, points) * np.float32(0.5**0.5)
    return 0.5 + 0.5 * erf(scaled).mean((0, 1))


def pdf_grid(
    means: Float[Array, "A B"],
    noise_std: Float[Array, "A #B"],
    points: Float[Array, "G"],
) -> Float[Array, "G"]:
    """Density at every point."""
    scaled = _to_points(means, noise_std, points)
    parts = jnp.exp(-0.5 * jnp.square(scaled)) * (_BELL / noise_std)[..., None]
    return parts.mean((0, 1))


def _to_points(means, noise_std, points):
    # Points on the last axis: the sum over components then runs in vector instructions.
    return (points[None, None, :] - means[..., None]) * (1 / noise_std)[..., None]


def lower_quantile(
    means: Float[Array, "A B"],
    noise_std: Float[Array, "A #B"],
    level: Float[Array, ""],
    start: Float[Array, ""] | None = None,
    max_steps: int = 60,
) -> Float[Array, ""]:
    """Where the cdf equals `level`, meant for levels up to one half.

    Newton's method on log cdf, which is nearly quadratic in a tail, kept inside a
    bracket and replaced by bisection whenever a step does not halve: that also crosses
    the flat stretches between the modes of a mixture. Upper levels are found by
    mirroring, since 32-bit numbers near 1 are too coarse for a tail.
    """
    normal_level = ndtri(level)
    # At the smallest component quantile no component has passed `level`, at the
    # largest all have: an exact bracket.
    ends = means + noise_std * normal_level
    low, high = ends.min(), ends.max()
    variance = means.var() + jnp.square(noise_std).mean()
    if start is None:
        start = means.mean() + jnp.sqrt(variance) * normal_level
    start = jnp.clip(start, low, high)
    x_tolerance = 1e-6 * jnp.sqrt(variance)
    cdf_tolerance = jnp.minimum(1e-6, 1e-4 * level)

    def unfinished(state):
        steps, _, low, high, _, miss = state
        wide = high - low > x_tolerance
        return (steps < max_steps) & wide & (jnp.abs(miss) > cdf_tolerance)

    def step(state):
        steps, here, low, high, last_move, _ = state
        mass, density = cdf(means, noise_std, here), pdf(means, noise_std, here)
        miss = mass - level
        low, high = jnp.where(miss < 0, here, low), jnp.where(miss < 0, high, here)
        newton = here - jnp.log(mass / level) * mass / density
        # `not (a and b)` also catches a Newton step that is not a number.
        good = (newton > low) & (newton < high)
        good = good & (jnp.abs(newton - here) < 0.5 * last_move)
        there = jnp.where(good, newton, 0.5 * (low + high))
        done = jnp.abs(miss) <= cdf_tolerance
        there = jnp.where(done, here, there)
        return steps + 1, there, low, high, jnp.abs(there - here), miss

    first = (0, start, low, high, 2 * (high - low), jnp.ones_like(level))
    return jax.lax.while_loop(unfinished, step, first)[1]


def quantile(
    means: Float[Array, "A B"],
    noise_std: Float[Array, "A #B"],
    tail_and_side: Float[Array, "2"],
) -> Float[Array, ""]:
    """The quantile with probability `tail` below (side 1) or above (side -1) it."""
    tail, side = tail_and_side
    # Most steps are taken on a few components, where they are cheap.
    start = lower_quantile(*thinned(side * means, noise_std, 512), tail)
    return side * lower_quantile(side * means, noise_std, tail, start)


def thinned(
    means: Float[Array, "A B"], noise_std: Float[Array, "A #B"], size: int
) -> tuple[Float[Array, "C D"], Float[Array, "C #D"]]:
    """A mixture of at most `size` components that is much like the whole one."""
    if means.size <= size:
        return means, noise_std
    # Golden-ratio steps visit all weight draws evenly without favouring any value of z,
    # as steps of a fixed length could.
    picks = np.floor(means.size * (np.arange(size) * (np.sqrt(5) - 1) / 2 % 1.0))
    rows, columns = np.divmod(picks.astype(np.int32), means.shape[1])
    noise_columns = columns if noise_std.shape[1] > 1 else 0 * columns
    return means[rows, columns][None], noise_std[rows, noise_columns][None]


def mass_grid(
    means: Float[Array, "A B"], noise_std: Float[Array, "A #B"], sizes=GRID_SIZES
) -> Float[Array, "G"]:
    """Increasing points over the whole range, dense where the mixture has its mass.

    The range of a mixture says little about its shape (one wild component widens it),
    so each round spreads a few evenly, most by the cdf at the points of the round
    before, and some by that of wider components: they mark where the density ends.
    """
    reach = 5.0 * noise_std
    low, high = (means - reach).min(), (means + reach).max()
    unit = jnp.linspace(0, 1, sizes[0] // 2, dtype=means.dtype)
    few = thinned(means, noise_std, 128)  # enough to know where the mass is
    wider = few[0], 3.0 * few[1]
    # Half evenly, half among the components: a wild one may lie a million widths away.
    among = jnp.sort(few[0].ravel())
    among = among[np.linspace(0, among.size - 1, sizes[0] // 2).astype(int)]
    points = jnp.sort(jnp.concatenate([low + (high - low) * unit, among]))
    for size in sizes[1:]:
        mass = 0.6 * cdf_grid(*few, points) + 0.25 * cdf_grid(*wider, points)
        warp = mass + 0.15 * (points - low) / (high - low)
        targets = jnp.linspace(warp[0], warp[-1], size, dtype=means.dtype)
        # The barrier keeps XLA from interpolating anew for each component.
        points = jax.lax.optimization_barrier(jnp.interp(targets, warp, points))
    return points


def smoothed(
    means: Float[Array, "A B"], noise_std: Float[Array, "A #B"], neighbours: int
) -> tuple[Float[Array, "1 C"], Float[Array, "1 C"]]:
    """The mixture with components blurred by the distances between them.

    Its components are values of f at some of all z. Where the noise is smaller than the
    distances between these they are spikes, which the density of y is not; where it is
    larger the blur changes nothing. The nearer side counts, so that gaps between modes
    stay empty, and its `neighbours`: the more, the more random their places are.
    """
    means, noise_std = jnp.broadcast_arrays(means, noise_std)
    means, noise_std = jax.lax.sort((means.ravel(), noise_std.ravel()), num_keys=1)
    if means.size > 2 * neighbours:
        away = means[neighbours:] - means[:-neighbours]
        nothing = jnp.full(neighbours, jnp.inf, means.dtype)
        below, above = jnp.append(nothing, away), jnp.append(away, nothing)
        blur = 0.5 * jnp.minimum(below, above)
        noise_std = jnp.sqrt(jnp.square(noise_std) + jnp.square(blur))
    return means[None], noise_std[None]


def entropy(
    means: Float[Array, "A B"], noise_std: Float[Array, "A #B"]
) -> Float[Array, ""]:
    """Differential entropy -∫ p log p, in nats.

    As if the density were even between two points: unlike the trapezoidal rule this
    knows how much lies between them, so a component narrower than that does no harm.
    """
    means = means - means.mean()  # small differences of large numbers lose digits
    points = mass_grid(means, noise_std)
    masses = jnp.diff(cdf_grid(means, noise_std, points))
    widths = jnp.diff(points)
    log_widths = jnp.log(jnp.where(widths > 0, widths, 1.0))
    return jnp.sum(jax.scipy.special.entr(jnp.maximum(masses, 0)) + masses * log_widths)


def crps(
    means: Float[Array, "A B"],
    noise_std: Float[Array, "A #B"],
    target: Float[Array, ""],
) -> Float[Array, ""]:
    """Continuous ranked probability score: E|y' - y| - E|y' - y''| / 2.

    The first term is exact. The second is half the mean difference within an even
    sample of the mixture: unlike an integral of F(1-F) over a grid, it stays right
    where the tails are heavy.
    """
    distance = means - target
    scaled = distance / noise_std
    bell = jnp.exp(-0.5 * jnp.square(scaled)) * np.float32(np.sqrt(2 / np.pi))
    to_target = (noise_std * bell + distance * (1 - 2 * normal_cdf(-scaled))).mean()
    sample = means + noise_std * even_noise(means.shape, means.dtype)
    return to_target - half_mean_difference(sample.ravel())


def even_noise(shape: tuple[int, ...], dtype) -> Float[Array, "R ..."]:
    """Standard normal noise for each component, several times and evenly spread.

    Each value comes with its negative, so that it has no correlation with the means.
    """
    num = int(np.prod(shape))
    repeats = -(-SAMPLE_SIZE // (2 * num))
    uniform = (0.5 + np.arange(repeats * num) * np.sqrt(2)) % 1.0
    noise = ndtri(jnp.asarray(np.clip(uniform, 1e-6, 1 - 1e-6), dtype))
    noise = noise.reshape(repeats, *shape)
    return jnp.concatenate([noise, -noise])


def half_mean_difference(sample: Float[Array, "N"]) -> Float[Array, ""]:
    """E|y' - y''| / 2 for two values drawn from the sample, by their ranks."""
    ordered = jnp.sort(sample)
    num = len(ordered)
    ranks = (2 * np.arange(1, num + 1) - num - 1) / num**2
    # Ranks add up to 0, so a centre may be taken off: large sums then do not cancel.
    return jnp.asarray(ranks, sample.dtype) @ (ordered - ordered[num // 2])


def highest_density_level(
    means: Float[Array, "A B"], noise_std: Float[Array, "A #B"], level: Float[Array, ""]
) -> tuple[Float[Array, "G"], Float[Array, "G"], Float[Array, ""]]:
    """Points, their density, and the density above which the probability is `level`."""
    points = mass_grid(means, noise_std, FINE_GRID_SIZES)
    density = pdf_grid(means, noise_std, points)
    high = jnp.maximum(density[:-1], density[1:])
    low = jnp.minimum(density[:-1], density[1:])
    # What lies between two points is known: a component narrower than that is not
    # taken for one as wide.
    masses = jnp.maximum(jnp.diff(cdf_grid(means, noise_std, points)), 0)
    widths = 2 * masses / jnp.maximum(low + high, 1e-30)
    total = jnp.sum(masses)

    def mass_above(threshold):
        # Exact for a density that is straight between the points.
        part = (high - threshold) / jnp.maximum(high - low, 1e-30)
        crossed = part * 0.5 * (high + threshold)
        inside = jnp.where(low >= threshold, 0.5 * (low + high), crossed)
        return jnp.sum(widths * jnp.where(high > threshold, inside, 0))

    def halve(_, bracket):
        middle = 0.5 * (bracket[0] + bracket[1])
        too_much = mass_above(middle) > level * total
        return (
            jnp.where(too_much, middle, bracket[0]),
            jnp.where(too_much, bracket[1], middle),
        )

    below, above = jax.lax.fori_loop(
        0, 40, halve, (jnp.zeros_like(total), density.max())
    )
    return points, density, 0.5 * (below + above)
