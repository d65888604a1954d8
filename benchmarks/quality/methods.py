"""The methods of the benchmark: ours as estimator arguments, peers as files to run.

To add a lead (a variant of our default), add an entry to `LEADS`.
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
    """The file of a peer, the module that it needs, and what it consists of."""

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

# Settings of `BNNLVRegressor.set_params` as JSON values:
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


# A lead is the default at a quarter of its steps with the layer of z ("quarter") and
# with one change. Leads are compared only with each other.
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
    "conformal": {},  # corrects only intervals, with held-out rows; see CONFORMAL
    # These use the defaults of "marginal" for all other settings.
    "iwae": {"inference": "iwae"},
    # The paper's method with learned noise, without and with a layer for z alone.
    "ncai_learned_noise": _NCAI,
    "ncai_latent_layer": _NCAI | {"network": _PAPER_NETWORK | {"latent_hidden": [20]}},
}
# Fits of full length, compared with "whole": the best choice may differ there.
WHOLE = {"max_steps": 4000} | _network()
WHOLE_LEADS: dict[str, dict[str, Any]] = {
    "whole": {},
    "chosen_latent_layer_whole": _network(latent_hidden="auto"),
    "cold_whole": {"inference__temperature": 0.001},
    # As many restarts as the same time allows, a third of them at temperature 1.
    "three_temperatures_whole": {
        "inference__temperature": (0.001, 0.1, 1.0),
        "n_restarts": 15,
        "inference__n_folds": 5,
    },
}
# Held-out rows choose among several leads, split by split: size, latents, layer of z.
CHOSEN_BY_VALIDATION = {
    "chosen_size": ("one_layer", "quarter", "wide"),
    "chosen_latents": ("quarter", "two_latents"),
    "chosen_latent_layer": ("quarter", "no_latent_layer"),
}
CONFORMAL = ("conformal",)  # leads that use ConformalRegressor
# Arguments of BNNLVRegressor.
OURS: dict[str, dict[str, Any]] = {
    "default": {},
    "mfvi": {"inference": "mfvi", "preset": "paper"},
    "ncai": {"inference": "ncai", "preset": "paper"},
    **{name: QUARTER | change for name, change in LEADS.items()},
    **{name: WHOLE | change for name, change in WHOLE_LEADS.items()},
}

# The paper's grids (appendix on hyper-parameters). The first split chooses a point if
# the study of the paper's experiments has not selected one.
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
_BOSTON_HIDDEN = (10,)  # not in the paper; as for energy, which has a similar size

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
        command: the command to run; the path of the task is appended.
        task: the contents of the task except the files.
        tuned: whether settings are chosen on the first split.
        digest: changes if the settings or the computation change; results with another
            digest are stale.
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


# The check takes seconds if the module is large.
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
    """Return the digest of a method; results with another digest are stale.

    It covers the settings that are not the estimator's defaults, the grid points to
    choose from, and the code that fits and scores.
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


# The study of the paper's experiments, which chose points of the paper's grids.
_STUDY = BENCHMARKS.parent / "results" / "study" / "paper"
_SETTINGS = (
    "noise_variance",
    "inference__hz_tolerance",
    "inference__input_tolerance",
    "inference__target_tolerance",
)


@functools.cache
def paper_point(method: str, source: str) -> dict[str, Any] | None:
    """The point of the paper's grid that the study selected for "mfvi" or "ncai".

    The study chose by validation log-likelihood on the first split, with ten restarts
    per point. Selecting again here would take 16 long fits per set. None if the study
    has no selection for this method and set: the benchmark then selects.
    """
    from ncai.study.engine import SCALES
    from ncai.study.engine.store import Store
    from ncai.study.experiments.fits import FITS
    from ncai.study.experiments.problems import DATASETS

    if method not in ("mfvi", "ncai") or source not in DATASETS:
        return None
    cell = FITS.select_cell(SCALES["paper"], source, method)
    row = Store(_STUDY).load_row(cell)
    if row is None:
        return None
    chosen = zip(_SETTINGS, row["chosen"], strict=True)
    return {name: value for name, value in chosen if value is not None}
