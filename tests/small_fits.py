"""Fits of a moment that several files share, and a short way to ask for others."""

import warnings
from dataclasses import replace
from functools import cache

import numpy as np

from ncai import BNNLVRegressor, BNNRegressor
from ncai.inference.registry import METHODS, open_method

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
