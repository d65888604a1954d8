"""How large a study is: sizes only, never other code."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Sizes of every study.

    Args:
        name: what the command line calls it.
        max_steps: of training, the warm start apart.
        warm_start_steps: of the deterministic network of NCAI.
        restarts: of every fit.
        splits: of a data set, the one that selects hyper-parameters included.
        draws: of a synthetic data set where the paper repeats draws.
        datasets: None for all, or the only ones of the benchmark.
        ground_truth_sets: None for all, or the only ones of those with a known truth.
    """

    name: str
    max_steps: int
    warm_start_steps: int
    restarts: int
    splits: int
    draws: int
    datasets: tuple[str, ...] | None = None
    ground_truth_sets: tuple[str, ...] | None = None


SCALES = {
    "smoke": Scale("smoke", 60, 30, 2, 2, 1, ("goldberg",), ("bimodal",)),
    "small": Scale("small", 3_000, 1_000, 3, 3, 2),
    "paper": Scale("paper", 30_000, 5_000, 10, 6, 5),
}
