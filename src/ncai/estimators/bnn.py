"""The same estimator without a latent input."""

from typing import Any

from ncai.estimators.bnn_lv import BNNLVRegressor


class BNNRegressor(BNNLVRegressor):
    """A Bayesian neural network without latent input: y = f(x; W) + noise.

    The noise has the same width everywhere. Arguments as in `BNNLVRegressor`.
    """

    def __init__(
        self,
        inference="mfvi",
        preset="default",
        hidden=None,
        *,
        activation=None,
        network=None,
        n_restarts=None,
        max_steps=None,
        learning_rate=None,
        schedule=None,
        n_mc_samples=None,
        plateau=None,
        time_limit=None,
        weight_variance=None,
        weight_groups=None,
        noise_variance=None,
        variance_prior=None,
        noise_prior=None,
        noise_starts=None,
        variance_form=None,
        start=None,
        hold_means=False,
        keep=None,
        validation_fraction=None,
        refit=False,
        n_chains=4,
        n_warmup=500,
        n_draws=1000,
        n_weight_draws=1024,
        target_transform=None,
        standardize=True,
        progress=False,
        random_state=None,
    ):
        super().__init__(
            latent_dim=0,
            inference=inference,
            preset=preset,
            hidden=hidden,
            activation=activation,
            network=network,
            n_restarts=n_restarts,
            max_steps=max_steps,
            learning_rate=learning_rate,
            schedule=schedule,
            n_mc_samples=n_mc_samples,
            plateau=plateau,
            time_limit=time_limit,
            weight_variance=weight_variance,
            weight_groups=weight_groups,
            noise_variance=noise_variance,
            variance_prior=variance_prior,
            noise_prior=noise_prior,
            noise_starts=noise_starts,
            variance_form=variance_form,
            start=start,
            hold_means=hold_means,
            keep=keep,
            validation_fraction=validation_fraction,
            refit=refit,
            n_chains=n_chains,
            n_warmup=n_warmup,
            n_draws=n_draws,
            n_weight_draws=n_weight_draws,
            target_transform=target_transform,
            standardize=standardize,
            progress=progress,
            random_state=random_state,
        )

    def _settings(self) -> dict[str, Any]:
        # All arguments of the parent, those about z included.
        return {name: getattr(self, name) for name in BNNLVRegressor._get_param_names()}
