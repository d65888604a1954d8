"""Heteroscedastic Gaussian process: one process for the mean, one for the log noise.

Variational, with inducing inputs (at most 100 or 300) shared by both and learned, a
constant and one kernel each with a length for every input, whitened full-covariance q,
and the expected log-likelihood in closed form (Lazaro-Gredilla and Titsias, 2011). A
prediction integrates the log noise by Gauss-Hermite quadrature: a mixture of normals.
"""

import math

import numpy as np
import torch
from networks import tensors
from protocol import Peer, Prediction, run_peer
from torch import nn

STEPS = 800
BATCH = 256
JITTER = 1e-5
GRID = [
    {"kernel": kernel, "inducing": inducing}
    for kernel in ("rbf", "matern32")
    for inducing in (100, 300)
]


class Process(nn.Module):
    """q(u) = N(mean, L L^T) in whitened units, and its kernel."""

    def __init__(self, inducing, dimension, kernel, constant, variance):
        super().__init__()
        self.kernel = kernel
        self.log_length = nn.Parameter(
            torch.full((dimension,), 0.5 * math.log(dimension), dtype=torch.float64)
        )
        self.log_variance = nn.Parameter(
            torch.tensor(math.log(variance), dtype=torch.float64)
        )
        self.constant = nn.Parameter(torch.tensor(constant, dtype=torch.float64))
        self.mean = nn.Parameter(torch.zeros(inducing, dtype=torch.float64))
        self.raw = nn.Parameter(0.5 * torch.eye(inducing, dtype=torch.float64))

    def covariance(self, left, right):
        length = torch.exp(self.log_length)
        left, right = left / length, right / length
        squared = (
            (left**2).sum(1)[:, None] + (right**2).sum(1)[None] - 2 * left @ right.T
        ).clamp_min(1e-12)
        if self.kernel == "rbf":
            shape = torch.exp(-0.5 * squared)
        else:
            distance = torch.sqrt(3 * squared)
            shape = (1 + distance) * torch.exp(-distance)
        return torch.exp(self.log_variance) * shape

    def lower(self):
        return torch.tril(self.raw)

    def forward(self, inputs, inducing):
        """Mean and variance of the function at the inputs."""
        eye = torch.eye(len(inducing), dtype=torch.float64)
        root = torch.linalg.cholesky(
            self.covariance(inducing, inducing)
            + JITTER * torch.exp(self.log_variance) * eye
        )
        cross = torch.linalg.solve_triangular(
            root, self.covariance(inducing, inputs), upper=False
        )
        spread = self.lower().T @ cross
        variance = torch.exp(self.log_variance) - (cross**2).sum(0) + (spread**2).sum(0)
        return self.constant + cross.T @ self.mean, variance.clamp_min(1e-9)

    def divergence(self):
        """KL(q(u) || N(0, I))."""
        lower = self.lower()
        log_determinant = torch.log(torch.diagonal(lower) ** 2 + 1e-12).sum()
        return 0.5 * (
            (lower**2).sum() + (self.mean**2).sum() - len(self.mean) - log_determinant
        )


def fit(rows, settings, seed, valid):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    inputs, targets = (part.double() for part in tensors(rows))
    number, dimension = inputs.shape
    chosen = torch.randperm(number)[: settings["inducing"]]
    inducing = nn.Parameter(
        inputs[chosen] + 0.01 * torch.randn(len(chosen), dimension).double()
    )
    size = len(chosen)
    signal = Process(size, dimension, settings["kernel"], 0.0, 1.0)
    noise = Process(size, dimension, settings["kernel"], math.log(0.1), 0.5)
    parameters = [inducing, *signal.parameters(), *noise.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=0.03)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for _ in range(STEPS):
        batch = torch.randperm(number)[:BATCH]
        x, y = inputs[batch], targets[batch]
        mean, variance = signal(x, inducing)
        log_noise, noise_variance = noise(x, inducing)
        precision = torch.exp((0.5 * noise_variance - log_noise).clamp(max=14.0))
        fit_rows = 0.5 * (log_noise + ((y - mean) ** 2 + variance) * precision)
        value = fit_rows.mean() + (signal.divergence() + noise.divergence()) / number
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        optimiser.step()
        schedule.step()

    nodes, weights = np.polynomial.hermite_e.hermegauss(16)
    weights = weights / weights.sum()

    @torch.no_grad()
    def predict(inputs):
        x = torch.as_tensor(inputs, dtype=torch.float64)
        mean, variance = (v.numpy()[:, None] for v in signal(x, inducing))
        log_noise, spread = (v.numpy()[:, None] for v in noise(x, inducing))
        noises = np.exp(log_noise + np.sqrt(spread) * nodes)
        means = np.broadcast_to(mean, noises.shape)
        all_weights = np.broadcast_to(weights, noises.shape)
        return Prediction(means, np.sqrt(variance + noises), all_weights)

    return predict


if __name__ == "__main__":
    run_peer({"het_gp": Peer(fit, GRID, ("torch",))})
