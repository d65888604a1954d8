"""Arguments of the estimators and settings of the methods, and what is refused."""

import inspect
from dataclasses import FrozenInstanceError, dataclass, fields

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

from helpers import data, fitted, tiny, tiny_plain
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
from ncai.training import step as restart_groups

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
@pytest.mark.usefixtures("any_types")
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


X, Y = data()


def with_value(array, value):
    changed = array.copy()
    changed.flat[3] = value
    return changed


@pytest.fixture
def no_training(monkeypatch):
    """Whatever is refused is refused before the first step."""

    def refuse(*arguments):
        raise AssertionError("training began")

    monkeypatch.setattr(restart_groups, "run_chunk", refuse)


def assert_helpful(error, *parts):
    message = str(error.value)
    for part in parts:
        assert part in message
    assert "\n" not in message
    assert message.endswith(".")


# Arguments, and parts of the sentence: the argument, what came, what would be right.
ARGUMENTS = [
    ({"latent_dim": -1}, ["latent_dim=-1", "whole number of at least 0"]),
    ({"latent_dim": 1.5}, ["latent_dim=1.5", "whole number"]),
    ({"inference": "vi"}, ["inference='vi'", "'ncai'", "'hmc_marginal'"]),
    ({"inference": MFVI}, ["inference=MFVI is a class", "MFVI()"]),
    ({"inference": 3}, ["inference=3", "'ncai'"]),
    ({"preset": "best"}, ["preset='best'", "'paper'", "'default'"]),
    ({"preset": ["paper"]}, ["preset=['paper']", "'paper'"]),
    ({"activation": ["relu"]}, ["activation=['relu']", "'leaky_relu'"]),
    ({"hidden": True}, ["hidden=True", "whole numbers"]),
    ({"start": {"weights": np.array(["a"])}}, ["start['weights']", "of numbers"]),
    ({"keep": "all"}, ["keep='all'", "'weighted'"]),
    ({"activation": "step"}, ["activation='step'", "'leaky_relu'"]),
    ({"hidden": (0,)}, ["hidden=(0,)", "at least 1"]),
    ({"hidden": (8.5,)}, ["hidden=(8.5,)", "whole numbers"]),
    ({"hidden": "wide"}, ["hidden='wide'", "whole numbers"]),
    ({"hidden": [[8], [8]]}, ["hidden=[[8], [8]]", "whole numbers"]),
    ({"hidden": "8"}, ["hidden='8'", "whole numbers"]),
    ({"rounding": "up"}, ["rounding='up'", "'auto'"]),
    ({"network": "mlp"}, ["network='mlp'", "init(", "apply("]),
    ({"network": MLP}, ["network=MLP is a class", "give an instance", "MLP()"]),
    ({"progress": "yes"}, ["progress='yes'", "True or False"]),
    ({"standardize": None}, ["standardize=None", "True or False"]),
    ({"random_state": "a"}, ["random_state='a'", "whole number", "or None"]),
    ({"random_state": -1}, ["random_state=-1", "from 0 to"]),
    ({"n_restarts": 0}, ["n_restarts=0", "at least 1"]),
    ({"n_restarts": True}, ["n_restarts=True", "whole number"]),
    ({"max_steps": 0}, ["max_steps=0", "at least 1"]),
    ({"max_steps": float("inf")}, ["max_steps=inf", "whole number"]),
    ({"max_steps": "many"}, ["max_steps='many'", "whole number"]),
    ({"time_limit": -1}, ["time_limit=-1", "positive"]),
    ({"noise_variance": 0}, ["noise_variance=0", "positive", "'variational'"]),
    ({"noise_variance": -0.1}, ["noise_variance=-0.1", "positive"]),
    ({"noise_variance": "abc"}, ["noise_variance='abc'", "positive", "'map'"]),
    ({"noise_variance": [0.1, -1]}, ["noise_variance=[0.1, -1]", "positive"]),
    ({"noise_variance": [0.1, 0.2]}, ["noise_variance has 2 numbers", "must have 1"]),
    ({"noise_variance": []}, ["noise_variance=[]", "positive"]),
    (
        {"inference": "hmc_marginal", "latent_dim": 3},
        ["inference='hmc_marginal'", "not 3", "use 'hmc'"],
    ),
    (
        {"inference": "marginal", "latent_dim": 3},
        ["inference='marginal'", "not 3", "use 'iwae'"],
    ),
    (
        {"inference": "marginal", "noise_variance": "empirical"},
        ["noise_variance='empirical'", "'marginal'", "'variational'"],
    ),
    ({"start": 3}, ["start=3", "a dict with 'weights' and 'latents'"]),
    ({"start": {"latents": 0}}, ["start={'latents': 0}", "'weights'"]),
    (
        {"start": {"weights": np.zeros(5)}},
        ["start['weights'] has shape (5,)", "must be (33,)"],
    ),
    (
        {"start": {"weights": np.array(1.0)}},
        ["start['weights'] has shape ()", "must be (33,)"],
    ),
    ({"start": {"weights": [1, 2]}}, ["start['weights'] must be a vector"]),
    (
        {"start": {"weights": np.zeros(33), "latents": np.zeros((39, 1))}},
        ["start['latents'] has shape (39, 1)", "must be (40, 1)"],
    ),
    (
        {"start": {"weights": np.zeros((2, 33)), "latents": np.zeros((3, 40, 1))}},
        ["start['latents'] has shape (3, 40, 1)", "must be (40, 1)"],
    ),
    ({"start": {"weights": np.full(33, np.nan)}}, ["start", "NaN", "finite"]),
]


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(("arguments", "parts"), ARGUMENTS, ids=lambda v: str(v)[:60])
@pytest.mark.usefixtures("any_types")
def test_arguments_that_cannot_be(arguments, parts):
    if "start" in arguments:
        model = tiny(**arguments)
    else:
        given = {"hidden": (8,), "inference": "mfvi", "random_state": 0}
        given = {} if "network" in arguments else given
        model = BNNLVRegressor(**(given | arguments))
    with pytest.raises(ValueError) as error:  # noqa: PT011
        model.fit(X, Y)
    assert_helpful(error, *parts)
    with pytest.raises(NotFittedError):
        model.predict(X)


# Data are checked by scikit-learn; the words are its own.
ROWS = [
    (with_value(X, np.nan), Y, "X contains NaN"),
    (with_value(X, np.inf), Y, "X contains infinity"),
    (X, with_value(Y, np.nan), "y contains NaN"),
    (X, with_value(Y, -np.inf), "y contains infinity"),
    (X[:, 0], Y, "Expected 2D array, got 1D array"),
    (X[:, :, None], Y, "dim 3"),
    (X[:39], Y, "inconsistent numbers of samples"),
    (np.full((40, 1), "a"), Y, "X contains the text 'a' in column 0"),
    (X, np.full(40, "a"), "y contains the text 'a'"),
    (X, np.full(40, "a", object), "y contains the text 'a'"),
    (X[:1], Y[:1], "minimum of 2 is required"),
    (X[:0], Y[:0], "minimum of 2 is required"),
    (X[:, :0], Y, "0 feature"),
    (X + 1j, Y, "Complex data not supported"),
    (X.astype("datetime64[s]"), Y, "X contains dates or durations"),
    (X, Y.astype("timedelta64[s]"), "y contains dates or durations"),
    (pd.DataFrame({"a": X[:, 0], "b": pd.Timestamp(0)}), Y, "durations in column 'b'"),
    (X, None, "requires y to be passed"),
    (X, np.stack([Y, Y], 1)[:, :, None], "dim 3"),
]


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(("x", "y", "part"), ROWS, ids=[row[2] for row in ROWS])
@pytest.mark.parametrize("cls", [BNNLVRegressor, BNNRegressor])
def test_rows_that_cannot_be(cls, x, y, part):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        cls().fit(x, y)
    assert part in str(error.value)
    assert "\n" not in str(error.value)


NOT_FINITE = [
    (X, with_value(Y.astype(object), None), "Input y contains NaN in 1 row, first in"),
    (X, with_value(Y.astype(object), np.inf), "Input y contains infinity in 1 row"),
    (X, with_value(Y, np.nan), "Input y contains NaN in 1 row, first in row 3 (the "),
    (
        np.c_[X, with_value(X, np.inf)],
        Y,
        "infinity in 1 row, first in row 3 of column 1 ",
    ),
    (
        pd.DataFrame({"a": X[:, 0], "b": with_value(X[:, 0], np.nan)}).replace(
            X[7], np.nan
        ),
        Y,
        "X contains NaN in 2 rows, first in row 3 of column 'b' (the first row is 0); ",
    ),
    (np.where(X == X[2], None, X), Y, "Input X contains NaN in 1 row, first in row 2 "),
]


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(("x", "y", "part"), NOT_FINITE)
def test_values_that_are_not_finite_are_found(x, y, part):
    with pytest.raises(ValueError, match="remove their rows") as error:
        BNNLVRegressor().fit(x, y)
    assert_helpful(error, part)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"X_valid": X}, "X_valid and y_valid together"),
        ({"y_valid": Y}, "X_valid and y_valid together"),
        ({"X_valid": X, "y_valid": Y[:5]}, "inconsistent numbers of samples"),
        ({"X_valid": np.c_[X, X], "y_valid": Y}, "2 features"),
        (
            {"X_valid": with_value(X, np.nan), "y_valid": Y},
            "Input X_valid contains NaN",
        ),
        ({"X_valid": X, "y_valid": np.c_[Y, Y]}, "y_valid has 2 outputs; y has 1."),
        ({"sample_weight": -np.ones(40)}, "`sample_weight`: the smallest is -1; none"),
        ({"sample_weight": ["a"] * 40}, "sample_weight contains a value that"),
        ({"sample_weight": np.zeros(40)}, "zero"),
        ({"sample_weight": np.eye(40)[0]}, "sample_weight is above zero for 1 row;"),
    ],
)
def test_other_rows_that_cannot_be(arguments, part):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        BNNLVRegressor().fit(X, Y, **arguments)
    assert part in str(error.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.predict(X),
        lambda m: m.predict_dist(X),
        lambda m: m.predict_interval(X),
        lambda m: m.predict_quantiles(X),
        lambda m: m.sample_y(X),
        lambda m: m.decompose_uncertainty(X),
        lambda m: m.log_score(X, Y),
        lambda m: m.score(X, Y),
        lambda m: m.latent_posterior(X, Y),
        lambda m: m.diagnose(),
        lambda m: m.save("nowhere"),
    ],
)
@pytest.mark.parametrize("cls", [BNNLVRegressor, BNNRegressor])
def test_before_a_fit(cls, call):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        call(cls())


@pytest.fixture
def model():
    return fitted()


PREDICTIONS = [
    (lambda m: m.predict(np.c_[X, X]), ["2 features", "expecting 1 features"]),
    (lambda m: m.predict(X[:, 0]), ["Expected 2D array"]),
    (lambda m: m.predict(X[:0]), ["0 sample"]),
    (lambda m: m.predict(with_value(X, np.nan)), ["NaN"]),
    (lambda m: m.predict_quantiles(X, 1.5), ["1.5", "strictly between 0 and 1"]),
    (lambda m: m.predict_quantiles(X, [0.5, 0]), ["between 0 and 1"]),
    (lambda m: m.predict_interval(X, level=95), ["level=95", "between 0 and 1"]),
    (lambda m: m.predict_dist(X).quantile(1e-40), ["q=1e-40", "at least 1e-30"]),
    (
        lambda m: m.predict_dist(X).decompose(
            "entropy", method="nearest_neighbour", k=1.5
        ),
        ["k=1.5", "whole number"],
    ),
    (lambda m: m.predict_dist(X).sample(1, seed=2**40), ["seed=", "4294967295"]),
    (lambda m: m.sample_y(X, 0), ["n=0", "at least 1"]),
    (lambda m: m.sample_y(X, 1, "a"), ["random_state='a'", "whole number"]),
    (lambda m: m.sample_y(X, 1, -1), ["random_state=-1", "from 0 to"]),
    (lambda m: m.latent_posterior(X, None), ["requires y"]),
    (lambda m: m.decompose_uncertainty(X, "bits"), ["measure='bits'", "'entropy'"]),
    (lambda m: m.log_score(X, Y[:5]), ["y has shape [5]", "[40]"]),
    (lambda m: m.log_score(X, with_value(Y, np.nan)), ["y holds NaN"]),
    (lambda m: m.latent_posterior(X, np.c_[Y, Y]), ["y has 2 outputs", "fitted to 1"]),
    (lambda m: m.latent_posterior(X, Y[:5]), ["inconsistent numbers of samples"]),
]


@pytest.mark.parametrize(("call", "parts"), PREDICTIONS)
@pytest.mark.usefixtures("any_types")
def test_predictions_that_cannot_be(model, call, parts):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        call(model)
    for part in parts:
        assert part in str(error.value)


# ----- What looks bad, and is served --------------------------------------------------


CONSTANT = {
    "a constant column": (np.full_like(X, 0.1), Y),
    "a constant column of large numbers": (np.full_like(X, 1e9), Y),
    "a constant y": (X, np.full_like(Y, 0.1)),
    "a constant y of large numbers": (X, np.full_like(Y, -1e9)),
    "nothing but zeros": (np.zeros_like(X), np.zeros_like(Y)),
}


@pytest.mark.parametrize(("x", "y"), CONSTANT.values(), ids=CONSTANT)
@pytest.mark.parametrize("inference", ["mfvi", "ncai"])
def test_constants_are_served(x, y, inference):
    model = tiny(inference)
    if np.ptp(y) == 0:
        with pytest.warns(UserWarning, match=r"y has the same value in every row \("):
            model.fit(x, y)
    else:
        model.fit(x, y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert np.isfinite(model.log_score(x, y))
    assert np.isfinite(model.latent_posterior_.mean).all()
    if np.ptp(y) == 0:
        assert np.abs(mean.mean() - y[0]) < 2
    again = model.predict(x)
    assert np.abs(again.mean() - y.mean()) < 2


def test_a_constant_column_that_changes_later_says_nothing(tmp_path):
    x = np.column_stack([X[:, 0], np.full(len(X), 20.0)])
    model = tiny().fit(x, Y)
    moved = x + np.array([0.0, 100.0])
    np.testing.assert_array_equal(model.predict(moved), model.predict(x))
    model.save(tmp_path / "m.ncai")
    again = BNNLVRegressor.load(tmp_path / "m.ncai")
    np.testing.assert_array_equal(again.predict(moved), model.predict(x))


@pytest.mark.usefixtures("any_types")
def test_counts_are_checked_when_they_are_set_after_a_fit(model):
    for value in (0, "x"):
        with pytest.raises(ValueError, match=f"n_weight_draws={value!r} must be"):
            model.set_params(inference__n_weight_draws=value)
    assert model.inference.n_weight_draws == 32


def test_a_fit_with_bad_options_leaves_no_older_one():
    model = tiny().fit(X, Y)
    with pytest.raises(ValueError, match="keep='all'"):
        model.set_params(keep="all").fit(X, Y)
    with pytest.raises(NotFittedError):
        model.predict(X)


# ----- Networks of the user's own -----------------------------------------------------


@dataclass(frozen=True)
class Wrong:
    """Linear, but for what is wrong with it."""

    extra: int = 0
    scalar: bool = False
    whole: bool = False

    def init(self, key, input_dim, latent_dim, output_dim):
        del key
        shape = (input_dim + latent_dim, output_dim + self.extra)
        return {"w": jnp.zeros(shape, int if self.whole else float)}

    def apply(self, weights, inputs, latents):
        out = jnp.concatenate([inputs, latents]) @ weights["w"]
        return out[0] if self.scalar else out


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("network", "parts"),
    [
        (Wrong(extra=1), ["outputs of shape (2,)", "must be (1,)"]),
        (Wrong(scalar=True), ["outputs of shape ()", "must be (1,)"]),
        (Wrong(whole=True), ["weights of type int32", "floats"]),
    ],
)
def test_a_network_that_is_not_one_is_refused(network, parts):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        tiny(network=network, hidden=None).fit(X, Y)
    assert_helpful(error, "network=Wrong", *parts)


@pytest.mark.usefixtures("no_training")
def test_a_network_that_cannot_be_hashed_is_refused():
    class Open(Wrong):
        __hash__ = None  # pyright: ignore

    with pytest.raises(ValueError, match="network=Open must be hashable"):
        tiny(network=Open(), hidden=None).fit(X, Y)


@pytest.mark.parametrize("unit", [1e200, 1e-200])
def test_units_whose_squares_are_no_numbers(unit):
    usual = fitted().predict(X)
    found = tiny().fit(unit * X, unit * Y).predict(unit * X)
    np.testing.assert_allclose(found / unit, usual, rtol=1e-3, atol=1e-3)


def test_rows_beyond_all_numbers_are_refused(model):
    with pytest.raises(ValueError, match=r"row 1 of the inputs .* 32-bit"):
        model.predict(np.vstack([X[:1], np.full((1, X.shape[1]), 1e300)]))


def test_weights_of_a_score_are_checked(model):
    with pytest.raises(ValueError, match="sample_weight"):
        model.log_score(X, Y, sample_weight=-np.ones(len(X)))
    with pytest.raises(ValueError, match="sample_weight"):
        model.log_score(X, Y, sample_weight=np.ones(3))


def test_a_fit_that_fails_leaves_no_older_one():
    model = tiny().fit(X, Y)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(X, with_value(Y, np.nan))
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.usefixtures("no_training")
def test_a_constant_output_among_others_is_named():
    both = np.c_[Y, np.full_like(Y, 2.5)]
    with (
        pytest.warns(UserWarning, match=r"y in column 1 has the same .* \(2\.5\)"),
        pytest.raises(AssertionError, match="training began"),
    ):
        tiny().fit(X, both)


@pytest.mark.parametrize("number", [2, 3])
def test_a_handful_of_rows_is_served(number):
    model = tiny_plain().fit(X[:number], Y[:number])
    assert np.isfinite(model.predict(X)).all()
    assert len(model.train_index_) == number


def test_numbers_of_type_object_are_numbers(model):
    as_objects = tiny().fit(X.astype(object), Y.astype(object))
    np.testing.assert_array_equal(as_objects.predict(X), model.predict(X))


def test_an_mlp_is_a_network():
    model = tiny(network=MLP((8,)), hidden=None).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), fitted().predict(X))
