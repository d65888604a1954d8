"""What the commands `fit` and `predict` do with tables.

The estimators (and JAX with them) are imported once the table is read and found good,
so that a misspelt name is told at once.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ncai.atomic import check_writable, require_file
from ncai.table_io import TableError, numeric_columns, read_table, require_columns

if TYPE_CHECKING:
    from ncai.estimators import BNNLVRegressor

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
# What the command calls the estimator's arguments.
_OPTIONS = {
    "inference": "--inference",
    "preset": "--preset",
    "hidden": "--hidden",
    "latent_dim": "--latent-dim",
    "n_restarts": "--restarts",
    "max_steps": "--max-steps",
    "time_limit": "--time-limit",
    "validation_fraction": "--valid",
    "random_state": "--seed",
}


# ----- Options ------------------------------------------------------------------------


def parse_names(text: str | None) -> list[str] | None:
    """Names between commas."""
    if text is None:
        return None
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_layers(text: str) -> tuple[int, ...]:
    """Widths of hidden layers between commas."""
    try:
        return tuple(int(width) for width in text.split(","))
    except ValueError:
        raise ValueError(
            f"--hidden {text!r} must be whole numbers between commas, such as 50,50."
        ) from None


def parse_duration(text: str | None) -> float | None:
    """Seconds from a number with the unit s, m or h; s if none is given."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if seconds <= 0:
        raise ValueError(
            f"--time-limit {text!r} must be a time above 0, such as 60s, 5m or 1h."
        )
    return seconds


def parse_quantiles(text: str | None) -> list[float]:
    """Probabilities between commas, each once."""
    if text is None:
        return []
    try:
        levels = [float(level) for level in text.split(",")]
    except ValueError:
        levels = []
    if not levels or not all(0 < level < 1 for level in levels):
        raise ValueError(
            f"--quantiles {text!r} must be numbers strictly between 0 and 1, such as "
            "0.05,0.5,0.95."
        )
    return list(dict.fromkeys(levels))


def check_seed(seed: int) -> int:
    """A seed that scikit-learn takes."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed {seed} must be from 0 to {2**32 - 1}.")
    return seed


def check_output(path: Path, force: bool, inputs: Iterable[Path]) -> None:
    """Refuse, before any work is done, a file that cannot or must not be written."""
    if any(path.exists() and used.exists() and path.samefile(used) for used in inputs):
        raise ValueError(f"--out {path} is also an input; choose another name.")
    if path.is_dir():
        raise ValueError(f"--out {path} is a folder; name a file in it.")
    if path.exists() and not force:
        raise ValueError(f"{path} exists; use --force to replace it.")
    check_writable(path)


def in_options(message: str) -> str:
    """A sentence about the estimator's arguments, with the names of the options."""

    def rename(match):
        name, given = match.groups()
        # Some names are words too; an argument is followed by its value.
        if not given and "_" not in name:
            return match[0]
        return f"{_OPTIONS[name]} " if given else _OPTIONS[name]

    return re.sub(rf"\b({'|'.join(_OPTIONS)})\b(=?)", rename, message)


# ----- Fitting ------------------------------------------------------------------------


def fit_table(
    path: Path,
    target: str,
    features: Sequence[str] | None,
    drop: Sequence[str] | None,
    settings: Mapping[str, Any],
) -> "BNNLVRegressor":
    """A model fitted to columns of a table, which it remembers by name."""
    frame = read_table(path)
    require_columns(frame, [target, *(drop or [])], path)
    if target in (drop or []):
        raise TableError(f"--drop holds the target {target!r}; it cannot be both.")
    names = list(frame.columns if features is None else dict.fromkeys(features))
    if features is not None and target in names:
        raise TableError(f"--features holds the target {target!r}; leave it out.")
    unused = {target, *(drop or [])}
    names = [name for name in names if name not in unused]
    if not names:
        raise TableError(f"{path} has no column left to predict {target!r} from.")
    table = numeric_columns(frame, [*names, target], path, optional=names)
    if len(table) < 3:
        count = f"{len(table)} row{'s' if len(table) > 1 else ''}"
        raise TableError(f"{path} has {count}; at least 3 are needed.")

    from ncai.estimators import BNNLVRegressor

    try:
        return BNNLVRegressor(**settings).fit(table[names], table[target].to_numpy())
    except ValueError as error:
        raise ValueError(in_options(str(error))) from error


def summarise(model: "BNNLVRegressor", target: str) -> str:
    """What was fitted, how it went, and whether z is as it should be."""
    names = list(model.feature_names_in_)  # pyright: ignore
    shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
    num_train = len(model.train_index_ if model.train_index_ is not None else [])
    lines = [
        ("Target", target),
        ("Features", f"{len(names)} ({shown})"),
        ("Trained on", f"{num_train} rows in {model.fit_seconds_:.1f} s"),
        *([("Held out", _score(model))] if _score(model) else []),
        *zip(("Stages", *[""] * 9), model.stop_reasons_, strict=False),
    ]
    if model.latent_posterior_ is not None and num_train >= 3:
        found = model.diagnose()
        lines += [("Latent", found.independence_verdict), ("", found.prior_verdict)]
    return "\n".join(f"{label:<12}{text}" for label, text in lines)


def _score(model: "BNNLVRegressor") -> str:
    """Held-out score in the units of y; training had its own."""
    if "held-out" not in model.score_name_:
        return ""
    score = model.restart_scores_.max() - np.log(model.scaling_.target_scale).sum()
    return (
        f"log-likelihood {score:.3f} a row, the best of {len(model.restart_scores_)} "
        "restarts"
    )


# ----- Predicting ---------------------------------------------------------------------


def predict_table(
    model_path: Path,
    data_path: Path,
    level: float,
    quantiles: Sequence[float],
    decompose: bool,
) -> tuple[pd.DataFrame, list[str]]:
    """Predictions for the rows of a table, and the columns that were not used."""
    if not 0 < level < 1:
        raise ValueError(f"--level {level:g} must be strictly between 0 and 1.")
    require_file(model_path, "model file")
    frame = read_table(data_path)

    from ncai.estimators import BNNLVRegressor

    model = BNNLVRegressor.load(model_path)
    known = getattr(model, "feature_names_in_", None)
    num_inputs = model.posterior_.model.network.input_dim
    if known is not None:
        names = [str(name) for name in known]
        inputs = numeric_columns(frame, names, data_path)
    elif len(frame.columns) == num_inputs:
        # Fitted in Python to an array: there are no names to go by, only the order.
        names = list(frame.columns)
        inputs = numeric_columns(frame, names, data_path).to_numpy()
    else:
        raise TableError(
            f"{model_path} does not know its columns by name, so {data_path} must have "
            f"its {num_inputs} columns in order, not {len(frame.columns)}."
        )
    ignored = [name for name in frame.columns if name not in names]
    predictive = model.predict_dist(inputs)
    return prediction_columns(predictive, level, quantiles, decompose), ignored


def prediction_columns(
    predictive, level: float, quantiles: Sequence[float], decompose: bool
) -> pd.DataFrame:
    """Mean, std, interval and what else is asked for, one column each."""
    ends = [(1 - level) / 2, (1 + level) / 2]
    found = np.moveaxis(predictive.quantile([*ends, *quantiles]), -1, 0)
    columns = {"mean": predictive.mean(), "std": predictive.std()}
    columns[f"lower_{_percent(level)}"], columns[f"upper_{_percent(level)}"] = found[:2]
    for share, values in zip(quantiles, found[2:], strict=True):
        columns[f"q{_percent(share)}"] = values
    if decompose:
        parts = predictive.decompose("variance")
        columns["aleatoric"] = np.sqrt(parts.aleatoric)
        columns["epistemic"] = np.sqrt(parts.epistemic)
    return pd.DataFrame(dict(_by_output(columns)))


def _by_output(columns: Mapping[str, np.ndarray]):
    """A model with several outputs gets a column for each: mean_1, mean_2, ..."""
    for name, values in columns.items():
        if values.ndim == 1:
            yield name, values
        else:
            for number, output in enumerate(values.T, start=1):
                yield f"{name}_{number}", output


def _percent(share: float) -> str:
    """A share as percent with at least two digits: 0.05 is 05, 0.975 is 97.5."""
    percent = round(100 * share, 6)
    return f"{percent:02.0f}" if percent == round(percent) else f"{percent:04.3g}"
