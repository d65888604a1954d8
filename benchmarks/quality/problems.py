"""The data sets and splits of the benchmark, which are the same for every method.

Real sets: split s shuffles the n rows by `numpy.random.default_rng(s).permutation(n)`;
the first round(0.9 n) are for training, the others for the test, s = 0 to 19.
Synthetic sets: draw s is `make_dataset(name, seed=s)`, s = 0 to 4, with the paper's
sample sizes; the validation part may serve to choose.

Where y sits on a lattice, NAME_dequantised is the same set with the same splits after
u ~ uniform(-step/2, step/2) was added to y of all rows, one draw by `default_rng(2026)`
for all methods and splits: methods are trained and scored on that.

We choose among our own methods on NAME_inner, which contains no test row of NAME:
the training part of split s is itself split in the same way, by `default_rng(1000 + s)`
(a synthetic set is drawn anew, with seed 100 + s).
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from ncai.datasets import load_dataset, make_dataset

REAL = ("yacht", "energy", "wine_red", "boston", "airfoil", "abalone")
SYNTHETIC = ("heavy_tail", "depeweg", "bimodal", "goldberg", "yuan", "williams")
LATTICE_STEPS = {"wine_red": 1.0, "abalone": 1.0, "boston": 0.1}
DEQUANTISED = tuple(f"{name}_dequantised" for name in LATTICE_STEPS)
INNER = tuple(f"{name}_inner" for name in (*REAL, *SYNTHETIC))
SETS = (*REAL, *DEQUANTISED, *SYNTHETIC, *INNER)
SPLITS = {name: 20 if name in REAL else 5 for name in SETS}
_NOISE_SEED = 2026

Pair = tuple[Float[Array, "N D"], Float[Array, "N"]]


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows of one split in raw units; `oracle` is the truth's test log-likelihood."""

    train: Pair
    test: Pair
    valid: Pair | None = None
    oracle: float | None = None

    def save(self, path: Path) -> None:
        """Write the rows to a file that every worker can read."""
        parts = {"train": self.train, "test": self.test}
        if self.valid is not None:
            parts["valid"] = self.valid
        arrays = {f"{part}_inputs": rows[0] for part, rows in parts.items()}
        arrays |= {f"{part}_targets": rows[1] for part, rows in parts.items()}
        np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]


def source_of(name: str) -> str:
    """The set that another is made from."""
    return name.removesuffix("_inner").removesuffix("_dequantised")


def split_rows(number: int, split: int) -> tuple[Array, Array]:
    """Return the training rows and the test rows."""
    order = np.random.default_rng(split).permutation(number)
    cut = round(0.9 * number)
    return order[:cut], order[cut:]


def load_problem(name: str, split: int) -> Problem:
    """One split of a real set, or one draw of a synthetic one."""
    outer = name.removesuffix("_inner")
    if name != outer and outer in SYNTHETIC:
        return load_problem(outer, 100 + split)
    if name != outer:
        inputs, targets = load_problem(outer, split).train
        parts = split_rows(len(targets), 1000 + split)
        train, test = ((inputs[rows], targets[rows]) for rows in parts)
        return Problem(train, test)
    if name in SYNTHETIC:
        data = make_dataset(name, seed=split)
        train, valid, test = (
            (part.inputs, part.targets[:, 0])
            for part in (data.train, data.valid, data.test)
        )
        oracle = data.oracle.log_prob(data.test.inputs, data.test.targets).mean()
        return Problem(train, test, valid, float(oracle))
    source = source_of(name)
    data = load_dataset(source)
    targets = data.targets[:, 0]
    if name != source:
        half = LATTICE_STEPS[source] / 2
        noise = np.random.default_rng(_NOISE_SEED).uniform(-half, half, len(targets))
        targets = targets + noise
    train, test = (
        (data.inputs[rows], targets[rows]) for rows in split_rows(len(targets), split)
    )
    return Problem(train, test)


def chosen(asked: str, groups: dict[str, tuple[str, ...]], what: str) -> list[str]:
    """Parse comma-separated names; the name of a group stands for its members."""
    known = list(dict.fromkeys(name for group in groups.values() for name in group))
    names: list[str] = []
    for word in (word.strip() for word in asked.split(",")):
        if word in groups:
            names += groups[word]
        elif word in known:
            names.append(word)
        else:
            raise ValueError(
                f"{what} {word!r} is not known; choose among {[*groups, *known]}."
            )
    return list(dict.fromkeys(names))


SET_GROUPS = {
    "all": (*REAL, *DEQUANTISED, *SYNTHETIC),
    "real": REAL,
    "dequantised": DEQUANTISED,
    "synthetic": SYNTHETIC,
    "inner": INNER,
}
