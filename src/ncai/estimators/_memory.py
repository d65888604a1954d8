"""Estimate the memory of a fit or prediction, and compare it with what is free."""

import os
import warnings
from pathlib import Path

from ncai.fitting.settings import Settings
from ncai.model.networks import MLP, FlatNetwork
from ncai.predictive.row_map import BLOCK_COMPONENTS, BLOCK_ROWS
from ncai.runtime.jax_setup import num_threads
from ncai.training.step import LARGEST_GROUP

# Number of copies of the hidden values of all rows that a training step holds at once:
# for the forward pass, the backward pass and in between (see the roofline in `ncai
# bench`).
STEP_COPIES = 8
# Parameters, gradient, two moments of Adam and the best so far; each has mean and
# scale.
STATE_COPIES = 10
FLOAT = 4
# The memory of compilation and of the programs themselves (measured: 200 to 300 MB).
PROGRAMS = 200_000_000


def warn_if_large(what: str, needed: float, advice: str) -> None:
    """Warn if `needed` exceeds the free memory; silent if that is unknown."""
    free = available_memory()
    if free is not None and needed > free:
        warnings.warn(
            f"{what} needs about {_gigabytes(needed)} of memory, and "
            f"{_gigabytes(free)} is free: {advice}.",
            stacklevel=3,  # the caller of the estimator
        )


def available_memory(meminfo: str | Path = "/proc/meminfo") -> int | None:
    """Return the bytes available without swapping; None if the system does not say."""
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


def fit_bytes(settings: Settings, network: FlatNetwork, num_rows: int) -> int:
    """Estimate the peak memory of training, in bytes.

    The warm start uses all rows. If z is integrated out, later steps also hold a value
    for each node of z, for one batch of rows if the method trains on batches.
    """
    method = settings.method
    latents = num_rows * network.latent_dim if method.supports.row_latents else 0
    unknowns = network.num_weights + latents
    if method.supports.sampling:
        at_once, kept = method.n_chains, method.n_chains * method.n_draws * unknowns
    else:
        groups = min(num_threads(), -(-settings.n_restarts // LARGEST_GROUP))
        at_once = min(settings.n_restarts, LARGEST_GROUP * groups)
        kept = settings.n_restarts * STATE_COPIES * unknowns
    hidden = hidden_values(network)
    nodes = method.nodes_a_latent**network.latent_dim
    block = min(num_rows, method.batch_rows or num_rows)
    values = max(num_rows * hidden, block * nodes * hidden)
    data = 6 * num_rows * (network.input_dim + network.output_dim)
    return PROGRAMS + FLOAT * (data + kept + STEP_COPIES * at_once * values)


def prediction_bytes(
    network: FlatNetwork, num_rows: int, num_weight_draws: int, num_latent_draws: int
) -> int:
    """Estimate the peak memory of the mean or a quantile of every row, in bytes.

    Rows pass through the network in blocks, so only the inputs and results grow with
    the number of rows.
    """
    components = min(num_weight_draws * num_latent_draws, BLOCK_COMPONENTS)
    components = max(components, num_latent_draws)
    block = BLOCK_ROWS * components * hidden_values(network) * num_threads()
    means = BLOCK_ROWS * num_weight_draws * num_latent_draws * network.output_dim
    rows = num_rows * (3 * network.input_dim + 4 * network.output_dim)
    draws = 2 * num_weight_draws * network.num_weights
    return FLOAT * (block + means * num_threads() + rows + draws)


def hidden_values(network: FlatNetwork) -> int:
    """Count the hidden values of one row; this is a guess for a custom network."""
    if isinstance(network.network, MLP):
        own = network.network.latent_hidden
        if isinstance(own, str) or not network.latent_dim:
            own = ()
        return sum(network.network.hidden) + sum(own) + network.output_dim
    inputs = network.input_dim + network.latent_dim + 1
    return max(network.num_weights // inputs, network.output_dim)


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"
