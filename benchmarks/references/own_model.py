"""Reference draws of the model of the default estimator, on a problem that is small.

    python -m benchmarks.references.own_model

The rows are the first 50 of Depeweg, as in `benchmarks.references.hmc --hidden 10`. The
model is that of the default, with silu, a wide prior of z, learned noise and empirical
Bayes, but its network has one layer of 10 nodes. So the draws show how much of the
distance between the default and the other reference is a distance between two models:
the report compares the epistemic parts over x of both references and of the default.

Writes draws into OUT/depeweg.zip and the report into OUT/depeweg.json, beside those of
the other reference.
"""

import argparse
import datetime
import time
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import spearmanr

from benchmarks.references.hmc import quadrature_error, store, versions
from ncai import MLP, BNNLVRegressor, HMCMarginal, PredictiveDistribution
from ncai.inference import hmc
from ncai.inference.nuts import posterior_of_weights
from ncai.inference.posterior import SamplePosterior
from ncai.model.bnn_lv import point_noise
from ncai.model.quadrature import latent_rule, marginal_log_likelihood
from ncai.study.experiments.decomposition import GRID_POINTS, HIGH, LOW, MEASURES
from ncai.study.experiments.problems import (
    committed_draws,
    digest_of_draws,
    predictive_at,
    reference_problem,
)
from ncai.types import Data

HIDDEN = 10
NAME = f"own_{HIDDEN}"
NODES, FINEST_NODES = 128, 1_024  # of z, to sample and to judge the rule
GRID = np.linspace(LOW, HIGH, GRID_POINTS)[:, None]


def sampled(options, rows) -> BNNLVRegressor:
    """The sampler in place of the default's method; all else is the default's."""
    method = HMCMarginal(
        latent_variance=4.0,
        n_chains=options.chains,
        n_warmup=options.warmup,
        n_draws=options.draws,
        max_doublings=options.doublings,
        n_weight_draws=1_024,
    )
    model = BNNLVRegressor(
        inference=method,
        network=MLP((HIDDEN,), "silu"),
        noise_variance="variational",
        random_state=0,
    )
    with patch.object(hmc, "NUM_NODES", NODES):
        return model.fit(*rows)


def error_of_rule(model: BNNLVRegressor, places: np.ndarray) -> dict[str, float]:
    """How far the log densities of the draws are from those of a much finer rule."""
    posterior, rows = model.posterior_, model.training_rows_
    assert isinstance(posterior, SamplePosterior)
    arrays = (jnp.asarray(a, jnp.float32) for a in vars(rows).values())
    data, built = Data(*arrays), posterior.model
    priors = jax.tree.map(lambda a: a[0], posterior.priors)
    kept = jax.tree.map(lambda a: jnp.concatenate(a[:, places]), posterior.samples)

    def log_density(count):
        rule = latent_rule(1, count)

        def of_draw(draw):
            noise = point_noise(built, priors, draw.log_noise_var)
            return marginal_log_likelihood(
                built, data, rule, draw.weights, noise, priors.latent_variance
            )

        return np.asarray(jax.lax.map(of_draw, kept), float)

    return quadrature_error(log_density(FINEST_NODES), log_density(NODES))


def epistemic(predictive: PredictiveDistribution) -> dict[str, np.ndarray]:
    return {measure: predictive.decompose(measure).epistemic for measure in MEASURES}


def halves(model: BNNLVRegressor) -> list[dict[str, np.ndarray]]:
    """The epistemic parts by the first and by the last chains alone."""
    posterior, found = model.posterior_, []
    for chains in np.array_split(np.arange(posterior.num_components), 2):
        model.posterior_ = posterior.select(chains)
        found.append(epistemic(model.predict_dist(GRID)))
    model.posterior_ = posterior
    return found


def ranks(one, other) -> dict[str, float]:
    """Rank correlation over x, by each measure."""
    return {
        m: round(float(np.asarray(spearmanr(one[m], other[m])[0])), 3) for m in MEASURES
    }


def main() -> None:
    options = parse()
    known = reference_problem(HIDDEN)
    count, train = len(known.data.inputs), known.drawn.train
    rows = train.inputs[:count], train.targets[:count, 0]
    begun = time.process_time()
    model = sampled(options, rows)
    seconds = time.process_time() - begun
    ours = epistemic(model.predict_dist(GRID))
    drawn = committed_draws(HIDDEN, known)
    assert drawn is not None
    draws = posterior_of_weights(known.model, drawn).draw(jax.random.key(0), 512)
    other = epistemic(predictive_at(known.model.network, draws, GRID))
    default = epistemic(BNNLVRegressor(random_state=0).fit(*rows).predict_dist(GRID))
    mixing = model.sampler_report_
    assert mixing is not None
    assert isinstance(model.posterior_, SamplePosterior)
    samples = model.posterior_.samples
    length = samples.weights.shape[1]
    places = np.linspace(0, length - 1, options.kept).round().astype(int)
    kept = np.asarray(samples.weights[:, places], np.float32)
    noise = np.asarray(samples.log_noise_var[:, places], np.float32)
    shown = " ".join(f"--{n} {getattr(options, n)}" for n in ARGUMENTS)
    report = {
        "command": f"python -m benchmarks.references.own_model {shown}",
        "date": datetime.date.today().isoformat(),
        "versions": versions(),
        "sha256_of_draws": digest_of_draws(kept),
        **{k: v for k, v in asdict(mixing).items() if k != "num_divergences"},
        "mixed": mixing.mixed,
        "divergences": mixing.num_divergences,
        "draws_kept_of_each_chain": len(places),
        "seconds_of_processor": round(seconds),
        "quadrature_error": error_of_rule(model, places),
        "rank_correlation_of_epistemic": {
            "between_halves": ranks(*halves(model)),
            "with_the_other_reference": ranks(ours, other),
            "of_the_default_with_this_reference": ranks(default, ours),
            "of_the_default_with_the_other_reference": ranks(default, other),
        },
    }
    print(report)
    arrays = {f"weights_{NAME}": kept, f"log_noise_variance_{NAME}": noise}
    store(options.out, arrays, {NAME: report})


ARGUMENTS = "chains warmup draws doublings kept".split()


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--warmup", type=int, default=1_000)
    parser.add_argument("--draws", type=int, default=5_000)
    parser.add_argument("--doublings", type=int, default=8)
    parser.add_argument("--kept", type=int, default=128, help="draws of each chain")
    parser.add_argument("--out", type=Path, default=Path("results/hmc"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
