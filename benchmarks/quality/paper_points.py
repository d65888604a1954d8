"""Points of the paper's grids, by set: what the study of its experiments chose.

Our own choices in "Hyper-parameters selected" of results/study/paper/tables.md: by
validation log-likelihood on the first split of `ncai study run --scale paper`, ten
restarts a point. To choose anew here would take 16 fits of minutes a set.
"""

from typing import Any

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
