"""Read the contents of a model file without running the model."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ncai.estimators._schema import ANY_NUMBER, HeaderError, Leaf, check, form_of
from ncai.estimators.model_file import ModelFileError, flat_settings, read_file

_LEARNED = {
    "none": "learned as it is",
    "log": "learned as its logarithm",
    "yeo_johnson": "learned as a power of it (Yeo-Johnson)",
}


def inspect_model(path: str | Path) -> dict[str, Any]:
    """Return the settings, versions, columns and scores in a model file."""
    header, arrays = read_file(path)
    table = header.get("table") or {}
    preparer = table.get("preparer") or {}
    given = header.get("params") or {}
    reasons = header.get("stop_reasons") or []
    return {
        "file": str(path),
        "bytes": Path(path).stat().st_size,
        "estimator": header.get("estimator"),
        "ncai": header.get("ncai"),
        "versions": header.get("versions") or {},
        "target": table.get("target"),
        "columns": preparer.get("notes") or {},
        "warnings": preparer.get("warnings") or [],
        "inputs": header.get("feature_names"),
        "num_inputs": (header.get("dims") or [None])[0],
        "num_weights": header.get("num_weights"),
        "settings": flat_settings(header),
        # The seed that repeats the fit; None if the user gave none.
        "seed": given.get("random_state"),
        "stop_reasons": reasons,
        "cut_short": cut_short(reasons, header.get("n_iter")),
        "fit_seconds": header.get("fit_seconds"),
        "interrupted": header.get("interrupted"),
        "num_train": table.get("num_train"),
        "num_valid": table.get("num_valid"),
        "num_test": table.get("num_test"),
        "scores": table.get("scores") or [],
        "diagnosis": table.get("diagnosis"),
        "command": table.get("command"),
        "holds_training_rows": "training.inputs" in arrays,
        "arrays": {name: list(array.shape) for name, array in arrays.items()},
    }


def diagnose_model(path: str | Path):
    """Return the stored diagnosis, or compute one from the stored training rows."""
    header, arrays = read_file(path)
    if (header.get("dims") or [0, 0])[1] == 0:
        raise ValueError(f"{path} has no z to diagnose: its latent_dim is 0.")
    kept = (header.get("table") or {}).get("diagnosis")
    if kept:
        from ncai.diagnostics.latent_diagnosis import LatentDiagnosis

        judged = Leaf("'means' or 'samples'", lambda v: v in ("means", "samples"))
        form = form_of(LatentDiagnosis, ANY_NUMBER) | {"judged": judged}
        names = set(form)
        if names <= set(kept):
            try:
                check(kept, form, "diagnosis")
            except HeaderError as error:
                raise ModelFileError(f"{path} {error}.") from None
            # Infinity is stored as null, because JSON lacks it.
            values: dict[str, Any] = {
                name: float("inf") if kept[name] in (None, "inf") else kept[name]
                for name in names
            }
            return LatentDiagnosis(**values)
    if "training.inputs" not in arrays:
        raise ValueError(
            f"{path} contains neither a diagnosis nor the training rows: let `ncai "
            "fit` run to the end, or save the model with include_training=True."
        )
    from ncai.estimators.bnn_lv import BNNLVRegressor

    return BNNLVRegressor.load(path).diagnose()


# ----- Sentences and numbers that commands and reports share --------------------------


def rows_sentence(counts: Mapping[str, Any]) -> str:
    """Say how many rows were used to train, to choose among restarts and to score."""
    parts = [f"{counts['num_train']} to train on"]
    if counts.get("num_valid"):  # files of earlier versions have none
        parts.append(f"{counts['num_valid']} to choose among restarts")
    if counts["num_test"]:
        parts.append(f"{counts['num_test']} held out to score the model")
    return ", ".join(parts)


def learned_as(settings: Mapping[str, Any], target: str | None = None) -> str:
    """Describe the transform of the target that was learned, and its rounding."""
    name = settings.get("target_transform") or "none"
    learned = _LEARNED.get(name, f"learned as {name} of it")
    steps = settings.get("rounding_steps") or ()
    if any(steps):
        shown = ", ".join(f"{step:g}" if step else "none" for step in steps)
        learned += (
            f"; it comes in steps of {shown}, and so do predicted quantiles, intervals "
            "and samples (means do not)"
        )
    return f"{target}, {learned}" if target else learned


def cut_short(stop_reasons: Sequence[str], num_steps: int | None) -> str | None:
    """Return a sentence if the time limit ended training early; else None."""
    if not stop_reasons and num_steps == 0:
        return (
            "the time limit passed before the first step, so nothing was learned: "
            "allow more time."
        )
    # Trial fits only choose a transform, in a small share of the time. But if no time
    # was left for a complete fit, the trial fit is the result.
    main = [one for one in stop_reasons if not one.startswith("trial ")]
    cut = [one for one in main or stop_reasons if ": time limit" in one]
    if not cut:
        return None
    done = cut[-1].partition("time limit ")[2]
    return (
        f"the time limit cut training short, {done}: more time may give better "
        "predictions."
    )


def decimals_for(values) -> int:
    """Return how many decimals show about four digits of the largest number."""
    sizes = [abs(value) for value in values if value is not None]
    largest = max((size for size in sizes if math.isfinite(size)), default=1.0)
    if 0 < largest < 0.1:
        return min(2 - math.floor(math.log10(largest)), 12)
    return max(0, 3 - max(0, math.floor(math.log10(max(largest, 1.0)))))
