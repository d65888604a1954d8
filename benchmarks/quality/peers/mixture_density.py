"""Mixture density network: one or two hidden layers of 50, 3 to 10 Gaussians.

The number of epochs (up to 300) is found on rows held out, then all rows are fitted.
"""

import math

import numpy as np
import torch
from network import HIDDEN, Members, tensors, train
from protocol import Prediction, held_out, run_peer
from torch.nn import functional

MOST_EPOCHS = 300
GRID = [
    {"hidden": hidden, "components": components, "decay": decay}
    for hidden in HIDDEN
    for components in (3, 5, 10)
    for decay in (0.0, 1e-3, 1e-2)
]


def parts(outputs):
    logits, means, raw = outputs.chunk(3, dim=-1)
    return torch.log_softmax(logits, -1), means, functional.softplus(raw) + 1e-3


def loss(outputs, targets):
    log_weights, means, stds = parts(outputs)
    standard = (targets[..., None] - means) / stds
    rows = torch.logsumexp(
        log_weights - 0.5 * standard**2 - torch.log(stds) - 0.5 * math.log(2 * math.pi),
        -1,
    )
    return -rows.mean()


def network(rows, settings, seed, epochs, stop=None):
    """The network, and its NLL on the rows to stop by after each epoch."""
    torch.manual_seed(seed)
    outputs = 3 * settings["components"]
    model = Members(1, rows.inputs.shape[1], settings["hidden"], outputs)
    found, watch = [], None
    if stop is not None:
        inputs, targets = tensors(stop)

        def watch(_):
            with torch.no_grad():
                found.append(float(loss(model(inputs[None]), targets[None])))

    train(model, rows, loss, 1, epochs, 0.005, settings["decay"], watch)
    return model, found


def fit(rows, settings, seed, valid):
    torch.set_num_threads(1)
    inner, stop = (rows, valid) if valid is not None else held_out(rows, seed)
    _, found = network(inner, settings, seed, MOST_EPOCHS, stop)
    model, _ = network(rows, settings, seed, int(np.nanargmin(found)) + 1)

    @torch.no_grad()
    def predict(inputs):
        outputs = model(torch.as_tensor(inputs, dtype=torch.float32)[None])[0]
        log_weights, means, stds = (p.double().numpy() for p in parts(outputs))
        return Prediction(means, stds, np.exp(log_weights))

    return predict


if __name__ == "__main__":
    run_peer(fit, GRID, ("torch",))
