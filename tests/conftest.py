"""Fixtures that more than one file uses, and one thing that every process needs."""

import inspect
import signal
import zlib
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, get_args

import jax
import jaxtyping
import pytest
import typer
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook
from numpy.typing import ArrayLike

# Before anything of the package is imported: every call of it is then checked against
# its annotations, shapes included.
install_import_hook("ncai", "tests.conftest.checked")
# An int may be given where a float is asked for (PEP 484).
_CHECKS = BeartypeConf(is_pep484_tower=True)
jax.config.update("jax_legacy_prng_key", "error")

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
LONG_FILES = ("test_engine.py", "test_docs.py", "test_sklearn.py")


def pytest_collection_modifyitems(items):
    """Long files first; within a file nothing moves."""
    items.sort(key=lambda item: item.path.name not in LONG_FILES)


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


def checked(function):
    """Check the arguments and the result of `function` against its annotations."""
    hints = function.__annotations__
    hints.update({name: _checkable(hint) for name, hint in hints.items()})
    return beartype(function, conf=_CHECKS)


def _checkable(hint):
    """The annotation, or Any where it cannot be checked while the tests run."""
    # Functions are decorated one by one, where `Self` has no class to stand for; typer
    # gives a command another class than it asks for; and NumPy's own protocol for
    # sequences, a part of `ArrayLike`, refuses tuples.
    parts = get_args(hint)
    if hint in (Self, typer.Context) or all(p in parts for p in get_args(ArrayLike)):
        return Any
    return hint


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
    """
    with unchecked():
        yield


@pytest.fixture
def x64():
    """64-bit arrays inside one test, 32-bit again after it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def short_fits(monkeypatch):
    """Few steps, restarts and draws, where the code is tested and not the fits."""
    from ncai.inference.registry import METHODS

    for method in METHODS.values():
        usual = method.presets["default"]
        network = usual.network
        if network.latent_hidden == "auto":  # one network to compile in place of two
            network = replace(network, latent_hidden=(20,))
        quick = replace(usual, network=network, max_steps=60, n_restarts=2)
        monkeypatch.setitem(method.presets, "default", quick)
        for name, value in (("n_weight_draws", 16), ("n_latent_draws", 8)):
            constructor = inspect.unwrap(method.__init__)  # without the type checks
            monkeypatch.setitem(constructor.__kwdefaults__, name, value)
