"""Bayesian neural networks with latent variables, fitted by NCAI.

Noise-Constrained Approximate Inference (Yacoby, Pan, Doshi-Velez, JMLR 2022): a
prediction is a whole density, and its uncertainty splits into aleatoric and epistemic.
Names are loaded when first used, so that importing the package costs nothing.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "BNNLVRegressor": "estimators",
    "BNNRegressor": "bnn_regressor",
    "PredictiveDistribution": "predictive",
    "Decomposition": "decomposition",
    "LatentDiagnosis": "diagnosis",
    "LatentPosterior": "latent_inference",
    "MLP": "networks",
    "Network": "networks",
    "TablePreparer": "table_preparer",
    "acquisition": "active",
    "make_dataset": "datasets",
    "load_dataset": "datasets",
    "ConformalRegressor": "conformal",
    "DatasetError": "datasets",
    "ModelFileError": "files",
    "FitFailedError": "optimise",
}

__all__ = [*_HOMES, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(import_module(f"ncai.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'ncai' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
