"""Where the gap of the default to the truth arises, and whether more rows close it.

    python -m benchmarks.references.where_is_the_gap
    python -m benchmarks.references.where_is_the_gap --sets heavy_tail,yuan --draws 3

The fits are those of `ncai bench quality` (draws 0 to 4, the paper's sample sizes), and
the same with ten times the training rows. All are scored on the same 5,000 fresh rows
of the truth, far more than the benchmark's, so that rare ones occur. Rows are grouped
by how far y lies in the tails: by the probability, under the truth at their x, of a y
with a lower density.

Writes build/gap.csv after each fit and prints the table, which docs/measured/quality.md
shows; the same command goes on where it was stopped.
"""

import argparse
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.quality.problems import SPLITS, SYNTHETIC, chosen
from ncai import BNNLVRegressor
from ncai.datasets import make_dataset
from ncai.runtime.atomic_write import replacing

FRESH_ROWS, FRESH_SEED = 5000, 10_000  # no seed of the benchmark
REPEATS = 200  # draws of the truth at each x, to rank its y
# Upper ends of the probability bands; the last is the middle of the density.
BANDS = {"outermost 1 %": 0.01, "next 4 %": 0.05, "next 15 %": 0.2, "inner 80 %": 1.0}
TIMES = (1, 10)  # the paper's number of training rows


def fresh_rows(name: str) -> pd.DataFrame:
    """Rows of the truth, their log density, and the band that each belongs to."""
    data = make_dataset(name, FRESH_SEED, num_test=FRESH_ROWS)
    log_density = data.oracle.log_prob(data.test.inputs, data.test.targets)
    same_input = np.repeat(data.test.inputs, REPEATS, axis=0)
    others = data.oracle.log_prob(same_input, data.oracle.sample(same_input, 1))
    less_likely = others.reshape(-1, REPEATS) <= log_density[:, None]
    ends = list(BANDS.values())
    band = np.searchsorted(ends, less_likely.mean(axis=1))
    return pd.DataFrame(
        {
            "input": data.test.inputs[:, 0],
            "target": data.test.targets[:, 0],
            "log_density": log_density,
            "band": np.array(list(BANDS))[np.minimum(band, len(ends) - 1)],
        }
    )


def gap(name: str, draw: int, times: int, fresh: pd.DataFrame) -> dict:
    """Return the gap of one fit to the truth in nats, and the part of each band."""
    size = len(make_dataset(name, draw).train.targets)
    data = make_dataset(name, draw, num_train=times * size)
    model = BNNLVRegressor(random_state=draw).fit(
        data.train.inputs,
        data.train.targets[:, 0],
        X_valid=data.valid.inputs,
        y_valid=data.valid.targets[:, 0],
    )
    predicted = model.predict_dist(fresh[["input"]].to_numpy())
    short = fresh["log_density"] - predicted.log_prob(fresh["target"].to_numpy())
    parts = short.groupby(fresh["band"]).sum() / len(fresh)
    found = {k: round(float(v), 5) for k, v in {"gap": short.mean(), **parts}.items()}
    return {"set": name, "draw": draw, "times": times, **found}


def table(rows: pd.DataFrame, command: str) -> str:
    """Markdown: a line for each set and number of rows."""
    columns = ["gap", *BANDS]
    lines = [
        "# Where the default's gap to the truth lies",
        "",
        f"Made by `{command}`. Nats that the default is short of the truth on "
        f"{FRESH_ROWS:,} fresh rows, and what rows make up of it by how far out y is "
        "under the truth: mean over draws of the training rows ± its standard error.",
        "",
        f"| set | training rows | draws | {' | '.join(columns)} |",
        "|---" * (3 + len(columns)) + "|",
    ]
    for name, times in rows[["set", "times"]].drop_duplicates().to_numpy():
        group = rows.loc[(rows["set"] == name) & (rows["times"] == times)]
        size = times * len(make_dataset(name, 0).train.targets)
        error = group[columns].std() / np.sqrt(len(group))
        cells = [f"{group[c].mean():.3f} ± {error[c]:.3f}" for c in columns]
        lines.append(f"| {name} | {size:,} | {len(group)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the default's gap lies.")
    parser.add_argument("--sets", default="heavy_tail", help="names, with commas")
    parser.add_argument("--draws", type=int, default=SPLITS["heavy_tail"])
    parser.add_argument("--out", type=Path, default=Path("build"))
    asked = parser.parse_args()
    try:
        names = chosen(asked.sets, {"synthetic": SYNTHETIC}, "set")
    except ValueError as error:
        parser.error(str(error))
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / "gap.csv"
    rows = pd.read_csv(file) if file.exists() else pd.DataFrame()
    done = {(row["set"], row["draw"], row["times"]) for row in rows.to_dict("records")}
    for name in names:
        fresh = None
        for times, draw in product(TIMES, range(asked.draws)):
            if (name, draw, times) in done:
                continue
            fresh = fresh_rows(name) if fresh is None else fresh
            row = gap(name, draw, times, fresh)
            print(row, flush=True)
            rows = pd.concat([rows, pd.DataFrame([row])], ignore_index=True)
            with replacing(file) as temporary:
                rows.to_csv(temporary, index=False)
    sets = ",".join(rows["set"].unique())
    command = f"python -m benchmarks.references.where_is_the_gap --sets {sets}"
    print(table(rows, command))


if __name__ == "__main__":
    main()
