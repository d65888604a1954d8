"""Bayesian neural networks with latent variables, fitted by NCAI.

Noise-Constrained Approximate Inference (Yacoby, Pan, Doshi-Velez, JMLR 2022): a
prediction is a whole density, and its uncertainty splits into aleatoric and epistemic.
Names are loaded when first used, so that importing the package costs nothing.
"""

from importlib import import_module

__version__ = "0.2.0"

_HOMES = {
    "BNNLVRegressor": "estimators.bnn_lv",
    "BNNRegressor": "estimators.bnn",
    "PredictiveDistribution": "predictive.distribution",
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
    "acquisition": "estimators.acquisition",
    "make_dataset": "datasets",
    "load_dataset": "datasets",
    "ConformalRegressor": "estimators.conformal",
    "DatasetError": "datasets",
    "ModelFileError": "estimators.model_file",
    "FitFailedError": "training.driver",
}

__all__ = [*_HOMES, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(import_module(f"ncai.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'ncai' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
