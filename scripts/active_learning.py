"""Active learning on noisy data: epistemic against random and total uncertainty.

    python scripts/active_learning.py                 # small: three seeds, short fits
    python scripts/active_learning.py --seeds 10 --rounds 12 --steps 4000

Writes curves.csv and curves.png into results/active_learning.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ncai import BNNLVRegressor, acquisition

STRATEGIES = {"random": "#4d4d4d", "total": "#0072b2", "epistemic": "#d55e00"}
FIRST, BATCH, POOL, TEST = 20, 10, 400, 400
FIELDS = ("seed", "strategy", "labels", "rmse_of_mean", "log_likelihood", "noisy_share")
# Rows of one batch are at least so far apart.
APART = 0.25
# Where the noise is wide: labels there teach little.
NOISY_FROM = 1.0


def true_mean(x):
    return np.sin(2 * x) + 0.3 * x


def noise_std(x):
    return np.where(x > NOISY_FROM, 1.5, 0.1)


def draw(rng, size):
    x = rng.uniform(-3, 3, size)
    return x[:, None], true_mean(x) + noise_std(x) * rng.standard_normal(size)


def choose(strategy, model, pool, rng):
    """The next rows to label: the best, but no two of them next to each other."""
    if strategy == "random":
        return rng.permutation(len(pool))[:BATCH]
    scores = acquisition(model, pool, kind=strategy, measure="entropy")
    # Rows side by side have the same score and teach the same.
    chosen: list[int] = []
    for row in np.argsort(-scores):
        if all(abs(pool[row, 0] - pool[other, 0]) > APART for other in chosen):
            chosen.append(int(row))
    return chosen[:BATCH]


def curve(strategy, seed, rounds, **settings):
    """Rows of the table: one for each number of labels."""
    rng = np.random.default_rng(seed)
    pool, answers = draw(rng, POOL)
    test_x, test_y = draw(rng, TEST)
    # The first labels are all from the left half: the right is not known at all.
    left = np.flatnonzero(pool[:, 0] < 0)[:FIRST]
    labelled = list(left)
    for _ in range(rounds + 1):
        model = BNNLVRegressor(
            inference="marginal",
            n_weight_draws=64,
            random_state=seed,
            **settings,
        ).fit(pool[labelled], answers[labelled])
        predicted = model.predict_dist(test_x)
        error = predicted.mean() - true_mean(test_x[:, 0])
        yield (
            seed,
            strategy,
            len(labelled),
            float(np.sqrt(np.mean(error**2))),
            float(predicted.log_prob(test_y).mean()),
            float(np.mean(pool[labelled, 0] > NOISY_FROM)),
        )
        rest = np.setdiff1d(np.arange(POOL), labelled)
        labelled += list(rest[choose(strategy, model, pool[rest], rng)])


def picture(rows, path):
    made = Figure(figsize=(10, 3.6), layout="constrained")
    FigureCanvasAgg(made)
    titles = (
        "error of the mean (RMSE)",
        "test log-likelihood",
        "share of labels in the noise",
    )
    for ax, column, title in zip(made.subplots(1, 3), (3, 4, 5), titles, strict=True):
        for strategy, colour in STRATEGIES.items():
            mine = [row for row in rows if row[1] == strategy]
            labels = sorted({row[2] for row in mine})
            values = np.array(
                [[row[column] for row in mine if row[2] == n] for n in labels]
            )
            mean = values.mean(1)
            error = values.std(1, ddof=1) / np.sqrt(values.shape[1])
            ax.plot(labels, mean, color=colour, label=strategy)
            ax.fill_between(labels, mean - error, mean + error, color=colour, alpha=0.2)
        ax.set(title=title, xlabel="labels")
        ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    made.savefig(path, dpi=80)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=800)
    # A mixture of restarts: what is epistemic is then less under-estimated.
    parser.add_argument("--keep", default="equal")
    parser.add_argument("--temperature", type=float, default=0.1)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/active_learning"))
    args = parser.parse_args()
    settings = {
        "keep": args.keep,
        "temperature": args.temperature,
        "n_restarts": args.restarts,
        "max_steps": args.steps,
    }
    rows = []
    for seed in range(args.seeds):
        for strategy in STRATEGIES:
            rows += curve(strategy, seed, args.rounds, **settings)
            print(rows[-1], flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "curves.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        writer.writerows(
            [*row[:3], *(round(number, 4) for number in row[3:])] for row in rows
        )
    picture(rows, args.out / "curves.png")


if __name__ == "__main__":
    main()
