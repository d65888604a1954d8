"""The training loop: restarts, seeds, compilation, stops, losses and Ctrl-C."""

import contextlib
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncai.estimators._display import SHORT_NAMES, describe
from ncai.inference.base import Training
from ncai.inference.hmc import HMC
from ncai.inference.mean_field import MEANS_HELD
from ncai.inference.ncai import NCAI, NCAI0
from ncai.inference.nuts import window_adaptation
from ncai.inference.registry import METHODS
from ncai.inference.warm_start import initial_priors, mean_field_at, random_point
from ncai.model.bnn_lv import Model, Variance
from ncai.model.networks import MLP, FlatNetwork
from ncai.objectives.elbo import DeterministicError, NegativeElbo
from ncai.objectives.penalties import Penalties
from ncai.runtime.interrupt import noting_ctrl_c
from ncai.training.driver import CHUNK_STEPS, Driver, FitFailedError
from ncai.training.step import (
    Problem,
    Stage,
    Steps,
    initial_state,
    run_chunk,
    stack_objectives,
)
from ncai.types import Data

NUM_RESTARTS, NUM_ROWS = 3, 16
RATES = jnp.full(NUM_RESTARTS, 0.01)


def make_model(noise=0.1):
    return Model(
        FlatNetwork(MLP((4,)), 1, 1, 1),
        Variance(jnp.asarray(1.0), "empirical"),
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray([noise])),
    )


def make_data(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(NUM_ROWS, 1))
    y = np.sin(2 * x) + 0.3 * rng.normal(size=(NUM_ROWS, 1))
    return Data(*(jnp.asarray(a, jnp.float32) for a in (x, y, np.ones(NUM_ROWS))))


MODEL, DATA, ELBO = make_model(), make_data(), NegativeElbo()
FROM_RANDOM = NCAI(start="random").resolved("paper")


def start(seed=0, bad=()):
    """The state before the first step; restarts in `bad` begin at infinity."""
    keys = jax.random.split(jax.random.key(seed), NUM_RESTARTS)
    points = jax.vmap(lambda k: random_point(k, MODEL, NUM_ROWS))(keys)
    weights = points.weights.at[np.array(bad, int)].set(jnp.inf)
    points = points._replace(weights=weights)
    q = jax.vmap(lambda k, p: mean_field_at(k, MODEL, p))(keys, points)
    return initial_state(q, jax.vmap(lambda k: initial_priors(k, MODEL))(keys), keys)


def deterministic_start():
    """The same for the plain network, which has no random numbers to its value."""
    state = start()
    return initial_state(state.params.mean.weights, state.priors, state.key)


def chunk(state, num_steps, objective=ELBO, first_step=0, trainable=1.0, rates=RATES):
    objectives = stack_objectives([objective] * len(rates))
    problem = Problem(objectives, MODEL, DATA, trainable)
    return run_chunk(problem, state, Steps(rates, first_step, num_steps))


def leaves(state):
    """All numbers of a state, keys apart."""
    return [np.asarray(a) for a in jax.tree.leaves((state.params, state.priors))]


def assert_equal(first, second):
    for a, b in zip(leaves(first), leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)


# ----- The same numbers, however they are run -----------------------------------------


def test_a_restart_is_what_it_would_be_alone():
    together, summary = chunk(start(), 10)
    one_of = jax.jit(lambda state, i: jax.tree.map(lambda a: a[i][None], state))
    for i in range(NUM_RESTARTS):
        lone = one_of(start(), i)
        alone, lone_summary = chunk(lone, 10, rates=RATES[:1])
        # Ten steps of 0.01; sums are taken in another order.
        for a, b in zip(leaves(together), leaves(alone), strict=True):
            np.testing.assert_allclose(a[i], b[0], rtol=1e-3, atol=1e-4)
        assert float(summary.value[i]) == pytest.approx(
            float(lone_summary.value[0]), rel=1e-4
        )


def test_groups_of_restarts_are_what_they_would_be_together():
    drivers, states = [], []
    for largest in (NUM_RESTARTS, 2):  # one group; two, the second filled up
        stage = Stage("elbo", ELBO, max_steps=CHUNK_STEPS + 3, largest_group=largest)
        driver = Driver()
        states.append(driver.run(stage, MODEL, DATA, start(bad=[1])))
        drivers.append(driver)
    np.testing.assert_array_equal(drivers[1].alive, [True, False, True])
    for a, b in zip(leaves(states[0]), leaves(states[1]), strict=True):
        assert len(a) == NUM_RESTARTS
        np.testing.assert_allclose(a[[0, 2]], b[[0, 2]], rtol=0.02, atol=0.02)
    np.testing.assert_allclose(
        drivers[0].history.value[-1][[0, 2]],
        drivers[1].history.value[-1][[0, 2]],
        rtol=1e-2,
    )


def test_restarts_see_different_random_numbers():
    # The same parameters with different keys: only the draws differ.
    state = start()
    params = jax.tree.map(lambda a: jnp.broadcast_to(a[:1], a.shape), state.params)
    priors = jax.tree.map(lambda a: jnp.broadcast_to(a[:1], a.shape), state.priors)
    _, summary = chunk(initial_state(params, priors, state.key), 1)
    assert len(set(np.asarray(summary.value).tolist())) == NUM_RESTARTS


def test_the_same_seed_gives_the_same_bits():
    method = NCAI().resolved("paper")
    training = Training(NUM_RESTARTS, max_steps=40, warm_start_steps=20)
    first, second, other = (
        method.fit(jax.random.key(seed), MODEL, DATA, training) for seed in (5, 5, 6)
    )
    for a, b in zip(
        jax.tree.leaves((first.posterior.mean, first.posterior.scale)),
        jax.tree.leaves((second.posterior.mean, second.posterior.scale)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(first.history["value"], second.history["value"])
    assert np.any(first.posterior.mean.weights != other.posterior.mean.weights)


def test_chunks_do_not_change_the_result():
    driver = Driver()
    stage = Stage("elbo", ELBO, max_steps=CHUNK_STEPS + 83)
    in_chunks = driver.run(stage, MODEL, DATA, start())
    at_once, _ = chunk(start(), CHUNK_STEPS + 83)
    assert_equal(in_chunks, at_once)


def test_numbers_and_data_do_not_compile_anew():
    def run(model, data, penalties, learning_rate, ramp=10.0):
        objective = NegativeElbo(penalties=penalties, ramp_steps=ramp)
        stage = Stage("x", objective, max_steps=3, learning_rate=learning_rate)
        Driver().run(stage, model, data, start())

    run(make_model(), make_data(), Penalties(), 0.01)
    size = run_chunk._cache_size()
    run(make_model(noise=0.5), make_data(), Penalties(), 0.01)
    run(make_model(), make_data(seed=1), Penalties(), 0.01)
    run(make_model(), make_data(), Penalties(hz_weight=0.1, hz_tolerance=0.5), 0.01)
    run(make_model(), make_data(), Penalties(), 0.003, ramp=7.0)
    prior = replace(make_model().weight_variance, alpha=2.0, beta=0.1)
    run(replace(make_model(), weight_variance=prior), make_data(), Penalties(), 0.01)
    assert run_chunk._cache_size() == size
    # The counter does count: another structure is another program.
    run(make_model(), make_data(), Penalties(on="samples"), 0.01)
    assert run_chunk._cache_size() == size + 1


# ----- Stops --------------------------------------------------------------------------


def run_flat(driver=None, **settings):
    """A stage whose value never changes: the rate is 0 and nothing is random."""
    driver = driver or Driver()
    stage = Stage("flat", DeterministicError(), learning_rate=0.0, **settings)
    driver.run(stage, MODEL, DATA, deterministic_start())
    return driver


def test_the_step_limit_is_exact():
    driver = run_flat(max_steps=CHUNK_STEPS + 83)
    assert driver.steps == CHUNK_STEPS + 83
    assert driver.history.step == [CHUNK_STEPS, CHUNK_STEPS + 83]
    assert driver.stop_reasons == ["flat: step limit after 333 steps"]
    assert not driver.interrupted


@pytest.mark.parametrize(
    ("settings", "num_steps"),
    [
        # Two windows of 500 steps to compare.
        ({}, 1000),
        # The same again at a third of the rate.
        ({"rate_drops": 1}, 2000),
        # Steps before the penalties are all there do not count.
        ({"settle_steps": 500}, 1500),
        ({"plateau": False}, 4000),
    ],
)
def test_a_plateau_stops(settings, num_steps):
    settings = {"max_steps": 4000, "window": 500, "plateau": True} | settings
    driver = run_flat(**settings)
    assert driver.steps == num_steps
    reason = "step limit" if num_steps == 4000 else "plateau"
    assert driver.stop_reasons == [f"flat: {reason} after {num_steps} steps"]


def test_what_still_improves_is_no_plateau():
    driver = Driver()
    stage = Stage(
        "falling",
        DeterministicError(),
        max_steps=1500,
        learning_rate=1e-4,
        plateau=True,
        window=250,
        tolerance=1e-6,
        per_row=False,
    )
    driver.run(stage, MODEL, DATA, deterministic_start())
    values = np.array(driver.history.value)
    assert np.all(np.diff(values, axis=0) < 0)
    assert driver.steps == 1500


def test_the_time_limit_stops_after_a_chunk():
    driver = run_flat(Driver(time_limit=1e-9), max_steps=4000)
    assert driver.steps == CHUNK_STEPS
    assert driver.stop_reasons == [f"flat: time limit after {CHUNK_STEPS} steps"]
    # Time that is over with the last step has cut nothing short.
    whole = run_flat(Driver(time_limit=1e-9), max_steps=CHUNK_STEPS)
    assert whole.stop_reasons == [f"flat: step limit after {CHUNK_STEPS} steps"]
    # Stages that follow are not begun.
    training = Training(NUM_RESTARTS, max_steps=600)
    fit = FROM_RANDOM.fit(
        jax.random.key(0), MODEL, DATA, training, Driver(time_limit=1e-9)
    )
    assert fit.num_steps == 0
    assert np.all(np.isfinite(fit.posterior.mean.weights))


# ----- Lost restarts ------------------------------------------------------------------


def test_a_lost_restart_is_dropped_and_the_others_go_on():
    told = []
    driver = Driver(on_progress=told.append)
    stage = Stage("elbo", ELBO, max_steps=300)
    state = driver.run(stage, MODEL, DATA, start(bad=[1]))
    assert driver.alive.tolist() == [True, False, True]
    assert driver.steps == 300
    assert [(p.alive, p.restarts) for p in told] == [(2, 3), (2, 3)]
    assert all(np.isfinite(p.value) for p in told)
    clean = Driver().run(stage, MODEL, DATA, start())
    for a, b in zip(leaves(state), leaves(clean), strict=True):
        np.testing.assert_array_equal(a[[0, 2]], b[[0, 2]])


def test_losing_all_restarts_says_what_to_try():
    stage = Stage("elbo", ELBO, max_steps=300)
    with pytest.raises(FitFailedError) as caught:
        Driver().run(stage, MODEL, DATA, start(bad=[0, 1, 2]))
    message = str(caught.value)
    assert re.search(r"all 3 restarts .*'elbo' by step 250", message)
    for remedy in ("learning_rate", "restarts", "X and y"):
        assert remedy in message


# ----- What is trained, and on what ---------------------------------------------------


def test_held_means_do_not_move():
    before = start()
    after, _ = chunk(before, 50, trainable=MEANS_HELD)
    for a, b in zip(before.params.mean, after.params.mean, strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.all(after.params.raw_scale.weights != before.params.raw_scale.weights)
    assert np.all(after.params.raw_scale.latents != before.params.raw_scale.latents)


def test_weights_of_the_latents_stay_at_their_start_in_the_warm_start():
    before = deterministic_start()
    after, _ = chunk(before, 50, DeterministicError())
    old, new = (
        jax.vmap(MODEL.network.unflatten)(state.params) for state in (before, after)
    )
    np.testing.assert_array_equal(new[0]["latent"], old[0]["latent"])
    assert np.all(new[0]["input"] != old[0]["input"])


def test_penalties_ramp_in_from_zero():
    objective = NegativeElbo(penalties=Penalties(), ramp_steps=20.0)
    one = jax.tree.map(lambda a: a[0], (start().params, start().priors))
    q, priors = one
    normals = jax.random.normal(jax.random.key(0), objective.num_normals(q))
    draw = jax.jit(objective.prepare)(q, normals)
    at_step = jax.jit(lambda step: objective.value(draw, priors, MODEL, DATA, step))
    for step, share in ((0, 0.0), (5, 0.25), (20, 1.0), (1000, 1.0)):
        value, report = at_step(jnp.asarray(1.0 * step))
        added = float(value + report.terms["elbo"])
        penalty = float(report.terms["penalty"])
        assert penalty > 1
        assert added == pytest.approx(share * penalty, rel=1e-4, abs=1e-3)


def test_the_ramp_begins_with_the_second_stage():
    training = Training(NUM_RESTARTS, max_steps=1000)
    fit = FROM_RANDOM.fit(jax.random.key(0), MODEL, DATA, training)
    history = fit.history
    assert history["stage"] == ["elbo", "elbo", "penalties", "penalties"]
    assert np.isnan(history["penalty"][:2]).all()
    # Over the first 250 of its 500 steps the share grows from 0 to 1.
    added = history["value"] + history["elbo"]
    np.testing.assert_allclose(added[:2], 0, atol=1e-2)
    np.testing.assert_allclose(added[3], history["penalty"][3], rtol=1e-3)
    assert np.all(added[2] < 0.8 * history["penalty"][2])
    assert np.all(added[2] > 0.2 * history["penalty"][2])


# ----- Ctrl-C -------------------------------------------------------------------------


def interrupt_after(num_chunks):
    seen = []

    def on_progress(progress):
        seen.append(progress)
        if len(seen) == num_chunks:
            raise KeyboardInterrupt

    return on_progress


def test_ctrl_c_keeps_the_last_whole_chunk():
    driver = Driver(on_progress=interrupt_after(2))
    state = driver.run(Stage("elbo", ELBO, max_steps=2000), MODEL, DATA, start())
    assert driver.interrupted
    assert driver.stop_reasons == ["elbo: interrupted after 500 steps"]
    whole = Driver().run(Stage("elbo", ELBO, max_steps=500), MODEL, DATA, start())
    assert_equal(state, whole)


def test_a_ctrl_c_whose_exception_is_dropped_ends_a_stage_all_the_same():
    # As Python does where it comes up amid garbage collection.
    def press(_):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    driver = Driver(on_progress=press)
    driver.run(Stage("elbo", ELBO, max_steps=2000), MODEL, DATA, start())
    assert driver.interrupted
    assert driver.stop_reasons == ["elbo: interrupted after 250 steps"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_ctrl_c_dropped_before_training_ends_it_before_it_begins():
    stage = Stage("elbo", ELBO, max_steps=250)
    before = signal.getsignal(signal.SIGINT)
    with noting_ctrl_c():
        with contextlib.suppress(KeyboardInterrupt):  # as amid an import
            signal.raise_signal(signal.SIGINT)
        driver = Driver()
        with pytest.raises(KeyboardInterrupt):
            driver.run(stage, MODEL, DATA, start())
        assert driver.steps == 0
        Driver().run(stage, MODEL, DATA, start())  # one press ends one training
    assert signal.getsignal(signal.SIGINT) is before


def test_training_in_a_thread_needs_no_signals():
    driver = Driver()
    stage = Stage("elbo", ELBO, max_steps=250)
    with ThreadPoolExecutor(1) as pool:
        state = pool.submit(driver.run, stage, MODEL, DATA, start()).result()
    assert_equal(state, Driver().run(stage, MODEL, DATA, start()))


def test_ctrl_c_ends_a_fit_with_what_it_has():
    training = Training(NUM_RESTARTS, max_steps=2000)
    driver = Driver(on_progress=interrupt_after(2))
    fit = FROM_RANDOM.fit(jax.random.key(0), MODEL, DATA, training, driver)
    assert fit.interrupted
    assert fit.num_steps == 500
    assert set(fit.history["stage"]) == {"elbo"}  # penalties were not begun
    assert np.all(np.isfinite(fit.posterior.scale.weights))


# While a stage compiles, and in its first chunk.
@pytest.mark.parametrize(
    "where", ["training.driver.RestartGroups", "training.step.run_chunk"]
)
def test_ctrl_c_before_the_first_chunk_of_a_later_stage_keeps_the_earlier_one(
    monkeypatch, where
):
    driver = Driver()
    state = driver.run(Stage("first", ELBO, max_steps=250), MODEL, DATA, start())

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"ncai.{where}", interrupted)
    kept = driver.run(Stage("second", ELBO, max_steps=250), MODEL, DATA, state)
    assert_equal(kept, state)
    assert driver.interrupted
    assert driver.stop_reasons[-1] == "second: interrupted after 0 steps"
    # With nothing before it, there is nothing to keep.
    with pytest.raises(KeyboardInterrupt):
        Driver().run(Stage("first", ELBO, max_steps=250), MODEL, DATA, start())


def test_ctrl_c_in_the_warm_start_goes_to_the_caller():
    training = Training(NUM_RESTARTS, max_steps=500, warm_start_steps=500)
    method = NCAI0().resolved("paper")
    driver = Driver(on_progress=interrupt_after(1))
    with pytest.raises(KeyboardInterrupt):
        method.fit(jax.random.key(0), MODEL, DATA, training, driver)


def test_ctrl_c_in_the_start_of_a_sampler_goes_to_the_caller():
    method = HMC(n_chains=NUM_RESTARTS, start_steps=250).resolved("paper")
    driver = Driver(on_progress=interrupt_after(2))  # the chunk after the warm start
    with pytest.raises(KeyboardInterrupt):
        method.fit(jax.random.key(0), MODEL, DATA, Training(), driver)
    assert set(driver.history.stage) == {"warm start", "elbo"}


def short_sampler(n_warmup):
    return HMC(
        n_chains=2, n_warmup=n_warmup, n_draws=100, max_doublings=3, start_steps=250
    ).resolved("paper")


@pytest.mark.filterwarnings("ignore:.*chains have NOT mixed")
def test_a_sampler_out_of_time_ends_its_warm_up_and_keeps_a_chunk_of_draws():
    method = short_sampler(n_warmup=300)
    fit = method.fit(
        jax.random.key(0), MODEL, DATA, Training(), Driver(time_limit=1e-9)
    )
    assert fit.stop_reasons[-2:] == [
        "warm-up: time limit after 25 draws",
        "sampling: time limit after 25 draws",
    ]
    samples = np.asarray(fit.posterior.samples.weights)
    assert samples.shape[:2] == (2, 25)
    assert np.isfinite(samples).all()
    assert (samples.std(axis=1) > 0).all()
    assert fit.sampler.num_draws == 25


def test_a_warm_up_that_ends_with_a_window_keeps_the_step_size_it_found():
    begin, update, final = window_adaptation(0.8)
    found = begin(jnp.zeros(3))
    for is_last in (False, False, True):
        before = found
        found = update(found, True, is_last, jnp.ones(3), 0.5)
    # The third acceptance of 0.5 moved the average of the step size so far.
    kept = float(final(found).step_size)
    assert kept == pytest.approx(float(final(before).step_size), rel=0.5)
    assert kept < 0.1  # an average of nothing would be 1


@pytest.mark.parametrize("name", ["mfvi", "ncai", "map"])
def test_the_bar_shows_every_term_of_the_objective(name):
    told = []
    training = Training(num_restarts=1, max_steps=20, warm_start_steps=10)
    method = METHODS[name]().resolved("paper")
    driver = Driver(on_progress=told.append)
    method.fit(jax.random.key(0), MODEL, DATA, training, driver)
    line = describe(told[-1])
    # What follows from the others, or is a constant, is left out.
    derived = {"elbo", "log_joint", "log_hyperprior"}
    for term in set(told[-1].terms) - derived:
        assert SHORT_NAMES[term] in line


def test_a_chain_whose_start_is_lost_starts_where_another_does(monkeypatch):
    whole = NCAI0.fit

    def losing_one(self, *arguments):
        fit = whole(self, *arguments)
        weights = np.array(fit.posterior.mean.weights)
        weights[1] = np.nan
        mean = fit.posterior.mean._replace(weights=weights)
        alive = np.array([True, False])
        return replace(fit, posterior=replace(fit.posterior, mean=mean), alive=alive)

    monkeypatch.setattr(NCAI0, "fit", losing_one)
    sampler = HMC(n_chains=2, start_steps=50).resolved("paper")
    with pytest.warns(UserWarning, match="1 of 2 chains had a start that became non-"):
        point, priors = sampler._starts(
            jax.random.key(0), MODEL, DATA, Training(), Driver()
        )
    assert np.isfinite(point.weights).all()
    np.testing.assert_array_equal(point.weights[0], point.weights[1])
    assert np.isfinite(priors.weight_variance)


@pytest.mark.filterwarnings("ignore:.*chains have NOT mixed")
def test_a_ctrl_c_whose_exception_is_dropped_ends_sampling_with_its_draws():
    def press(progress):
        if progress.stage == "sampling":
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)

    method = short_sampler(n_warmup=25)
    fit = method.fit(
        jax.random.key(0), MODEL, DATA, Training(), Driver(on_progress=press)
    )
    assert fit.interrupted
    assert fit.stop_reasons[-1] == "sampling: interrupted after 25 draws"
    assert fit.posterior.samples.weights.shape[:2] == (2, 25)
