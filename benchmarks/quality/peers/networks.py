"""Peers made of networks: deep ensemble, mixture density network and MC dropout.

Deep ensemble: 5 networks that give a mean and a variance (layers of 50), tuned over
layers (the paper has one), rate, epochs (the paper has 0.1 and 40) and weight decay;
without the paper's adversarial examples.

Mixture density network: one or two hidden layers of 50, 3 to 10 Gaussians. The number
of epochs (up to 300) is found on rows held out, then all rows are fitted.

MC dropout: one or two hidden layers of 50, 400 epochs (the authors' longer setting).
Dropout on the inputs and on the hidden layers, in training and in prediction; 500
passes. Layers, rate and the one noise width for all rows are tuned on the first split.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
import torch
from protocol import Peer, Prediction, held_out, run_peer, tune_nested
from torch import nn
from torch.nn import functional

BATCH = 100
HIDDEN = [[50], [50, 50]]  # that of the standard protocol, and one layer more
MEMBERS = 5
ENSEMBLE_GRID = [
    {"hidden": hidden, "rate": rate, "epochs": epochs, "decay": decay}
    for hidden in HIDDEN
    for rate, epochs in ((0.1, 40), (0.01, 40), (0.01, 200), (0.01, 400), (0.003, 400))
    for decay in (0.0, 1e-3)
]
MOST_EPOCHS = 300
MIXTURE_GRID = [
    {"hidden": hidden, "components": components, "decay": decay}
    for hidden in HIDDEN
    for components in (3, 5, 10)
    for decay in (0.0, 1e-3, 1e-2)
]
DROPOUT_EPOCHS = 400
PASSES = 500
DROPOUT_DECAY = 1e-6
TRAINED = [
    {"hidden": hidden, "dropout": rate}
    for hidden in HIDDEN
    for rate in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
]
# Standard deviations of the noise, in units of the targets'.
WIDTHS = [{"width": float(width)} for width in np.round(np.geomspace(0.01, 1.0, 25), 4)]
DROPOUT_GRID = [trained | width for trained in TRAINED for width in WIDTHS]


class Members(nn.Module):
    """Independent networks of the same hidden layers, as one batched computation.

    Dropout, if any, is on the inputs and on every hidden layer, always.
    """

    def __init__(self, members, inputs, hidden, outputs, dropout=0.0):
        super().__init__()
        self.dropout = dropout
        sizes = (inputs, *hidden, outputs)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for before, after in itertools.pairwise(sizes):
            bound = 1 / math.sqrt(before)
            weights = torch.empty(members, before, after).uniform_(-bound, bound)
            self.weights.append(weights)
            self.biases.append(torch.zeros(members, 1, after))

    def forward(self, inputs):
        """[members, rows, inputs] -> [members, rows, outputs]."""
        hidden = inputs
        for number, (weights, bias) in enumerate(
            zip(self.weights, self.biases, strict=True)
        ):
            hidden = torch.relu(hidden) if number else hidden
            if self.dropout:
                hidden = functional.dropout(hidden, self.dropout)
            hidden = torch.baddbmm(bias, hidden, weights)
        return hidden


def tensors(rows):
    return (
        torch.as_tensor(rows.inputs, dtype=torch.float32),
        torch.as_tensor(rows.targets, dtype=torch.float32),
    )


class Schedule(NamedTuple):
    epochs: int
    rate: float
    decay: float = 0.0


def train(model, rows, loss, members, schedule, after_epoch=None):
    """Adam in batches of 100; each member has an order of rows of its own.

    `loss(outputs, targets)` is the mean over rows, summed over members.
    """
    inputs, targets = tensors(rows)
    number = len(targets)
    optimiser = torch.optim.Adam(
        model.parameters(), lr=schedule.rate, weight_decay=schedule.decay
    )
    for epoch in range(schedule.epochs):
        order = torch.stack([torch.randperm(number) for _ in range(members)])
        for start in range(0, number, BATCH):
            batch = order[:, start : start + BATCH]
            value = loss(model(inputs[batch]), targets[batch])
            optimiser.zero_grad(set_to_none=True)
            value.backward()
            optimiser.step()
        if after_epoch is not None:
            after_epoch(epoch)
    return model


def moments(outputs):
    return outputs[..., 0], functional.softplus(outputs[..., 1]) + 1e-6


def ensemble_loss(outputs, targets):
    mean, variance = moments(outputs)
    rows = 0.5 * (torch.log(variance) + (targets - mean) ** 2 / variance)
    return rows.mean(dim=1).sum()


def fit_ensemble(rows, settings, seed, valid):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = Members(MEMBERS, rows.inputs.shape[1], settings["hidden"], 2)
    schedule = Schedule(settings["epochs"], settings["rate"], settings["decay"])
    train(model, rows, ensemble_loss, MEMBERS, schedule)

    @torch.no_grad()
    def predict(inputs):
        inputs = torch.as_tensor(inputs, dtype=torch.float32)
        mean, variance = moments(model(inputs.expand(MEMBERS, *inputs.shape)))
        return Prediction(mean.T.double().numpy(), variance.T.double().numpy() ** 0.5)

    return predict


def mixture_parts(outputs):
    logits, means, raw = outputs.chunk(3, dim=-1)
    return torch.log_softmax(logits, -1), means, functional.softplus(raw) + 1e-3


def mixture_loss(outputs, targets):
    log_weights, means, stds = mixture_parts(outputs)
    standard = (targets[..., None] - means) / stds
    rows = torch.logsumexp(
        log_weights - 0.5 * standard**2 - torch.log(stds) - 0.5 * math.log(2 * math.pi),
        -1,
    )
    return -rows.mean()


def mixture_network(rows, settings, seed, epochs, stop=None):
    """The mixture_network, and its NLL on the rows to stop by after each epoch."""
    torch.manual_seed(seed)
    outputs = 3 * settings["components"]
    model = Members(1, rows.inputs.shape[1], settings["hidden"], outputs)
    found, watch = [], None
    if stop is not None:
        inputs, targets = tensors(stop)

        def watch(_):
            with torch.no_grad():
                found.append(float(mixture_loss(model(inputs[None]), targets[None])))

    schedule = Schedule(epochs, 0.005, settings["decay"])
    train(model, rows, mixture_loss, 1, schedule, watch)
    return model, found


def fit_mixture(rows, settings, seed, valid):
    torch.set_num_threads(1)
    inner, stop = (rows, valid) if valid is not None else held_out(rows, seed)
    _, found = mixture_network(inner, settings, seed, MOST_EPOCHS, stop)
    model, _ = mixture_network(rows, settings, seed, int(np.nanargmin(found)) + 1)

    @torch.no_grad()
    def predict(inputs):
        outputs = model(torch.as_tensor(inputs, dtype=torch.float32)[None])[0]
        log_weights, means, stds = (p.double().numpy() for p in mixture_parts(outputs))
        return Prediction(means, stds, np.exp(log_weights))

    return predict


def dropout_loss(outputs, targets):
    return ((outputs[..., 0] - targets) ** 2).mean()


def passes(rows, settings, seed):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = Members(1, rows.inputs.shape[1], settings["hidden"], 1, settings["dropout"])
    schedule = Schedule(DROPOUT_EPOCHS, 0.003, DROPOUT_DECAY)
    train(model, rows, dropout_loss, 1, schedule)

    @torch.no_grad()
    def predict(inputs):
        inputs = torch.as_tensor(inputs, dtype=torch.float32)
        means = [model(inputs[None])[0, :, 0] for _ in range(PASSES)]
        return torch.stack(means, dim=1).double().numpy()

    return predict


def widened(means, settings):
    return Prediction(means, np.asarray(settings["width"]))


def fit_dropout(rows, settings, seed, valid):
    predict = passes(rows, settings, seed)
    return lambda inputs: widened(predict(inputs), settings)


def tune_dropout(rows, valid, seed):
    return tune_nested(passes, widened, TRAINED, WIDTHS, rows, valid, seed)


PEERS = {
    "deep_ensemble": Peer(fit_ensemble, ENSEMBLE_GRID, ("torch",)),
    "mdn": Peer(fit_mixture, MIXTURE_GRID, ("torch",)),
    "mc_dropout": Peer(fit_dropout, DROPOUT_GRID, ("torch",), tune_dropout),
}


if __name__ == "__main__":
    run_peer(PEERS)
