"""A method from outside the package is as good as one of its own."""

from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from helpers import CONTRACTS, check, data, run
from ncai import MAP, BNNLVRegressor, ModelFileError, TableModel, register
from ncai.inference.base import GradientMethod
from ncai.inference.registry import METHODS
from ncai.runtime import arguments
from tests.conftest import draw_little


@dataclass(frozen=True, kw_only=True, repr=False)
class Toy(GradientMethod):
    """A mode, with a Gaussian of the same width around every unknown.

    Args:
        width: standard deviation of each unknown.
    """

    name: ClassVar[str] = "toy"
    label: ClassVar[str] = "Toy inference"

    width: float = arguments.setting(0.05, arguments.positive)

    def fit(self, key, model, data, training, driver=None):
        return self._widened(self._map.fit(key, model, data, training, driver))

    def continue_from(self, key, model, data, posterior, training, driver=None):
        return self._widened(
            self._map.continue_from(key, model, data, posterior, training, driver)
        )

    @property
    def _map(self):
        known = MAP().get_params()
        return MAP(**{k: v for k, v in self.get_params().items() if k in known})

    def _widened(self, fit):
        scale = jax.tree.map(
            lambda a: jnp.full_like(a, self.width), fit.posterior.scale
        )
        return replace(fit, posterior=replace(fit.posterior, scale=scale))


@pytest.fixture(scope="module", autouse=True)
def registered():
    register(Toy)
    yield
    del METHODS["toy"]


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda c: c.__name__)
def test_a_toy_keeps_the_contracts(contract, tmp_path):
    check(contract, "toy", tmp_path)


def test_its_settings_are_those_of_its_class():
    model = BNNLVRegressor(inference="toy").set_params(inference__width=0.2)
    assert model.inference == Toy(width=0.2)
    assert "Toy(" in repr(model)
    assert "width=0.2" in repr(model)
    with pytest.raises(ValueError, match="width=-1 must be"):
        model.set_params(inference__width=-1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, and what `ncai fit --inference toy` made of it."""
    folder = tmp_path_factory.mktemp("toy")
    x, y = data(60)
    pd.DataFrame({"dose": x[:, 0], "effect": y}).to_csv(folder / "t.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        draw_little(patch)
        result = run(
            *(
                "fit",
                folder / "t.csv",
                "--target",
                "effect",
                "--out",
                folder / "t.ncai",
            ),
            *("--inference", "toy", "--max-steps", 60, "--restarts", 2),
            *("--report", folder / "t.html"),
        )
    assert result.exit_code == 0, (result.stderr, result.exception)
    return folder


def test_the_command_line_knows_it(folder):
    result = run("predict", folder / "t.ncai", folder / "t.csv", "--out", "-")
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert len(result.stdout.splitlines()) == 61
    result = run("inspect", folder / "t.ncai")
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert "toy" in result.stdout
    assert "width" in result.stdout
    result = run("diagnose", folder / "t.ncai")
    assert result.exit_code == 0, (result.stderr, result.exception)


def test_the_report_names_it(folder):
    page = (folder / "t.html").read_text()
    assert Toy.label in page
    assert "</html>" in page


def test_a_file_of_a_method_that_is_not_registered_says_how(folder, monkeypatch):
    table = pd.read_csv(folder / "t.csv")
    assert np.isfinite(TableModel.load(folder / "t.ncai").predict(table)).all()
    monkeypatch.delitem(METHODS, "toy")
    with pytest.raises(ModelFileError, match=r"'toy'.*registry\.register"):
        BNNLVRegressor.load(folder / "t.ncai")
