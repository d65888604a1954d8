"""`theory`: how often scaled parameters beat the truth (paper, Theorems 1 and 2).

Both theorems rest on parameters that explain the data exactly as well as the truth and
have a higher prior. The log posterior then differs only by the log priors, which are
sums over rows. This study draws x and z, counts how often the difference is positive,
and compares this with the bound of the proofs (Cantelli's inequality).
"""

from dataclasses import dataclass

import numpy as np

from ncai.study.engine import Cell, Outcome, Scale
from ncai.study.engine.store import Store
from ncai.study.output.tables import Table

INPUT_MEAN, INPUT_STD, LATENT_STD = 0.5, 1.0, 0.5
WEIGHT, WEIGHT_VARIANCE = 1.0, 10.0
NUM_ROWS = (1, 3, 10, 30, 100, 300, 1000, 3000)
REPEATS = {"smoke": 200, "small": 2000, "paper": 20_000}
HIDDEN, INPUT_DIM = 10, 2


@dataclass(frozen=True)
class Theory:
    """The study `theory`."""

    name: str = "theory"
    title: str = "Scaled parameters against the truth (thm:post, thm:post_1layer)"

    def cells(self, scale: Scale, store: Store) -> list[Cell]:
        """A cell for each theorem."""
        del store
        repeats = REPEATS[scale.name]
        return [
            Cell.of(self.name, part=part, repeats=repeats)
            for part in ("one-node", "one-layer")
        ]

    def run(self, cell: Cell) -> Outcome:
        """Compute how often the scaled parameters win, and the bound."""
        rng = np.random.default_rng(cell.seed)
        one_node = cell["part"] == "one-node"
        lowest = smallest_scale() if one_node else 0.0
        highest = 1.0 if one_node else largest_shrinkage()
        scales = lowest + (highest - lowest) * np.array([0.1, 0.25, 0.5, 0.75, 0.9])
        moments = one_node_moments if one_node else one_layer_moments
        draw = one_node_draws if one_node else one_layer_draws
        network = None if one_node else draw_network(rng)
        wins = np.zeros((len(scales), len(NUM_ROWS)))
        bounds = np.zeros_like(wins)
        for i, scale in enumerate(scales):
            mean, variance = moments(scale)
            prior = prior_difference(scale, network)
            for j, num_rows in enumerate(NUM_ROWS):
                total = np.zeros(cell["repeats"])
                for _ in range(num_rows):
                    total += draw(rng, scale, cell["repeats"])
                wins[i, j] = np.mean(total + prior > 0)
                bounds[i, j] = cantelli(prior + num_rows * mean, num_rows * variance)
        row = {
            "lowest": float(lowest),
            "highest": float(highest),
            "scales": scales.tolist(),
            "wins_at_most_rows": wins[:, -1].tolist(),
            "bound_at_most_rows": bounds[:, -1].tolist(),
            "bound_holds": bool(np.all(wins + 0.02 >= bounds)),
        }
        arrays = {
            "scales": scales,
            "num_rows": np.array(NUM_ROWS),
            "wins": wins,
            "bounds": bounds,
        }
        return Outcome(row, arrays)


def cantelli(mean: float, variance: float) -> float:
    """Return a lower bound on P(sum > 0) for a sum with this mean and variance."""
    if mean <= 0:
        return 0.0
    return float(mean**2 / (variance + mean**2))


def smallest_scale() -> float:
    """Return the lower end of the range of C in Theorem 1; the upper end is 1."""
    square = INPUT_STD**2 + INPUT_MEAN**2
    return (square - LATENT_STD**2) / (square + LATENT_STD**2)


def largest_shrinkage() -> float:
    """Return the largest t = t_1 = ... = t_D (Theorem 2) with a positive mean gain."""
    square = INPUT_STD**2 + INPUT_MEAN**2
    return float(np.sqrt(LATENT_STD**2 / (square + LATENT_STD**2)))


def one_node_moments(scale: float) -> tuple[float, float]:
    """Mean and variance of one row's gain, log p(z_hat) - log p(z)."""
    on_x, on_z, on_both = _one_node_factors(scale)
    square = INPUT_STD**2 + INPUT_MEAN**2
    mean = on_x * square + on_z * LATENT_STD**2
    variance = (
        on_x**2 * (2 * INPUT_STD**4 + 4 * INPUT_MEAN**2 * INPUT_STD**2)
        + on_z**2 * 2 * LATENT_STD**4
        + on_both**2 * square * LATENT_STD**2
    )
    width = 2 * LATENT_STD**2
    return mean / width, variance / width**2


def _one_node_factors(scale: float) -> tuple[float, float, float]:
    """Return the factors of x^2, z^2 and xz in z^2 - ((C - 1) x + C z)^2."""
    return -((1 - scale) ** 2), 1 - scale**2, 2 * scale * (1 - scale)


def one_node_draws(rng, scale: float, repeats: int) -> np.ndarray:
    """Gains of one fresh row, for each repeat."""
    x = rng.normal(INPUT_MEAN, INPUT_STD, repeats)
    z = rng.normal(0, LATENT_STD, repeats)
    return (z**2 - ((scale - 1) * x + scale * z) ** 2) / (2 * LATENT_STD**2)


def one_layer_moments(shrinkage: float) -> tuple[float, float]:
    """Mean and variance of one row's gain for z_hat = t (z - x) in every dimension."""
    square = INPUT_STD**2 + INPUT_MEAN**2
    mean = LATENT_STD**2 - shrinkage**2 * (LATENT_STD**2 + square)
    # z^2 - t^2 (z - x)^2 = (1 - t^2) z^2 - t^2 x^2 + 2 t^2 x z
    variance = (
        (1 - shrinkage**2) ** 2 * 2 * LATENT_STD**4
        + shrinkage**4 * (2 * INPUT_STD**4 + 4 * INPUT_MEAN**2 * INPUT_STD**2)
        + 4 * shrinkage**4 * square * LATENT_STD**2
    )
    width = 2 * LATENT_STD**2
    return INPUT_DIM * mean / width, INPUT_DIM * variance / width**2


def one_layer_draws(rng, shrinkage: float, repeats: int) -> np.ndarray:
    """Gains of one fresh row, for each repeat."""
    x = rng.normal(INPUT_MEAN, INPUT_STD, (repeats, INPUT_DIM))
    z = rng.normal(0, LATENT_STD, (repeats, INPUT_DIM))
    gain = z**2 - (shrinkage * (z - x)) ** 2
    return gain.sum(axis=1) / (2 * LATENT_STD**2)


def draw_network(rng) -> tuple[np.ndarray, np.ndarray]:
    """Draw W^x and W^z of a one-layer network from the prior."""
    width = np.sqrt(WEIGHT_VARIANCE)
    shape = (HIDDEN, INPUT_DIM)
    return width * rng.normal(size=shape), width * rng.normal(size=shape)


def prior_difference(scale: float, network) -> float:
    """Log prior of the scaled weights minus that of the true ones; same for all N."""
    if network is None:
        before, after = WEIGHT**2, (WEIGHT / scale) ** 2
    else:
        on_x, on_z = network
        before = np.sum(on_x**2) + np.sum(on_z**2)
        after = np.sum((on_x + on_z) ** 2) + np.sum((on_z / scale) ** 2)
    return float((before - after) / (2 * WEIGHT_VARIANCE))


def tables(scale: Scale, store: Store) -> list[Table]:
    """Return tables of the share of draws in which the scaled parameters win."""
    out = []
    for cell in THEORY.cells(scale, store):
        found = store.load(cell)
        if found is None:
            continue
        wins, bounds = found.arrays["wins"], found.arrays["bounds"]
        symbol = "C" if cell["part"] == "one-node" else "t"
        rows = tuple(
            (
                f"{value:.3f}",
                *(f"{w:.3f} ({b:.3f})" for w, b in zip(won, bound, strict=True)),
            )
            for value, won, bound in zip(
                found.arrays["scales"], wins, bounds, strict=True
            )
        )
        low, high = found.row["lowest"], found.row["highest"]
        out.append(
            Table(
                f"theory_{cell['part']}",
                f"Probability that the scaled parameters win, {cell['part']} model",
                (symbol, *(f"N = {n}" for n in NUM_ROWS)),
                rows,
                f"Share of {cell['repeats']} draws (lower bound by Cantelli's "
                f"inequality). {symbol} must lie between {low:.3f} and {high:.3f}.",
            )
        )
    return out


THEORY = Theory()
