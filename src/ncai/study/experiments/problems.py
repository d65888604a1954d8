"""The splits that the benchmark fits and scores."""

import functools
from dataclasses import dataclass

import numpy as np

from ncai.datasets import load_dataset, make_dataset
from ncai.datasets.splits import Scaling, split
from ncai.datasets.synthetic import Part
from ncai.study.experiments.paper_settings import SYNTHETIC

NUM_ORACLE_POINTS = 20_000


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


@functools.cache
def expected_oracle(dataset: str) -> float:
    """Best possible test log-likelihood of a synthetic set, over many test points.

    In the units that the benchmark scores in. What published numbers, which come from
    other draws of the data, are held against.
    """
    drawn = make_dataset(dataset, seed=0, num_test=NUM_ORACLE_POINTS)
    value = float(np.mean(drawn.oracle.log_prob(drawn.test.inputs, drawn.test.targets)))
    spread = float(np.std(drawn.test.targets)) if drawn.standardise else 1.0
    return value + float(np.log(spread))
