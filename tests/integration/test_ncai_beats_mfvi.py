"""The claim of the paper, on its two sets with ground truth: NCAI against plain VI."""

import numpy as np
import pytest

from ncai import make_dataset
from ncai.stats.henze_zirkler import henze_zirkler_test
from small_fits import regressor

LATENT_VARIANCE = {"heavy_tail": 0.01, "depeweg": 1.0}


def scores(name, inference, seed, max_steps):
    data = make_dataset(name, seed=seed)
    model = regressor(
        inference,
        preset="paper",
        standardize=False,
        latent_variance=LATENT_VARIANCE[name],
        noise_variance=0.1,
        input_tolerance=0.1,
        max_steps=max_steps,
        random_state=seed,
    )
    model.fit(
        data.train.inputs,
        data.train.targets[:, 0],
        X_valid=data.valid.inputs,
        y_valid=data.valid.targets[:, 0],
    )
    log_likelihood = model.log_score(data.test.inputs, data.test.targets[:, 0])
    return log_likelihood, henze_zirkler_test(model.latent_posterior_.mean).statistic


def test_ncai_beats_mfvi_once():
    mfvi, hz_mfvi = scores("heavy_tail", "mfvi", 0, 8_000)
    ncai, hz_ncai = scores("heavy_tail", "ncai", 0, 8_000)
    assert ncai > mfvi
    assert hz_ncai < 0.2 * hz_mfvi


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heavy_tail", "depeweg"])
def test_ncai_beats_mfvi_over_five_seeds(name):
    mfvi = np.array([scores(name, "mfvi", seed, 10_000) for seed in range(5)])
    ncai = np.array([scores(name, "ncai", seed, 10_000) for seed in range(5)])
    gain = ncai[:, 0] - mfvi[:, 0]
    print(
        f"{name}: gain in test log-likelihood {gain.mean():.3f}, each {gain.round(3)}"
    )
    assert gain.mean() > 0
    assert np.all(ncai[:, 1] < mfvi[:, 1])
