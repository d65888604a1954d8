"""Every metric of the paper's summary tables, for one fit."""

import jax
import numpy as np

from ncai.diagnostics.latents import diagnose_latents
from ncai.fitting.holdout import to_data
from ncai.inference.latents import (
    LatentPosterior,
    infer_latents,
    reconstruction_error,
)
from ncai.inference.posterior import GaussianPosterior
from ncai.predictive.distribution import PredictiveDistribution
from ncai.predictive.target_map import TargetMap
from ncai.stats.scores import average_log_likelihood, mpiw, picp, rmse
from ncai.study.experiments.problems import Problem
from ncai.types import TrainingRows, WeightDraws

WEIGHT_DRAWS, LATENT_DRAWS = 256, 64


def predictive_at(
    network, draws: WeightDraws, inputs, shift: float = 0.0, scale: float = 1.0
) -> PredictiveDistribution:
    """Of the one output, in the units of training unless told to go back."""
    return PredictiveDistribution(
        network=network,
        inputs=inputs,
        draws=draws,
        target_map=TargetMap.linear(shift, scale),
        num_latent_draws=LATENT_DRAWS,
        single_output=True,
    )


def score(
    posterior: GaussianPosterior,
    problem: Problem,
    seed: int,
    exact_latents: bool = False,
) -> tuple[dict, dict[str, np.ndarray]]:
    """Every metric of the summary tables.

    With `exact_latents` those of z are of p(z | x, y, W), averaged over W, for methods
    that have no q(z), or one that only proposes.
    """
    row: dict = {
        "noise_var": float(np.asarray(posterior.priors.noise_variance).ravel()[0]),
        "prior_var_w": float(np.asarray(posterior.priors.weight_variance)[0]),
        "oracle_test": problem.oracle_test,
        "target_scale": float(problem.scaling.target_scale[0]),
    }
    raw_scale = float(problem.scaling.target_scale[0])
    draws = posterior.draw(jax.random.key(seed), WEIGHT_DRAWS)
    for name, part in (("train", problem.train), ("test", problem.test)):
        predictive = predictive_at(posterior.model.network, draws, part.inputs)
        targets = part.targets[:, 0]
        lower, upper = predictive.interval(0.95)
        row |= {
            f"avg_ll_{name}": average_log_likelihood(predictive.log_prob(targets)),
            f"rmse_{name}": rmse(targets, predictive.mean()) * raw_scale,
            f"picp95_{name}_percent": 100 * picp(targets, lower, upper),
            f"mpiw95_{name}_raw_units": mpiw(lower, upper) * raw_scale,
            f"crps_{name}": float(np.mean(predictive.crps(targets))) * raw_scale,
        }
    if not posterior.model.network.latent_dim:
        return row, {}
    train = problem.train
    num_rows = len(train.inputs)
    if exact_latents:
        rows = TrainingRows(train.inputs, train.targets, np.ones(num_rows))
        mean, std = infer_latents(posterior, to_data(rows), num_rows, seed)
    else:
        mean, std = (np.asarray(a)[:num_rows] for a in posterior.latent_moments())
    return row | latent_scores(posterior, problem, mean, std, seed), {
        "latent_mean": mean.astype(np.float32),
        "latent_std": std.astype(np.float32),
    }


def latent_scores(posterior, problem: Problem, mean, std, seed) -> dict:
    """What the paper measures of z."""
    train = problem.train
    prior_std = posterior.latent_prior_std()
    found = diagnose_latents(
        train.inputs, train.targets, mean, std, prior_std, num_permutations=100
    )
    rows = TrainingRows(train.inputs, train.targets, np.ones(len(train.inputs)))
    errors = reconstruction_error(
        posterior, to_data(rows), LatentPosterior(mean, std), seed=seed
    )
    return {
        "prior_var_z": prior_std**2,
        "hz_mu_z": found.hz,
        "hz_reference": found.hz_reference,
        "mi_x_mu_z": found.mi_x_mean,
        "mi_x_z": found.mi_x_sample,
        "mi_reference": found.mi_reference,
        "pc_x_mu_z": found.pc_x,
        "pc_y_mu_z": found.pc_y,
        "ks": found.ks_sample,
        "js_qz_pz": found.js,
        "kl_pz_qz": found.kl_p_q,
        "kl_qz_pz": found.kl_q_p,
        "reconstruction_mse": float(np.mean(errors)),
    }
