"""The model of the paper as a plain PyTorch loop, one restart after another.

NCAI's penalties join in the second half of the steps, as they do on our side.

Run as `python torch_loop.py TASK.json`; prints one line of JSON. It needs torch and
numpy only.
"""

import json
import math
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

NEGATIVE_SLOPE = 0.01


class GaussianParameter(nn.Module):
    """A mean and a softplus scale for each entry, with closed-form KL."""

    def __init__(self, start):
        super().__init__()
        self.mean = nn.Parameter(start)
        raw = math.log(math.expm1(0.05))
        self.raw_scale = nn.Parameter(torch.full_like(start, raw))

    def scale(self):
        return functional.softplus(self.raw_scale)

    def sample(self):
        return self.mean + self.scale() * torch.randn_like(self.mean)

    def kl(self, prior_variance):
        ratio = self.scale() ** 2 / prior_variance
        return 0.5 * torch.sum(
            ratio + self.mean**2 / prior_variance - 1 - torch.log(ratio)
        )


class LatentNetwork(nn.Module):
    """One hidden layer over (x, z), with a Gaussian for every weight and latent."""

    def __init__(self, num_rows, input_dim, hidden):
        super().__init__()
        first = torch.empty(input_dim + 1, hidden)
        last = torch.empty(hidden, 1)
        nn.init.xavier_normal_(first)
        nn.init.xavier_normal_(last)
        self.first = GaussianParameter(first)
        self.first_bias = GaussianParameter(torch.zeros(hidden))
        self.last = GaussianParameter(last)
        self.last_bias = GaussianParameter(torch.zeros(1))
        spread = math.sqrt(2 / (num_rows + 1))
        self.latents = GaussianParameter(spread * torch.randn(num_rows, 1))

    def forward(self, inputs):
        full = torch.cat([inputs, self.latents.sample()], dim=1)
        hidden = functional.leaky_relu(
            full @ self.first.sample() + self.first_bias.sample(), NEGATIVE_SLOPE
        )
        return hidden @ self.last.sample() + self.last_bias.sample()

    def negative_elbo(self, inputs, targets, noise, weight_variance, latent_variance):
        errors = (targets - self(inputs)) ** 2
        likelihood = -0.5 * torch.sum(errors / noise + math.log(2 * math.pi * noise))
        weights = (self.first, self.first_bias, self.last, self.last_bias)
        kl = sum(part.kl(weight_variance) for part in weights)
        return kl + self.latents.kl(latent_variance) - likelihood


def henze_zirkler(points):
    """The statistic by its double sum (one dimension)."""
    num_rows = len(points)
    beta2 = ((3 * num_rows / 4) ** (1 / 5) / math.sqrt(2)) ** 2
    white = (points - points.mean()) / points.std(unbiased=False)
    distances = (white - white.T) ** 2
    pairs = torch.sum(torch.exp(-beta2 / 2 * distances)) / num_rows
    singles = torch.sum(torch.exp(-beta2 / (2 * (1 + beta2)) * white**2))
    return (
        pairs - 2 * (1 + beta2) ** -0.5 * singles + num_rows * (1 + 2 * beta2) ** -0.5
    )


def squared_correlation(a, b):
    a = a - a.mean(dim=0)
    b = b - b.mean(dim=0)
    covariance = a.T @ b / len(a)
    variances = torch.outer((a**2).mean(dim=0), (b**2).mean(dim=0))
    return torch.mean(covariance**2 / (variances + 1e-12))


def smooth_exponential(value):
    capped = torch.clamp(value, max=8.0)
    return torch.exp(capped) * (1 + value - capped)


def penalty(latents, inputs, targets):
    """NCAI's penalties with the settings of the task's other side."""
    num_rows = len(latents)
    gaussian = smooth_exponential(henze_zirkler(latents) / (num_rows * 0.01))
    dependence = smooth_exponential(
        squared_correlation(inputs, latents) / 0.5
        + squared_correlation(targets, latents)
    )
    return num_rows * (gaussian + dependence)


def train(task, inputs, targets, seed):
    """One restart; returns the ELBO averaged over the last tenth of the steps."""
    torch.manual_seed(seed)
    network = LatentNetwork(len(inputs), inputs.shape[1], task["hidden"])
    optimiser = torch.optim.Adam(network.parameters(), lr=task["learning_rate"])
    half = task["steps"] // 2 if task["method"] == "ncai" else task["steps"]
    ramp = max((task["steps"] - half) // 2, 1)
    last_part, values = task["steps"] - max(task["steps"] // 10, 1), []
    for step in range(task["steps"]):
        optimiser.zero_grad()
        loss = network.negative_elbo(
            inputs,
            targets,
            task["noise_variance"],
            task["weight_variance"],
            task["latent_variance"],
        )
        if step >= last_part:
            values.append(-loss.detach())
        if step >= half:
            share = min((step - half) / ramp, 1.0)
            loss = loss + share * penalty(network.latents.mean, inputs, targets)
        loss.backward()
        optimiser.step()
    return float(torch.stack(values).mean())


def main():
    with open(sys.argv[1]) as file:
        task = json.load(file)
    data = np.load(task["data"])
    inputs = torch.as_tensor(data["inputs"], dtype=torch.float32)
    targets = torch.as_tensor(data["targets"], dtype=torch.float32)
    torch.set_num_threads(task["threads"])
    train(task | {"steps": 20}, inputs, targets, 0)  # first calls are slower
    started = time.perf_counter()
    elbos = [train(task, inputs, targets, seed) for seed in range(task["restarts"])]
    seconds = time.perf_counter() - started
    print(
        json.dumps(
            {
                "seconds": seconds,
                "elbos": elbos,
                "versions": {"torch": torch.__version__},
            }
        )
    )


if __name__ == "__main__":
    main()
