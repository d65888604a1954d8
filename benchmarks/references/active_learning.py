"""Active learning on noisy data: epistemic against random and total uncertainty.

    python -m benchmarks.references.active_learning --seeds 10
    python -m benchmarks.references.active_learning --seeds 3 --task clusters

Two tasks. "clusters": the set "depeweg", about 7 sin(x) + 3 |cos(x / 2)| z; rows of the
pool lie in three clusters, those of the test anywhere between the ends, so random
labels seldom fall between the clusters. "half_noisy": a curve whose right third is very
noisy, under an even pool; the first labels are all from the left half.

Writes curves.csv into results/active_learning after each curve and curves.png at the
end, and prints a table; the same command goes on where it was stopped.
"""

import argparse
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ncai import BNNLVRegressor, Marginal, acquisition
from ncai.datasets import make_dataset
from ncai.runtime.atomic_write import replacing

STRATEGIES = {"random": "#4d4d4d", "total": "#0072b2", "epistemic": "#d55e00"}
FIRST, BATCH, POOL, TEST = 20, 10, 400, 400
APART = 0.04  # of the range of x: rows of one batch are at least so far apart
# Short fits: some tens of labels need no more. The default in all else.
METHOD, MAX_STEPS = Marginal(n_weight_draws=256), 1000


class Task(NamedTuple):
    """Rows to label and rows to test, and which are labelled at first."""

    pool: np.ndarray
    answers: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    true_mean: np.ndarray
    first: np.ndarray


def clusters(rng) -> Task:
    seed = int(rng.integers(2**31))
    data = make_dataset("depeweg", seed, num_train=POOL)
    test_x = rng.uniform(-5.5, 5.5, (TEST, 1))
    test_y = data.oracle.sample(test_x, seed)[:, 0]
    mean = data.oracle.mean(test_x)[:, 0]
    first = rng.permutation(POOL)[:FIRST]
    return Task(
        data.train.inputs, data.train.targets[:, 0], test_x, test_y, mean, first
    )


def half_noisy(rng) -> Task:
    def mean(x):
        return np.sin(2 * x) + 0.3 * x

    def draw(size):
        x = rng.uniform(-3, 3, size)
        noise = np.where(x > 1, 1.5, 0.1)
        return x[:, None], mean(x) + noise * rng.standard_normal(size)

    pool, answers = draw(POOL)
    test_x, test_y = draw(TEST)
    first = np.flatnonzero(pool[:, 0] < 0)[:FIRST]
    return Task(pool, answers, test_x, test_y, mean(test_x[:, 0]), first)


TASKS: dict[str, Callable[..., Task]] = {
    "clusters": clusters,
    "half_noisy": half_noisy,
}


def choose(strategy, model, pool, rng):
    """The next rows to label: the best, but no two of them next to each other."""
    if strategy == "random":
        return rng.permutation(len(pool))[:BATCH]
    scores = acquisition(model, pool, kind=strategy, measure="entropy")
    # Rows side by side have the same score and teach the same.
    apart = APART * np.ptp(pool)
    chosen: list[int] = []
    for row in np.argsort(-scores):
        if all(abs(pool[row, 0] - pool[other, 0]) > apart for other in chosen):
            chosen.append(int(row))
    return chosen[:BATCH]


def curve(name, strategy, seed, rounds):
    """Rows of the table: one for each number of labels."""
    rng = np.random.default_rng(seed)
    task = TASKS[name](rng)
    labelled = list(task.first)
    for left in reversed(range(rounds + 1)):
        model = BNNLVRegressor(inference=METHOD, max_steps=MAX_STEPS, random_state=seed)
        model.fit(task.pool[labelled], task.answers[labelled])
        predicted = model.predict_dist(task.test_x)
        error = predicted.mean() - task.true_mean
        yield {
            "task": name,
            "seed": seed,
            "strategy": strategy,
            "labels": len(labelled),
            "rmse_of_mean": round(float(np.sqrt(np.mean(error**2))), 4),
            "log_likelihood": round(float(predicted.log_prob(task.test_y).mean()), 4),
        }
        if left:
            rest = np.setdiff1d(np.arange(POOL), labelled)
            labelled += list(rest[choose(strategy, model, task.pool[rest], rng)])


def wins(rows: pd.DataFrame) -> str:
    """In how many seeds each rule beats random labels."""
    last = rows.loc[rows["labels"] == rows["labels"].max()]
    lines = [
        "| task | rule | log-likelihood, last | over all rounds "
        "| RMSE of the mean, last | beats random: last | over all rounds |",
        "|---|---|---|---|---|---|---|",
    ]
    added = rows.loc[rows["labels"] > FIRST]  # the first labels are the same for all
    tables = {
        "last": last.pivot_table("log_likelihood", ["task", "seed"], "strategy"),
        "all": added.pivot_table("log_likelihood", ["task", "seed"], "strategy"),
        "rmse": last.pivot_table("rmse_of_mean", ["task", "seed"], "strategy"),
    }
    for task in rows["task"].unique():
        of_task = {name: table.loc[task] for name, table in tables.items()}
        for strategy in STRATEGIES:
            if of_task["last"].get(strategy, pd.Series()).dropna().empty:
                continue
            cells = []
            for table in of_task.values():
                values = table[strategy].dropna()
                error = values.std() / np.sqrt(len(values))
                cells.append(f"{values.mean():.3f} ± {error:.3f}")
            for name in ("last", "all"):
                table = of_task[name][list({"random", strategy})].dropna()
                better = int((table[strategy] > table["random"]).sum())
                known = strategy != "random"
                cells.append(f"{better} of {len(table)} seeds" if known else "")
            lines.append(f"| {task} | {strategy} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def picture(rows: pd.DataFrame, path):
    tasks = list(rows["task"].unique())
    made = Figure(figsize=(9, 3.4 * len(tasks)), layout="constrained")
    FigureCanvasAgg(made)
    titles = {
        "log_likelihood": "test log-likelihood",
        "rmse_of_mean": "error of the mean (RMSE)",
    }
    axes = made.subplots(len(tasks), 2, squeeze=False)
    for task, line in zip(tasks, axes, strict=True):
        for ax, (column, title) in zip(line, titles.items(), strict=True):
            for strategy, colour in STRATEGIES.items():
                mine = rows.loc[
                    (rows["task"] == task)
                    & (rows["strategy"] == strategy)
                    & (rows["labels"] > FIRST)
                ]
                found = mine.groupby("labels")[column].agg(["mean", "sem"]).fillna(0)
                low, high = found["mean"] - found["sem"], found["mean"] + found["sem"]
                ax.plot(found.index, found["mean"], color=colour, label=strategy)
                ax.fill_between(found.index, low, high, color=colour, alpha=0.2)
            ax.set(title=f"{task}: {title}", xlabel="labels")
            ax.spines[["top", "right"]].set_visible(False)
    axes[0, 0].legend(frameon=False)
    made.savefig(path, dpi=80)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--task", choices=[*TASKS, "all"], default="all")
    parser.add_argument("--out", type=Path, default=Path("results/active_learning"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    table = args.out / "curves.csv"
    rows = pd.read_csv(table) if table.exists() else pd.DataFrame()
    if "task" not in rows:  # there is none, or it is of an older form
        rows = pd.DataFrame(columns=["task", "seed", "strategy"])
    done = set(zip(rows["task"], rows["seed"], rows["strategy"], strict=True))
    names = TASKS if args.task == "all" else [args.task]
    # What is compared first of all comes first, should the run be stopped.
    for strategies in (("random", "epistemic"), ("total",)):
        for name, seed, strategy in product(names, range(args.seeds), strategies):
            if (name, seed, strategy) in done:
                continue
            more = pd.DataFrame(curve(name, strategy, seed, args.rounds))
            rows = pd.concat([rows, more], ignore_index=True)
            rows = rows.astype({"seed": int, "labels": int})
            with replacing(table) as temporary:
                rows.to_csv(temporary, index=False)
            print(more.tail(1).to_string(index=False, header=False), flush=True)
    picture(rows, args.out / "curves.png")
    print(wins(rows))


if __name__ == "__main__":
    main()
