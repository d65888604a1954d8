"""Checks of the arguments of `fit` and `predict`, with clear error messages."""

import re
import warnings

import jax
import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from ncai.model.networks import FlatNetwork
from ncai.runtime.jax_setup import refuse_forked_jax
from ncai.types import RawRows, Unknowns


def start_with_values(
    start, networks: list[FlatNetwork], num_rows: int, used: np.ndarray
) -> tuple[list[FlatNetwork], Unknowns]:
    """Check a start given as values; return its network, and the start of used rows."""
    if not isinstance(start, dict) or "weights" not in start:
        raise ValueError(
            f"start={start!r} must be a name or a dict with 'weights' and 'latents'."
        )
    network, weights = _network_of(start["weights"], networks), start["weights"]
    if not hasattr(weights, "ndim"):
        try:
            weights = network.flatten(weights)
        except (TypeError, ValueError):
            raise ValueError(
                "start['weights'] must be a vector, or a pytree like the one that the "
                "network's init returns."
            ) from None
    shape = (num_rows, network.latent_dim)
    try:
        weights = np.asarray(weights, np.float64)
        latents = np.asarray(start.get("latents", np.zeros(shape)), np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            "start['weights'] and start['latents'] must be arrays of numbers."
        ) from None
    if weights.ndim not in (1, 2) or weights.shape[-1] != network.num_weights:
        raise ValueError(
            f"start['weights'] has shape {weights.shape}; it must be "
            f"({network.num_weights},), one number for each weight of the network, or "
            "several such rows."
        )
    # One start or several; several have their own W, and their own z or a common one.
    several = weights.shape[:-1]
    if latents.shape not in (shape, (*several, *shape)):
        raise ValueError(
            f"start['latents'] has shape {latents.shape}; it must be {shape}, one row "
            "for each row of X."
        )
    if not (np.isfinite(weights).all() and np.isfinite(latents).all()):
        raise ValueError("start contains NaN or infinity; every value must be finite.")
    latents = np.broadcast_to(latents, (*several, *shape))[..., used, :]
    return [network], Unknowns(weights, latents, np.zeros(0))  # pyright: ignore


def _network_of(weights, networks: list[FlatNetwork]) -> FlatNetwork:
    """Return the network that given weights belong to."""
    if hasattr(weights, "ndim"):
        number = np.shape(weights)[-1] if np.ndim(weights) else 1
    else:
        number = sum(np.size(leaf) for leaf in jax.tree.leaves(weights))
    alike = [own for own in networks if own.num_weights == number]
    return (alike or networks)[0]


def validate(estimator, X, y="no_validation", *, names=("X", "y"), **options):
    """Run scikit-learn's checks of X and y; messages say where a number is missing."""
    refuse_forked_jax()  # every fit and prediction of an estimator passes here
    with_targets = not isinstance(y, str)
    if with_targets:
        options |= {"multi_output": True, "y_numeric": True}
    for values, name in ((X, names[0]), (y if with_targets else None, names[1])):
        _refuse_dates(values, name)
    try:
        checked = validate_data(estimator, X, y, dtype=np.float64, **options)
        if not with_targets:
            return checked
        targets = np.asarray(checked[1], np.float64)
        if not np.isfinite(targets).all():  # scikit-learn does not check object arrays
            kind = "NaN" if np.isnan(targets).any() else "infinity"
            raise ValueError(f"Input y contains {kind}")
        return checked[0], targets
    except ValueError as error:
        if str(error).startswith("could not convert string to float"):
            raise ValueError(_holds_text(X, y, names)) from None
        for start, sentence in _IN_ONE_SENTENCE.items():
            if str(error).startswith(start):
                raise ValueError(sentence.format(names[0])) from None
        if str(error).startswith(_OTHER_COLUMNS):
            raise ValueError(f"{error}{_OF_A_TABLE}") from None
        found = re.match(r"Input (X|y) contains (NaN|infinity)", str(error))
        if found is None:
            raise
        values, name = (X, names[0]) if found[1] == "X" else (y, names[1])
        place = _first_not_finite(values, found[2])
        raise ValueError(
            f"Input {name} contains {found[2]}{place}; fill in such values or remove "
            "their rows, since every value must be a finite number."
        ) from None


_OTHER_COLUMNS = "The feature names should match"
_OF_A_TABLE = (
    "If `ncai fit` made this model, read its file with ncai.TableModel.load, which "
    "takes a table with the columns that the command was given.\n"
)
# Short forms of messages that scikit-learn spreads over many lines, with the array.
_IN_ONE_SENTENCE = {
    "Expected 2D array, got 1D": "Expected 2D array, got 1D array as {0}: rows and "
    "columns are needed; Reshape your data, by {0}.reshape(-1, 1) if it is one column.",
    "Expected 2D array, got scalar": "Expected 2D array, got a single number as {0}; "
    "Reshape your data into rows and columns.",
    "Complex data not supported": "Complex data not supported: every value of {0} and "
    "y must be a real number.",
}


def _refuse_dates(values, name: str) -> None:
    """Reject dates and durations, although they could be converted to numbers."""
    if hasattr(values, "dtypes") and hasattr(values, "columns"):
        kinds = dict(values.dtypes.items())
    else:
        kinds = {None: getattr(values, "dtype", None)}
    for label, dtype in kinds.items():
        if getattr(dtype, "kind", "") in ("m", "M"):
            place = "" if label is None else f" in column {label!r}"
            raise ValueError(
                f"{name} contains dates or durations{place}, but must contain numbers; "
                "TablePreparer turns columns of dates into numbers."
            )


def rows_to_fit(X, y, sample_weight) -> tuple[RawRows, np.ndarray]:
    """Return the rows with a positive weight, and their row numbers."""
    weights = np.ones(len(X))
    if sample_weight is not None:
        weights = check_weights(sample_weight, X)
    used = np.flatnonzero(weights)
    if len(used) < 2:
        raise ValueError(
            f"sample_weight is above zero for {len(used)} "
            f"row{'s' if len(used) != 1 else ''}; at least 2 are needed."
        )
    targets = np.asarray(y, np.float64).reshape(len(X), -1)
    warn_of_constants(targets[used], np.ndim(y) == 1)
    return RawRows(np.asarray(X)[used], targets[used], weights[used]), used


def validation_rows(estimator, X_valid, y_valid, num_outputs: int) -> RawRows | None:
    """Check and return the user's validation rows; None if there are none."""
    if (X_valid is None) != (y_valid is None):
        raise ValueError("give X_valid and y_valid together, or neither.")
    if X_valid is None:
        return None
    X_valid, y_valid = validate(
        estimator, X_valid, y_valid, names=("X_valid", "y_valid"), reset=False
    )
    targets = np.asarray(y_valid, np.float64).reshape(len(X_valid), -1)
    if targets.shape[1] != num_outputs:
        raise ValueError(
            f"y_valid has {targets.shape[1]} outputs; y has {num_outputs}."
        )
    return RawRows(np.asarray(X_valid), targets, np.ones(len(X_valid)))


def check_weights(sample_weight, X) -> np.ndarray:
    """Check the sample weights: how often each row counts."""
    try:
        values = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            "sample_weight contains a value that is not a number; it must have one "
            "number of at least 0 for each row."
        ) from None
    if values.size and (values < 0).any():
        raise ValueError(
            "Negative values in data passed to `sample_weight`: the smallest is "
            f"{values.min():g}; none may be below 0."
        )
    return _check_sample_weight(sample_weight, X, dtype=np.float64)


def _holds_text(X, y, names: tuple[str, str]) -> str:
    """Describe where X or y contains text instead of numbers."""
    rows = np.asarray(X, object)
    columns = rows.T if rows.ndim == 2 else rows[None]
    labels = list(getattr(X, "columns", range(len(columns))))
    for label, column in zip(labels, columns, strict=False):
        text = _first_text(column)
        if text is not None:
            return (
                f"{names[0]} contains the text {text!r} in column {label!r}, but must "
                "contain numbers; TablePreparer turns columns of text and dates into "
                "numbers."
            )
    text = _first_text(np.asarray(y, object).ravel())
    return f"{names[1]} contains the text {text!r}; every value must be a number."


def _first_text(values: np.ndarray) -> str | None:
    for value in values:
        try:
            float(value)
        except (TypeError, ValueError):
            return str(value)
    return None


def _first_not_finite(values, kind: str) -> str:
    """Describe where the first NaN or infinity is, if it can be found."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):  # a missing value of another type than NaN
        return ""
    wrong = np.isnan(array) if kind == "NaN" else np.isinf(array)
    if array.ndim not in (1, 2) or not wrong.any():
        return ""
    rows, columns = np.nonzero(wrong.reshape(len(array), -1))
    count = len(np.unique(rows))
    place = f" in {count} row{'s' if count > 1 else ''}, first in row {rows[0]}"
    if array.ndim == 2:
        labels = list(getattr(values, "columns", range(array.shape[1])))
        place += f" of column {labels[columns[0]]!r}"
    return f"{place} (the first row is 0)"


def warn_of_constants(targets: np.ndarray, single: bool) -> None:
    """Warn about targets that do not vary."""
    constant = np.flatnonzero(np.ptp(targets, axis=0) == 0)
    if len(constant):
        what = "y" if single else f"y in column {', '.join(map(str, constant))}"
        warnings.warn(
            f"{what} has the same value in every row ({targets[0, constant[0]]:g}): "
            "the model can only predict this value.",
            stacklevel=3,
        )


def new_seed(random_state) -> int:
    """Draw a seed from a random state, as scikit-learn does."""
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        raise ValueError(
            f"random_state={random_state!r} must be a whole number from 0 to "
            f"{2**32 - 1}, a RandomState or None."
        ) from None


def seed_of(random_state) -> int:
    """Return the seed; a whole number is used as it is, like `seed` elsewhere."""
    whole = isinstance(random_state, int | np.integer)
    return int(random_state) if whole and random_state >= 0 else new_seed(random_state)
