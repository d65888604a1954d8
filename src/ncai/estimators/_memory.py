"""Will it fit? Rough sizes of what a fit and a prediction hold, beside what is free."""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ncai.model.networks import MLP, FlatNetwork
from ncai.predictive.row_map import BLOCK_COMPONENTS, BLOCK_ROWS
from ncai.runtime.jax_setup import num_threads

# Copies of the hidden values of all rows that a training step holds at once: forward,
# backward, and what lies between them (see the roofline in `ncai bench`).
STEP_COPIES = 8
# Parameters, gradient, two moments of Adam, the best found so far; as mean and scale.
STATE_COPIES = 10
RESTARTS_AT_ONCE = 5
# Nodes of z where it is integrated out, at most; and rows that "marginal" then sees.
LATENT_NODES = 64
BATCH_ROWS = 256
FLOAT = 4
# What compiling and the programs themselves take (measured: 200 to 300 MB).
PROGRAMS = 200_000_000


def warn_if_large(what: str, needed: float, advice: str) -> None:
    """Warn if `needed` bytes are more than are free; silent where that is not known."""
    free = available_memory()
    if free is not None and needed > free:
        warnings.warn(
            f"{what} needs about {_gigabytes(needed)} of memory, and "
            f"{_gigabytes(free)} is free: {advice}.",
            stacklevel=3,  # the caller of the estimator
        )


def available_memory(meminfo: str | Path = "/proc/meminfo") -> int | None:
    """Bytes that can be had without swapping; None where the system does not say."""
    try:
        for line in Path(meminfo).read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def fit_bytes(settings: Mapping[str, Any], network: FlatNetwork, num_rows: int) -> int:
    """About what training holds at its largest."""
    unknowns = network.num_weights + num_rows * network.latent_dim
    per_row = network.input_dim + network.output_dim
    data = 3 * num_rows * per_row * 2 * FLOAT
    if settings["inference"] in ("hmc", "hmc_marginal"):
        drawn = unknowns if settings["inference"] == "hmc" else network.num_weights
        kept = settings["n_chains"] * settings["n_draws"] * drawn
        at_once, samples = settings["n_chains"], 1
    else:
        kept = settings["n_restarts"] * STATE_COPIES * unknowns
        groups = min(num_threads(), -(-settings["n_restarts"] // RESTARTS_AT_ONCE))
        at_once = min(settings["n_restarts"], RESTARTS_AT_ONCE * groups)
        samples = settings["n_mc_samples"]
    # The warm start sees all rows. Where z is integrated out, later steps hold a value
    # for each node of z too: of a block of rows, or of all rows without their layers.
    values = num_rows * samples * hidden_values(network)
    if settings["inference"] == "marginal":
        nodes = LATENT_NODES * hidden_values(network)
        values = max(values, min(num_rows, BATCH_ROWS) * nodes)
    elif settings["inference"] == "hmc_marginal":
        values += num_rows * LATENT_NODES
    return PROGRAMS + data + FLOAT * (kept + STEP_COPIES * at_once * values)


def prediction_bytes(
    network: FlatNetwork, num_rows: int, num_weight_draws: int, num_latent_draws: int
) -> int:
    """About what a mean or a quantile of every row holds at its largest.

    Rows go through the network in blocks, so that it grows with them only by what comes
    in and goes out.
    """
    components = min(num_weight_draws * num_latent_draws, BLOCK_COMPONENTS)
    components = max(components, num_latent_draws)
    block = BLOCK_ROWS * components * hidden_values(network) * num_threads()
    means = BLOCK_ROWS * num_weight_draws * num_latent_draws * network.output_dim
    rows = num_rows * (3 * network.input_dim + 4 * network.output_dim)
    draws = 2 * num_weight_draws * network.num_weights
    return FLOAT * (block + means * num_threads() + rows + draws)


def hidden_values(network: FlatNetwork) -> int:
    """Numbers in the hidden layers for one row; a guess for a network of one's own."""
    if isinstance(network.network, MLP):
        own = network.network.latent_hidden if network.latent_dim else ()
        return sum(network.network.hidden) + sum(own) + network.output_dim
    inputs = network.input_dim + network.latent_dim + 1
    return max(network.num_weights // inputs, network.output_dim)


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"
