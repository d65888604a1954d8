"""Deep ensemble: 5 networks that give a mean and a variance (layers of 50).

Tuned over layers (the paper has one), rate, epochs (the paper has 0.1 and 40) and
weight decay; without the paper's adversarial examples.
"""

import torch
from network import HIDDEN, Members, train
from protocol import Prediction, run_peer
from torch.nn import functional

MEMBERS = 5
GRID = [
    {"hidden": hidden, "rate": rate, "epochs": epochs, "decay": decay}
    for hidden in HIDDEN
    for rate, epochs in ((0.1, 40), (0.01, 40), (0.01, 200), (0.01, 400), (0.003, 400))
    for decay in (0.0, 1e-3)
]


def moments(outputs):
    return outputs[..., 0], functional.softplus(outputs[..., 1]) + 1e-6


def loss(outputs, targets):
    mean, variance = moments(outputs)
    rows = 0.5 * (torch.log(variance) + (targets - mean) ** 2 / variance)
    return rows.mean(dim=1).sum()


def fit(rows, settings, seed, valid):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = Members(MEMBERS, rows.inputs.shape[1], settings["hidden"], 2)
    train(
        model,
        rows,
        loss,
        MEMBERS,
        settings["epochs"],
        settings["rate"],
        settings["decay"],
    )

    @torch.no_grad()
    def predict(inputs):
        inputs = torch.as_tensor(inputs, dtype=torch.float32)
        mean, variance = moments(model(inputs.expand(MEMBERS, *inputs.shape)))
        return Prediction(mean.T.double().numpy(), variance.T.double().numpy() ** 0.5)

    return predict


if __name__ == "__main__":
    run_peer(fit, GRID, ("torch",))
