"""The scikit-learn regressor `BNNLVRegressor`."""

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ncai.estimators._display import progress_bar
from ncai.estimators._latents import LatentQueries, latents_of
from ncai.estimators._memory import fit_bytes, prediction_bytes, warn_if_large
from ncai.estimators._parameters import MethodParameters
from ncai.estimators._validation import (
    given_start,
    networks_of_start,
    new_seed,
    rows_to_fit,
    seed_of,
    validate,
    validation_rows,
)
from ncai.fitting.search import Search
from ncai.fitting.settings import Settings
from ncai.fitting.transform_choice import Trial
from ncai.inference.base import Method
from ncai.inference.latents import LatentPosterior
from ncai.model.networks import networks_to_try
from ncai.predictive.decomposition import Decomposition
from ncai.predictive.distribution import PredictiveDistribution
from ncai.predictive.target_map import TargetMap
from ncai.runtime.jax_setup import prepare_jax
from ncai.stats.scores import average_log_likelihood
from ncai.types import TrainingRows


class BNNLVRegressor(LatentQueries, RegressorMixin, MethodParameters):
    """A Bayesian neural network with a latent input: y = f(x, z; W) + noise.

    A prediction is a whole density, whose uncertainty splits into *aleatoric* (stays
    with more data) and *epistemic* (shrinks). Arguments left None have the value that
    the preset gives for the method; `repr` shows them. Variances are in standardised
    units while `standardize` is on.

    Args:
        latent_dim: K, the number of latent inputs; 0 gives a plain BNN, which "ncai",
            "ncai0", "marginal" and "iwae" fit as "mfvi" does: they differ in z alone.
        inference: a method by name, or an object with settings such as
            `ncai.NCAI(hz_weight=0.5)`: "marginal" (z integrated out, so that it cannot
            memorise the data; K of at most 2), "iwae" (an importance-weighted bound in
            z, nearly that for any K), "ncai", "ncai0" (its warm start without
            penalties), "mfvi" (plain variational inference), "map", "hmc" (NUTS over W
            and z) or "hmc_marginal" (NUTS over W, z integrated out; K of at most 2).
            None: "marginal", or "ncai" with the preset "paper".
        preset: "default", or "paper" for the settings of the paper.
        hidden: nodes in each hidden layer.
        activation: of the hidden layers, by name.
        network: in place of `hidden` and `activation`: an `ncai.MLP` with all its
            settings, or a network of your own (see `ncai.Network`).
        n_restarts: random starts, trained side by side.
        max_steps: limit on the steps of the main training (`stop_reasons_` says what
            ended it). Added to it are the warm start of NCAI (up to a third, at most
            5,000), learning the noise (a tenth) and a start by value (a tenth);
            `start="map"` doubles it.
        time_limit: seconds after which training stops with what it has; checked every
            250 steps, so that compiling the first of them may take longer. A sampler
            checks every 25 draws, and makes 25 to warm up and 25 to keep in any case.
        noise_variance: of the output: a number, one number for each output,
            "empirical", or learned as "map" or "variational".
        target_transform: train on "none", "log" or "yeo_johnson" of y; or "auto":
            "none" or "log" ("yeo_johnson" where y is not all positive), whichever gives
            held-out rows the better density, in the units of y: after a quarter of the
            steps, or where that is close (and there is no time limit) after all of
            them. Predictions are always about y.
        rounding: "auto": where y is rounded (its values repeat, and lie on a lattice),
            learn from y plus uniform noise of one step (dequantisation), and round what
            is predicted: probabilities, quantiles and samples are those of values of
            the lattice. "smooth": predict y before it was rounded. "ignore" learns from
            y as it is: its density may be spikes.
        keep: "best" restart on held-out rows, or all of them as a mixture: "equal", or
            with stacking "weighted" to fit the held-out rows (restarts of a temperature
            share a weight). A restart that is 3 nats a row behind another on the same
            rows is left out.
        standardize: scale X and y inside to mean 0 and standard deviation 1.
        progress: show a progress bar.
        random_state: seed; the same seed gives the same result.

    Attributes:
        settings_: the `Settings` in use, with what the preset filled in and what "auto"
            chose; `settings_.method` is the method.
        latent_posterior_: mean and std of z for the rows trained on; of a sampler those
            of one chain, since the sign of z may be another in each.
        train_index_: which rows of X those are.
        training_rows_: these rows in the units of training.
        restart_scores_: a score for each restart, higher is better, in the units of
            training (standardised y); `score_name_` says what it is. Where the noise
            was recalibrated, at the recalibrated widths. With "marginal" those of a
            short trial fit come last.
        kept_restarts_: numbers of the restarts that predict, in the order of
            `posterior_.shares`; None of a model read from a file.
        held_out_score_: average log density that held-out rows have under what predicts
            (with folds: under those restarts of it that did not see the row), in the
            units of y. To compare settings by; None where no rows were held out, and of
            a model read from a file.
        history_: averages of the objective and its terms, [chunks, restarts].
        stop_reasons_: why each stage of training ended, and after how many steps.
        restarts_lost_: restarts that became non-finite and were dropped.
        interrupted_: whether Ctrl-C ended training early.
        sampler_report_: R-hat, effective sample size, divergences; None for the rest.
        posterior_: the posterior that predicts.

    Example:
        >>> import numpy as np
        >>> from ncai import BNNLVRegressor
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(-1, 1, size=(60, 1))
        >>> y = x[:, 0] + (1 + x[:, 0]) * rng.exponential(0.3, size=60)
        >>> model = BNNLVRegressor(max_steps=200, n_restarts=2, random_state=0)
        >>> lower, upper = model.fit(x, y).predict_interval(x[:3], level=0.9).T
        >>> bool(np.all(lower < upper))
        True
    """

    # What `fit` or `load` sets; after `load` what was not stored is None.
    n_features_in_: int
    feature_names_in_: np.ndarray
    history_: dict[str, Any] | None
    kept_restarts_: np.ndarray | None
    held_out_score_: float | None
    training_rows_: TrainingRows | None
    train_index_: np.ndarray | None
    latent_posterior_: LatentPosterior | None

    def __init__(
        self,
        latent_dim=1,
        inference=None,
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
        self.latent_dim = latent_dim
        self.inference = inference
        self.preset = preset
        self.hidden = hidden
        self.activation = activation
        self.network = network
        self.n_restarts = n_restarts
        self.max_steps = max_steps
        self.time_limit = time_limit
        self.noise_variance = noise_variance
        self.target_transform = target_transform
        self.rounding = rounding
        self.keep = keep
        self.standardize = standardize
        self.progress = progress
        self.random_state = random_state

    # ----- Fitting --------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None, *, X_valid=None, y_valid=None):
        """Fit to rows X [N, D] and targets y [N] or [N, L].

        Args:
            X: inputs.
            y: targets.
            sample_weight: how often each row counts; not negative, and with "hmc" 0 or
                1, since it samples one z a row.
            X_valid: rows to choose among restarts by, in place of held-out ones.
            y_valid: their targets.
        """
        # A fit that fails or is stopped leaves none, rather than that of other data.
        vars(self).pop("posterior_", None)
        settings = self.resolved_settings()
        seed = new_seed(self.random_state)
        X, y = validate(self, X, y, ensure_min_samples=2)
        # JAX looks for its cache at the first program: turned on later it misses some.
        prepare_jax()
        rows, used = rows_to_fit(X, y, sample_weight)
        valid = validation_rows(self, X_valid, y_valid, rows.targets.shape[1])
        given = settings.method.start
        sizes = rows.inputs.shape[1], settings.latent_dim, rows.targets.shape[1]
        networks = networks_to_try(settings.network, *sizes)
        networks = networks_of_start(networks, given)
        start = given_start(given, networks[0], len(X), used)
        warn_if_large(
            "This fit",
            fit_bytes(settings, networks[0], len(used)),
            "give it fewer rows, hidden nodes, n_restarts or draws",
        )
        try:
            with progress_bar(bool(self.progress)) as tell:
                found = Search(settings, networks, seed, start, tell).run(rows, valid)
            result = found.result
            training_rows = found.candidate.rows.pick(result.train_index)
            latents = latents_of(result.posterior, training_rows, seed)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                "stopped by Ctrl-C before the fit was whole: the estimator is not "
                "fitted."
            ) from None
        self.seed_ = seed
        self.single_output_ = np.ndim(y) == 1
        self.train_index_ = used[result.train_index]
        self.training_rows_ = training_rows
        self.latent_posterior_ = latents
        self._keep_result(settings, found)
        return self

    def _keep_result(self, settings: Settings, found: Trial) -> None:
        """Set what the fit found as attributes."""
        result, scaling = found.result, found.candidate.scaling
        self.settings_ = replace(
            settings,
            target_transform=scaling.transform.name,
            network=found.network.network,
            rounding_steps=tuple(scaling.lattice.step.tolist()),
        )
        self.scaling_ = scaling
        self.restart_scores_ = result.scores
        self.score_name_ = result.score_name
        self.kept_restarts_ = result.kept
        self.held_out_score_ = result.held_out_score
        self.history_ = result.fit.history
        self.stop_reasons_ = result.fit.stop_reasons
        self.restarts_lost_ = int((~result.fit.alive).sum())
        self.interrupted_ = result.fit.interrupted
        self.n_iter_ = result.fit.num_steps
        self.sampler_report_ = result.fit.sampler
        self.fit_seconds_ = result.seconds
        self.posterior_ = result.posterior  # last: with it the estimator is fitted

    def __sklearn_is_fitted__(self) -> bool:
        """Whether a fit came to an end (one that failed leaves `n_features_in_`)."""
        return hasattr(self, "posterior_")

    # ----- Predicting -----------------------------------------------------------------

    def predict_dist(self, X) -> PredictiveDistribution:
        """The predictive distribution of each row: density, quantiles, samples, ..."""
        import jax

        check_is_fitted(self)
        X = validate(self, X, reset=False)
        network = self.posterior_.model.network
        # The number of draws may be changed after a fit.
        method = self.settings_.method
        if isinstance(self.inference, Method):
            method = self.inference
        num_draws, num_latent = int(method.n_weight_draws), int(method.n_latent_draws)
        warn_if_large(
            "This prediction",
            prediction_bytes(network, len(X), num_draws, num_latent),
            "predict fewer rows at a time, or with fewer n_weight_draws",
        )
        draw_key = jax.random.fold_in(jax.random.key(self.seed_), 1)
        return PredictiveDistribution(
            network=network,
            inputs=self.scaling_.inputs(X),
            draws=self.posterior_.draw(draw_key, num_draws),
            target_map=TargetMap.of(self.scaling_),
            num_latent_draws=num_latent,
            single_output=self.single_output_,
        )

    def predict(self, X, return_std=False):
        """The mean of y given X; with `return_std`, also its standard deviation."""
        dist = self.predict_dist(X)
        return (dist.mean(), dist.std()) if return_std else dist.mean()

    def predict_interval(self, X, level=0.95) -> np.ndarray:
        """Central interval of probability `level`: [N, 2], or [N, L, 2]."""
        return np.stack(self.predict_dist(X).interval(level), axis=-1)

    def predict_quantiles(self, X, quantiles=(0.05, 0.5, 0.95)) -> np.ndarray:
        """Quantiles of y given X: [N, Q], or [N, L, Q]."""
        return self.predict_dist(X).quantile(np.atleast_1d(quantiles))

    def sample_y(self, X, n_samples=1, random_state=0) -> np.ndarray:
        """Random draws of y given X: [N, n], or [N, L, n] (as scikit-learn's GP)."""
        samples = self.predict_dist(X).sample(n_samples, seed_of(random_state))
        return np.moveaxis(samples, 0, -1)

    def decompose_uncertainty(self, X, measure="variance", **options) -> Decomposition:
        """Total, aleatoric and epistemic uncertainty of each row.

        With "variance" in squared units of y (take roots for standard deviations, as
        `ncai predict --decompose` does), with "entropy" in nats. See
        `PredictiveDistribution.decompose`.
        """
        return self.predict_dist(X).decompose(measure, **options)

    def log_score(self, X, y, sample_weight=None) -> float:
        """Average log predictive density of y, in the units of y; larger is better."""
        log_prob = self.predict_dist(X).log_prob(y)
        return average_log_likelihood(log_prob, sample_weight)

    # ----- Files ----------------------------------------------------------------------

    def save(self, path, include_training=False) -> None:
        """Write the fitted model to one file (safetensors; reading it runs no code).

        Args:
            path: where; an existing file is replaced in one step.
            include_training: also the training rows and their latents, which `diagnose`
                needs and predictions do not.
        """
        from ncai.estimators.persistence import save_model

        check_is_fitted(self)
        save_model(self, path, include_training)

    @classmethod
    def load(cls, path, network=None):
        """Read a model written by `save`.

        Args:
            path: the file.
            network: the network of your own that the model was fitted with, if it was.
        """
        from ncai.estimators.persistence import load_model

        return load_model(cls, path, network)

    def _html_repr(self) -> str:
        # scikit-learn's table of parameters, and what came of them.
        shown = super()._html_repr()
        if not self.__sklearn_is_fitted__():
            return shown
        from ncai.estimators._display import fitted_html

        return shown + fitted_html(self)

    def __sklearn_tags__(self):
        """scikit-learn's description of this estimator."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.non_deterministic = False
        return tags
