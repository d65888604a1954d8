"""A fit on real rows, found through NCAI_DATA_DIR."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from ncai import BNNLVRegressor

FOLDER = os.environ.get("NCAI_DATA_DIR")

pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(
        not FOLDER or not Path(FOLDER).is_dir(),
        reason="the real data sets are not here: NCAI_DATA_DIR names no folder",
    ),
]


def test_energy_is_learned_and_covered():
    table = pd.read_csv(Path(FOLDER) / "energy.csv")
    order = np.random.default_rng(0).permutation(len(table))
    train, test = table.iloc[order[100:]], table.iloc[order[:100]]
    inputs, target = list(table.columns[:-1]), table.columns[-1]
    model = BNNLVRegressor(max_steps=3_000, n_restarts=3, random_state=0)
    model.fit(train[inputs], train[target])
    marginal = norm(train[target].mean(), train[target].std())
    # A network that learns nothing has the marginal's score; this one gains 1.5 nats.
    score = model.log_score(test[inputs], test[target])
    assert score > marginal.logpdf(test[target]).mean() + 1.0
    lower, upper = model.predict_interval(test[inputs], level=0.95).T
    covered = np.mean((test[target] >= lower) & (test[target] <= upper))
    assert covered > 0.85
