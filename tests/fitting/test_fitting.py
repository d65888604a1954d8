"""Folds, trial fits, which restarts predict, and the choice of the transform of y."""

import json
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logsumexp

from helpers import refused, regressor, run
from ncai import BNNLVRegressor
from ncai.fitting import search, stacking
from ncai.fitting.fit import Result
from ncai.fitting.holdout import HoldOut, draw_folds, without_own_fold
from ncai.fitting.noise_recalibration import (
    OF_GROUPS,
    OF_MIXTURE,
    NoiseGrid,
    factor_for_more_members,
    log_probs_on_grid,
    mix,
    score_rows,
    width_of_mixture,
    widths_by_group,
)
from ncai.fitting.search import Search
from ncai.fitting.stacking import HeldOut, _far_behind, choose, group_shares, join_fits
from ncai.fitting.transform_choice import Trial, worth_a_whole_fit
from ncai.inference.posterior import Fit, NoiseSpread
from ncai.inference.warm_start import initial_priors_of
from ncai.model.bnn_lv import Model, Variance
from ncai.model.networks import MLP, FlatNetwork
from ncai.objectives.elbo import DeterministicError
from ncai.preprocessing.rounding import Lattice
from ncai.preprocessing.scaling import Scaling
from ncai.training.driver import Driver
from ncai.training.step import Stage, initial_state
from ncai.types import ContinuousRows, Data, RawRows, TrainingRows
from tests.conftest import unchecked

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (60, 1))
Y = X[:, 0] + RNG.normal(0, 0.2, 60)
TINY = {"hidden": (8,), "max_steps": 80, "n_restarts": 6, "n_folds": 3}
TINY |= {"temperature": (0.01, 0.1), "n_weight_draws": 32, "random_state": 0}
TINY |= {"latent_hidden": (4,)}


def tiny(**changes):
    return regressor("marginal", **(TINY | changes))


@cache
def fit_of(**changes):
    """A fit that several tests look at, and none may change."""
    return tiny(**changes).fit(X, Y)


def settings(inference=None, **given):
    return regressor(inference, **given).resolved_settings()


def test_folds_are_parts_of_nearly_equal_size():
    folds = draw_folds(23, 5, seed=3)
    assert sorted(np.bincount(folds)) == [4, 4, 5, 5, 5]
    assert np.array_equal(folds, draw_folds(23, 5, seed=3))
    assert draw_folds(3, 8, seed=0).max() == 2


def test_every_row_is_held_out_by_the_restarts_of_its_fold_alone():
    data = Data(jnp.zeros((8, 1)), jnp.zeros((8, 1)), jnp.array([1.0] * 6 + [0.0] * 2))
    folds = np.array([0, 1, 2, 0, 1, 2])
    weights = np.asarray(without_own_fold(data, folds, 6).row_weights)
    for restart in range(6):
        expected = np.append(np.where(folds == restart % 3, 0.0, 1.0), [0.0, 0.0])
        assert np.array_equal(weights[restart], expected)


def test_a_restart_with_rows_of_its_own_learns_as_if_there_were_no_others():
    network = FlatNetwork(MLP((4,)), 1, 1, 1)
    one = Variance(jnp.asarray(1.0))
    model = Model(network, one, one, Variance(jnp.ones(1)))
    inputs, targets = jnp.asarray(X[:12]), jnp.asarray(Y[:12, None])
    masks = np.ones((7, 12), np.float32)  # two groups
    for restart in range(7):
        masks[restart, restart] = 0
    keys = jax.random.split(jax.random.key(0), 7)
    weights = jax.vmap(network.init)(keys)
    state = initial_state(weights, initial_priors_of(keys, model), keys)
    stage = Stage("fit", DeterministicError(), max_steps=30)
    own = Driver().run(stage, model, Data(inputs, targets, jnp.asarray(masks)), state)
    for restart in (0, 6):
        rows = Data(inputs, targets, jnp.asarray(masks[restart]))
        alone = Driver().run(stage, model, rows, state)
        np.testing.assert_allclose(
            own.params[restart], alone.params[restart], rtol=1e-4, atol=1e-5
        )
    assert np.abs(own.params[0] - alone.params[0]).max() > 1e-4


def test_each_temperature_sees_every_fold():
    method = settings(n_folds=3).method
    found = method.restart_temperatures(6, folded=True)
    assert found == (0.001,) * 3 + (0.1,) * 3
    found = method.restart_temperatures(3, folded=False)
    assert found == (0.001, 0.1, 0.001)


def test_a_given_share_to_hold_out_takes_the_place_of_folds():
    assert settings().num_folds > 1
    assert settings(validation_fraction=0.2).num_folds == 0
    assert settings(validation_fraction=0.2, n_folds=4).num_folds == 4
    assert not settings(keep="best").has_folds
    assert settings("ncai").num_folds == 0


def test_the_preset_names_the_method():
    assert settings().method.name == "marginal"
    assert settings(preset="paper").method.name == "ncai"
    assert settings(latent_dim=0).method.name == "mfvi"


def test_a_mixture_counts_only_restarts_that_did_not_learn_from_a_row():
    log_probs = np.log([[0.1, np.nan, np.nan], [0.3, 0.4, np.nan]])
    found = np.exp(mix(log_probs, np.array([0.25, 0.75])))
    np.testing.assert_allclose(found[:2], [0.25 * 0.1 + 0.75 * 0.3, 0.4])
    assert np.isnan(found[2])


def test_group_weights_are_best_among_all_on_a_fine_grid():
    log_probs = np.log(RNG.gamma(2.0, size=(6, 40)))
    log_probs[:2, :20] = log_probs[2:4, 20:] = np.nan
    groups = np.array([0, 1, 0, 1, 0, 1])
    shares = group_shares(log_probs, groups, np.ones(40))
    assert shares.sum() == pytest.approx(1)
    assert shares[0] == shares[2] == shares[4]
    parts = np.stack([mix(log_probs[groups == g], np.ones(3)) for g in (0, 1)])

    def score(first):
        weights = np.array([[first], [1 - first]])
        return logsumexp(parts, axis=0, b=weights).mean()

    best = max(score(first) for first in np.linspace(0.001, 0.999, 999))
    assert score(3 * shares[0]) == pytest.approx(best, abs=1e-4)


def test_a_restart_far_behind_on_its_rows_is_left_out_and_a_hard_fold_is_not():
    log_probs = np.full((4, 4), np.nan)
    log_probs[0, :2], log_probs[1, 2:] = -1.0, -9.0  # the second fold is hard
    log_probs[2, :2], log_probs[3, 2:] = -8.0, -9.5
    scores = np.nanmean(log_probs, axis=1)
    assert _far_behind(scores, log_probs).tolist() == [False, False, True, False]


def test_the_noise_of_members_that_disagree_is_narrowed_to_what_fits_the_mixture():
    # y ~ N(0, 1). Members are off by b ~ N(0, 0.75) and as wide as they err,
    # sqrt(1 + 0.75). Their mixture is best where its noise and b have variance 1.
    rng = np.random.default_rng(0)
    y = rng.normal(size=2000)
    centres = np.sqrt(0.75) * rng.normal(size=(300, 2000))
    width = np.sqrt(1.75)
    log_probs = np.stack(
        [stats.norm.logpdf(y, centres, f * width) for f in OF_MIXTURE.factors]
    )
    best = width_of_mixture(log_probs, np.ones(300), np.ones(2000))
    assert OF_MIXTURE.factors[best] == pytest.approx(0.5 / width, abs=0.06)


def test_a_member_alone_keeps_its_noise():
    y = np.random.default_rng(0).normal(size=(1, 4000))
    log_probs = np.stack([stats.norm.logpdf(y, 0, f) for f in OF_MIXTURE.factors])
    assert width_of_mixture(log_probs, np.ones(1), np.ones(4000)) == 0
    nothing = np.full_like(log_probs, np.nan)  # no row was held out
    assert width_of_mixture(nothing, np.ones(1), np.ones(4000)) == 0


def test_each_group_has_the_width_and_the_spread_that_fit_its_rows():
    # Restarts of the first group are four times too narrow. Errors of the second come
    # from a mixture of widths around the learned one.
    rng = np.random.default_rng(1)
    factors, weights = NoiseSpread(np.array([2.0]), np.array([0.25])).widths()
    widths = rng.choice(factors[0], size=3000, p=weights[0])
    errors = np.stack([4 * rng.normal(size=3000), widths * rng.normal(size=3000)])
    nodes = OF_GROUPS.nodes()
    on_grid = np.stack(
        [
            OF_GROUPS.at_every_width(stats.norm.logpdf(of_group, 0, nodes[:, None]))
            for of_group in errors
        ],
        axis=1,
    )
    on_grid[:, 0, :1500] = on_grid[:, 1, 1500:] = np.nan  # rows that were learned from
    found = widths_by_group(on_grid, np.array([7, 3]), np.ones(3000))
    assert OF_GROUPS.factors[found].tolist() == [4.0, 1.0]
    assert OF_GROUPS.spread.steps[found].tolist() == [0, 2]
    assert OF_GROUPS.spread.ratios[found][1] == 0.25
    assert (OF_GROUPS.factors[0], OF_GROUPS.spread.steps[0]) == (1.0, 0)


@pytest.fixture
def fitted():
    return fit_of()


def test_the_restarts_of_the_trial_may_predict_too(fitted):
    assert len(fitted.restart_scores_) == 6 + 4
    assert fitted.posterior_.shares.sum() == pytest.approx(1)
    assert len(fitted.train_index_) == 60
    assert fitted.score_name_.endswith("held out")
    values = fitted.history_["value"]
    assert values.shape[1] == 10
    assert fitted.stop_reasons_[0].endswith("after 20 steps")


@pytest.mark.usefixtures("any_types")
def test_the_restarts_of_the_trial_share_a_weight(fitted, monkeypatch):
    given, recalibrate = {}, stacking.recalibrate_groups

    def keep(posterior, judge, groups, alive, settings):
        given["groups"], given["numbers"] = groups, judge.numbers
        return recalibrate(posterior, judge, groups, alive, settings)

    monkeypatch.setattr(stacking, "recalibrate_groups", keep)
    main, trial = (
        Fit(
            fitted.posterior_.select(np.zeros(count, int)),
            {},
            np.ones(count, bool),
            [],
            1,
        )
        for count in (6, 4)
    )
    main = replace(main, groups=np.array([0, 0, 0, 1, 1, 1]))
    fit = join_fits(main, trial)
    rows = TrainingRows(X, Y[:, None], np.ones(60))
    holdout = HoldOut(np.arange(60), rows, np.arange(60), np.arange(60) % 3)
    choose(fit, fitted.settings_, jax.random.key(0), holdout, num_trial_members=4)
    assert given["groups"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert given["numbers"] == (0, 1, 2, 3, 4, 5, 0, 1, 2, 3)  # their folds


@pytest.mark.parametrize("noise", [{}, {"noise_variance": 0.1}])
def test_densities_at_a_width_are_those_of_the_posterior_with_that_width(noise):
    model = fit_of(**noise)
    rows = TrainingRows(X[:5], Y[:5, None], np.ones(5))
    key = jax.random.key(3)
    factors = np.array([1.0, 0.5, 2.0])
    grid = NoiseGrid(factors, NoiseSpread.none(3))
    found = log_probs_on_grid(model.posterior_, rows, key, grid)
    count = model.posterior_.num_components
    for factor, log_probs in zip(factors, found, strict=True):
        scaled = model.posterior_.with_noise(np.full(count, factor))
        np.testing.assert_allclose(
            scaled.draw(key, 8).noise_std,
            factor * model.posterior_.draw(key, 8).noise_std,
            rtol=1e-5,
        )
        np.testing.assert_allclose(log_probs, score_rows(scaled, rows, key), rtol=1e-4)


def test_a_spread_gives_every_draw_the_same_mixture_of_widths(fitted):
    none = NoiseSpread.none(1)
    posterior = fitted.posterior_.select([0]).with_noise(np.ones(1), none)
    spread = NoiseSpread(np.array([0.0, 2.0]), np.array([0.5, 0.5]))
    wide = posterior.with_noise(np.ones(1), spread.pick([1]))
    key = jax.random.key(0)
    plain, draws = posterior.draw(key, 16), wide.draw(key, 16)
    np.testing.assert_array_equal(draws.noise_std, plain.noise_std)
    factors = np.tile([1, 2, 4, 8, 16], (16, 1))
    np.testing.assert_allclose(draws.noise_factors, factors)
    np.testing.assert_allclose(draws.noise_shares[:, 0], 16 / 31)
    rows = TrainingRows(X[:5], Y[:5, None], np.ones(5))
    grid = NoiseGrid(np.ones(2), spread)
    found = log_probs_on_grid(posterior, rows, key, grid)[1]
    # Log densities near 0 are differences of 32-bit numbers of about 1.
    whole = score_rows(wide, rows, key)
    np.testing.assert_allclose(found, whole, rtol=1e-4, atol=5e-6)


def best_factor(y, centres, width):
    """The factor of the members' width that fits best, looked for finely."""
    factors = np.linspace(0.05, 1.2, 200)
    members = stats.norm.logpdf(y, centres, factors[:, None, None] * width)
    return factors[np.argmax(logsumexp(members, axis=1).mean(axis=1))]


@pytest.mark.parametrize("own", [0.0, 0.05, 0.2])
def test_the_factor_of_many_members_follows_from_that_of_few(own):
    # Members err by 1 in all, `own` of it not shared with others.
    rng = np.random.default_rng(0)
    shared = np.sqrt(1 - own) * rng.normal(size=4000)
    centres = np.sqrt(own) * rng.normal(size=(24, 4000))
    few, many = (best_factor(shared, centres[:m], 1.0) for m in (3, 24))
    assert factor_for_more_members(few, 3, 24) == pytest.approx(many, abs=0.05)


def test_members_that_agree_or_judge_alone_keep_their_factor():
    assert factor_for_more_members(1.0, 3, 24) == 1.0
    assert factor_for_more_members(1.19, 3, 24) == 1.19
    assert factor_for_more_members(0.5, 1, 24) == 0.5
    assert factor_for_more_members(0.5, 24, 24) == 0.5
    assert factor_for_more_members(0.42, 3, 24) == pytest.approx(0.21)  # no narrower
    assert 0.5 < factor_for_more_members(0.84, 3, 24) < 0.84


def test_noise_is_tuned_only_where_it_was_learned(fitted):
    untuned = tiny(recalibrate_noise=False).fit(X, Y)
    # Widths are chosen for groups, not for each restart, but help most of them.
    better = np.asarray(fitted.restart_scores_) >= np.asarray(untuned.restart_scores_)
    assert better.mean() > 0.5
    fixed = fit_of(noise_variance=0.1)
    draws = fixed.posterior_.draw(jax.random.key(0), 4)
    np.testing.assert_allclose(draws.noise_std, np.sqrt(0.1), rtol=1e-6)


def test_a_fit_with_folds_repeats(fitted):
    again = tiny().fit(X, Y)
    assert np.array_equal(again.predict(X), fitted.predict(X))


def test_given_validation_rows_take_the_place_of_folds():
    model = tiny().fit(X, Y, X_valid=X[:20], y_valid=Y[:20])
    assert model.score_name_ == "average log-likelihood of the held-out rows"


def test_joined_fits_keep_their_order(fitted):
    posterior = fitted.posterior_
    history = {
        "step": np.array([1, 2]),
        "value": np.ones((2, posterior.num_components)),
    }
    fit = Fit(posterior, history, np.ones(posterior.num_components, bool), ["b"], 2)
    short = {"step": np.array([1]), "value": np.zeros((1, 1))}
    trial = replace(
        fit,
        posterior=posterior.select(0),
        history=short,
        alive=np.zeros(1, bool),
        stop_reasons=["a"],
        num_steps=1,
    )
    joined = join_fits(fit, trial)
    assert joined.stop_reasons == ["a", "b"]
    assert joined.num_steps == 3
    assert joined.alive.tolist() == [True] * posterior.num_components + [False]
    assert joined.history["value"][0, -1] == 0
    assert np.isnan(joined.history["value"][1, -1])
    np.testing.assert_array_equal(
        joined.posterior.mean.weights[-1], posterior.mean.weights[0]
    )


# ----- The score of rows held out -----------------------------------------------------


def test_the_held_out_score_is_in_the_units_of_y():
    y = 100 * np.exp(Y)
    new = np.random.default_rng(1).uniform(-1, 1, (200, 1))
    y_new = 100 * np.exp(new[:, 0] + np.random.default_rng(2).normal(0, 0.2, 200))
    given = {"target_transform": "log", "keep": "best", "n_weight_draws": 256}
    model = tiny(**given).fit(X, y, X_valid=new, y_valid=y_new)
    found = model.predict_dist(new).log_prob(y_new).mean()
    assert model.held_out_score_ == pytest.approx(found, abs=0.02)
    without = tiny(**given, validation_fraction=0.0).fit(X, y)
    assert without.held_out_score_ is None


@pytest.mark.parametrize("ratio", [0.5, 0.03])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("factor", [0.5, 1.0, 8.0])
def test_a_spread_is_the_mixture_of_its_widths(factor, steps, ratio):
    errors = np.array([0.0, 0.3, 1.0, 5.0])
    spread = NoiseSpread(np.array([0.0, steps]), np.array([0.5, ratio]))
    grid = NoiseGrid(np.array([factor, factor]), spread)
    nodes = grid.nodes()
    found = grid.at_every_width(stats.norm.logpdf(errors, 0, nodes[:, None]))
    np.testing.assert_allclose(found[0], stats.norm.logpdf(errors, 0, factor))
    widths = factor * np.sqrt(2.0) ** (steps * np.arange(5))
    weights = ratio ** np.arange(5)
    density = stats.norm.pdf(errors[:, None], 0, widths) @ weights / weights.sum()
    np.testing.assert_allclose(found[1], np.log(density), rtol=1e-6)


ROWS_RNG = np.random.default_rng(0)
NUM_ROWS = 100
ARRAYS = (
    ROWS_RNG.normal(size=(NUM_ROWS, 1)),
    np.exp(ROWS_RNG.normal(size=(NUM_ROWS, 1))),
    np.ones(NUM_ROWS),
)
ROWS, SMOOTH = RawRows(*ARRAYS), ContinuousRows(*ARRAYS)  # they are not rounded
NETWORK = FlatNetwork(MLP(), 1, 1, 1)
OTHER = FlatNetwork(MLP((7,)), 1, 1, 1)
NOISE = ROWS_RNG.normal(size=NUM_ROWS)
NOISE -= NOISE.mean()


def result(log_probs, interrupted=False, num_steps=1):
    """A fit of which nothing is known but its held-out rows."""
    nothing: dict = {"posterior": None, "score_name": "", "seconds": 0.0}
    nothing |= dict.fromkeys(("train_index", "scores", "kept"))
    held_out = HeldOut(np.arange(NUM_ROWS), log_probs)
    with unchecked():
        fit = Fit(None, {}, np.ones(1, bool), [], num_steps, interrupted)  # pyright: ignore
        return Result(fit=fit, held_out=held_out, **nothing)


class FakeFits:
    """In place of `fit_rows`: in turn, fits with these scores in the units of y.

    They take y as it is and its logarithm by turns, but for what `names` tells.
    """

    def __init__(self, *scores, interrupted_at=None, names=(), steps_of_whole=400):
        self.scores, self.interrupted_at = scores, interrupted_at
        self.steps_of_whole = steps_of_whole
        self.names = names or ("none", "log") * len(scores)
        self.calls, self.networks = [], []

    def __call__(self, task, rows, valid):
        assert valid is None
        number, settings = len(self.calls), task.settings
        self.calls.append((settings.max_steps, settings.time_limit))
        self.networks.append(task.network)
        # Were y learned as it is, or as its logarithm? Their units differ.
        name = self.names[number]
        scaling = Scaling.learn(SMOOTH, True, name)
        np.testing.assert_allclose(rows.targets, scaling.apply(SMOOTH).targets)
        in_units_of_y = self.scores[number] + NOISE * (0.5 if name == "log" else 1.0)
        shifts = scaling.log_density_shifts(SMOOTH)
        steps = self.steps_of_whole if settings.max_steps == 400 else 100
        steps += task.trial.num_steps if task.trial else 0
        return result(in_units_of_y - shifts, number == self.interrupted_at, steps)


def fit_with(monkeypatch, fits, networks=(NETWORK,), **changes):
    monkeypatch.setattr(search, "fit_rows", fits)
    given = {"target_transform": "auto", "rounding": "ignore", "max_steps": 400}
    settings = regressor("marginal", **(given | changes)).resolved_settings()
    with unchecked():  # the fits stand for others
        found = Search(settings, networks, 0).run(ROWS)
    return found.candidate.scaling, found.result


def test_a_clear_trial_decides_alone(monkeypatch):
    fits = FakeFits(0.0, -1.0, 0.5)
    scaling, found = fit_with(monkeypatch, fits)
    assert scaling.transform.name == "none"
    assert [steps for steps, _ in fits.calls] == [100, 100, 400]
    assert found.held_out_score == pytest.approx(0.5, abs=1e-6)


def test_whole_fits_decide_where_trials_are_close(monkeypatch):
    # The trial of y as it is leads by little, the whole one of its logarithm wins.
    fits = FakeFits(0.01, 0.0, 0.2, 0.4)
    scaling, found = fit_with(monkeypatch, fits)
    assert [steps for steps, _ in fits.calls] == [100, 100, 400, 400]
    assert scaling.transform.name == "log"
    assert found.held_out_score == pytest.approx(0.4, abs=1e-6)


def test_with_a_time_limit_trials_decide(monkeypatch):
    fits = FakeFits(0.01, 0.0, 0.2)
    scaling, _ = fit_with(monkeypatch, fits, time_limit=60)
    assert scaling.transform.name == "none"
    assert len(fits.calls) == 3
    assert all(0 < limit < 60 for _, limit in fits.calls)


@pytest.mark.parametrize("interrupted_at", [None, 2])
def test_where_no_time_is_left_the_trial_predicts_alone(monkeypatch, interrupted_at):
    """Restarts that were never trained would be random functions in the mixture."""
    stopped = {"interrupted_at": interrupted_at, "steps_of_whole": 0}
    fits = FakeFits(0.5, 0.0, -9.0, **stopped)
    _, found = fit_with(monkeypatch, fits, time_limit=60)
    assert len(fits.calls) == 3
    assert found.held_out_score == pytest.approx(0.5, abs=1e-6)
    assert found.fit.num_steps == 100
    assert found.fit.interrupted == (interrupted_at is not None)


def test_ctrl_c_in_the_second_whole_fit_keeps_the_first(monkeypatch):
    fits = FakeFits(0.01, 0.0, 0.2, 0.4, interrupted_at=3)
    scaling, found = fit_with(monkeypatch, fits)
    assert scaling.transform.name == "none"
    assert found.fit.interrupted


def test_ctrl_c_in_a_trial_ends_it_all(monkeypatch):
    fits = FakeFits(0.01, 0.0, interrupted_at=0)
    scaling, found = fit_with(monkeypatch, fits)
    assert scaling.transform.name == "none"
    assert found.fit.interrupted
    assert len(fits.calls) == 1


def test_a_network_that_is_no_better_is_tried_once(monkeypatch):
    fits = FakeFits(0.0, -1.0, -0.1, 0.5, names=("none", "log", "none", "none"))
    fit_with(monkeypatch, fits, networks=(NETWORK, OTHER))
    assert [steps for steps, _ in fits.calls] == [100, 100, 100, 400]
    assert fits.networks == [NETWORK, NETWORK, OTHER, NETWORK]


def test_a_better_network_is_tried_with_every_close_transform(monkeypatch):
    names = ("none", "log", "none", "log", "log", "none")
    fits = FakeFits(0.01, 0.0, 0.1, 0.2, 0.3, 0.4, names=names)
    scaling, _ = fit_with(monkeypatch, fits, networks=(NETWORK, OTHER))
    assert [steps for steps, _ in fits.calls] == [100] * 4 + [400] * 2
    assert fits.networks == [NETWORK] * 2 + [OTHER] * 4
    assert scaling.transform.name == "none"


def test_where_no_row_is_held_out_there_is_one_network(monkeypatch):
    fits = FakeFits(0.0)
    changes = {"n_folds": 0, "validation_fraction": 0.0, "keep": "best"}
    fit_with(monkeypatch, fits, networks=(NETWORK, OTHER), **changes)
    assert fits.networks == [NETWORK]


def test_ctrl_c_while_another_network_is_tried_keeps_the_best_before(monkeypatch):
    names = ("none", "log", "log")
    fits = FakeFits(0.0, 0.5, 0.9, interrupted_at=2, names=names)
    scaling, found = fit_with(monkeypatch, fits, networks=(NETWORK, OTHER))
    assert scaling.transform.name == "log"
    assert found.fit.interrupted
    assert found.held_out_score == pytest.approx(0.5, abs=1e-6)
    assert len(fits.calls) == 3


@pytest.mark.usefixtures("any_types")
def test_closeness_is_measured_in_standard_errors():
    def trial(log_probs, num_steps=1):
        found = result(log_probs, num_steps=num_steps)
        weights = np.ones(NUM_ROWS)
        return Trial(None, None, found, log_probs, weights)  # pyright: ignore

    best = trial(NOISE)
    error = 1 / np.sqrt(NUM_ROWS)
    steps = np.where(np.arange(NUM_ROWS) % 2, 1.0, -1.0)  # of mean 0 and variance 1
    near, far = trial(NOISE + steps - 2 * error), trial(NOISE + steps - 4 * error)
    assert worth_a_whole_fit([near, best]) == [best, near]
    assert worth_a_whole_fit([far, best]) == [best]
    assert worth_a_whole_fit([best, trial(None)]) == [best]
    assert worth_a_whole_fit([trial(NOISE + 9, num_steps=0), far])[0] is far


TINY_FIT = {"hidden": (3,), "max_steps": 8, "n_restarts": 2, "n_folds": 2}
TINY_FIT |= {"target_transform": "none", "random_state": 0}


@pytest.mark.parametrize("layer", [(20,), ()])
def test_a_start_by_value_says_which_layer_z_has(layer):
    network = FlatNetwork(MLP((3,), latent_hidden=layer), 1, 1, 1)
    model = regressor(
        "marginal",
        start={"weights": np.zeros(network.num_weights)},
        **TINY_FIT,
    ).fit(ROWS.inputs, ROWS.targets[:, 0])
    assert model.settings_.network.latent_hidden == layer


@pytest.mark.parametrize("rows_are_held_out", [True, False])
def test_the_layer_of_z_is_reported_and_saved(tmp_path, rows_are_held_out):
    held_out = {} if rows_are_held_out else {"n_folds": 0, "validation_fraction": 0.0}
    model = regressor("marginal", **(TINY_FIT | held_out))
    model.fit(ROWS.inputs, ROWS.targets[:, 0])
    layer = model.settings_.network.latent_hidden
    assert layer in ((20,), ()) if rows_are_held_out else layer == (20,)
    assert model.posterior_.model.network.network.latent_hidden == layer
    assert model.network is None  # "auto" by default
    model.save(tmp_path / "m.ncai")
    again = BNNLVRegressor.load(tmp_path / "m.ncai")
    assert again.settings_.network.latent_hidden == layer
    np.testing.assert_array_equal(
        again.predict(ROWS.inputs), model.predict(ROWS.inputs)
    )


SHORT = {"hidden": (6,), "max_steps": 60, "n_restarts": 2, "n_folds": 2}
SHORT |= {"latent_hidden": (4,), "n_weight_draws": 32}


def counts(seed, num_rows=80):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(num_rows, 1))
    y = rng.poisson(np.exp(0.7 + x[:, 0])).astype(float)
    assert (y == 0).sum() > 3
    return x, y


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("transform", ["log", "auto"])
def test_counts_fit_and_everything_after_a_fit_works(transform, seed, tmp_path):
    x, y = counts(seed)
    model = regressor(
        "marginal", target_transform=transform, random_state=seed, **SHORT
    ).fit(x, y)
    assert model.settings_.rounding_steps == (1.0,)
    if transform == "log":
        assert model.settings_.target_transform == "log"
    assert np.isfinite(model.training_rows_.targets).all()
    assert np.isfinite(model.latent_posterior_.mean).all()
    assert (model.latent_posterior_.std > 0).all()
    assert np.isfinite(model.reconstruction_mse())
    assert np.isfinite(model.held_out_score_)
    model.save(tmp_path / "m.ncai", include_training=True)
    for one in (model, BNNLVRegressor.load(tmp_path / "m.ncai")):
        diagnosis = one.diagnose(num_permutations=20)
        assert np.isfinite(diagnosis.hz)
        assert np.isfinite(one.predict(x)).all()
        assert (one.predict(x) >= 0).all()
        assert np.isfinite(one.predict_dist(x).log_prob(y)).all()
        found = one.latent_posterior(x, y)  # zeros among them
        assert np.isfinite(found.mean).all()
        np.testing.assert_array_equal(found.mean, model.latent_posterior(x, y).mean)


@pytest.mark.parametrize("valid", [False, True])
def test_a_negative_number_is_refused_as_the_user_gave_it(valid):
    x, y = counts(0)
    wrong = np.where(np.arange(80) == 5, -2.0, y)
    model = regressor("marginal", target_transform="log", random_state=0, **SHORT)
    arguments = {"X_valid": x, "y_valid": wrong} if valid else {}
    with pytest.raises(ValueError, match=r"'log'.*'yeo_johnson'") as error:
        model.fit(x, y if valid else wrong, **arguments)
    assert "is -2:" in str(error.value)
    assert ("y_valid" in str(error.value)) == valid


def test_zeros_that_are_not_rounded_have_no_logarithm():
    x, y = counts(0)
    model = regressor("marginal", target_transform="log", rounding="ignore", **SHORT)
    with pytest.raises(ValueError, match=r"needs a positive y.* is 0:"):
        model.fit(x, y)


@pytest.mark.usefixtures("short_fits")
def test_the_command_line_fits_scores_and_reports(tmp_path):
    x, y = counts(3, 90)
    table = pd.DataFrame({"dose": x[:, 0], "events": y.astype(int)})
    table.to_csv(tmp_path / "t.csv", index=False)
    given = ("--target", "events", "--transform", "log", "--out", tmp_path / "m.ncai")
    effort = ("--hidden", 6)
    result = run(
        *("fit", tmp_path / "t.csv", *given, *effort, "--json"),
        *("--report", tmp_path / "r.html"),
    )
    assert result.exit_code == 0, (result.stderr, result.exception)
    scores = json.dumps(json.loads(result.stdout)["scores"], allow_nan=False)
    assert len(scores) > 10
    assert "null" not in scores
    assert "events" in (tmp_path / "r.html").read_text()
    loaded = BNNLVRegressor.load(tmp_path / "m.ncai")
    assert loaded.settings_.target_transform == "log"
    table["events"] -= 1
    table.to_csv(tmp_path / "t.csv", index=False)
    result = run("fit", tmp_path / "t.csv", *given, *effort, "--force", "--quiet")
    assert refused(result, "log", "-1")


def test_zero_is_drawn_from_the_part_of_its_cell_above_zero():
    y = np.repeat([0.0, 1.0, 2.0, 3.0], 500)[:, None]
    rows = RawRows(np.zeros_like(y), y, np.ones(len(y)))
    for step in (1.0, 0.25):
        scaled = RawRows(rows.inputs, step * y, rows.weights)
        lattice = Lattice.learn(scaled.targets)
        assert lattice.step == step
        plain = lattice.dequantise(scaled, seed=4).targets
        positive = lattice.dequantise(scaled, seed=4, positive=True).targets
        zero = y == 0
        np.testing.assert_array_equal(positive[~zero], plain[~zero])
        drawn = positive[zero] / step
        assert ((drawn > 0) & (drawn < 0.5)).all()
        # Uniformly: quartiles to five standard errors of 500 draws.
        np.testing.assert_allclose(
            np.quantile(drawn, [0.25, 0.5, 0.75]), [0.125, 0.25, 0.375], atol=0.055
        )
        assert (np.abs(plain - step * y) <= 0.5 * step).all()
        np.testing.assert_array_equal(lattice.nearest(positive), step * y)
