"""`map-bias`: the joint mode of (W, Z) is far more likely than the truth, and worse."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ncai.datasets.oracles import NetworkOracle, Truth
from ncai.datasets.synthetic import (
    LATENT_PROCESSES,
    OTHER_SIZES,
    load_truth_of_size,
)
from ncai.inference.base import Training
from ncai.inference.posterior import GaussianPosterior
from ncai.inference.warm_start import initial_priors
from ncai.model.log_joint import log_joint
from ncai.study.engine import Cell, Outcome, Scale
from ncai.study.engine.store import Store
from ncai.study.experiments.fits import paper_method
from ncai.study.experiments.problems import (
    GROUND_TRUTH_SETS,
    KnownProblem,
    cells_of,
    known_problem,
)
from ncai.study.output.tables import Entry, Table, pick, published, side_by_side
from ncai.types import Unknowns

GRID_POINTS, LATENT_LINES = 200, 41


@dataclass(frozen=True)
class MapBias:
    """The study `map-bias`."""

    name: str = "map-bias"
    title: str = "Log posterior at the truth and at the joint mode (tab:map)"

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """A cell for each set and draw."""
        del store
        return cells_of(self.name, scale)

    def run(self, cell: Cell) -> Outcome:
        """The best of one start at the truth and the rest at random."""
        known = known_problem(cell["dataset"], cell["draw"])
        training = Training(
            num_restarts=cell["restarts"],
            max_steps=cell["max_steps"],
            start=known.truth,
        )
        method, key = paper_method("map"), jax.random.key(cell.seed)
        fit = method.fit(key, known.model, known.data, training)
        posterior = fit.posterior
        assert isinstance(posterior, GaussianPosterior)
        mode = best_mode(known, posterior, fit.alive)
        row = {
            "log_posterior_true": float(mode.log_joint(known.truth)),
            "log_posterior_map": float(mode.values[mode.best]),
            "best_start": "truth" if mode.best == 0 else "random",
            "log_posterior_by_start": mode.values.tolist(),
            "latent_std": float(np.sqrt(known.model.latent_variance.value)),
        }
        return Outcome(row, _picture(known.drawn, known.model, known.truth, mode.point))


SIZED = "bimodal"


@dataclass(frozen=True)
class MapBiasBySize:
    """The study `map-bias` on Bimodal for smaller networks, perhaps the paper's.

    The paper prints a network of two layers of 50 nodes, but the log prior of so many
    weights is far below the log posterior that it prints.
    """

    name: str = "map-bias-by-size"
    title: str = "Log posterior on Bimodal for networks of three sizes (tab:map)"

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """A cell for each size and draw."""
        del store
        sizes = [{"hidden": hidden} for hidden in OTHER_SIZES[SIZED]]
        return [
            cell
            for cell in cells_of(self.name, scale, *sizes)
            if cell["dataset"] == SIZED
        ]

    def run(self, cell: Cell) -> Outcome:
        """The best of one start at the truth and the rest at random."""
        known = with_network(
            known_problem(cell["dataset"], cell["draw"]),
            load_truth_of_size(cell["dataset"], tuple(cell["hidden"])),
        )
        training = Training(
            num_restarts=cell["restarts"],
            max_steps=cell["max_steps"],
            start=known.truth,
        )
        method, key = paper_method("map"), jax.random.key(cell.seed)
        fit = method.fit(key, known.model, known.data, training)
        posterior = fit.posterior
        assert isinstance(posterior, GaussianPosterior)
        mode = best_mode(known, posterior, fit.alive)
        row = {
            "num_weights": known.model.network.num_weights,
            "log_posterior_true": float(mode.log_joint(known.truth)),
            "log_posterior_map": float(mode.values[mode.best]),
            "best_start": "truth" if mode.best == 0 else "random",
            "log_posterior_by_start": mode.values.tolist(),
        }
        return Outcome(row, {})


def with_network(known: KnownProblem, truth: Truth) -> KnownProblem:
    """Return the problem with another true network, at the same x, z and noise."""
    train = known.drawn.train
    assert train.latents is not None
    assert known.drawn.truth is not None
    before, after = (
        NetworkOracle(of).function(train.inputs, train.latents)
        for of in (known.drawn.truth, truth)
    )
    targets = train.targets - before + after
    weights = jnp.asarray(truth.weights, jnp.float32)
    return known._replace(
        data=known.data._replace(targets=jnp.asarray(targets, jnp.float32)),
        model=replace(known.model, network=truth.flat_network),
        truth=known.truth._replace(weights=weights),
    )


class BestMode(NamedTuple):
    """The most likely of several joint modes.

    Args:
        point: W and Z at the mode.
        best: the number of the mode.
        values: log joint density at every mode; minus infinity for lost restarts.
        log_joint: the log joint density as a function.
    """

    point: Unknowns
    best: int
    values: np.ndarray
    log_joint: Callable


def best_mode(
    known: KnownProblem, posterior: GaussianPosterior, alive: np.ndarray
) -> BestMode:
    """Return the mode with the largest log density of W, Z and the rows."""
    priors = initial_priors(jax.random.key(0), known.model)
    value = jax.jit(lambda u: log_joint(known.model, known.data, u, priors))
    modes = [
        jax.tree.map(lambda a, i=i: a[i], posterior.mean)
        for i in range(posterior.num_components)
    ]
    values = np.where(alive, [float(value(mode)) for mode in modes], -np.inf)
    best = int(np.argmax(values))
    return BestMode(modes[best], best, values, value)


def _picture(drawn, model, truth: Unknowns, mode: Unknowns) -> dict[str, np.ndarray]:
    """Return f over x and z within three prior widths, and z of truth and mode."""
    inputs = drawn.train.inputs
    grid = np.linspace(inputs.min(), inputs.max(), GRID_POINTS)[:, None]
    width = float(np.sqrt(model.latent_variance.value))
    lines = np.linspace(-3 * width, 3 * width, LATENT_LINES)[:, None]

    @jax.jit
    def surface(weights):
        by_row = jax.vmap(
            lambda x: jax.vmap(lambda z: model.network.apply(weights, x, z)[0])(
                jnp.asarray(lines, jnp.float32)
            )
        )
        return by_row(jnp.asarray(grid, jnp.float32))

    return {
        "grid": grid[:, 0].astype(np.float32),
        "latent_lines": lines[:, 0].astype(np.float32),
        "inputs": inputs[:, 0].astype(np.float32),
        "targets": drawn.train.targets[:, 0].astype(np.float32),
        "f_true": np.asarray(surface(truth.weights), np.float32),
        "f_map": np.asarray(surface(mode.weights), np.float32),
        "z_true": np.asarray(truth.latents[:, 0], np.float32),
        "z_map": np.asarray(mode.latents[:, 0], np.float32),
    }


def tables(scale: Scale, store: Store) -> list[Table]:
    """Return the paper's table; its levels include constants, differences do not."""
    theirs = published()
    theirs = pick(theirs, label="tab:map")
    rows = []
    for dataset in GROUND_TRUTH_SETS:
        found = [
            store.load(c)
            for c in MAP_BIAS.cells(scale, store)
            if c["dataset"] == dataset
        ]
        found = [o.row for o in found if o is not None]
        if not found:
            continue

        def entry(at, dataset=dataset):
            picked = pick(theirs, dataset=dataset, method=at)
            value, std = (float(picked[name].iloc[0]) for name in ("value", "std"))
            return Entry(value, std, 5)

        cells = [
            side_by_side(
                Entry.of([r[f"log_posterior_{at}"] for r in found]), entry(at), None
            )
            for at in ("true", "map")
        ]
        gap = Entry.of(
            [r["log_posterior_map"] - r["log_posterior_true"] for r in found]
        )
        published_gap = entry("map").mean - entry("true").mean
        rows.append((dataset, *cells, f"{gap} ({published_gap:.1f})"))
    columns = ("data set", "at the truth", "at the best MAP", "difference")
    note = (
        "Ours (published), mean ± std over draws. Levels include constants that the "
        "paper does not state; the difference is what counts."
    )
    if not rows:
        return []
    return [Table("map_log_posterior", MAP_BIAS.title, columns, tuple(rows), note)]


def tables_by_size(scale: Scale, store: Store) -> list[Table]:
    """Return a table with a line for each size of network, the printed size last."""
    theirs = pick(published(), label="tab:map", dataset=SIZED)
    levels = {
        at: float(pick(theirs, method=at)["value"].iloc[0]) for at in ("true", "map")
    }
    rows = []
    printed = [
        cell for cell in MAP_BIAS.cells(scale, store) if cell["dataset"] == SIZED
    ]
    by_size = {}
    for cell in MAP_BIAS_BY_SIZE.cells(scale, store):
        by_size.setdefault(tuple(cell["hidden"]), []).append(cell)
    by_size[LATENT_PROCESSES[SIZED].hidden] = printed
    for hidden, cells in by_size.items():
        found = [row for row in map(store.load_row, cells) if row is not None]
        if not found:
            continue
        true, mode = (
            [row[f"log_posterior_{at}"] for row in found] for at in ("true", "map")
        )
        gap = np.subtract(mode, true).tolist()
        entries = (str(Entry.of(values)) for values in (true, mode, gap))
        rows.append((" x ".join(map(str, hidden)), *entries))
    if not rows or not any(
        store.is_done(c) for c in MAP_BIAS_BY_SIZE.cells(scale, store)
    ):
        return []
    rows.append(
        (
            "published",
            f"{levels['true']:.1f}",
            f"{levels['map']:.1f}",
            f"{levels['map'] - levels['true']:.1f}",
        )
    )
    columns = ("nodes", "at the truth", "at the best MAP", "difference")
    note = (
        "Mean ± std over draws. The paper prints two layers of 50 nodes, whose weights "
        "have too low a log prior for its levels."
    )
    title = MAP_BIAS_BY_SIZE.title
    return [Table("map_log_posterior_by_size", title, columns, tuple(rows), note)]


MAP_BIAS = MapBias()
MAP_BIAS_BY_SIZE = MapBiasBySize()
