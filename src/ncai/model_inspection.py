"""`ncai inspect` and `ncai diagnose`: what a model file says, without running it."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from ncai.model_header import read_header

MOST_SHOWN = 30


def inspect_model(path: str | Path) -> dict[str, Any]:
    """What the header of a model file tells."""
    header, shapes = read_header(path)
    table = header.get("table") or {}
    preparer = table.get("preparer") or {}
    return {
        "file": str(path),
        "bytes": Path(path).stat().st_size,
        "estimator": header.get("estimator"),
        "ncai": header.get("ncai"),
        "versions": header.get("versions") or {},
        "target": table.get("target"),
        "columns": preparer.get("notes") or {},
        "inputs": header.get("feature_names"),
        "num_inputs": (header.get("dims") or [None])[0],
        "num_weights": header.get("num_weights"),
        "settings": header.get("params") or {},
        "seed": header.get("seed"),
        "stop_reasons": header.get("stop_reasons") or [],
        "fit_seconds": header.get("fit_seconds"),
        "interrupted": header.get("interrupted"),
        "num_train": table.get("num_train"),
        "num_test": table.get("num_test"),
        "scores": table.get("scores") or [],
        "diagnosis": table.get("diagnosis"),
        "command": table.get("command"),
        "holds_training_rows": "training.inputs" in shapes,
        "arrays": shapes,
    }


def shown_lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """The same for a person: labels and texts."""
    versions = ", ".join(
        f"{name} {number}"
        for name, number in {"ncai": found["ncai"], **found["versions"]}.items()
    )
    settings = ", ".join(
        f"{name}={value}"
        for name, value in found["settings"].items()
        if value is not None and name not in ("progress", "random_state")
    )
    rows = []
    if found["num_train"]:
        rows = [("Rows", f"{found['num_train']} to fit, {found['num_test']} to score")]
    lines = [
        ("File", f"{found['file']} ({found['bytes']:,} bytes)"),
        ("Model", f"{found['estimator']}, {found['num_weights']} weights"),
        ("Written by", versions),
        *([("Target", found["target"])] if found["target"] else []),
        ("Inputs", _names(found)),
        ("Settings", settings),
        ("Seed", str(found["settings"].get("random_state", found["seed"]))),
        *rows,
        *zip(("Stages", *[""] * 9), found["stop_reasons"], strict=False),
    ]
    if found["diagnosis"]:
        lines += [
            ("Latent", found["diagnosis"].get("independence_verdict", "")),
            ("", found["diagnosis"].get("prior_verdict", "")),
        ]
    if found["command"]:
        lines.append(("Command", found["command"]))
    return lines


def _names(found: dict[str, Any]) -> str:
    names = found["inputs"]
    if not names:
        return f"{found['num_inputs']}, without names"
    more = f", and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return f"{len(names)}: {', '.join(names[:MOST_SHOWN])}{more}"


def diagnose_model(path: str | Path):
    """The diagnosis that a file keeps, or else one of the training rows it keeps."""
    header, shapes = read_header(path)
    if (header.get("dims") or [0, 0])[1] == 0:
        raise ValueError(f"{path} has no z to diagnose: its latent_dim is 0.")
    kept = (header.get("table") or {}).get("diagnosis")
    if kept:
        from ncai.diagnosis import LatentDiagnosis

        names = {field.name for field in fields(LatentDiagnosis)}
        if names <= set(kept):
            # What JSON has no word for was infinite.
            values: dict[str, Any] = {
                name: float("inf") if kept[name] in (None, "inf") else kept[name]
                for name in names
            }
            return LatentDiagnosis(**values)
    if "training.inputs" not in shapes:
        raise ValueError(
            f"{path} keeps neither a diagnosis nor the training rows: fit it with "
            "`ncai fit` to the end, or save it with include_training=True."
        )
    from ncai.estimators import BNNLVRegressor

    return BNNLVRegressor.load(path).diagnose()
