"""Fixtures that more than one file uses, and one thing that every process needs."""

import signal
from dataclasses import replace
from pathlib import Path

import jax
import pytest

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
            monkeypatch.setitem(method.__init__.__kwdefaults__, name, value)
