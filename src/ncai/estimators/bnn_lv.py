"""scikit-learn regressors: `BNNLVRegressor` and `BNNRegressor`."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ncai.diagnostics.latent_diagnosis import LatentDiagnosis
from ncai.diagnostics.latents import diagnose_latents
from ncai.estimators._memory import fit_bytes, prediction_bytes, warn_if_large
from ncai.estimators._progress import progress_bar
from ncai.estimators._validation import (
    check_weights,
    given_start,
    new_seed,
    of_the_size,
    seed_of,
    validate,
    warn_of_constants,
)
from ncai.fitting.fit import Rows, to_data
from ncai.fitting.search import fit_scaled
from ncai.fitting.setting_checks import layer_widths, whole_number
from ncai.fitting.settings import EXACT_IN_LATENTS, has_folds, latent_layers, resolve
from ncai.inference.latents import (
    LatentPosterior,
    infer_latents,
    reconstruction_error,
    sample_latents,
    sampled_latents,
)
from ncai.inference.posterior import SamplePosterior
from ncai.model.networks import MLP, FlatNetwork, Network
from ncai.model.quadrature import LARGEST_DIM
from ncai.predictive.decomposition import Decomposition
from ncai.predictive.distribution import PredictiveDistribution
from ncai.predictive.rounded import predictive_of
from ncai.runtime.jax_setup import prepare_jax
from ncai.stats.scores import average_log_likelihood


class BNNLVRegressor(RegressorMixin, BaseEstimator):
    """A Bayesian neural network with a latent input: y = f(x, z; W) + noise.

    A prediction is a whole density, whose uncertainty splits into *aleatoric* (stays
    with more data) and *epistemic* (shrinks). Arguments left None are filled by the
    preset. Variances are in standardised units while `standardize` is on.

    Args:
        latent_dim: K, the number of latent inputs; 0 gives a plain BNN, which "ncai",
            "ncai0", "marginal" and "iwae" fit as "mfvi" does: they differ in z alone.
        inference: "marginal" (z integrated out, so that it cannot memorise the data; K
            of at most 2), "iwae" (an importance-weighted bound in z, nearly that for
            any K), "ncai", "ncai0" (its warm start without penalties), "mfvi" (plain
            variational inference), "map", "hmc" (NUTS over W and z) or "hmc_marginal"
            (NUTS over W, z integrated out; K of at most 2). None: "marginal", or "ncai"
            with the preset "paper".
        preset: "default", or "paper" for the settings of the paper.
        hidden: nodes in each hidden layer.
        activation: of the hidden layers, by name.
        latent_layer: the hidden layer that z enters: "first", beside X, or "last",
            which makes "marginal" with several layers far quicker.
        latent_hidden: nodes in hidden layers (tanh) that z goes through by itself
            before it enters, which make steps in z easy (noise of two humps) and keep
            what a rare z says bounded; () for none. "auto": (20,) or (), by held-out
            rows (see `settings_`).
        network: a network of your own (see `ncai.Network`) in place of the MLP.
        n_restarts: random starts, trained side by side.
        max_steps: limit on the steps of the main training (`stop_reasons_` tells what
            ended it). Added to it are the warm start of NCAI (up to a third, at most
            5,000), learning the noise (a tenth), a start by value (a tenth), and
            `refit` (a fifth); `start="map"` doubles it.
        learning_rate: Adam's.
        schedule: "constant", or "cosine": the rate falls to 0 over the steps of a
            stage; `plateau` is then not looked at.
        temperature: of the posterior of W with inference="marginal" and "iwae": a
            number, or several for the restarts to take in turn. What q(W) costs, its KL
            from the prior, counts so many times. 1 is Bayes' rule; less is a cold
            posterior, narrower than that, as if each row had been seen 1 / temperature
            times.
        n_mc_samples: Monte Carlo samples of (W, z) a step; with "iwae" of z, for one W.
        plateau: stop when no restart improves any more, if that is before `max_steps`.
        time_limit: seconds after which training stops with what it has; looked at every
            250 steps, so that compiling the first of them may take longer. A sampler
            looks every 25 draws, and makes 25 to warm up and 25 to keep in any case.
        weight_variance: s_w, the prior variance of weights: a number or "empirical".
        weight_groups: which weights share an empirical s_w: "all" (the paper), those of
            a "layer", or those of an "input" in the first layer.
        latent_variance: s_z, the prior variance of z: a number or "empirical" (which
            is 1 with "marginal" and "iwae": weights that multiply z do its work).
        noise_variance: of the output: a number, one number for each output,
            "empirical", or learned as "map" or "variational".
        variance_prior: shape and scale of the inverse-gamma prior on s_w and s_z.
        noise_prior: the same for the noise.
        noise_starts: where learned noise begins, restart by restart in turn.
        variance_form: "paper" or "exact" empirical Bayes.
        hz_weight: lambda_1, penalty on z not being Gaussian; 0 is off. This
            and the penalty settings that follow are for "ncai".
        offdiagonal_weight: lambda_2, penalty on correlated dimensions of z; 0 is off.
        dependence_weight: lambda_3, penalty on z depending on x and y; 0 is off.
        hz_tolerance: eps_T.
        input_tolerance: eps_x; `float("inf")` takes x out of the penalty.
        target_tolerance: eps_y; `float("inf")` takes y out of the penalty.
        penalise: "means" of z (the paper) or "samples" of its aggregated posterior.
        ramp_fraction: part of the second half of training over which penalties grow.
        start: "random", "ncai" or "map"; or values: a dict with "weights" (a vector, or
            the network's own pytree) and "latents" [N, K]. None: the method's own.
        hold_means: train only the widths of the posterior around `start`.
        keep: "best" restart on held-out rows, or all of them as a mixture: "equal", or
            "weighted" to fit the held-out rows (restarts of a temperature share a
            weight). One that is 3 nats a row behind another on the same rows is left
            out.
        tune_noise: with keep="weighted", choose on the held-out rows how wide the noise
            of each temperature's restarts is, how much that differs from draw to draw,
            and how wide that of the mixture is, in units of what was learned.
        n_folds: with "marginal" and "iwae", and unless `keep` is "best": each restart
            holds out another of so many parts of the rows, so that every row is learned
            from and every row can choose. 0 is off.
        posterior_rank: with "marginal": directions in which weights may move together
            in the posterior, beside the independent moves of each; or "last_layer": a
            full covariance of the last layer's weights.
        n_snapshots: with "marginal": train on so many times from where training ended,
            each for a fifth of its steps, and let what each finds predict too.
        validation_fraction: in place of folds, rows held out to choose restarts, drawn
            with the seed. They are not trained on, unless `refit`. With fewer than 5 of
            them nothing is held out, and the training objective chooses. Samplers hold
            out nothing.
        refit: after choosing, train on for a while with the held-out rows added. It
            does nothing with folds, the default of "marginal".
        n_chains: of the samplers.
        n_warmup: draws to tune a sampler.
        n_draws: draws kept from each chain, at least 4.
        n_weight_draws: draws of W in a prediction.
        n_latent_draws: values of z for each of them.
        target_transform: train on "none", "log" or "yeo_johnson" of y; or "auto":
            "none" or "log" ("yeo_johnson" where y is not all positive), whichever gives
            held-out rows the better density, in the units of y: after a quarter of the
            steps, or where that is close (and there is no time limit) after all of
            them. Predictions are always about y.
        rounding: "auto": where y is rounded (its values repeat, and lie on a lattice),
            learn from y plus uniform noise of one step, the density of y before it was
            rounded, and round what is predicted: probabilities, quantiles and samples
            are those of values of the lattice. "smooth": predict y before it was
            rounded. "ignore" learns from y as it is: its density may be spikes.
        standardize: scale X and y inside to mean 0 and standard deviation 1.
        progress: show a progress bar.
        random_state: seed; the same seed gives the same result.

    Attributes:
        settings_: all arguments as they were used, with what the preset filled in and
            what "auto" chose.
        latent_posterior_: mean and std of z for the rows trained on; of a sampler those
            of one chain, since the sign of z may be another in each.
        train_index_: which rows of X those are.
        restart_scores_: a score for each restart, higher is better, in the units of
            training (standardised y); `score_name_` says what it is. Where `tune_noise`
            chose widths of the noise, at those. With "marginal"
            those of a first, quick fit come last, and then those of snapshots.
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
    training_rows_: Rows | None
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
        latent_layer=None,
        latent_hidden=None,
        network=None,
        n_restarts=None,
        max_steps=None,
        learning_rate=None,
        schedule=None,
        temperature=None,
        n_mc_samples=None,
        plateau=None,
        time_limit=None,
        weight_variance=None,
        weight_groups=None,
        latent_variance=None,
        noise_variance=None,
        variance_prior=None,
        noise_prior=None,
        noise_starts=None,
        variance_form=None,
        hz_weight=None,
        offdiagonal_weight=None,
        dependence_weight=None,
        hz_tolerance=None,
        input_tolerance=None,
        target_tolerance=None,
        penalise=None,
        ramp_fraction=None,
        start=None,
        hold_means=False,
        keep=None,
        tune_noise=None,
        n_folds=None,
        posterior_rank=0,
        n_snapshots=0,
        validation_fraction=None,
        refit=False,
        n_chains=4,
        n_warmup=500,
        n_draws=1000,
        n_weight_draws=1024,
        n_latent_draws=8,
        target_transform=None,
        rounding=None,
        standardize=True,
        progress=False,
        random_state=None,
    ):
        self.latent_dim = latent_dim
        self.inference = inference
        self.preset = preset
        self.hidden = hidden
        self.activation = activation
        self.latent_layer = latent_layer
        self.latent_hidden = latent_hidden
        self.network = network
        self.n_restarts = n_restarts
        self.max_steps = max_steps
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.temperature = temperature
        self.n_mc_samples = n_mc_samples
        self.plateau = plateau
        self.time_limit = time_limit
        self.weight_variance = weight_variance
        self.weight_groups = weight_groups
        self.latent_variance = latent_variance
        self.noise_variance = noise_variance
        self.variance_prior = variance_prior
        self.noise_prior = noise_prior
        self.noise_starts = noise_starts
        self.variance_form = variance_form
        self.hz_weight = hz_weight
        self.offdiagonal_weight = offdiagonal_weight
        self.dependence_weight = dependence_weight
        self.hz_tolerance = hz_tolerance
        self.input_tolerance = input_tolerance
        self.target_tolerance = target_tolerance
        self.penalise = penalise
        self.ramp_fraction = ramp_fraction
        self.start = start
        self.hold_means = hold_means
        self.keep = keep
        self.tune_noise = tune_noise
        self.n_folds = n_folds
        self.posterior_rank = posterior_rank
        self.n_snapshots = n_snapshots
        self.validation_fraction = validation_fraction
        self.refit = refit
        self.n_chains = n_chains
        self.n_warmup = n_warmup
        self.n_draws = n_draws
        self.n_weight_draws = n_weight_draws
        self.n_latent_draws = n_latent_draws
        self.target_transform = target_transform
        self.rounding = rounding
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
        settings = resolve(self._settings())
        seed = new_seed(self.random_state)
        X, y = validate(self, X, y, ensure_min_samples=2)
        # JAX looks for its cache at the first program: turned on later it misses some.
        prepare_jax()
        weights = np.ones(len(X))
        if sample_weight is not None:
            weights = check_weights(sample_weight, X)
        # A row of weight 0 is no row at all.
        used = np.flatnonzero(weights)
        if len(used) < 2:
            raise ValueError(
                f"sample_weight is above zero for {len(used)} "
                f"row{'s' if len(used) != 1 else ''}; at least 2 are needed."
            )
        X, y = np.asarray(X), np.asarray(y, np.float64)
        single = y.ndim == 1
        targets = y.reshape(len(X), -1)
        warn_of_constants(targets[used], single)
        sizes = X.shape[1], int(self.latent_dim), targets.shape[1]
        networks = [FlatNetwork(own, *sizes) for own in self._networks(settings)]
        networks = of_the_size(networks, self.start)
        warn_if_large(
            "This fit",
            fit_bytes(settings, networks[0], len(used)),
            "give it fewer rows, hidden nodes, n_restarts or draws",
        )
        start = given_start(self.start, networks[0], len(X))
        if start is not None:
            start = start._replace(latents=start.latents[..., used, :])
        rows = Rows(X[used], targets[used], weights[used])
        valid = self._validation_rows(X_valid, y_valid, targets.shape[1])
        if settings["refit"] and (valid is not None or has_folds(settings)):
            why = "where X_valid is given: it adds rows that fit itself held out"
            if valid is None:
                why = (
                    "with folds, where every row is learned from already; "
                    "validation_fraction holds out the same rows from all restarts"
                )
            warnings.warn(f"refit=True does nothing {why}.", stacklevel=2)
        try:
            with progress_bar(bool(self.progress)) as tell:
                scaling, result = fit_scaled(
                    rows, settings, networks, seed, valid, start, tell
                )
            training_rows = scaling.apply(rows).pick(result.train_index)
            latents = _latents_of(result.posterior, training_rows, seed)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                "stopped by Ctrl-C before the fit was whole: the estimator is not "
                "fitted."
            ) from None
        settings["target_transform"] = scaling.transform.name
        network = result.posterior.model.network.network
        if isinstance(network, MLP):
            settings["latent_hidden"] = network.latent_hidden
        settings["rounding_steps"] = tuple(scaling.lattice.step.tolist())

        self.seed_ = seed
        self.settings_ = settings
        self.scaling_ = scaling
        self.single_output_ = single
        self.train_index_ = used[result.train_index]
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
        self.training_rows_ = training_rows
        self.latent_posterior_ = latents
        self.posterior_ = result.posterior  # last: with it the estimator is fitted
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Whether a fit came to an end (one that failed leaves `n_features_in_`)."""
        return hasattr(self, "posterior_")

    def check_settings(self) -> None:
        """Refuse what `fit` would refuse of the arguments, before there are rows."""
        self._networks(resolve(self._settings()))

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._get_param_names()}

    def _networks(self, settings: Mapping[str, Any]) -> list[Network]:
        """Those to choose among on held-out rows, the usual one first."""
        layers = latent_layers(settings["latent_hidden"])
        if self.network is not None or self.latent_dim == 0:
            layers = layers[:1]  # there is no such layer
        return [self._network({**settings, "latent_hidden": own}) for own in layers]

    def _network(self, settings: Mapping[str, Any]) -> Network:
        if self.network is None:
            return MLP(
                layer_widths("hidden", settings["hidden"]),
                settings["activation"],
                settings["latent_layer"],
                latent_layers(settings["latent_hidden"])[0],
            )
        if isinstance(self.network, type):
            name = self.network.__name__
            raise ValueError(
                f"network={name} is a class; give an instance, such as {name}()."
            )
        if not isinstance(self.network, Network):
            raise ValueError(
                f"network={self.network!r} must have the methods init(key, input_dim, "
                "latent_dim, output_dim) and apply(weights, inputs, latents)."
            )
        return self.network

    def _validation_rows(self, X_valid, y_valid, num_outputs) -> Rows | None:
        if (X_valid is None) != (y_valid is None):
            raise ValueError("give X_valid and y_valid together, or neither.")
        if X_valid is None:
            return None
        X_valid, y_valid = validate(
            self, X_valid, y_valid, names=("X_valid", "y_valid"), reset=False
        )
        targets = np.asarray(y_valid, np.float64).reshape(len(X_valid), -1)
        if targets.shape[1] != num_outputs:
            raise ValueError(
                f"y_valid has {targets.shape[1]} outputs; y has {num_outputs}."
            )
        return Rows(np.asarray(X_valid), targets, np.ones(len(X_valid)))

    # ----- Predicting -----------------------------------------------------------------

    def predict_dist(self, X) -> PredictiveDistribution:
        """The predictive distribution of each row: density, quantiles, samples, ..."""
        import jax

        check_is_fitted(self)
        X = validate(self, X, reset=False)
        network = self.posterior_.model.network
        num_draws = whole_number("n_weight_draws", self.n_weight_draws)
        num_latent = whole_number("n_latent_draws", self.n_latent_draws)
        warn_if_large(
            "This prediction",
            prediction_bytes(network, len(X), num_draws, num_latent),
            "predict fewer rows at a time, or with fewer n_weight_draws",
        )
        draw_key = jax.random.fold_in(jax.random.key(self.seed_), 1)
        return predictive_of(
            self.scaling_.transform,
            self.scaling_.lattice,
            network=network,
            inputs=self.scaling_.inputs(X),
            draws=self.posterior_.draw(draw_key, num_draws),
            num_latent_draws=num_latent,
            target_shift=self.scaling_.target_shift,
            target_scale=self.scaling_.target_scale,
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

    # ----- The latent variable --------------------------------------------------------

    def latent_posterior(self, X, y) -> LatentPosterior:
        """Mean and standard deviation of z for rows whose y is known."""
        check_is_fitted(self)
        self._need_latents("latent_posterior")
        rows = self._labelled(X, y)
        if self.latent_posterior_ is not None and self._sampled_with(rows) is not None:
            return self.latent_posterior_
        return infer_latents(self.posterior_, to_data(rows), len(rows), self.seed_)

    def sample_latents(self, X, y) -> np.ndarray:
        """A draw of z for each row whose y is known, [N, K], from p(z | x, y, W).

        From the distribution as it is, by quadrature; for K above 2 from a Gaussian.
        Of the training rows of "hmc", those that it sampled.
        """
        check_is_fitted(self)
        self._need_latents("sample_latents")
        return self._draw_latents(self._labelled(X, y))

    def _draw_latents(self, rows: Rows) -> np.ndarray:
        sampler = self._sampled_with(rows)
        if sampler is not None:
            return sampled_latents(sampler, self.seed_)
        if self.posterior_.model.network.latent_dim <= LARGEST_DIM:
            return sample_latents(self.posterior_, to_data(rows), len(rows), self.seed_)
        found = infer_latents(self.posterior_, to_data(rows), len(rows), self.seed_)
        normals = np.random.default_rng(self.seed_).standard_normal(found.mean.shape)
        return found.mean + found.std * normals

    def _sampled_with(self, rows: Rows) -> SamplePosterior | None:
        """The sampler's draws, if it drew z of just these rows beside W."""
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

    def _labelled(self, X, y) -> Rows:
        """Rows with their y, in the units of training."""
        X, y = validate(self, X, y, reset=False)
        targets = np.asarray(y, np.float64).reshape(len(X), -1)
        if targets.shape[1] != len(self.scaling_.target_shift):
            raise ValueError(
                f"y has {targets.shape[1]} outputs; the model was fitted to "
                f"{len(self.scaling_.target_shift)}."
            )
        return self.scaling_.apply(Rows(np.asarray(X), targets, np.ones(len(X))))

    def diagnose(self, **options) -> LatentDiagnosis:
        """Is z independent of x, and distributed like its prior? In numbers and words.

        Judged on the means of z where it was inferred row by row, and on samples of it
        where it was integrated out or sampled. Options go to
        `ncai.diagnostics.latents.diagnose_latents`.
        """
        check_is_fitted(self)
        self._need_latents("diagnose")
        if self.training_rows_ is None:
            raise ValueError(
                "diagnose needs the training rows, and this model was saved without "
                "them: save it with include_training=True."
            )
        if self.settings_["inference"] in EXACT_IN_LATENTS:
            options.setdefault("judged", "samples")
            drawn = self._draw_latents(self.training_rows_)
            options.setdefault("latent_samples", drawn)
        latents = self.latent_posterior_
        assert latents is not None  # it is there wherever the training rows are
        return diagnose_latents(
            self.training_rows_.inputs,
            self.training_rows_.targets,
            latents.mean,
            latents.std,
            self.posterior_.latent_prior_std(),
            **options,
        )

    def reconstruction_mse(self):
        """Mean squared error of the training targets with W and z from the posterior.

        In squared units of y (of the transformed y, where there is a transform): one
        number, or one for each output. It is far below the squared error of predictions
        where z explains what x does not.
        """
        check_is_fitted(self)
        self._need_latents("reconstruction_mse")
        if self.training_rows_ is None or self.latent_posterior_ is None:
            raise ValueError(
                "reconstruction_mse needs the training rows, and this model was saved "
                "without them: save it with include_training=True."
            )
        error = reconstruction_error(
            self.posterior_,
            to_data(self.training_rows_),
            self.latent_posterior_,
            self.seed_,
        )
        error = error * self.scaling_.target_scale**2
        return float(error[0]) if self.single_output_ else error

    def _need_latents(self, what: str) -> None:
        if self.posterior_.model.network.latent_dim == 0:
            raise ValueError(f"{what} is about z, and latent_dim=0 has none.")

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
        from ncai.estimators._html import fitted_html

        return shown + fitted_html(self)

    def __sklearn_tags__(self):
        """scikit-learn's description of this estimator."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.non_deterministic = False
        return tags


def _latents_of(posterior, rows: Rows, seed: int) -> LatentPosterior | None:
    if posterior.model.network.latent_dim == 0:
        return None
    mean, std = posterior.latent_moments()
    if len(mean) == len(rows):
        return LatentPosterior(np.asarray(mean, float), np.asarray(std, float))
    # A sampler of W alone has no z of its own.
    return infer_latents(posterior, to_data(rows), len(rows), seed)
