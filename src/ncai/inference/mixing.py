"""Have a sampler's chains mixed? R-hat and effective sample size of its predictions.

Predictions are judged, not weights: hidden nodes permute freely between chains.
"""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

from ncai.inference.nuts import DrawInfo, Target
from ncai.inference.posterior import SamplerReport
from ncai.model.latent_nodes import latent_nodes


def check_points(target: Target, count: int = 40):
    """Rows and latents at which mixing is judged: spread over the data.

    Of fewer rows some come twice, so that tables of any size share a program.
    """
    rows = np.flatnonzero(np.asarray(target.data.row_weights) > 0)
    rows = rows[np.linspace(0, len(rows) - 1, count).astype(int)]
    dims = target.model.network.latent_dim
    nodes = jnp.asarray(latent_nodes(1, 32, dims)[0])
    scale = jnp.sqrt(target.priors.latent_variance)
    return target.data.inputs[rows], scale * nodes


@jax.jit
def predictive_summary(target, positions, inputs, nodes):
    """Mean and spread over z of f at the check points: [draws, chains, 2 x points]."""

    def one(weights):
        outputs = jax.vmap(
            lambda x: jax.vmap(lambda z: target.model.network.apply(weights, x, z))(
                nodes
            )
        )(inputs)
        mean = jnp.mean(outputs, axis=1)
        parts = [mean.ravel()]
        if nodes.shape[0] > 1:
            parts.append(jnp.std(outputs, axis=1).ravel())
        return jnp.concatenate(parts)

    return jax.vmap(jax.vmap(one))(positions.weights)


@jax.jit  # one program that is kept, in place of many small ones
def _rhat_and_ess(chains):
    return blackjax.rhat(chains), blackjax.ess(chains)


def judge_mixing(summary: np.ndarray, info: DrawInfo) -> SamplerReport:
    """R-hat (rank-normalised, split) and effective sample size of the predictions."""
    chains = jnp.asarray(np.swapaxes(summary, 0, 1))
    rhat, ess = (np.asarray(found) for found in _rhat_and_ess(chains))
    # What does not vary has no R-hat; where nothing does, no chain has moved.
    rhat = rhat[~np.isnan(rhat)]
    return SamplerReport(
        max_rhat=float(rhat.max()) if rhat.size else np.inf,
        min_ess=float(np.nanmin(ess)),
        num_divergences=int(info.divergent.sum()),
        acceptance_rate=float(info.acceptance.mean()),
        num_draws=summary.shape[0],
        num_chains=summary.shape[1],
        mean_leapfrogs=float(info.leapfrogs.mean()),
    )
