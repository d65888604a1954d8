"""The methods that are judged: ours as estimator arguments, peers as files to run.

A lead of ours is one more entry of `LEADS`.
"""

import ast
import functools
import hashlib
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.quality.paper_points import paper_point
from benchmarks.quality.problems import source_of
from benchmarks.speed.workers import python_with
from ncai.study.experiments.problems import FIXED_LATENT_VARIANCE, HIDDEN

if TYPE_CHECKING:
    from ncai.estimators.bnn_lv import BNNLVRegressor

PEER_FOLDER = Path(__file__).parent / "peers"
# Name: file, and the module it needs.
PEERS: dict[str, tuple[str, str]] = {
    "ngboost": ("natural_boosting.py", "ngboost"),
    "catboost": ("cat_boosting.py", "catboost"),
    "quantile_forest": ("forest_quantiles.py", "quantile_forest"),
    "deep_ensemble": ("ensemble_of_networks.py", "torch"),
    "mdn": ("mixture_density.py", "torch"),
    "mc_dropout": ("dropout_network.py", "torch"),
    "het_gp": ("heteroscedastic_process.py", "torch"),
}

# Settings are those that `BNNLVRegressor.set_params` takes, in a form that JSON has:
# `inference__name` is a setting of the method, and a network is a dict for `MLP`.
_NETWORK = {
    "hidden": [50, 50],
    "activation": "silu",
    "latent_layer": "last",
    "latent_hidden": [20],
}
_PAPER_NETWORK = {
    "hidden": [50],
    "activation": "leaky_relu",
    "latent_layer": "first",
    "latent_hidden": [],
}


def _network(**changes) -> dict[str, Any]:
    return {"network": _NETWORK | changes}


# Leads: the default at a quarter of its steps, with the layer of z ("quarter"), each
# with one change. They are many, and compared with each other only.
_NCAI: dict[str, Any] = {
    "inference": "ncai",
    "max_steps": 5000,
    "network": _PAPER_NETWORK,
}
QUARTER = {"max_steps": 1000} | _network()
LEADS: dict[str, dict[str, Any]] = {
    "quarter": {},
    "no_transform": {"target_transform": "none"},
    "yeo_johnson": {"target_transform": "yeo_johnson"},
    "one_layer": _network(hidden=[50]),
    "wide": _network(hidden=[100, 100]),
    "warm": {"inference__temperature": 1.0},
    "cold": {"inference__temperature": 0.001},
    "fixed_noise": {"noise_variance": 0.1},
    "low_noise": {"inference__noise_prior": (1.0, 0.0005)},
    "best_restart": {"keep": "best"},
    "equal_restarts": {"keep": "equal"},
    "untuned_noise": {"inference__recalibrate_noise": False},
    "two_latents": {"latent_dim": 2},
    "no_latent": {"inference__latent_variance": 1e-8},
    "no_latent_layer": _network(latent_hidden=[]),
    "narrow_latents": {"inference__latent_variance": 1.0},
    "wide_latents": {"inference__latent_variance": 16.0},
    "conformal": {},  # intervals alone, by rows that are held out: see CONFORMAL
    # These with all else as "marginal" has it by default.
    "iwae": {"inference": "iwae"},
    # The paper's method with learned noise, and with a layer of its own for z too.
    "ncai_learned_noise": _NCAI,
    "ncai_latent_layer": _NCAI | {"network": _PAPER_NETWORK | {"latent_hidden": [20]}},
}
# Some in fits of full length, beside "whole": what is best may differ there.
WHOLE = {"max_steps": 4000} | _network()
WHOLE_LEADS: dict[str, dict[str, Any]] = {
    "whole": {},
    "chosen_latent_layer_whole": _network(latent_hidden="auto"),
    "cold_whole": {"inference__temperature": 0.001},
    # As many restarts as can be had in the same time, a third of them at 1.
    "three_temperatures_whole": {
        "inference__temperature": (0.001, 0.1, 1.0),
        "n_restarts": 15,
        "inference__n_folds": 5,
    },
}
# Which of several held-out rows choose, split by split: size, latents, their layer.
CHOSEN_BY_VALIDATION = {
    "chosen_size": ("one_layer", "quarter", "wide"),
    "chosen_latents": ("quarter", "two_latents"),
    "chosen_latent_layer": ("quarter", "no_latent_layer"),
}
CONFORMAL = ("conformal",)  # those wrapped in ConformalRegressor
# Arguments of BNNLVRegressor.
OURS: dict[str, dict[str, Any]] = {
    "default": {},
    "mfvi": {"inference": "mfvi", "preset": "paper"},
    "ncai": {"inference": "ncai", "preset": "paper"},
    **{name: QUARTER | change for name, change in LEADS.items()},
    **{name: WHOLE | change for name, change in WHOLE_LEADS.items()},
}

# The paper's grids (Appendix on hyper-parameters), chosen from on the first split where
# the study of its experiments has no choice.
_NOISES = tuple({"noise_variance": noise} for noise in (0.1, 0.01))
OUR_GRIDS: dict[str, tuple[dict[str, Any], ...]] = {
    "mfvi": _NOISES,
    "ncai": tuple(
        noise
        | {
            "inference__hz_tolerance": t,
            "inference__input_tolerance": x,
            "inference__target_tolerance": y,
        }
        for noise, t, x, y in itertools.product(
            _NOISES, (0.01, 0.0003), (0.1, 0.5), (0.5, 1.0)
        )
    ),
}
_BOSTON_HIDDEN = (10,)  # not in the paper: as energy, a set of its size

METHODS = (*OURS, *PEERS)
ALL_LEADS = LEADS | WHOLE_LEADS
_OURS_TO_RUN = tuple(name for name in OURS if name not in ALL_LEADS)
METHOD_GROUPS = {
    "all": (*_OURS_TO_RUN, *PEERS),  # leads never see the test rows
    "ours": _OURS_TO_RUN,
    "leads": tuple(ALL_LEADS),
    "peers": tuple(PEERS),
}


@dataclass(frozen=True)
class Worker:
    """How a method is run on a set.

    Args:
        command: what to start; the path of a task is added.
        task: what the task has besides the files.
        tuned: whether settings are chosen on the first split.
        digest: changes when the settings of ours do, or the file of a peer: its results
            are then stale.
    """

    command: Sequence[str]
    task: dict[str, Any]
    tuned: bool
    digest: str


def worker(method: str, dataset: str) -> Worker:
    """How to run a method on a set.

    Raises:
        ValueError: no environment has the peer.
    """
    digest = digest_of(method, dataset)
    if method in OURS:
        command = (sys.executable, "-m", "benchmarks.quality.our_worker")
        given, grid = our_settings(method, dataset), our_grid(method, dataset)
        conformal = method in CONFORMAL
        task = {"method": method, "given": given, "grid": grid, "conformal": conformal}
        return Worker(command, task, bool(grid), digest)
    file, module = PEERS[method]
    python = _python_with(module)
    if python is None:
        raise ValueError(
            f"{method} needs {module}, which is not installed: `make peers` installs "
            "it, or NCAI_PEERS_PYTHON names a Python that has it."
        )
    return Worker((python, str(PEER_FOLDER / file)), {}, True, digest)


# Asking an interpreter takes seconds where the module is a large one.
_python_with = functools.cache(python_with)


def our_settings(method: str, dataset: str) -> dict[str, Any]:
    """Arguments of the estimator; the paper's methods have its networks and units."""
    settings = dict(OURS[method])
    if settings.get("inference") == "iwae":
        settings = _as_marginal() | settings
    if settings.get("preset") == "paper":
        source = source_of(dataset)
        settings["hidden"] = HIDDEN.get(source, _BOSTON_HIDDEN)
        if source in FIXED_LATENT_VARIANCE:
            settings["inference__latent_variance"] = FIXED_LATENT_VARIANCE[source]
        if source in (*FIXED_LATENT_VARIANCE, "bimodal"):
            settings["standardize"] = False
        settings |= paper_point(method, source) or {}
    return settings


def estimator_of(settings: dict[str, Any], **more: Any) -> "BNNLVRegressor":
    """The estimator that settings in JSON's form describe."""
    from ncai.estimators.bnn_lv import BNNLVRegressor
    from ncai.model.networks import MLP

    settings = dict(settings)
    if "network" in settings:
        settings["network"] = MLP(**settings["network"])
    return BNNLVRegressor(**more).set_params(**settings)


def _as_marginal() -> dict[str, Any]:
    """What "marginal" has by default, as settings for "iwae"."""
    from ncai.inference.iwae import IWAE
    from ncai.inference.marginal import Marginal

    preset = Marginal.presets["default"]
    names = ("n_restarts", "target_transform", "rounding", "keep")
    own = {
        f"inference__{name}": value
        for name, value in preset.method.items()
        if name in IWAE().get_params()
    }
    return {name: getattr(preset, name) for name in names} | own


def our_grid(method: str, dataset: str) -> tuple[dict[str, Any], ...]:
    """The points to choose from on the first split."""
    chosen = paper_point(method, source_of(dataset))
    return () if chosen else OUR_GRIDS.get(method, ())


def digest_of(method: str, dataset: str) -> str:
    """Results with another one are stale.

    Of ours it is that of all settings with the preset filled in, so that a new default
    is a new method; of a peer that of its file.
    """
    if method in PEERS:
        return _digest_of_code((PEER_FOLDER / PEERS[method][0]).read_text())
    filled = estimator_of(our_settings(method, dataset)).resolved_settings().to_dict()
    grid = our_grid(method, dataset)
    chosen_from = (*grid, "conformal") if method in CONFORMAL else grid
    return _short_hash(json.dumps([filled, chosen_from], sort_keys=True, default=str))


def _digest_of_code(source: str) -> str:
    """Of what a file does: comments, its docstring and its layout do not count."""
    tree = ast.parse(source)
    tree.body = tree.body[1:] if ast.get_docstring(tree) else tree.body
    return _short_hash(ast.unparse(tree))


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]
