"""`benchmark`: BNN, and BNN+LV by MFVI, NCAI0 and NCAI, on eleven data sets.

The first split of a set selects hyper-parameters, and NCAI0 or NCAI, by validation
log-likelihood; the others are reported, each with the restart that is best on its
validation rows.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ncai.datasets import load_dataset, make_dataset
from ncai.datasets.splits import Scaling, split
from ncai.datasets.synthetic import Part
from ncai.diagnosis import diagnose_latents
from ncai.fitting import Rows, score_rows, to_data
from ncai.inference.base import Training
from ncai.inference.mean_field import MeanFieldVI
from ncai.latent_inference import LatentPosterior, reconstruction_error
from ncai.metrics import average_log_likelihood, mpiw, picp, rmse
from ncai.model import Model, Variance
from ncai.networks import MLP, FlatNetwork
from ncai.objectives.penalties import Penalties
from ncai.posterior import Fit, GaussianPosterior
from ncai.predictive import PredictiveDistribution
from ncai.study.cells import Cell, Outcome
from ncai.study.paper_settings import (
    DATASETS,
    FIXED_LATENT_VARIANCE,
    HIDDEN,
    METHODS,
    SYNTHETIC,
    Point,
    grid,
)
from ncai.study.scales import Scale
from ncai.study.store import Store

WEIGHT_DRAWS, LATENT_DRAWS = 256, 64


@dataclass(frozen=True, eq=False)
class Problem:
    """A split in the units of training, and the way back to raw units."""

    train: Part
    valid: Part
    test: Part
    scaling: Scaling
    oracle_test: float | None


def load_problem(dataset: str, split_number: int) -> Problem:
    """The split of this number; its own draw where the set is synthetic."""
    oracle = None
    if dataset in SYNTHETIC:
        drawn = make_dataset(dataset, seed=split_number)
        parts = (drawn.train, drawn.valid, drawn.test)
        standardise = drawn.standardise
        log_prob = drawn.oracle.log_prob(drawn.test.inputs, drawn.test.targets)
        oracle = float(np.mean(log_prob))
    else:
        dealt = split(load_dataset(dataset, subsample="paper"), seed=split_number)
        parts = (dealt.train, dealt.valid, dealt.test)
        standardise = True
    scaling = Scaling.of(parts[0])
    if not standardise:
        num_inputs = parts[0].inputs.shape[1]
        scaling = Scaling(
            np.zeros(num_inputs), np.ones(num_inputs), np.zeros(1), np.ones(1)
        )
    elif oracle is not None:
        oracle += float(np.log(scaling.target_scale[0]))
    train, valid, test = (scaling.apply(p) for p in parts)
    return Problem(train, valid, test, scaling, oracle)


def make_model(dataset: str, method: str, num_inputs: int, latent_dim: int) -> Model:
    """Empirical Bayes for s_w, and for s_z unless the paper fixes it."""
    latent_dim = 0 if method == "bnn" else latent_dim
    latent = FIXED_LATENT_VARIANCE.get(dataset)
    return Model(
        FlatNetwork(MLP(HIDDEN[dataset]), num_inputs, latent_dim, 1),
        Variance(jnp.asarray(1.0), "empirical"),
        Variance(jnp.asarray(1.0), "empirical")
        if latent is None
        else Variance(jnp.asarray(latent)),
        Variance(jnp.asarray([0.1])),  # `fixed_noise` has the grid's values
    )


def fit_points(
    cell: Cell, problem: Problem, points: tuple[Point, ...]
) -> tuple[Fit, int]:
    """All points and restarts in one run; restart r has point r modulo their number."""
    method, num_rows = cell["method"], len(problem.train.inputs)
    penalties = None
    if method == "ncai":
        penalties = tuple(
            Penalties(
                hz_tolerance=p.hz_tolerance,  # pyright: ignore[reportArgumentType]
                input_tolerance=p.input_tolerance,  # pyright: ignore
                target_tolerance=p.target_tolerance,  # pyright: ignore
            )
            for p in points
        )
    training = Training(
        num_restarts=cell["restarts"] * len(points),
        max_steps=cell["max_steps"],
        warm_start_steps=cell["warm_start_steps"],
        plateau=cell["plateau"],
        fixed_noise=tuple(p.noise for p in points),
    )
    fitter = MeanFieldVI(
        training,
        start="random" if method in ("bnn", "mfvi") else "ncai",
        penalties=penalties,
    )
    rows = Rows(problem.train.inputs, problem.train.targets, np.ones(num_rows))
    model = make_model(
        cell["dataset"], method, problem.train.inputs.shape[1], cell["latent_dim"]
    )
    fit = fitter.fit(jax.random.key(cell.seed), model, to_data(rows))
    return fit, num_rows


def validation_scores(fit: Fit, problem: Problem) -> np.ndarray:
    """Average log-likelihood of the validation rows, for each restart."""
    valid = problem.valid
    rows = Rows(valid.inputs, valid.targets, np.ones(len(valid.inputs)))
    posterior = fit.posterior
    assert isinstance(posterior, GaussianPosterior)
    scores = [
        score_rows(posterior.select(i), rows, jax.random.key(0)).mean()
        for i in range(posterior.num_components)
    ]
    return np.where(fit.alive, scores, -np.inf)


@dataclass(frozen=True)
class Benchmark:
    """The study."""

    name: str = "benchmark"
    title: str = "Benchmark on eleven data sets (main tables, summary tables)"

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """Selection on split 0; then, with what it chose, the other splits."""
        cells = []
        for dataset in scale.datasets or DATASETS:
            for method in METHODS:
                select = self._cell(scale, dataset, method, 0, phase="select")
                cells.append(select)
                found = store.load(select)
                if found is None:
                    continue
                for number in range(1, scale.splits):
                    point = tuple(found.row["chosen"])
                    cells.append(
                        self._cell(
                            scale, dataset, method, number, phase="report", point=point
                        )
                    )
        return cells

    def _cell(self, scale: Scale, dataset, method, number, **more) -> Cell:
        return Cell.of(
            self.name,
            dataset=dataset,
            method=method,
            split=number,
            restarts=scale.restarts,
            max_steps=scale.max_steps,
            warm_start_steps=scale.warm_start_steps,
            plateau=scale.name == "paper",
            latent_dim=1,
            **more,
        )

    def run(self, cell: Cell) -> Outcome:
        """Fit, choose on validation, and score."""
        problem = load_problem(cell["dataset"], cell["split"])
        if cell["phase"] == "select":
            points = grid(cell["dataset"], cell["method"])
        else:
            points = (Point(*cell["point"]),)
        fit, num_rows = fit_points(cell, problem, points)
        scores = validation_scores(fit, problem)
        best = int(np.argmax(scores))
        chosen = points[best % len(points)]
        by_point = scores.reshape(-1, len(points))
        row = {
            "chosen": list(chosen.settings()),
            "validation": float(scores[best]),
            "validation_by_point": by_point.max(axis=0).tolist(),
            "points": [list(p.settings()) for p in points],
            "restarts_lost": int((~fit.alive).sum()),
            "stop_reasons": list(fit.stop_reasons),
            "steps": fit.num_steps,
        }
        posterior = fit.posterior
        assert isinstance(posterior, GaussianPosterior)
        metrics, arrays = score(posterior.select(best), problem, num_rows, cell.seed)
        return Outcome(row | metrics, arrays)


def score(
    posterior: GaussianPosterior, problem: Problem, num_rows: int, seed: int
) -> tuple[dict, dict[str, np.ndarray]]:
    """Every metric of the summary tables."""
    row: dict = {
        "noise_var": float(np.asarray(posterior.priors.noise_variance).ravel()[0]),
        "prior_var_w": float(np.asarray(posterior.priors.weight_variance)[0]),
        "oracle_test": problem.oracle_test,
        "target_scale": float(problem.scaling.target_scale[0]),
    }
    raw_scale = float(problem.scaling.target_scale[0])
    draws = posterior.draw(jax.random.key(seed), WEIGHT_DRAWS)
    for name, part in (("train", problem.train), ("test", problem.test)):
        predictive = PredictiveDistribution(
            network=posterior.model.network,
            inputs=part.inputs,
            draws=draws,
            num_latent_draws=LATENT_DRAWS,
            target_shift=np.zeros(1),
            target_scale=np.ones(1),
            single_output=True,
        )
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
    rows = Rows(train.inputs, train.targets, np.ones(len(train.inputs)))
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


BENCHMARK = Benchmark()
