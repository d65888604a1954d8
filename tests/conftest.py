"""Fixtures that more than one file uses; nothing here acts on its own."""

import jax
import pytest


@pytest.fixture
def x64():
    """64-bit arrays inside one test, 32-bit again after it."""
    with jax.enable_x64(True):
        yield
