"""What one training step costs: restarts together, HZ, and how it grows with rows."""

from collections.abc import Callable
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.speed.fit_worker import DoubleSumPenalties
from benchmarks.speed.timing import ratios, seconds_in_turn
from ncai.inference.starts import mean_field_at, random_point
from ncai.model.bnn_lv import Model, Variance
from ncai.model.empirical_bayes import initial_priors_of
from ncai.model.networks import MLP, FlatNetwork
from ncai.objectives.elbo import NegativeElbo
from ncai.objectives.penalties import Penalties
from ncai.training.driver import Driver
from ncai.training.stage import Stage
from ncai.training.step import TrainState, initial_state
from ncai.types import Data

SIZES = {"goldberg": (200, 20), "depeweg": (750, 50)}


def _setting(num_rows: int, hidden: int, restarts: int):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(num_rows, 1))
    targets = np.sin(inputs) + 0.3 * rng.exponential(size=(num_rows, 1))
    data = Data(
        *(jnp.asarray(a, jnp.float32) for a in (inputs, targets, np.ones(num_rows)))
    )
    model = Model(
        FlatNetwork(MLP((hidden,)), 1, 1, 1),
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray(1.0)),
        Variance(jnp.asarray([0.1])),
    )
    keys = jax.random.split(jax.random.key(0), restarts)
    points = jax.vmap(lambda k: random_point(k, model, num_rows))(keys)
    q = jax.vmap(lambda k, p: mean_field_at(k, model, p))(keys, points)
    priors = initial_priors_of(keys, model)
    return model, data, initial_state(q, priors, keys)


def _run(penalties: Penalties | None, setting, num_steps: int) -> TrainState:
    model, data, state = setting
    stage = Stage("bench", NegativeElbo(1, penalties), max_steps=num_steps)
    return Driver().run(stage, model, data, state)


def step_costs(
    say: Callable[[str], None], num_steps: int = 2000, repeats: int = 5
) -> list[dict]:
    """A step of ten restarts against ten steps of one, and HZ against its double sum.

    Our own variants only: these are ratios within this package.
    """
    out = []
    for name, (num_rows, hidden) in SIZES.items():
        ten = _setting(num_rows, hidden, 10)
        one = _setting(num_rows, hidden, 1)

        def steps_of(penalties, setting):
            return lambda: _run(penalties, setting, num_steps).params

        seconds = seconds_in_turn(
            {
                "mfvi": steps_of(None, ten),
                "mfvi, one restart": steps_of(None, one),
                "ncai": steps_of(Penalties(offdiagonal_weight=0.0), ten),
                "ncai, HZ by double sum": steps_of(
                    DoubleSumPenalties(offdiagonal_weight=0.0), ten
                ),
            },
            repeats,
        )
        milliseconds = {
            label: 1e3 * median(times) / num_steps for label, times in seconds.items()
        }
        alone = [10 * s for s in seconds["mfvi, one restart"]]
        result = {
            "case": name,
            "rows": num_rows,
            "hidden": hidden,
            "restarts": 10,
            "milliseconds_a_step": milliseconds,
            "gain_of_restarts_together": ratios(alone, seconds["mfvi"]),
            "gain_of_hz_in_linear_time": ratios(
                seconds["ncai, HZ by double sum"], seconds["ncai"]
            ),
        }
        out.append(result)
        say(
            f"{name} ({num_rows} rows, {hidden} hidden, 10 restarts): a step takes "
            f"{milliseconds['mfvi']:.2f} ms (MFVI), {milliseconds['ncai']:.2f} ms "
            "(NCAI); ten restarts in turn would take "
            f"{result['gain_of_restarts_together']['median']:.1f}x, HZ by its double "
            f"sum {result['gain_of_hz_in_linear_time']['median']:.1f}x"
        )
    return out


def growth_with_rows(
    say: Callable[[str], None], sizes=(100, 1000, 10_000, 100_000), hidden: int = 50
) -> list[dict]:
    """Milliseconds of a full-batch step with penalties, one restart."""
    out = []
    for num_rows in sizes:
        setting = _setting(num_rows, hidden, 1)
        num_steps = int(np.clip(2_000_000 // num_rows, 20, 1000))
        seconds = seconds_in_turn(
            {
                "ncai": lambda s=setting, n=num_steps: _run(
                    Penalties(offdiagonal_weight=0.0), s, n
                )
            },
            repeats=3,
        )["ncai"]
        milliseconds = 1e3 * median(seconds) / num_steps
        out.append({"rows": num_rows, "milliseconds_a_step": milliseconds})
        say(
            f"{num_rows} rows: {milliseconds:.3f} ms a step, "
            f"{1e6 * milliseconds / num_rows:.0f} ns a row"
        )
    return out
