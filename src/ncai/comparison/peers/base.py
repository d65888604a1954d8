"""What a peer must offer, and the rows that some of them hold out."""

from typing import Protocol

import numpy as np

from ncai.predictive.simple import Predictions


class Peer(Protocol):
    """A regressor that predicts distributions."""

    name: str
    package: str

    def fit(self, inputs: np.ndarray, targets: np.ndarray) -> "Peer":
        """Learn from rows of numbers."""
        ...

    def predict(self, inputs: np.ndarray) -> Predictions:
        """The distribution of each row."""
        ...


def held_out_rows(num_rows: int, seed: int, share: float = 0.1):
    """Row numbers to train on, and to end training early by."""
    order = np.random.default_rng(seed).permutation(num_rows)
    num_held = max(1, round(share * num_rows))
    return order[num_held:], order[:num_held]
