"""Peers made of trees: NGBoost, CatBoost and a quantile regression forest.

NGBoost boosts a normal distribution by natural gradients. Trees of depth 2 to 5; the
number of them by validation NLL, as its authors do: found on rows held out, then fitted
anew to all. Up to 500 at a rate of 0.04: as long a way as 2,000 at the usual 0.01, in a
quarter of the time.

CatBoost with RMSEWithUncertainty boosts mean and variance. The number of trees (up to
3,000) is found on rows held out, then all rows are fitted.

The forest has quantiles and no density. CRPS, mean and interval are those of its
quantiles at 199 even levels; for NLL each of them carries a Gaussian kernel, whose
width is `factor` times Silverman's for the row (the smaller of standard deviation and
interquartile range / 1.34, at least 1 % of the standard deviation of y), with the
factor tuned.

Each library is imported where it is used, because each may be missing.
"""

import numpy as np
from protocol import Peer, Prediction, held_out, run_peer, tune_nested

MOST_NATURAL_TREES = 500
NATURAL_GRID = [
    {"depth": depth, "minibatch": rows, "columns": columns}
    for depth in (2, 3, 4, 5)
    for rows in (1.0, 0.5)
    for columns in (1.0, 0.5)
]
MOST_CAT_TREES = 3000
CAT_GRID = [
    {"rate": rate, "depth": depth, "l2": l2}
    for rate in (0.01, 0.03, 0.1)
    for depth in (3, 4, 6, 8)
    for l2 in (1.0, 3.0, 10.0)
]
FOREST_TREES = 300
LEVELS = (np.arange(199) + 0.5) / 199
GROWN = [
    {"leaf": leaf, "features": features}
    for leaf in (1, 2, 3, 5, 10, 20)
    for features in (1.0, 0.67, 0.33)
]
FACTORS = [{"factor": factor} for factor in (0.25, 0.5, 1.0, 2.0, 4.0)]
FOREST_GRID = [grown | factor for grown in GROWN for factor in FACTORS]


def boost(train, settings, seed, trees):
    from ngboost import NGBRegressor
    from ngboost.distns import Normal
    from sklearn.tree import DecisionTreeRegressor

    model = NGBRegressor(
        Dist=Normal,
        Base=DecisionTreeRegressor(max_depth=settings["depth"], random_state=seed),
        n_estimators=trees,
        learning_rate=0.04,
        minibatch_frac=settings["minibatch"],
        col_sample=settings["columns"],
        verbose=False,
        random_state=seed,
    )
    return model.fit(train.inputs, train.targets)


def validation_nll(model, valid):
    return [
        -d.logpdf(valid.targets).mean() for d in model.staged_pred_dist(valid.inputs)
    ]


def fit_natural(train, settings, seed, valid):
    inner, stop = (train, valid) if valid is not None else held_out(train, seed)
    model = boost(inner, settings, seed, MOST_NATURAL_TREES)
    trees = int(np.argmin(validation_nll(model, stop))) + 1
    if valid is None:
        model = boost(train, settings, seed, trees)

    def predict(inputs):
        found = model.pred_dist(inputs, max_iter=trees)
        return Prediction(found.loc[:, None], found.scale[:, None])

    return predict


def make_cat(settings, seed, trees, **more):
    from catboost import CatBoostRegressor

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


def fit_cat(train, settings, seed, valid):
    inner, stop = (train, valid) if valid is not None else held_out(train, seed)
    model = make_cat(settings, seed, MOST_CAT_TREES, early_stopping_rounds=100)
    model.fit(inner.inputs, inner.targets, eval_set=(stop.inputs, stop.targets))
    if valid is None:
        trees = max(model.get_best_iteration() + 1, 1)
        model = make_cat(settings, seed, trees)
        model.fit(train.inputs, train.targets)

    def predict(inputs):
        mean, variance = model.predict(inputs, prediction_type="RMSEWithUncertainty").T
        return Prediction(mean[:, None], variance[:, None] ** 0.5)

    return predict


def quantiles(train, settings, seed):
    from quantile_forest import RandomForestQuantileRegressor

    model = RandomForestQuantileRegressor(
        n_estimators=FOREST_TREES,
        min_samples_leaf=settings["leaf"],
        max_features=settings["features"],
        random_state=seed,
    )
    model.fit(train.inputs, train.targets)
    return lambda inputs: np.asarray(model.predict(inputs, quantiles=list(LEVELS)))


def smoothed(points, settings):
    quartiles = np.quantile(points, [0.25, 0.75], axis=1)
    robust = (quartiles[1] - quartiles[0]) / 1.34
    spread = points.std(axis=1)
    spread = np.where(robust > 0, np.minimum(robust, spread), spread)
    width = settings["factor"] * 0.9 * spread * points.shape[1] ** -0.2
    return Prediction(points, np.maximum(width, 0.01)[:, None], points=points)


def fit_forest(train, settings, seed, valid):
    predict = quantiles(train, settings, seed)
    return lambda inputs: smoothed(predict(inputs), settings)


def tune_forest(train, valid, seed):
    return tune_nested(quantiles, smoothed, GROWN, FACTORS, train, valid, seed)


PEERS = {
    "ngboost": Peer(fit_natural, NATURAL_GRID, ("ngboost", "scikit-learn")),
    "catboost": Peer(fit_cat, CAT_GRID, ("catboost",)),
    "quantile_forest": Peer(
        fit_forest, FOREST_GRID, ("quantile-forest", "scikit-learn"), tune_forest
    ),
}


if __name__ == "__main__":
    run_peer(PEERS)
