"""Tables and models that the tests of several commands share."""

import numpy as np
import pandas as pd
import pytest

from helpers import QUICK, run


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
    result = run(
        *("fit", folder / "houses.csv", "--target", "price", "--json"),
        *("--out", folder / "h.ncai", *QUICK),
    )
    assert result.exit_code == 0, result.stderr
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
    result = run(
        *("fit", folder / "data.csv", "--target", "y", "--drop", "id"),
        *("--out", folder / "m.ncai", *QUICK),
    )
    assert result.exit_code == 0, result.stderr
    return folder, result
