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
    new_seed,
    rows_to_fit,
    seed_of,
    start_with_values,
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

    A prediction is a whole density. Its uncertainty splits into an *aleatoric* part,
    which more data would not reduce, and an *epistemic* part, which more data would
    reduce. An argument that is None takes the value that the preset gives for the
    method; `repr` shows these values. Variances are in standardised units unless
    `standardize` is False.

    Args:
        latent_dim: K, the number of latent inputs; 0 gives a plain BNN, which "ncai",
            "ncai0", "marginal" and "iwae" fit as "mfvi" does, because they differ from
            it only in z.
        inference: a method by name, or an object with settings such as
            `ncai.NCAI(hz_weight=0.5)`. The names are "marginal" (z integrated out, so
            that it cannot memorise the data; K of at most 2), "iwae" (an
            importance-weighted bound, which nearly integrates z out for any K), "ncai",
            "ncai0" (NCAI without penalties), "mfvi" (plain variational inference),
            "map", "hmc" (NUTS over W and z) and "hmc_marginal" (NUTS over W, z
            integrated out; K of at most 2). The default None means "marginal", or
            "ncai" with the preset "paper".
        preset: "default", or "paper" for the settings of the paper.
        hidden: nodes in each hidden layer.
        activation: name of the activation function of the hidden layers.
        network: replaces `hidden` and `activation` by an `ncai.MLP` with all its
            settings, or by a network of your own (see `ncai.Network`).
        n_restarts: number of random starts, which are trained in parallel.
        max_steps: limit on the steps of the main training (`stop_reasons_` says what
            ended it). Further steps are added for the warm start of NCAI (up to a
            third, at most 5,000), for learning the noise (a tenth) and for a start
            given as values (a tenth); `start="map"` doubles the steps.
        time_limit: seconds after which training stops and keeps its result so far. The
            time is checked every 250 steps, and compilation is not interrupted, so a
            fit may take longer. A sampler checks every 25 draws; it makes at least 25
            warm-up draws and 25 draws that it keeps.
        noise_variance: variance of the output noise: a number, one number for each
            output, "empirical" (empirical Bayes), or learned as "map" or "variational".
        target_transform: the function of y to train on: "none", "log" or "yeo_johnson".
            "auto" chooses between "none" and "log" ("yeo_johnson" if y is not always
            positive) by the density of held-out rows in the units of y. Trial fits with
            a quarter of the steps decide; if they are close and there is no time limit,
            complete fits decide. Predictions always refer to y.
        rounding: how to treat a rounded y, whose values repeat and lie on a lattice.
            "auto" trains on y plus uniform noise of one lattice step (dequantisation)
            and rounds the predictions: probabilities, quantiles and samples refer to
            lattice values. "smooth" predicts y before it was rounded. "ignore" trains
            on y as it is, so the density may consist of spikes.
        keep: which restarts predict: the "best" on held-out rows, or all of them as a
            mixture with "equal" weights or with stacking weights that are fitted to the
            held-out rows ("weighted"; restarts of the same temperature share a weight).
            A mixture leaves out a restart that is 3 nats per row behind another on the
            same rows.
        standardize: whether to scale X and y internally to mean 0 and standard
            deviation 1.
        progress: whether to show a progress bar.
        random_state: seed; the same seed gives the same result.

    Attributes:
        settings_: the `Settings` of the fit, with the values of the preset and the
            choices of "auto"; `settings_.method` is the method.
        latent_posterior_: mean and standard deviation of z for the training rows. For a
            sampler they come from one chain, because the sign of z can differ between
            chains.
        train_index_: the row numbers of the training rows in X.
        training_rows_: the training rows in the units of training.
        restart_scores_: a score for each restart, in the units of training
            (standardised y); higher is better, and `score_name_` is the name of the
            score. If the noise was recalibrated, the scores use the recalibrated
            widths. With "marginal" the restarts of the trial fit come last.
        kept_restarts_: indices of the restarts that predict, in the order of
            `posterior_.shares`; None for a model read from a file.
        held_out_score_: average log density of the held-out rows, in the units of y,
            under the mixture that predicts (with folds, under its restarts that did not
            train on the row). Use it to compare settings. None if no rows were held
            out, and for a model read from a file.
        history_: averages of the objective and its terms over chunks of steps, [chunks,
            restarts].
        stop_reasons_: why each stage of training ended, and after how many steps.
        restarts_lost_: number of restarts that became non-finite and were dropped.
        interrupted_: whether Ctrl-C ended training early.
        sampler_report_: R-hat, effective sample size and divergences; None if the
            method does not sample.
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

    # `fit` and `load` set these; after `load`, those that were not stored are None.
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
            sample_weight: how often each row counts; not negative. With "hmc" it must
                be 0 or 1, because that method samples one z per row.
            X_valid: rows that choose among restarts, instead of held-out rows of X.
            y_valid: their targets.
        """
        # A fit that fails or is stopped must not leave the posterior of an earlier fit.
        vars(self).pop("posterior_", None)
        settings = self.resolved_settings()
        seed = new_seed(self.random_state)
        X, y = validate(self, X, y, ensure_min_samples=2)
        # JAX looks for its cache when it compiles its first program, so turn it on now.
        prepare_jax()
        rows, used = rows_to_fit(X, y, sample_weight)
        valid = validation_rows(self, X_valid, y_valid, rows.targets.shape[1])
        given = settings.method.start
        sizes = rows.inputs.shape[1], settings.latent_dim, rows.targets.shape[1]
        networks, start = networks_to_try(settings.network, *sizes), None
        if given is not None and not isinstance(given, str):
            networks, start = start_with_values(given, networks, len(X), used)
        warn_if_large(
            "This fit",
            fit_bytes(settings, networks[0], len(used)),
            "give it fewer rows, hidden nodes, n_restarts or draws",
        )
        try:
            with progress_bar(bool(self.progress)) as report:
                found = Search(settings, networks, seed, start, report).run(rows, valid)
            result = found.result
            training_rows = found.candidate.rows.pick(result.train_index)
            latents = latents_of(result.posterior, training_rows, seed)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                "stopped by Ctrl-C before the fit was complete: the estimator is not "
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
        """Set the fitted attributes."""
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
        self.posterior_ = result.posterior  # last: it marks the estimator as fitted

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether a fit was completed; a failed one leaves `n_features_in_`."""
        return hasattr(self, "posterior_")

    # ----- Predicting -----------------------------------------------------------------

    def predict_dist(self, X) -> PredictiveDistribution:
        """Return the predictive distribution of each row."""
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
        found = PredictiveDistribution(
            network=network,
            inputs=self.scaling_.inputs(X),
            draws=self.posterior_.draw(draw_key, num_draws),
            target_map=TargetMap.of(self.scaling_),
            num_latent_draws=num_latent,
            single_output=self.single_output_,
        )
        # A single member has no other to disagree with.
        several = self.posterior_.num_components > 1
        given = self.settings_.method.decomposed_given()
        return found.decomposed_given(given if several else "weights")

    def predict(self, X, return_std=False):
        """Predict the mean of y; with `return_std`, also the standard deviation."""
        dist = self.predict_dist(X)
        return (dist.mean(), dist.std()) if return_std else dist.mean()

    def predict_interval(self, X, level=0.95) -> np.ndarray:
        """Predict the central interval of probability `level`: [N, 2], or [N, L, 2]."""
        return np.stack(self.predict_dist(X).interval(level), axis=-1)

    def predict_quantiles(self, X, quantiles=(0.05, 0.5, 0.95)) -> np.ndarray:
        """Predict quantiles of y given X: [N, Q], or [N, L, Q]."""
        return self.predict_dist(X).quantile(np.atleast_1d(quantiles))

    def sample_y(self, X, n_samples=1, random_state=0) -> np.ndarray:
        """Draw samples of y given X: [N, n], or [N, L, n] (as scikit-learn's GP)."""
        samples = self.predict_dist(X).sample(n_samples, seed_of(random_state))
        return np.moveaxis(samples, 0, -1)

    def decompose_uncertainty(self, X, measure="crps", **options) -> Decomposition:
        """Total, aleatoric and epistemic uncertainty of each row.

        The measure "crps" gives parts in the units of y, as `ncai predict --decompose`
        does; "variance" gives squared units of y, and "entropy" gives nats. The result
        has the Monte Carlo standard error of each part. See
        `PredictiveDistribution.decompose`.
        """
        return self.predict_dist(X).decompose(measure, **options)

    def log_score(self, X, y, sample_weight=None) -> float:
        """Return the average log predictive density of y, in the units of y."""
        log_prob = self.predict_dist(X).log_prob(y)
        return average_log_likelihood(log_prob, sample_weight)

    # ----- Files ----------------------------------------------------------------------

    def save(self, path, include_training=False) -> None:
        """Write the fitted model to one file (safetensors; reading it runs no code).

        Args:
            path: the file; an existing file is replaced in one step.
            include_training: also save the training rows and their latents, which
                `diagnose` needs and predictions do not.
        """
        from ncai.estimators.persistence import save_model

        check_is_fitted(self)
        save_model(self, path, include_training)

    @classmethod
    def load(cls, path, network=None):
        """Read a model written by `save`.

        Args:
            path: the file.
            network: your own network, if the model was fitted with one.
        """
        from ncai.estimators.persistence import load_model

        return load_model(cls, path, network)

    def _html_repr(self) -> str:
        # scikit-learn's table of parameters, followed by our summary of the fit.
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
