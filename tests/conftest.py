"""Fixtures that more than one file uses, and what every process needs."""

import gc
import inspect
import os
import signal
import zlib
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, Self, get_args

import jax
import jaxtyping
import numpy as np
import pandas as pd
import pytest
import typer
from beartype import BeartypeConf, beartype
from jaxtyping import TypeCheckError, install_import_hook
from numpy.typing import ArrayLike

# An int may be given where a float is asked for (PEP 484).
_CHECKS = BeartypeConf(is_pep484_tower=True, violation_type=TypeCheckError)
# Names of sizes stand for the same number within one call.
_SIZES_OF_ONE_CALL = inspect.unwrap(jaxtyping.jaxtyped)("context")


@wraps(jaxtyping.jaxtyped)
def checked(function=None, *, typechecker=None):
    """Check each call of `function` against its annotations, shapes included.

    It takes the place of `jaxtyping.jaxtyped`, which checks arguments twice in each
    call to tell more of an error, and takes two to five times as long.
    """
    if function is None:
        return checked
    if isinstance(function, classmethod | staticmethod):
        return type(function)(checked(function.__func__))
    if isinstance(function, property):
        parts = (function.fget, function.fset, function.fdel)
        return property(*(part and checked(part) for part in parts))
    if inspect.isclass(function):
        constructor = function.__init__
        if is_dataclass(function) and not hasattr(constructor, "__wrapped__"):
            function.__init__ = checked(constructor)
        return function
    given = function.__annotations__
    names = function.__globals__
    function.__annotations__ = {n: _checkable(h, names) for n, h in given.items()}
    with_checks = beartype(function, conf=_CHECKS)
    function.__annotations__ = given

    @wraps(function)
    def call(*args, **kwargs):
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        with _SIZES_OF_ONE_CALL:
            return with_checks(*args, **kwargs)

    return call


def _checkable(hint, names):
    """The annotation, or Any where it cannot be checked while the tests run."""
    if isinstance(hint, str):
        try:
            hint = eval(hint, names)
        except NameError:  # a class that is not complete, or imported for types alone
            return Any
    # Functions are decorated one by one, where `Self` has no class to stand for; typer
    # gives a command another class than it asks for; and NumPy's own protocol for
    # sequences, a part of `ArrayLike`, refuses tuples.
    parts = get_args(hint)
    if hint in (Self, typer.Context) or all(p in parts for p in get_args(ArrayLike)):
        return Any
    return hint


# Before anything of the package is imported: the hook decorates all its functions with
# what has this name.
jaxtyping.jaxtyped = checked
install_import_hook("ncai", None)
jax.config.update("jax_legacy_prng_key", "error")
# Most programs run for a moment, once: compiling them well takes longer than they do.
# Tests that compute for long ask for `well_compiled`. Processes that tests start find
# the same in their environment. Code for fusions is made the older way, in half the
# time.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
_QUICK_TO_COMPILE = "--xla_cpu_use_fusion_emitters=false"
_QUICK_TO_COMPILE += " --xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_QUICK_TO_COMPILE}"
jax.config.update("jax_disable_most_optimizations", True)
# Tracing makes many objects that live long, and looking for cycles in them takes time.
gc.set_threshold(50_000, 20, 50)

# A shell that starts a program in the background has it ignore Ctrl-C; tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Linux gives a process 65,530 memory maps, and a compiled program takes several: a
# process that runs hundreds of tests would be aborted in the middle of one. Tests of a
# file share programs, so they are let go of between files if that can be.
MOST_MEMORY_MAPS = 40_000
MOST_FOR_THE_NEXT_FILE = 15_000
TESTS_BETWEEN_LOOKS = 5
_tests_run = 0
# Files that take longest, begun first: none is then left to one worker at the end.
LONG_FILES = ("test_docs.py", "test_target_map.py", "test_contracts.py")
LONG_FILES = (*LONG_FILES, "test_fitting.py", "test_sklearn.py", "test_engine.py")
LONG_FILES = (*LONG_FILES, "test_distribution.py", "test_committed_results.py")
LONG_FILES = (*LONG_FILES, "test_commands.py", "test_experiments.py")
LONG_FILES = (*LONG_FILES, "test_model.py", "test_interop.py", "test_objectives.py")
LONG_FILES = (*LONG_FILES, "test_driver.py", "test_jax_setup.py", "test_quality.py")


def pytest_collection_modifyitems(items):
    """Long files first; within a file nothing moves."""
    rank = {name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """Let go of compiled programs before there are too many."""
    yield  # what the test patched is as it was
    global _tests_run
    _tests_run += 1
    last_of_its_file = nextitem is None or nextitem.path != item.path
    maps = Path("/proc/self/maps")
    if not maps.exists() or (_tests_run % TESTS_BETWEEN_LOOKS and not last_of_its_file):
        return
    most = MOST_FOR_THE_NEXT_FILE if last_of_its_file else MOST_MEMORY_MAPS
    if maps.read_bytes().count(b"\n") > most:
        jax.clear_caches()


@contextmanager
def unchecked():
    """No checks for a while, where wrong types or stand-ins are given on purpose."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture
def key(request):
    """A random key of one test alone: its name is the seed."""
    return jax.random.key(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def any_types():
    """No checks inside one test, which gives wrong types on purpose.

    It looks for the message of the package itself: users run it without these checks.
    Or it calls small functions a million times, and checks would take most of it.
    """
    with unchecked():
        yield


@pytest.fixture
def x64():
    """64-bit arrays inside one test, 32-bit again after it."""
    with jax.enable_x64(True):
        yield


@contextmanager
def compiling_well():
    """Programs with the usual optimisations."""
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def well_compiled():
    """Optimised programs, for a test that computes for seconds."""
    with compiling_well():
        yield


@pytest.fixture
def few_draws(monkeypatch):
    """Few draws in each prediction, where the code is tested and not the numbers."""
    draw_little(monkeypatch)


def draw_little(monkeypatch):
    """Give every method small defaults of `n_weight_draws` and `n_latent_draws`."""
    from ncai.inference.registry import METHODS

    for method in METHODS.values():
        for name, value in (("n_weight_draws", 16), ("n_latent_draws", 8)):
            constructor = inspect.unwrap(method.__init__)  # without the type checks
            monkeypatch.setitem(constructor.__kwdefaults__, name, value)


@pytest.fixture
def short_fits(few_draws, monkeypatch):
    """Few steps, restarts and draws, where the code is tested and not the fits."""
    from ncai.inference.registry import METHODS

    for method in METHODS.values():
        usual = method.presets["default"]
        network = usual.network
        if network.latent_hidden == "auto":  # one network to compile in place of two
            network = replace(network, latent_hidden=(20,))
        quick = replace(usual, network=network, max_steps=20, n_restarts=2)
        monkeypatch.setitem(method.presets, "default", quick)


# ----- Tables and models that the tests of several commands share ---------------------


def fitted_to(path, target, out, *options):
    """What `ncai fit` tells; the model has few draws, a number that its file keeps."""
    from helpers import QUICK, run  # after the hook above

    with pytest.MonkeyPatch.context() as patch:
        draw_little(patch)
        told = run("fit", path, "--target", target, "--out", out, *QUICK, *options)
    assert told.exit_code == 0, told.stderr
    return told


@pytest.fixture(scope="session")
def houses():
    rng = np.random.default_rng(0)
    num = 90
    size = rng.gamma(4, 25, num)
    return pd.DataFrame(
        {
            "size": size,
            "town": rng.choice(["Ulm", "Bonn", "Kiel"], num),
            "age": np.where(rng.random(num) < 0.2, np.nan, rng.integers(0, 90, num)),
            "sold": pd.date_range("2019-01-01", periods=num, freq="20D").astype(str),
            "land": "DE",
            "price": 50 + 2 * size + rng.exponential(0.3 * size),
        }
    )


@pytest.fixture(scope="session")
def folder(houses, tmp_path_factory):
    """Tables, a model, and what `fit --json` printed."""
    folder = tmp_path_factory.mktemp("houses")
    houses.iloc[:70].to_csv(folder / "houses.csv", index=False)
    houses.iloc[70:].to_csv(folder / "new.csv", index=False)
    result = fitted_to(folder / "houses.csv", "price", folder / "h.ncai", "--json")
    (folder / "fit.json").write_text(result.stdout)
    return folder


@pytest.fixture(scope="session")
def table():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, size=(2, 60))
    y = 10 + a + (1.2 + a) * rng.exponential(0.5, size=60)
    return pd.DataFrame({"id": np.arange(60), "a": a, "b": b, "y": y})


@pytest.fixture(scope="session")
def data(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.csv"
    table.to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def trained(data):
    """Folder with data.csv and the model fitted to it, and what `fit` printed."""
    folder = data.parent
    told = fitted_to(folder / "data.csv", "y", folder / "m.ncai", "--drop", "id")
    return folder, told
