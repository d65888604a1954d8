"""Active learning: score the rows of a pool by how much a label would help."""

import numpy as np
from numpy.typing import ArrayLike

KINDS = ("epistemic", "total", "aleatoric")


def acquisition(
    model, X: ArrayLike, kind: str = "epistemic", measure: str = "crps"
) -> np.ndarray:
    """Score each row of a pool, [N]; label the rows with the largest scores first.

    Args:
        model: a fitted `BNNLVRegressor` or `BNNRegressor`.
        X: the rows of the pool.
        kind: "epistemic" is the uncertainty that more data would remove, so it selects
            rows where data are missing. "total" also selects rows with wide noise,
            which labels do not reduce. "aleatoric" is the noise alone.
        measure: "crps" (in units of y), "variance" (in squared units of y) or "entropy"
            (in nats; slower). With several outputs, "crps" and "variance" give the sum
            over outputs, where each output is divided by the median of its total over
            the pool, so that units do not matter. The epistemic part of "entropy" is
            the information that y has about W.

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
    # A rounded output may have zero variance in most rows.
    return (scores / np.where(usual > 0, usual, 1.0)).sum(axis=1)
