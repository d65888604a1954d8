"""`elbo-ranking`: the ELBO prefers points far from the truth (paper, Section 5)."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from ncai.inference.base import Method, Training
from ncai.inference.posterior import GaussianPosterior
from ncai.model.mean_field import gaussian_kl
from ncai.study.engine import Cell, Outcome, Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.fits import paper_method, rise_at_the_end
from ncai.study.experiments.map_bias import best_mode
from ncai.study.experiments.problems import (
    GROUND_TRUTH_SETS,
    WEIGHT_VARIANCE,
    KnownProblem,
    cells_of,
    known_problem,
)
from ncai.study.output.tables import Entry, Table, pick, published
from ncai.types import Unknowns

# Our names of the starts, and the names in the table of published numbers.
STARTS = {
    "fixed": "fixed_at_gt",
    "truth": "gt",
    "map": "map",
    "random": "random",
    "ncai0": "ncai_lambda0",
}


@dataclass(frozen=True)
class ElboRanking:
    """The study `elbo-ranking`."""

    name: str = "elbo-ranking"
    title: str = "ELBO by initialisation (tab:elbo-rankings, fig:bimodal-global-optima)"

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """A cell for each set, draw and start.

        Training takes twice the paper's steps, because the ELBO rises for a long time
        if training starts at the truth or at the mode, and this changes the order of
        the starts.
        """
        del store
        longer = replace(scale, max_steps=2 * scale.max_steps)
        more = {"warm_start_steps": scale.warm_start_steps}
        return cells_of(
            self.name, longer, *({"start": start} | more for start in STARTS)
        )

    def run(self, cell: Cell) -> Outcome:
        """Return the best final ELBO of the restarts."""
        known = known_problem(cell["dataset"], cell["draw"])
        key = jax.random.key(cell.seed)
        training = Training(
            num_restarts=cell["restarts"],
            max_steps=cell["max_steps"],
            warm_start_steps=cell["warm_start_steps"],
            settle_steps=cell["max_steps"] // 3,
        )
        method, start = self._method(cell, known, training)
        training = replace(training, start=start)
        fit = method.fit(key, known.model, known.data, training)
        elbo = fit.history["elbo"]
        final = np.where(fit.alive, final_level(elbo), -np.inf)
        best = int(np.argmax(final))
        posterior = fit.posterior
        assert isinstance(posterior, GaussianPosterior)
        kept = posterior.select(best)
        row = {
            "elbo": float(final[best]),
            "elbo_by_restart": final.tolist(),
            "rise_at_the_end": rise_at_the_end(elbo[:, best]),
            "steps": fit.num_steps,
        }
        arrays = {
            "weight_mean": np.asarray(kept.mean.weights[0], np.float32),
            "weight_std": np.asarray(kept.scale.weights[0], np.float32),
            "latent_mean": np.asarray(kept.mean.latents[0, :, 0], np.float32),
        }
        return Outcome(row, arrays)

    def _method(
        self, cell: Cell, known: KnownProblem, training: Training
    ) -> tuple[Method, Unknowns | None]:
        """Return mean-field inference, and the values that it starts at, if any."""
        start, method = cell["start"], paper_method("mfvi")
        if start == "random":
            return method, None
        if start == "ncai0":
            return paper_method("ncai0"), None
        if start == "map":
            return method, self._best_mode(cell, known, training)
        return method.set_params(hold_means=start == "fixed"), known.truth

    def _best_mode(
        self, cell: Cell, known: KnownProblem, training: Training
    ) -> Unknowns:
        """Return the best joint mode from the truth, and from W_true with random Z."""
        num = training.num_restarts
        width = float(np.sqrt(known.model.latent_variance.value))
        shape = known.truth.latents.shape
        key = jax.random.fold_in(jax.random.key(cell.seed), 1)
        drawn = width * jax.random.normal(key, (num - 1, *shape))
        starts = Unknowns(
            jnp.broadcast_to(known.truth.weights, (num, known.truth.weights.size)),
            jnp.concatenate([known.truth.latents[None], drawn]),
            known.truth.log_noise_var,
        )
        training = replace(training, start=starts)
        fit = paper_method("map").fit(key, known.model, known.data, training)
        posterior = fit.posterior
        assert isinstance(posterior, GaussianPosterior)
        return best_mode(known, posterior, fit.alive).point


def final_level(elbo) -> np.ndarray:
    """Return the mean of the last records that have an ELBO, for each restart."""
    last = np.asarray(elbo[-min(4, len(elbo)) :])
    there = ~np.isnan(last)
    count = np.maximum(there.sum(axis=0), 1).astype(last.dtype)
    return np.where(there, last, 0.0).sum(axis=0) / count


def _kl_of_weights(outcome: Outcome) -> float:
    """KL[q(W) || p(W)] at the end of training: a part of minus the ELBO."""
    mean, std = (
        jnp.asarray(outcome.arrays[f"weight_{part}"]) for part in ("mean", "std")
    )
    return float(gaussian_kl(mean, std, jnp.asarray(WEIGHT_VARIANCE)))


def tables(scale: Scale, store: Store) -> list[Table]:
    """Return tables of the ranks by draw, as in the paper, and of the ELBOs."""
    theirs = published()
    out = []
    for dataset in GROUND_TRUTH_SETS:
        elbos: dict[str, dict[int, float]] = {}
        from_prior: dict[str, list[float]] = {start: [] for start in STARTS}
        rises: dict[str, list[float]] = {start: [] for start in STARTS}
        for cell in ELBO_RANKING.cells(scale, store):
            found = store.load(cell)
            if cell["dataset"] == dataset and found is not None:
                by_draw = elbos.setdefault(cell["start"], {})
                by_draw[cell["draw"]] = found.row["elbo"]
                from_prior[cell["start"]].append(_kl_of_weights(found))
                rises[cell["start"]].append(found.row["rise_at_the_end"])
        draws = [d for d in range(scale.draws) if all(d in e for e in elbos.values())]
        if len(elbos) < len(STARTS) or not draws:
            continue
        ranks = {
            draw: sorted(STARTS, key=lambda s, d=draw: elbos[s][d]) for draw in draws
        }
        ranking = pick(theirs, label="tab:elbo-rankings", dataset=dataset)
        rows = []
        for draw in draws:
            printed = pick(ranking, draw=draw + 1).sort_values(by="value")["method"]
            rows.append(
                (str(draw + 1), " < ".join(ranks[draw]), " < ".join(map(str, printed)))
            )
        out.append(
            Table(
                f"elbo_ranking_{dataset}",
                f"Initialisations from lowest to highest ELBO, {dataset}",
                ("draw", "ours", "published"),
                tuple(rows),
                "Draws are our own, so rows are not paired.",
            )
        )
        levels = pick(theirs, metric="elbo", dataset=dataset)
        rows = []
        for start, label in STARTS.items():
            other = Entry.of(pick(levels, method=label)["value"].tolist())
            ours = Entry.of(list(elbos[start].values()))
            kl = f"{np.mean(from_prior[start]):.0f}"
            rise = f"{np.mean(rises[start]):+.1f}"
            rows.append((start, str(ours), str(other), kl, rise))
        out.append(
            Table(
                f"elbo_levels_{dataset}",
                f"Best ELBO of the restarts, {dataset}",
                ("start", "ours", "published", "KL of W, ours", "still rising by"),
                tuple(rows),
                "Mean ± std over draws. Still rising by: the mean ELBO of the last "
                "tenth of the training less that of the tenth before, in nats.",
            )
        )
    return out


ELBO_RANKING = ElboRanking()
