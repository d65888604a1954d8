"""The methods that are judged: ours as estimator arguments, peers as files to run.

A lead of ours is one more entry of `LEADS`.
"""

import functools
import inspect
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.quality.problems import source_of
from benchmarks.speed.measuring import python_with
from ncai.study.engine.digest import digest_of as code_digest
from ncai.study.experiments.problems import FIXED_LATENT_VARIANCE, HIDDEN

if TYPE_CHECKING:
    from ncai.estimators.bnn_lv import BNNLVRegressor

PEER_FOLDER = Path(__file__).parent / "peers"
BENCHMARKS = Path(__file__).parents[1]


class PeerFile(NamedTuple):
    """Where a peer is: its file, the module that it needs, and what it consists of."""

    file: str
    needs: str
    parts: tuple[str, ...] = ("fit", "GRID")


PEERS = {
    "ngboost": PeerFile("trees.py", "ngboost", ("fit_natural", "NATURAL_GRID")),
    "catboost": PeerFile("trees.py", "catboost", ("fit_cat", "CAT_GRID")),
    "quantile_forest": PeerFile(
        "trees.py", "quantile_forest", ("fit_forest", "tune_forest")
    ),
    "deep_ensemble": PeerFile(
        "networks.py", "torch", ("fit_ensemble", "ENSEMBLE_GRID")
    ),
    "mdn": PeerFile("networks.py", "torch", ("fit_mixture", "MIXTURE_GRID")),
    "mc_dropout": PeerFile("networks.py", "torch", ("fit_dropout", "tune_dropout")),
    "het_gp": PeerFile("gaussian_process.py", "torch"),
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
        digest: changes when the settings do, or what the code does: results with
            another one are then stale.
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
    peer = PEERS[method]
    python = _python_with(peer.needs)
    if python is None:
        raise ValueError(
            f"{method} needs {peer.needs}, which is not installed: `make peers` "
            "installs it, or NCAI_PEERS_PYTHON names a Python that has it."
        )
    command = (python, str(PEER_FOLDER / peer.file), method)
    return Worker(command, {}, True, digest)


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

    Of the settings that are not the estimator's defaults, of the points to choose from,
    and of the code that fits and scores.
    """
    shared = [
        ("benchmarks.quality.run", "score_split"),
        ("benchmarks.quality.problems", "load_problem"),
    ]
    if method in PEERS:
        peer = PEERS[method]
        module = f"{PEER_FOLDER.name}.{Path(peer.file).stem}"
        entries = [(module, part) for part in peer.parts]
        entries.append((f"{PEER_FOLDER.name}.protocol", "run_peer"))
        return code_digest([*entries, *shared], None, BENCHMARKS, PEER_FOLDER)
    settings = {
        "given": _without_defaults(our_settings(method, dataset)),
        "grid": our_grid(method, dataset),
        "conformal": method in CONFORMAL,
    }
    from ncai.inference.registry import method_of

    model = estimator_of(our_settings(method, dataset))
    method_class = type(method_of(model.inference, model.preset))
    entries = [
        ("benchmarks.quality.our_worker", "main"),
        (method_class.__module__, method_class.__name__),
        *shared,
    ]
    return code_digest(entries, settings, BENCHMARKS)


def _without_defaults(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that are not the estimator's defaults."""
    from ncai.estimators.bnn_lv import BNNLVRegressor

    known = inspect.signature(BNNLVRegressor).parameters
    return {
        name: value
        for name, value in settings.items()
        if name not in known or known[name].default != value
    }


# Points of the paper's grids that the study of its experiments chose ("Hyper-parameters
# selected" in results/study/paper/tables.md): by validation log-likelihood on the first
# split, ten restarts a point. To choose anew here would take 16 fits of minutes a set.
# Noise of MFVI; then of NCAI noise, and tolerances of HZ, of inputs and of targets.
_CHOSEN: dict[str, tuple[float, tuple[float, float, float, float]]] = {
    "heavy_tail": (0.1, (0.1, 0.0003, 0.1, 1.0)),
    "depeweg": (0.1, (0.1, 0.0003, 0.5, 1.0)),
    "goldberg": (0.1, (0.1, 0.0003, 0.5, 1.0)),
    "yuan": (0.1, (0.01, 0.01, 0.5, 1.0)),
    "williams": (0.01, (0.01, 0.01, 0.5, 1.0)),
    "yacht": (0.01, (0.01, 0.01, 0.1, 0.5)),
    "energy": (0.01, (0.01, 0.01, 0.1, 1.0)),
    "airfoil": (0.1, (0.01, 0.0003, 0.1, 1.0)),
    "abalone": (0.1, (0.1, 0.01, 0.1, 0.5)),
    "wine_red": (0.01, (0.01, 0.01, 0.1, 1.0)),
}


def paper_point(method: str, source: str) -> dict[str, Any] | None:
    """The point chosen for "mfvi" or "ncai"; None where the study has not the set."""
    if method not in ("mfvi", "ncai") or source not in _CHOSEN:
        return None
    of_mfvi, (noise, hz, inputs, targets) = _CHOSEN[source]
    if method == "mfvi":
        return {"noise_variance": of_mfvi}
    return {
        "noise_variance": noise,
        "inference__hz_tolerance": hz,
        "inference__input_tolerance": inputs,
        "inference__target_tolerance": targets,
    }
