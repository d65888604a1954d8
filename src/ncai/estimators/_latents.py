"""The methods of a fitted estimator that concern the latent variable z."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ncai.diagnostics.latent_diagnosis import LatentDiagnosis
from ncai.diagnostics.latents import diagnose_latents
from ncai.estimators._validation import validate
from ncai.fitting.holdout import to_data
from ncai.fitting.settings import Settings
from ncai.inference.latents import (
    LatentPosterior,
    infer_latents,
    reconstruction_error,
    sample_latents,
    sampled_latents,
)
from ncai.inference.posterior import Posterior, SamplePosterior
from ncai.model.quadrature import LARGEST_DIM
from ncai.preprocessing.scaling import Scaling
from ncai.runtime.jax_setup import refuse_forked_jax
from ncai.types import RawRows, TrainingRows


class LatentQueries:
    """Adds the methods that concern the latent variable to an estimator."""

    posterior_: Posterior
    settings_: Settings
    scaling_: Scaling
    seed_: int
    single_output_: bool
    training_rows_: TrainingRows | None
    latent_posterior_: LatentPosterior | None

    def latent_posterior(self, X, y) -> LatentPosterior:
        """Return the mean and standard deviation of z for rows whose y is known."""
        check_is_fitted(self)
        self._need_latents("latent_posterior")
        rows = self._labelled(X, y)
        if self.latent_posterior_ is not None and self._sampled_with(rows) is not None:
            return self.latent_posterior_
        return infer_latents(self.posterior_, to_data(rows), len(rows), self.seed_)

    def sample_latents(self, X, y) -> np.ndarray:
        """Draw z from p(z | x, y, W) for each row whose y is known, [N, K].

        Up to K = 2 the draws come from the exact distribution, by quadrature; beyond
        that from a Gaussian. For the training rows of "hmc" they are the sampler's own
        draws.
        """
        check_is_fitted(self)
        self._need_latents("sample_latents")
        return self._draw_latents(self._labelled(X, y))

    def diagnose(self, **options) -> LatentDiagnosis:
        """Test whether z is independent of x and distributed like its prior.

        The test uses the means of z if the method inferred a z for each row, and
        posterior samples of z if the method integrated it out or sampled it. Options
        are passed to `ncai.diagnostics.latents.diagnose_latents`.
        """
        check_is_fitted(self)
        self._need_latents("diagnose")
        rows, latents = self._training_part("diagnose")
        if self.settings_.method.supports.exact_latents:
            options.setdefault("judged", "samples")
            options.setdefault("latent_samples", self._draw_latents(rows))
        return diagnose_latents(
            rows.inputs,
            rows.targets,
            latents.mean,
            latents.std,
            self.posterior_.latent_prior_std(),
            **options,
        )

    def reconstruction_mse(self):
        """Return the mean squared error of the training targets with posterior W and z.

        It is one number, or one for each output, in squared units of y (of the
        transformed y, if there is a transform). It is far below the squared error of
        predictions if z explains what x does not.
        """
        check_is_fitted(self)
        self._need_latents("reconstruction_mse")
        rows, latents = self._training_part("reconstruction_mse")
        error = reconstruction_error(
            self.posterior_, to_data(rows), latents, self.seed_
        )
        error = error * self.scaling_.target_scale**2
        return float(error[0]) if self.single_output_ else error

    def _need_latents(self, what: str) -> None:
        refuse_forked_jax()
        if self.posterior_.model.network.latent_dim == 0:
            raise ValueError(f"{what} needs z, and a model with latent_dim=0 has none.")

    def _training_part(self, what: str) -> tuple[TrainingRows, LatentPosterior]:
        if self.training_rows_ is None or self.latent_posterior_ is None:
            raise ValueError(
                f"{what} needs the training rows, and this model was saved without "
                "them: save it with include_training=True."
            )
        return self.training_rows_, self.latent_posterior_

    def _draw_latents(self, rows: TrainingRows) -> np.ndarray:
        sampler = self._sampled_with(rows)
        if sampler is not None:
            return sampled_latents(sampler, self.seed_)
        data, posterior = to_data(rows), self.posterior_
        if posterior.model.network.latent_dim <= LARGEST_DIM:
            return sample_latents(posterior, data, len(rows), self.seed_)
        found = infer_latents(posterior, data, len(rows), self.seed_)
        normals = np.random.default_rng(self.seed_).standard_normal(found.mean.shape)
        return found.mean + found.std * normals

    def _sampled_with(self, rows: TrainingRows) -> SamplePosterior | None:
        """Return the sampler's draws of z, if it sampled the z of these rows."""
        known, found = self.training_rows_, self.posterior_
        if (
            known is not None
            and len(rows) == len(known)
            and isinstance(found, SamplePosterior)
            and found.samples.latents.shape[2] == len(rows)
            and np.allclose(rows.inputs, known.inputs)
            and np.allclose(rows.targets, known.targets)
        ):
            return found
        return None

    def _labelled(self, X, y) -> TrainingRows:
        """Return rows with their y, in the units of training."""
        X, y = validate(self, X, y, reset=False)
        targets: Any = np.asarray(y, np.float64).reshape(len(X), -1)
        num_outputs = len(self.scaling_.target_shift)
        if targets.shape[1] != num_outputs:
            raise ValueError(
                f"y has {targets.shape[1]} outputs; the model was fitted to "
                f"{num_outputs}."
            )
        rows = RawRows(np.asarray(X), targets, np.ones(len(X)))
        return self.scaling_.prepare(rows, self.seed_)


def latents_of(
    posterior: Posterior, rows: TrainingRows, seed: int
) -> LatentPosterior | None:
    """Return mean and standard deviation of z of the training rows; None without z."""
    if posterior.model.network.latent_dim == 0:
        return None
    mean, std = posterior.latent_moments()
    if len(mean) == len(rows):
        return LatentPosterior(np.asarray(mean, float), np.asarray(std, float))
    # If z was integrated out, the fit itself has no z.
    return infer_latents(posterior, to_data(rows), len(rows), seed)
