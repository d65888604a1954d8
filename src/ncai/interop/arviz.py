"""Export the draws of a fitted model to ArviZ."""

import warnings
from typing import Any

import numpy as np

from ncai.inference.posterior import GaussianPosterior, SamplePosterior


def to_arviz(model, n_draws: int = 1000, seed: int = 0):
    """Return the posterior as ArviZ's `InferenceData` (needs the extra `ncai[arviz]`).

    The group `posterior` contains, on the scale of training (standardised if
    `standardize` is True):

    - `W` [chain, draw, weight]: all weights as one vector;
    - `noise_std` [chain, draw, output]: width of the output noise;
    - `latent_std` [chain, draw]: prior width of z;
    - `z` [chain, draw, row, latent]: latents of the training rows. They are missing for
      methods that integrate z out, if several restarts are kept (their z have different
      meanings), and after `load` of a file without training rows.

    The chains and draws of a sampler are returned as they are. Other methods give one
    chain of `n_draws` independent draws. `constant_data` and `observed_data` contain
    the training rows, if they are known.

    Args:
        model: a fitted `BNNLVRegressor` or `BNNRegressor`.
        n_draws: number of draws, for methods that are not samplers.
        seed: seed of these draws.
    """
    from sklearn.utils.validation import check_is_fitted

    arviz = _arviz()
    check_is_fitted(model)
    posterior = model.posterior_
    if isinstance(posterior, SamplePosterior):
        draws = _chains(posterior)
    else:
        draws = _independent(model, posterior, n_draws, seed)
    if not model.settings_.method.supports.row_latents:
        draws.pop("z", None)  # z was integrated out, so it has no joint draws with W
    groups: dict[str, Any] = {"posterior": draws}
    rows = model.training_rows_
    if rows is not None:
        groups["observed_data"] = {"y": rows.targets}
        groups["constant_data"] = {"x": rows.inputs}
    dims = {
        "W": ["weight"],
        "noise_std": ["output"],
        "z": ["row", "latent"],
        "y": ["row", "output"],
        "x": ["row", "input"],
    }
    coords = {} if model.train_index_ is None else {"row": model.train_index_}
    found = arviz.from_dict(**groups, dims=dims, coords=coords)
    found["posterior"].attrs["inference"] = model.settings_.method.name
    found["posterior"].attrs["inference_library"] = "ncai"
    return found


def _arviz():
    try:
        with warnings.catch_warnings():
            # ArviZ warns about its next version when it is imported.
            warnings.simplefilter("ignore")
            import arviz
    except ImportError:
        raise ImportError("to_arviz needs ArviZ: pip install 'ncai[arviz]'.") from None
    return arviz


def _chains(posterior: SamplePosterior) -> dict[str, np.ndarray]:
    """A sampler's draws, [chains, draws, ...]."""
    weights, latents, log_noise = (np.asarray(a) for a in posterior.samples)
    shape = weights.shape[:2]
    if posterior.model.noise_is_unknown:
        noise = np.exp(0.5 * log_noise)
    else:
        noise = np.sqrt(np.asarray(posterior.priors.noise_variance))[:, None]
        noise = np.broadcast_to(noise, (*shape, noise.shape[-1]))
    latent_std = np.sqrt(np.asarray(posterior.priors.latent_variance))[:, None]
    draws = {
        "W": weights,
        "noise_std": noise,
        "latent_std": np.broadcast_to(latent_std, shape),
    }
    return draws | ({"z": latents} if latents.size else {})


def _independent(
    model, posterior: GaussianPosterior, n_draws: int, seed: int
) -> dict[str, np.ndarray]:
    """Draws from the Gaussians, as one chain."""
    import jax

    if n_draws < 1:
        raise ValueError(f"n_draws={n_draws!r} must be a whole number of at least 1.")
    weights = posterior.draw(jax.random.key(seed), int(n_draws))
    weights = weights.resampled(int(n_draws), seed)
    draws = {
        "W": np.asarray(weights.weights),
        "noise_std": np.asarray(weights.noise_std),
        "latent_std": np.asarray(weights.latent_std),
    }
    latents = model.latent_posterior_
    if latents is not None and posterior.num_components == 1:
        # In a factorised posterior z does not depend on W, so it is drawn on its own.
        units = np.random.default_rng(seed).standard_normal(
            (n_draws, *latents.mean.shape)
        )
        draws["z"] = latents.mean + latents.std * units
    return {name: values[None] for name, values in draws.items()}
