"""MC dropout: one hidden layer of 50, 400 epochs (the authors' longer setting).

Dropout on the inputs and on the hidden layer, in training and in prediction; 500
passes. The rate and the one noise width for all rows are tuned on the first split.
"""

import numpy as np
import torch
from network import Members, train
from protocol import Prediction, run_peer
from torch.nn import functional

EPOCHS = 400
PASSES = 500
DECAY = 1e-6
RATES = (0.005, 0.01, 0.05, 0.1)
# Standard deviations of the noise, in units of the targets'.
WIDTHS = tuple(float(w) for w in np.round(np.geomspace(0.01, 1.0, 25), 4))
GRID = [{"dropout": rate, "width": width} for rate in RATES for width in WIDTHS]


class Dropped(Members):
    def __init__(self, inputs, rate):
        super().__init__(1, inputs, 50, 1)
        self.rate = rate

    def forward(self, inputs):
        inputs = functional.dropout(inputs, self.rate)
        hidden = torch.relu(inputs @ self.first + self.first_bias)
        hidden = functional.dropout(hidden, self.rate)
        return hidden @ self.last + self.last_bias


def loss(outputs, targets):
    return ((outputs[..., 0] - targets) ** 2).mean()


def passes(rows, rate, seed):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = Dropped(rows.inputs.shape[1], rate)
    train(model, rows, loss, 1, EPOCHS, 0.003, DECAY)

    @torch.no_grad()
    def predict(inputs):
        inputs = torch.as_tensor(inputs, dtype=torch.float32)
        means = [model(inputs[None])[0, :, 0] for _ in range(PASSES)]
        return torch.stack(means, dim=1).double().numpy()

    return predict


def fit(rows, settings, seed, valid):
    predict = passes(rows, settings["dropout"], seed)
    return lambda inputs: Prediction(predict(inputs), np.asarray(settings["width"]))


def tune(rows, valid, seed):
    """One training serves every width."""
    scores = []
    for rate in RATES:
        means = passes(rows, rate, seed)(valid.inputs)
        for width in WIDTHS:
            found = Prediction(means, np.asarray(width))
            scores.append(-found.log_density(valid.targets).mean())
    return GRID[int(np.argmin(scores))], scores


if __name__ == "__main__":
    run_peer(fit, GRID, ("torch",), tune)
