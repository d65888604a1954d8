"""Small fitted models for the tests of pictures and report, each fitted once.

The functions are cached, so a test session fits each model and predicts its rows once.
"""

from functools import cache

import numpy as np
import pandas as pd

from ncai import MFVI, MLP, BNNLVRegressor, BNNRegressor, Marginal
from ncai.report import ReportInputs
from ncai.report.subject import Subject

_EFFORT = {"max_steps": 40, "n_restarts": 2, "random_state": 0}
_DRAWS = {"n_weight_draws": 16}


@cache
def one_input() -> tuple[BNNLVRegressor, pd.DataFrame, np.ndarray]:
    """A model with a latent variable and one input, its rows and targets."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, 60))
    y = x + (0.2 + 0.3 * np.abs(x)) * rng.standard_normal(60)
    frame = pd.DataFrame({"dose": x})
    network = MLP((20,), latent_hidden=(20,))
    model = BNNLVRegressor(inference=Marginal(**_DRAWS), network=network, **_EFFORT)
    return model.fit(frame, y), frame, y


@cache
def one_input_subject() -> Subject:
    """A report on the model of `one_input`, without held-out rows."""
    return Subject(ReportInputs(*one_input()))


@cache
def rival() -> BNNLVRegressor:
    """Another model of the same rows, with the same network."""
    _, frame, y = one_input()
    return BNNLVRegressor(inference=MFVI(**_DRAWS), **_EFFORT).fit(frame, y)


@cache
def plain() -> BNNRegressor:
    """A model of the same rows without a latent variable."""
    _, frame, y = one_input()
    return BNNRegressor(MFVI(**_DRAWS), **_EFFORT).fit(frame, y)


@cache
def three_inputs() -> tuple[BNNLVRegressor, pd.DataFrame, np.ndarray]:
    """Three inputs: a number, a switch, and one with a name that is code."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "<script>alert(1)</script>": rng.uniform(-2, 2, 50),
            "switch": rng.integers(0, 2, 50).astype(float),
            "idle": rng.standard_normal(50),
        }
    )
    y = frame.iloc[:, 0].to_numpy() + 0.2 * rng.standard_normal(50)
    return BNNLVRegressor(inference=MFVI(**_DRAWS), **_EFFORT).fit(frame, y), frame, y
