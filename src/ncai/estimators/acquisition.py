"""Active learning: which rows of a pool would teach the model most."""

import numpy as np
from numpy.typing import ArrayLike

KINDS = ("epistemic", "total", "aleatoric")


def acquisition(
    model, X: ArrayLike, kind: str = "epistemic", measure: str = "variance"
) -> np.ndarray:
    """A score for each row of a pool, [N]; label the rows with the largest first.

    Args:
        model: a fitted `BNNLVRegressor` or `BNNRegressor`.
        X: the rows of the pool.
        kind: "epistemic" is what more data would take away, so it asks where the model
            does not know; "total" also asks where the noise is wide, which labels do
            not reduce; "aleatoric" is the noise alone.
        measure: "variance": for one output in squared units of y; for several the sum
            of their parts, each as a share of the median total variance of that output
            over the pool, so that the units of the outputs do not matter. "entropy": in
            nats; its epistemic part is the information that y has about W (slower).

    Example:
        >>> import numpy as np
        >>> from ncai import BNNLVRegressor, acquisition
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(-1, 1, size=(40, 1))
        >>> model = BNNLVRegressor(max_steps=50, n_restarts=1, random_state=0)
        >>> scores = acquisition(model.fit(x, x[:, 0]), [[0.0], [5.0]])
        >>> scores.shape
        (2,)
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} must be one of {list(KINDS)}.")
    parts = model.decompose_uncertainty(X, measure)
    scores = getattr(parts, kind)
    if scores.ndim == 1:
        return scores
    usual = np.median(parts.total, axis=0)
    # A rounded output may have no spread at all in most rows.
    return (scores / np.where(usual > 0, usual, 1.0)).sum(axis=1)
