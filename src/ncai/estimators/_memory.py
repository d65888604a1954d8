"""Will it fit? Rough sizes of what a fit and a prediction hold, beside what is free."""

import os
import warnings
from pathlib import Path

from ncai.fitting.settings import Settings
from ncai.model.networks import MLP, FlatNetwork
from ncai.predictive.row_map import BLOCK_COMPONENTS, BLOCK_ROWS
from ncai.runtime.jax_setup import num_threads
from ncai.training.step import LARGEST_GROUP

# Copies of the hidden values of all rows that a training step holds at once: forward,
# backward, and what lies between them (see the roofline in `ncai bench`).
STEP_COPIES = 8
# Parameters, gradient, two moments of Adam, the best found so far; as mean and scale.
STATE_COPIES = 10
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


def fit_bytes(settings: Settings, network: FlatNetwork, num_rows: int) -> int:
    """About what training holds at its largest.

    The warm start sees all rows. Where z is integrated out, later steps hold a value
    for each node of z too: of a block of rows, if the method takes rows in blocks.
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
        own = network.network.latent_hidden
        if isinstance(own, str) or not network.latent_dim:
            own = ()
        return sum(network.network.hidden) + sum(own) + network.output_dim
    inputs = network.input_dim + network.latent_dim + 1
    return max(network.num_weights // inputs, network.output_dim)


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.0f} MB"
