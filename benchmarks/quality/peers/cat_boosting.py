"""CatBoost with RMSEWithUncertainty: boosted mean and variance.

The number of trees (up to 3,000) is found on rows held out, then all rows are fitted.
"""

from catboost import CatBoostRegressor
from protocol import Prediction, held_out, run_peer

MOST_TREES = 3000
GRID = [
    {"rate": rate, "depth": depth, "l2": l2}
    for rate in (0.01, 0.03, 0.1)
    for depth in (3, 4, 6, 8)
    for l2 in (1.0, 3.0, 10.0)
]


def make(settings, seed, trees, **more):
    return CatBoostRegressor(
        loss_function="RMSEWithUncertainty",
        iterations=trees,
        learning_rate=settings["rate"],
        depth=settings["depth"],
        l2_leaf_reg=settings["l2"],
        random_seed=seed,
        thread_count=1,
        allow_writing_files=False,
        verbose=False,
        **more,
    )


def fit(train, settings, seed, valid):
    inner, stop = (train, valid) if valid is not None else held_out(train, seed)
    model = make(settings, seed, MOST_TREES, early_stopping_rounds=100)
    model.fit(inner.inputs, inner.targets, eval_set=(stop.inputs, stop.targets))
    if valid is None:
        trees = max(model.get_best_iteration() + 1, 1)
        model = make(settings, seed, trees)
        model.fit(train.inputs, train.targets)

    def predict(inputs):
        mean, variance = model.predict(inputs, prediction_type="RMSEWithUncertainty").T
        return Prediction(mean[:, None], variance[:, None] ** 0.5)

    return predict


if __name__ == "__main__":
    run_peer(fit, GRID, ("catboost",))
