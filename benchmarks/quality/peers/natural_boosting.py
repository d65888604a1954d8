"""NGBoost: natural gradient boosting of a normal distribution.

Trees of depth 2 to 5; the number of them by validation NLL, as its authors do: found on
rows held out, then fitted anew to all. Up to 500 at a rate of 0.04: as long a way as
2,000 at the usual 0.01, in a quarter of the time.
"""

import numpy as np
from ngboost import NGBRegressor
from ngboost.distns import Normal
from protocol import Prediction, held_out, run_peer
from sklearn.tree import DecisionTreeRegressor

MOST_TREES = 500
GRID = [
    {"depth": depth, "minibatch": rows, "columns": columns}
    for depth in (2, 3, 4, 5)
    for rows in (1.0, 0.5)
    for columns in (1.0, 0.5)
]


def boost(train, settings, seed, trees):
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


def fit(train, settings, seed, valid):
    inner, stop = (train, valid) if valid is not None else held_out(train, seed)
    model = boost(inner, settings, seed, MOST_TREES)
    trees = int(np.argmin(validation_nll(model, stop))) + 1
    if valid is None:
        model = boost(train, settings, seed, trees)

    def predict(inputs):
        found = model.pred_dist(inputs, max_iter=trees)
        return Prediction(found.loc[:, None], found.scale[:, None])

    return predict


if __name__ == "__main__":
    run_peer(fit, GRID, ("ngboost", "scikit-learn"))
