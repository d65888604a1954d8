"""Fits of a moment that several files share, and a short way to ask for others."""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

from ncai import MFVI, MLP, BNNLVRegressor, BNNRegressor, Marginal
from ncai.inference.registry import METHODS, open_method
from ncai.report import ReportInputs
from ncai.report.subject import Subject

# Equal sizes wherever the size does not matter: compiled programs are then shared.
TINY = {
    "hidden": (8,),
    "max_steps": 300,
    "n_restarts": 2,
    "n_chains": 2,
    "n_warmup": 25,
    "n_draws": 25,
    "n_weight_draws": 32,
    "n_latent_draws": 8,
    "random_state": 0,
}
NUM_WEIGHTS = 33  # of 1 input, 1 latent, 8 hidden nodes, 1 output


def data(num_rows=40, seed=0):
    """Rows whose noise grows with x."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(num_rows, 1))
    return x, 10 + 3 * x[:, 0] + (1 + x[:, 0]) * rng.normal(size=num_rows)


def regressor(inference=None, *, cls=BNNLVRegressor, **settings):
    """An estimator from settings of its own, of its method and of its network alike.

    One dict of settings may serve several methods: a setting that this method does not
    have, but another does, is left out.
    """
    method = open_method(inference, settings.get("preset", "default"))
    own = cls._get_param_names()
    of_network = {
        name: settings.pop(name)
        for name in ("latent_layer", "latent_hidden")
        if name in settings
    }
    given = {name: value for name, value in settings.items() if name in own}
    of_method = {name: value for name, value in settings.items() if name not in own}
    known = {name for other in METHODS.values() for name in other().get_params()}
    assert of_method.keys() <= known, of_method.keys() - known
    if of_network:
        network = method.presets[given.get("preset", "default")].network
        hidden = given.pop("hidden", network.hidden)
        given["network"] = replace(network, hidden=hidden, **of_network)
    has = method.get_params()
    changed = {name: value for name, value in of_method.items() if name in has}
    return cls(inference=method.set_params(**changed), **given)


def tiny(inference="mfvi", **changes):
    """An estimator of the shared sizes."""
    layer = {}
    if inference == "marginal" and "network" not in changes:
        layer = {"latent_hidden": (20,)}  # one network to compile in place of two
    return regressor(inference, **(TINY | layer | changes))


def tiny_plain(**changes):
    """The same without a latent input."""
    return regressor("mfvi", cls=BNNRegressor, **(TINY | changes))


def fit(model, x, y, **arguments):
    """Fit; that chains this short have not mixed is known."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*NOT mixed.*")
        return model.fit(x, y, **arguments)


@cache
def fitted(inference="mfvi", num_rows=40, **changes):
    """A fit that several tests look at, and none may change."""
    return fit(tiny(inference, **changes), *data(num_rows))


@cache
def fitted_plain():
    """The same without a latent input."""
    return tiny_plain().fit(*data())


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
