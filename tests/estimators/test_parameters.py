"""Arguments of the estimators and settings of the methods, as scikit-learn has them."""

import inspect
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from ncai import (
    HMC,
    IWAE,
    MAP,
    MFVI,
    MLP,
    NCAI,
    NCAI0,
    BNNLVRegressor,
    BNNRegressor,
    HMCMarginal,
    Marginal,
)
from ncai.estimators._parameters import METHOD_SETTINGS, NETWORK_SETTINGS, REMOVED
from ncai.inference.registry import METHODS

CLASSES = {
    cls.__name__: cls
    for cls in (MAP, MFVI, NCAI0, NCAI, Marginal, IWAE, HMC, HMCMarginal)
}


@pytest.mark.parametrize("cls", [BNNLVRegressor, BNNRegressor])
def test_a_constructor_has_few_arguments(cls):
    assert len(inspect.signature(cls).parameters) <= 18


def test_the_classes_are_those_of_the_registry():
    assert list(CLASSES.values()) == list(METHODS.values())


# ----- Settings of the method through the estimator -----------------------------------


class Stub(BNNLVRegressor):
    """Learns nothing; its score is best where hz_weight is 0.5."""

    def fit(self, X, y):
        self.posterior_ = None
        return self

    def score(self, X, y):
        return -abs(self.resolved_settings().method.hz_weight - 0.5)


@pytest.mark.parametrize("inference", ["ncai", NCAI(input_tolerance=0.3)])
def test_settings_of_a_method_can_be_searched(inference):
    grid = {"inference__hz_weight": [0.0, 0.5, 2.0]}
    search = GridSearchCV(Stub(inference=inference), grid, cv=2)
    search.fit(np.zeros((8, 1)), np.zeros(8))
    assert search.best_params_ == {"inference__hz_weight": 0.5}
    found = search.best_estimator_.inference
    assert found.hz_weight == 0.5
    usual = inference if isinstance(inference, NCAI) else NCAI()
    assert found == usual.set_params(hz_weight=0.5)
    if isinstance(inference, NCAI):
        assert inference.hz_weight == 1.0  # what the user gave is left alone


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (BNNLVRegressor(), Marginal(n_weight_draws=9)),
        (BNNLVRegressor(preset="paper"), NCAI(n_weight_draws=9)),
        (BNNLVRegressor(inference="iwae"), IWAE(n_weight_draws=9)),
        (
            BNNLVRegressor(inference=MAP(plateau=True)),
            MAP(plateau=True, n_weight_draws=9),
        ),
        (BNNRegressor(), MFVI(n_weight_draws=9)),
    ],
)
def test_a_method_by_name_becomes_an_object_when_a_setting_is_given(model, expected):
    changed = clone(model).set_params(inference__n_weight_draws=9, n_restarts=3)
    assert changed.inference == expected
    assert changed.n_restarts == 3
    # In one call: the method first, then its setting.
    both = clone(model).set_params(inference="ncai", inference__hz_weight=0.1)
    assert both.inference == NCAI(hz_weight=0.1)


def test_a_setting_that_the_method_has_not_is_refused():
    with pytest.raises(
        ValueError, match=r"'hz_weight' is no setting of MFVI.*learning"
    ):
        BNNLVRegressor(inference="mfvi").set_params(inference__hz_weight=1.0)
    with pytest.raises(TypeError, match="hz_weight"):
        MFVI(hz_weight=1.0)


def test_a_copy_has_an_equal_method():
    model = BNNLVRegressor(inference=NCAI(hz_weight=0.2), hidden=(3,))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.get_params()["inference__hz_weight"] == 0.2
    with pytest.raises(FrozenInstanceError):
        copy.inference.hz_weight = 3


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("inference", [None, *METHODS])
def test_repr_shows_the_values_of_the_preset(inference, preset):
    model = BNNLVRegressor(inference=inference, preset=preset)
    shown = repr(model)
    settings = model.resolved_settings()
    for name in ("n_restarts", "max_steps", "keep", "rounding", "target_transform"):
        assert f"{name}={getattr(settings, name)!r}" in shown
    assert f"learning_rate={settings.method.learning_rate}" in shown
    assert f"network={settings.network!r}" in shown
    left_open = shown.count("=None")
    assert left_open == sum(f"{name}=None" in shown for name in MAY_BE_NONE)


MAY_BE_NONE = ("time_limit", "random_state")  # None is their value


def test_repr_of_what_cannot_be_shows_it_as_given():
    assert "keep='all'" in repr(BNNLVRegressor(keep="all"))


# ----- Arguments of version 0.1 -------------------------------------------------------

OLD = """weight_variance latent_variance variance_prior variance_form noise_prior
noise_starts hz_weight offdiagonal_weight dependence_weight hz_tolerance
input_tolerance target_tolerance penalise ramp_fraction n_mc_samples learning_rate
schedule plateau validation_fraction start hold_means n_chains n_warmup n_draws
n_weight_draws n_latent_draws temperature n_folds tune_noise latent_layer latent_hidden
weight_groups posterior_rank n_snapshots refit multipliers hz_slack""".split()


@pytest.mark.parametrize("name", OLD)
@pytest.mark.parametrize("cls", [BNNLVRegressor, BNNRegressor])
def test_an_old_argument_names_its_new_place(name, cls):
    for use in (lambda: cls(**{name: 0.25}), lambda: cls().set_params(**{name: 0.25})):
        with pytest.raises(TypeError) as error:
            use()
        message = str(error.value)
        assert name in message
        assert "0.25" in message
        assert message.count("\n") == 0
        assert message.endswith(".")
        if name in METHOD_SETTINGS:
            for owner in METHOD_SETTINGS[name]:
                assert owner in message
                assert name in CLASSES[owner]().get_params()
        elif name in NETWORK_SETTINGS:
            assert f"MLP({name}=0.25)" in message
            assert name in {field.name for field in fields(MLP)}
        elif name == "tune_noise":
            assert "Marginal(recalibrate_noise=0.25)" in message
        else:
            assert name in REMOVED
            assert "removed" in message


def test_an_argument_that_never_was_is_refused_as_python_does():
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        BNNLVRegressor(colour="red")


# ----- Each method checks its own fields ----------------------------------------------

BAD = {
    "weight_variance": (0, "map", (1.0, 2.0), True),
    "latent_variance": (-1.0, "variational"),
    "variance_prior": ((3.0,), [[1], [2, 3]], (0, 1)),
    "variance_form": ("new", 3),
    "noise_prior": ((0, 1), 2.0),
    "noise_starts": ((), (0.1, -1), "many"),
    "learning_rate": (-1, 0, float("nan"), "fast"),
    "n_weight_draws": (0, 1.5, "x", True),
    "n_latent_draws": (0, float("inf")),
    "schedule": ("linear", 1),
    "plateau": (2, "yes"),
    "rate_drops": (-1, 0.5),
    "validation_fraction": (1.5, 1, -0.1, "half"),
    "start": ("nowhere",),
    "hold_means": ("x", 3),
    "n_mc_samples": (0, 2.5),
    "hz_weight": (-1, "big"),
    "offdiagonal_weight": (-0.1,),
    "dependence_weight": ("big", float("nan")),
    "hz_tolerance": (0, []),
    "input_tolerance": (-1, [0.1, 0]),
    "target_tolerance": (-1, "wide"),
    "penalise": ("z", None),
    "ramp_fraction": (2, -0.1),
    "temperature": (0, [1.0, -1], ()),
    "n_folds": (-1, 1, 2.5),
    "recalibrate_noise": (2, "yes"),
    "n_latent_samples": (0, 1.5),
    "n_chains": (0, 1.5),
    "n_warmup": (-1,),
    "n_draws": (0, 3),
    "start_steps": (0, -5),
    "max_doublings": (0, 1.5),
    "target_acceptance": (1, -0.1, "high"),
}


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
def test_a_method_refuses_bad_values_of_each_of_its_fields(cls):
    for field in fields(cls):
        for value in BAD[field.name]:  # each has some
            for make in (
                lambda **given: cls(**given),
                lambda **given: cls().set_params(**given),
            ):
                with pytest.raises(ValueError, match=field.name) as error:
                    make(**{field.name: value})
                message = str(error.value)
                assert f"{field.name}={value!r}" in message
                assert message.endswith(".")
                assert "\n" not in message
                assert "[]." not in message  # a choice among nothing helps nobody


def test_start_is_one_that_the_method_knows():
    with pytest.raises(ValueError, match=r"start='map'.*'random', 'ncai'\]"):
        Marginal(start="map")
    assert MFVI(start="map").start == "map"
