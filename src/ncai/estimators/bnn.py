"""The scikit-learn regressor `BNNRegressor`, which has no latent input."""

from typing import Any

from ncai.estimators.bnn_lv import BNNLVRegressor


class BNNRegressor(BNNLVRegressor):
    """A Bayesian neural network without a latent input: y = f(x; W) + noise.

    The noise has the same width everywhere. The arguments are those of
    `BNNLVRegressor`.
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
        time_limit=None,
        noise_variance=None,
        target_transform=None,
        rounding=None,
        keep=None,
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
            time_limit=time_limit,
            noise_variance=noise_variance,
            target_transform=target_transform,
            rounding=rounding,
            keep=keep,
            standardize=standardize,
            progress=progress,
            random_state=random_state,
        )

    def _arguments(self) -> dict[str, Any]:
        return super()._arguments() | {"latent_dim": self.latent_dim}
