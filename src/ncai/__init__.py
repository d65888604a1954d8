"""Bayesian neural networks with latent variables, fitted by NCAI.

Noise-Constrained Approximate Inference (Yacoby, Pan, Doshi-Velez, JMLR 2022): a
prediction is a whole density, and its uncertainty splits into aleatoric and epistemic.
Names are loaded when first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:  # for type checkers, editors and the API pages; nothing runs this
    from ncai import datasets as datasets
    from ncai import plot as plot
    from ncai.datasets import DatasetError as DatasetError
    from ncai.datasets import load_dataset as load_dataset
    from ncai.datasets import make_dataset as make_dataset
    from ncai.diagnostics.latent_diagnosis import LatentDiagnosis as LatentDiagnosis
    from ncai.diagnostics.permutation_importance import (
        permutation_importance as permutation_importance,
    )
    from ncai.estimators.acquisition import acquisition as acquisition
    from ncai.estimators.bnn import BNNRegressor as BNNRegressor
    from ncai.estimators.bnn_lv import BNNLVRegressor as BNNLVRegressor
    from ncai.estimators.conformal import ConformalRegressor as ConformalRegressor
    from ncai.estimators.model_file import ModelFileError as ModelFileError
    from ncai.fitting.settings import Settings as Settings
    from ncai.inference.base import Method as Method
    from ncai.inference.hmc import HMC as HMC
    from ncai.inference.hmc import HMCMarginal as HMCMarginal
    from ncai.inference.iwae import IWAE as IWAE
    from ncai.inference.latents import LatentPosterior as LatentPosterior
    from ncai.inference.map import MAP as MAP
    from ncai.inference.marginal import Marginal as Marginal
    from ncai.inference.mean_field import MFVI as MFVI
    from ncai.inference.ncai import NCAI as NCAI
    from ncai.inference.ncai import NCAI0 as NCAI0
    from ncai.inference.registry import register as register
    from ncai.interop.arviz import to_arviz as to_arviz
    from ncai.interop.skpro import NCAIProbaRegressor as NCAIProbaRegressor
    from ncai.model.networks import MLP as MLP
    from ncai.model.networks import Network as Network
    from ncai.predictive.decomposition import Decomposition as Decomposition
    from ncai.predictive.distribution import (
        PredictiveDistribution as PredictiveDistribution,
    )
    from ncai.predictive.target_map import TargetMap as TargetMap
    from ncai.preprocessing.table_preparer import TablePreparer as TablePreparer
    from ncai.report.inputs import ReportInputs as ReportInputs
    from ncai.report.write import write_report as write_report
    from ncai.tables.model import TableModel as TableModel
    from ncai.training.driver import FitFailedError as FitFailedError

_HOMES = {
    "BNNLVRegressor": "estimators.bnn_lv",
    "BNNRegressor": "estimators.bnn",
    "ConformalRegressor": "estimators.conformal",
    "PredictiveDistribution": "predictive.distribution",
    "TargetMap": "predictive.target_map",
    "Decomposition": "predictive.decomposition",
    "LatentDiagnosis": "diagnostics.latent_diagnosis",
    "LatentPosterior": "inference.latents",
    "Marginal": "inference.marginal",
    "IWAE": "inference.iwae",
    "NCAI": "inference.ncai",
    "NCAI0": "inference.ncai",
    "MFVI": "inference.mean_field",
    "MAP": "inference.map",
    "HMC": "inference.hmc",
    "HMCMarginal": "inference.hmc",
    "Method": "inference.base",
    "register": "inference.registry",
    "Settings": "fitting.settings",
    "MLP": "model.networks",
    "Network": "model.networks",
    "TableModel": "tables.model",
    "TablePreparer": "preprocessing.table_preparer",
    "permutation_importance": "diagnostics.permutation_importance",
    "acquisition": "estimators.acquisition",
    "write_report": "report.write",
    "ReportInputs": "report.inputs",
    "to_arviz": "interop.arviz",
    "NCAIProbaRegressor": "interop.skpro",
    "make_dataset": "datasets",
    "load_dataset": "datasets",
    "DatasetError": "datasets",
    "ModelFileError": "estimators.model_file",
    "FitFailedError": "training.driver",
}
_MODULES = ("datasets", "plot")
# Left out of `from ncai import *`, which would fail where skpro is not installed.
_NEED_AN_EXTRA = ("NCAIProbaRegressor",)

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    *(name for name in _HOMES if name not in _NEED_AN_EXTRA),
    *_MODULES,
    "__version__",
]


def __getattr__(name: str):
    if name in _MODULES:
        found = import_module(f"ncai.{name}")
    elif name in _HOMES:
        found = getattr(import_module(f"ncai.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'ncai' has no attribute {name!r}")
    globals()[name] = found  # Python does not ask for it again
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_NEED_AN_EXTRA})
