"""`marginal`: variational inference for W alone, with z integrated out."""

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ncai.inference.base import (
    Inference,
    Training,
    gaussian_fit,
    starting_points,
    starting_state,
)
from ncai.inference.posterior import Fit
from ncai.model.bnn_lv import Model, PriorState, Variance
from ncai.model.mean_field import MeanField
from ncai.model.quadrature import latent_rule
from ncai.objectives.marginal_elbo import NegativeMarginalElbo
from ncai.training.driver import LARGEST_GROUP, Driver
from ncai.training.step import TrainState, initial_state
from ncai.types import Data, Unknowns

BATCH_ROWS = 256  # what a step looks at: its cost then stays as rows grow
START_OF_FACTOR = 0.2  # what all directions add at first, in units of the scales
REACH = 4.5  # prior standard deviations of z that the nodes cover each way
NODES = {1: 16, 2: 16}  # in each dimension
# Rows x nodes x restarts of a group: half a megabyte, which a core's cache holds.
GROUP_VALUES = 2**17


@dataclass(frozen=True)
class Marginal(Inference):
    """A factorised Gaussian over W; z is integrated out by quadrature, so K <= 2.

    Nothing keeps z from memorising the data in other methods but penalties; here there
    is no z to do so. The noise can be learned from the first step on.

    Args:
        training: restarts, steps, rates.
        start: "random"; "ncai": weights of a network trained at z = 0; or values.
        temperatures: of the prior of W, restart by restart in turn: see
            `NegativeMarginalElbo`. Validation then chooses.
        rank: directions in which weights may move together under q(W), beside the
            independent moves of each; or "last_layer": any of the last layer's weights
            together, a full covariance.
        batch_rows: rows that a step looks at; all, if there are no more.
    """

    training: Training = field(default_factory=Training)
    start: str | Unknowns = "random"
    temperatures: tuple[float, ...] = (1.0,)
    rank: int | str = 0
    batch_rows: int = BATCH_ROWS

    def fit(
        self, key: PRNGKeyArray, model: Model, data: Data, driver: Driver | None = None
    ) -> Fit:
        """One Gaussian over W for each restart, and none over z."""
        driver = driver or Driver()
        model = with_unit_latents(model)
        start_key, *state_keys = jax.random.split(key, 4)
        keys = jax.random.split(start_key, self.training.num_restarts)
        point = starting_points(self.start, keys, model, data, self.training, driver)
        point = point._replace(latents=point.latents[:, :0])
        state = starting_state(state_keys, model, point, self.training)
        if self.rank:
            num_rows, rank = model.network.num_weights, self.rank
            if rank == "last_layer":
                num_rows = rank = model.network.num_last_weights
            q = with_directions(start_key, state.params, num_rows, int(rank))
            state = initial_state(q, state.priors, state.key)
        return self._train("marginal", model, data, state, driver)

    def continue_from(
        self,
        key: PRNGKeyArray,
        model: Model,
        data: Data,
        q: MeanField,
        priors: PriorState,
        driver: Driver,
        name: str = "refit",
        rate: float = 1 / 3,
    ) -> Fit:
        """Train on from a fit, perhaps on other rows, for a fifth of the steps."""
        keys = jax.random.split(key, q.mean.weights.shape[0])
        no_latents = jax.tree.map(
            lambda part: part._replace(latents=part.latents[:, :0]),
            q,
            is_leaf=lambda part: isinstance(part, Unknowns),
        )
        state = initial_state(no_latents, priors, keys)
        return self._train(
            name,
            with_unit_latents(model),
            data,
            state,
            driver,
            max_steps=max(self.training.max_steps // 5, 1),
            learning_rate=rate * self.training.learning_rate,
        )

    def _train(
        self, name, model, data, state: TrainState, driver: Driver, **changes
    ) -> Fit:
        dims = model.network.latent_dim
        nodes = latent_rule(dims, NODES[dims], REACH).nodes
        num_restarts = state.key.shape[0]
        batch_rows = even_batches(data.inputs.shape[0], self.batch_rows)
        batches = in_batches(data, batch_rows)
        objectives = tuple(
            NegativeMarginalElbo(
                nodes,
                self.temperatures[i % len(self.temperatures)],
                self.training.num_samples,
                dims == 1,
                batch_rows,
            )
            for i in range(num_restarts)
        )
        if not (driver.interrupted or driver.out_of_time()):
            values = batch_rows * nodes.shape[0]
            group = int(np.clip(GROUP_VALUES // values, 1, LARGEST_GROUP))
            stage = self.training.stage(
                name, objectives, largest_group=group, **changes
            )
            state = driver.run(stage, model, batches, state)
        return gaussian_fit(model, state.params, state.priors, driver)


def with_directions(
    key: PRNGKeyArray, q: MeanField, num_rows: int, rank: int
) -> MeanField:
    """Add small random directions in which the last so many weights move together."""
    restarts = q.mean.weights.shape[0]
    normals = jax.random.normal(key, (restarts, num_rows, rank))
    return q._replace(factor=START_OF_FACTOR / rank**0.5 * normals)


def even_batches(num_rows: int, most: int) -> int:
    """Rows of a batch, so that all are equally full and none has more than `most`."""
    return -(-num_rows // -(-num_rows // most))


def in_batches(data: Data, batch_rows: int) -> Data:
    """Rows in random order, with rows of weight 0 to fill the last block.

    Left alone where one block holds all.
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


def with_unit_latents(model: Model) -> Model:
    """The model with the width of z held: weights that multiply z do its work."""
    if model.latent_variance.mode == "fixed":
        return model
    return replace(model, latent_variance=Variance(jnp.asarray(1.0)))
