"""`marginal`: variational inference for W alone, with z integrated out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ncai.inference.base import DEFAULT, PAPER, Preset, Supports, Training
from ncai.inference.posterior import Fit, Posterior, gaussian_fit
from ncai.inference.temperature import TemperedMethod, with_unit_latents
from ncai.inference.warm_start import as_gaussian, starting_points, starting_state
from ncai.model.bnn_lv import Model
from ncai.model.mean_field import mean_field_of
from ncai.model.networks import MLP
from ncai.model.quadrature import LARGEST_DIM, latent_rule
from ncai.objectives.marginal_elbo import NegativeMarginalElbo
from ncai.runtime.arguments import count, setting
from ncai.training.driver import Driver
from ncai.training.step import LARGEST_GROUP, initial_state
from ncai.types import Data

BATCH_ROWS = 256  # rows per step, so that its cost does not grow with the data
REACH = 4.5  # the nodes cover this many prior standard deviations of z each way
NODES = 16  # in each dimension
# Rows x nodes x restarts of a group: half a megabyte, which fits a core's cache.
GROUP_VALUES = 2**17


@dataclass(frozen=True, kw_only=True, repr=False)
class Marginal(TemperedMethod):
    """A factorised Gaussian over W; z is integrated out by quadrature, so K <= 2.

    In other methods only penalties keep z from memorising the data. Here no row has a z
    that could do so, and the noise can be learned from the first step.

    Args:
        n_mc_samples: number of Monte Carlo samples of W per step.
    """

    name: ClassVar[str] = "marginal"
    label: ClassVar[str] = "Marginal inference"
    supports: ClassVar[Supports] = Supports(
        folds=True,
        most_latents=LARGEST_DIM,
        row_latents=False,
        exact_latents=True,
        empirical_noise=False,
    )
    # Chosen on held-out rows of the training parts; see docs/measured/quality.md.
    presets: ClassVar[Mapping[str, Preset]] = {
        "paper": PAPER,
        "default": replace(
            DEFAULT,
            network=MLP((50, 50), "silu", "last", "auto"),
            n_restarts=16,
            max_steps=4_000,
            target_transform="auto",
            rounding="auto",
            keep="weighted",
            method={
                **DEFAULT.method,
                "learning_rate": 0.05,
                "schedule": "cosine",
                "temperature": (0.001, 0.1),
                "noise_starts": (0.1,),
                "latent_variance": 4.0,  # wide, so that f is steep in z at the start
                "n_folds": 8,
                "recalibrate_noise": True,
            },
        ),
    }

    nodes_a_latent: ClassVar[int] = NODES
    batch_rows: ClassVar[int | None] = BATCH_ROWS

    n_mc_samples: int = setting(1, count())

    def fit(
        self,
        key: PRNGKeyArray,
        model: Model,
        data: Data,
        training: Training,
        driver: Driver | None = None,
    ) -> Fit:
        """Fit one Gaussian over W for each restart, and none over z."""
        driver = driver or Driver()
        count = training.num_restarts
        batches, grouped = self._batches(model, data, training, count)
        stage = self.stage("marginal", training=training, **grouped)
        model = with_unit_latents(model)
        groups = self.groups(count, training.folded)
        start_key, *state_keys = jax.random.split(key, 4)
        keys = jax.random.split(start_key, count)
        start = self.start if isinstance(self.start, str) else "random"
        point = starting_points(start, keys, model, data, self, training, driver)
        point = point._replace(latents=point.latents[:, :0])
        state = starting_state(state_keys, model, point, training, self.noise_starts)
        if not (driver.interrupted or driver.out_of_time()):
            state = driver.run(stage, model, batches, state)
        return gaussian_fit(model, state.params, state.priors, driver, groups)

    def continue_from(
        self,
        key: PRNGKeyArray,
        model: Model,
        data: Data,
        posterior: Posterior,
        training: Training,
        driver: Driver | None = None,
    ) -> Fit:
        """Continue training from a fit, briefly and at a low rate."""
        driver = driver or Driver()
        model = with_unit_latents(model)
        old = as_gaussian(posterior, self.label)
        keys = jax.random.split(key, old.num_components)
        mean, scale = (
            part._replace(latents=part.latents[:, :0]) for part in (old.mean, old.scale)
        )
        state = initial_state(mean_field_of(mean, scale), old.priors, keys)
        batches, grouped = self._batches(model, data, training, len(keys))
        stage = self.continued_stage(training=training, **grouped)
        state = driver.run(stage, model, batches, state)
        return gaussian_fit(model, state.params, state.priors, driver)

    def _batches(self, model, data: Data, training: Training, num_restarts: int):
        """Return batches of rows, and their objectives in groups that fit the cache."""
        batch_rows = even_batches(data.inputs.shape[0], BATCH_ROWS)
        batches = in_batches(data, batch_rows)
        dims = model.network.latent_dim
        nodes = latent_rule(dims, NODES, REACH).nodes
        temperatures = self.restart_temperatures(num_restarts, training.folded)
        objectives = tuple(
            NegativeMarginalElbo(
                nodes, temperature, int(self.n_mc_samples), dims == 1, batch_rows
            )
            for temperature in temperatures
        )
        group = GROUP_VALUES // (batch_rows * nodes.shape[0])
        return batches, {
            "objective": objectives,
            "largest_group": int(np.clip(group, 1, LARGEST_GROUP)),
        }


def even_batches(num_rows: int, most: int) -> int:
    """Return a batch size of at most `most` that makes all batches equally full."""
    return -(-num_rows // -(-num_rows // most))


def in_batches(data: Data, batch_rows: int) -> Data:
    """Shuffle rows, and fill the last batch with rows of weight 0.

    Data that fit into one batch are returned unchanged.
    """
    num_rows = data.inputs.shape[0]
    if num_rows <= batch_rows:
        return data
    order = np.random.default_rng(0).permutation(num_rows)
    extra = -num_rows % batch_rows

    def shuffled(array, axis=0):
        widths = [(0, 0)] * array.ndim
        widths[axis] = (0, extra)
        return jnp.asarray(np.pad(np.take(np.asarray(array), order, axis), widths))

    return Data(
        shuffled(data.inputs),
        shuffled(data.targets),
        shuffled(data.row_weights, axis=-1),  # which may differ between restarts
    )
