"""The estimators as scikit-learn sees them."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from ncai import BNNLVRegressor, BNNRegressor

TINY = {
    "hidden": (8,),
    "max_steps": 500,
    "learning_rate": 0.03,
    "n_restarts": 1,
    "n_weight_draws": 16,
    "random_state": 0,
}


def expected_failures(estimator):
    del estimator
    return {
        "check_sample_weight_equivalence_on_dense_data": (
            "a row of weight 2 and two equal rows are the same to the objective, but "
            "not to the random numbers of training and of the latents"
        )
    }


@parametrize_with_checks(
    [
        BNNLVRegressor(inference="ncai0", n_latent_draws=4, **TINY),
        BNNRegressor(**TINY),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
