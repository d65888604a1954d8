"""Folds, trial fits, and which restarts predict."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from ncai.fitting import stacking
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
from ncai.fitting.stacking import _far_behind, choose, group_shares, join_fits
from ncai.inference.posterior import Fit
from ncai.model.bnn_lv import Model, Variance
from ncai.model.empirical_bayes import initial_priors_of
from ncai.model.networks import MLP, FlatNetwork
from ncai.objectives.elbo import DeterministicError
from ncai.training.driver import Driver
from ncai.training.step import Stage, initial_state
from ncai.types import Data, TrainingRows
from small_fits import regressor

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
    # Restarts of the first group are four times too narrow. Errors of the second have
    # variances that are log-normal around the learned one.
    rng = np.random.default_rng(1)
    spread = 1.4
    errors = np.stack(
        [
            4 * rng.normal(size=3000),
            np.exp(spread / 2 * rng.normal(size=3000)) * rng.normal(size=3000),
        ]
    )
    normals = stats.norm.ppf((np.arange(64) + 0.5) / 64)
    on_grid = np.stack(
        [
            logsumexp(
                stats.norm.logpdf(
                    errors[..., None], 0, factor * np.exp(0.5 * width * normals)
                ),
                axis=-1,
            )
            - np.log(64)
            for factor, width in zip(OF_GROUPS.factors, OF_GROUPS.spreads, strict=True)
        ]
    )
    on_grid[:, 0, :1500] = on_grid[:, 1, 1500:] = np.nan  # rows that were learned from
    found = widths_by_group(on_grid, np.array([7, 3]), np.ones(3000))
    assert OF_GROUPS.factors[found].tolist() == [4.0, 1.0]
    np.testing.assert_allclose(OF_GROUPS.spreads[found], [0.0, spread])
    assert (OF_GROUPS.factors[0], OF_GROUPS.spreads[0]) == (1.0, 0.0)


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


def test_the_restarts_of_the_trial_share_a_weight(fitted, monkeypatch):
    given = {}

    def keep(fit, posterior, settings, judge):
        given["groups"], given["numbers"] = fit.groups, judge.numbers

    monkeypatch.setattr(stacking, "_stack", keep)
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
    grid = NoiseGrid(factors, np.zeros(3))
    found = log_probs_on_grid(model.posterior_, rows, key, grid)
    count = model.posterior_.num_components
    for factor, log_probs in zip(factors, found, strict=True):
        scaled = model.posterior_.with_noise(np.full(count, factor), np.zeros(count))
        np.testing.assert_allclose(
            scaled.draw(key, 8).noise_std,
            factor * model.posterior_.draw(key, 8).noise_std,
            rtol=1e-5,
        )
        np.testing.assert_allclose(log_probs, score_rows(scaled, rows, key), rtol=1e-4)


def test_a_spread_makes_widths_differ_from_draw_to_draw(fitted):
    posterior = fitted.posterior_.select([0])
    learned = posterior.scale.log_noise_var[0, 0]
    wide = posterior.with_noise(np.ones(1), np.full(1, 1.4))
    logs = 2 * np.log(wide.draw(jax.random.key(0), 4000).noise_std[:, 0])
    assert logs.mean() == pytest.approx(posterior.mean.log_noise_var[0, 0], abs=0.1)
    assert logs.std() == pytest.approx(np.hypot(learned, 1.4), rel=0.05)
    rows = TrainingRows(X[:5], Y[:5, None], np.ones(5))
    grid = NoiseGrid(np.ones(2), np.array([0.0, 1.4]))
    keys = [jax.random.key(seed) for seed in range(60)]
    even = [log_probs_on_grid(posterior, rows, key, grid)[1] for key in keys]
    drawn = [score_rows(wide, rows, key) for key in keys]
    np.testing.assert_allclose(
        logsumexp(even, axis=0), logsumexp(drawn, axis=0), atol=0.1
    )


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


@pytest.mark.parametrize("spread", [0.7, 1.4, 4.2])
@pytest.mark.parametrize("factor", [0.5, 1.0, 8.0])
def test_a_spread_is_the_integral_over_widths(factor, spread):
    errors = np.array([0.0, 0.3, 1.0, 5.0])
    grid = NoiseGrid(np.array([factor, factor]), np.array([0.0, spread]))
    nodes = grid.nodes()
    found = grid.at_every_width(stats.norm.logpdf(errors, 0, nodes[:, None]))
    np.testing.assert_allclose(found[0], stats.norm.logpdf(errors, 0, factor))
    normals = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    widths = np.maximum(factor * np.exp(0.5 * spread * normals), nodes.min())
    exact = np.log(stats.norm.pdf(errors, 0, widths[:, None]).mean(axis=0))
    np.testing.assert_allclose(found[1], exact, rtol=3e-3, atol=0.02)
