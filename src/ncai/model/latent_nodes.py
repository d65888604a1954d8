"""Fixed, evenly spread values of z for averaging a prediction over its prior."""

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp, ndtri

REACH = 5.5  # standard deviations of z: one value in 26 million lies beyond


def latent_nodes(
    num_draws: int, num_latent: int, latent_dim: int
) -> Float[np.ndarray, "S M K"]:
    """Equally weighted standard-normal values of z for every weight draw.

    They stand for the inner integral of the posterior predictive
    (Eq. `posterior-predictive`). Each weight draw has its own values, so that all draws
    together cover z far more finely than any one of them. Nothing here is random: two
    calls agree, and so do two predictions.

    Args:
        num_draws: number S of weight draws.
        num_latent: number M of values for each weight draw.
        latent_dim: dimension K of z; without a latent (K = 0) one empty value is enough
            and M is not used.
    """
    if num_draws < 1 or num_latent < 1:
        raise ValueError(
            f"num_draws={num_draws} and num_latent={num_latent} must be at least 1."
        )
    if latent_dim == 0:
        return np.zeros((num_draws, 1, 0), np.float32)
    if latent_dim == 1:
        # One value in each of M slices of equal probability; the golden ratio moves the
        # place within the slice so that the draws never line up.
        shifts = (0.5 + np.arange(num_draws) * (np.sqrt(5) - 1) / 2) % 1.0
        uniform = (np.arange(num_latent) + shifts[:, None])[..., None] / num_latent
    else:
        uniform = _even_points(num_draws * num_latent, latent_dim)
        uniform = uniform.reshape(num_draws, num_latent, latent_dim)
    return ndtri(np.clip(uniform, 1e-6, 1 - 1e-6)).astype(np.float32)


def tail_nodes(
    num_draws: int, num_latent: int
) -> tuple[Float[np.ndarray, "S M 1"], Float[np.ndarray, "S M"]]:
    """Values of one z that reach far out, and the logarithms of their weights.

    Equally weighted values hardly get beyond 3 standard deviations, and where few of
    them are near, a density is that of the noise around the nearest. These are equally
    spaced up to `REACH` either way, moved from draw to draw as those are.
    """
    spacing = 2 * REACH / num_latent
    shifts = (0.5 + np.arange(num_draws) * (np.sqrt(5) - 1) / 2) % 1.0
    nodes = spacing * (np.arange(num_latent) + shifts[:, None]) - REACH
    log_weights = -0.5 * nodes**2
    log_weights -= logsumexp(log_weights)
    return nodes[..., None].astype(np.float32), log_weights.astype(np.float32)


def _even_points(num_points: int, dim: int) -> Float[np.ndarray, "points dim"]:
    """Sobol's sequence, moved off the edges of the unit cube.

    A run of M = 2^k consecutive points is the first run, shifted digit by digit: what
    one weight draw gets is as even as what any other gets, and so are all together.
    """
    from scipy.stats import qmc  # slow to import, and rarely needed

    num_bits = max(num_points - 1, 1).bit_length()
    points = qmc.Sobol(dim, scramble=False).random_base2(num_bits)[:num_points]
    return points + 0.5 / 2**num_bits
