"""MC dropout: one or two hidden layers of 50, 400 epochs (the authors' longer setting).

Dropout on the inputs and on the hidden layers, in training and in prediction; 500
passes. Layers, rate and the one noise width for all rows are tuned on the first split.
"""

import numpy as np
import torch
from network import HIDDEN, Members, train
from protocol import Prediction, run_peer, tune_nested

EPOCHS = 400
PASSES = 500
DECAY = 1e-6
TRAINED = [
    {"hidden": hidden, "dropout": rate}
    for hidden in HIDDEN
    for rate in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
]
# Standard deviations of the noise, in units of the targets'.
WIDTHS = [{"width": float(width)} for width in np.round(np.geomspace(0.01, 1.0, 25), 4)]
GRID = [trained | width for trained in TRAINED for width in WIDTHS]


def loss(outputs, targets):
    return ((outputs[..., 0] - targets) ** 2).mean()


def passes(rows, settings, seed):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = Members(1, rows.inputs.shape[1], settings["hidden"], 1, settings["dropout"])
    train(model, rows, loss, 1, EPOCHS, 0.003, DECAY)

    @torch.no_grad()
    def predict(inputs):
        inputs = torch.as_tensor(inputs, dtype=torch.float32)
        means = [model(inputs[None])[0, :, 0] for _ in range(PASSES)]
        return torch.stack(means, dim=1).double().numpy()

    return predict


def widened(means, settings):
    return Prediction(means, np.asarray(settings["width"]))


def fit(rows, settings, seed, valid):
    predict = passes(rows, settings, seed)
    return lambda inputs: widened(predict(inputs), settings)


def tune(rows, valid, seed):
    return tune_nested(passes, widened, TRAINED, WIDTHS, rows, valid, seed)


if __name__ == "__main__":
    run_peer(fit, GRID, ("torch",), tune)
