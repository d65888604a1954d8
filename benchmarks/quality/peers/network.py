"""Training that the peers with networks share: several members side by side."""

import itertools
import math

import torch
from torch import nn
from torch.nn import functional

BATCH = 100
HIDDEN = [[50], [50, 50]]  # that of the standard protocol, and one layer more


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
