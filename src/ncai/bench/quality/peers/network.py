"""Training that the peers with networks share: several members side by side."""

import math

import torch
from torch import nn

BATCH = 100


class Members(nn.Module):
    """Independent networks with one hidden layer, as one batched computation."""

    def __init__(self, members, inputs, hidden, outputs):
        super().__init__()

        def layer(rows, columns):
            bound = 1 / math.sqrt(rows)
            return nn.Parameter(
                torch.empty(members, rows, columns).uniform_(-bound, bound)
            )

        self.first, self.first_bias = layer(inputs, hidden), layer(1, hidden)
        self.last, self.last_bias = layer(hidden, outputs), layer(1, outputs)
        with torch.no_grad():
            for bias in (self.first_bias, self.last_bias):
                bias.zero_()

    def forward(self, inputs):
        """[members, rows, inputs] -> [members, rows, outputs]."""
        hidden = torch.relu(torch.baddbmm(self.first_bias, inputs, self.first))
        return torch.baddbmm(self.last_bias, hidden, self.last)


def tensors(rows):
    return (
        torch.as_tensor(rows.inputs, dtype=torch.float32),
        torch.as_tensor(rows.targets, dtype=torch.float32),
    )


def train(model, rows, loss, members, epochs, rate, decay=0.0, after_epoch=None):
    """Adam in batches of 100; each member has an order of rows of its own.

    `loss(outputs, targets)` is the mean over rows, summed over members.
    """
    inputs, targets = tensors(rows)
    number = len(targets)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay)
    for epoch in range(epochs):
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
