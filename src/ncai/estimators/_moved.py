"""Arguments of version 0.1 that have another place now, or none."""

from collections.abc import Iterable, Mapping
from typing import Any

_ANY = ("Marginal", "NCAI", "MFVI", "IWAE", "MAP", "HMC")
_TRAINED = _ANY[:-1]
# The method classes that have each setting now; the first is shown in the message.
METHOD_SETTINGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "weight_variance",
            "latent_variance",
            "variance_prior",
            "variance_form",
            "noise_prior",
            "noise_starts",
            "learning_rate",
            "n_weight_draws",
            "n_latent_draws",
            "start",
        ),
        _ANY,
    ),
    **dict.fromkeys(("schedule", "plateau", "validation_fraction"), _TRAINED),
    **dict.fromkeys(("temperature", "n_folds"), ("Marginal", "IWAE")),
    "n_mc_samples": ("Marginal", "MFVI", "NCAI"),
    "hold_means": ("MFVI", "NCAI"),
    **dict.fromkeys(
        (
            "hz_weight",
            "offdiagonal_weight",
            "dependence_weight",
            "hz_tolerance",
            "input_tolerance",
            "target_tolerance",
            "penalise",
            "ramp_fraction",
        ),
        ("NCAI",),
    ),
    **dict.fromkeys(("n_chains", "n_warmup", "n_draws"), ("HMC", "HMCMarginal")),
}
RENAMED = {"tune_noise": ("recalibrate_noise", ("Marginal", "IWAE"))}
NETWORK_SETTINGS = ("latent_layer", "latent_hidden")
REMOVED = (
    "weight_groups",
    "multipliers",
    "hz_slack",
    "posterior_rank",
    "n_snapshots",
    "refit",
)


def place_of(name: str, value: Any) -> str | None:
    """The sentence that names the new place of an old argument; None if it is none."""
    if name in METHOD_SETTINGS:
        classes = METHOD_SETTINGS[name]
        rest = f" ({', '.join(classes)} have it)" if len(classes) > 1 else ""
        return (
            f"{name} is a setting of the method now: "
            f"inference={classes[0]}({name}={value!r}){rest}."
        )
    if name in RENAMED:
        new, classes = RENAMED[name]
        return (
            f"{name} is called {new} now, a setting of the method: "
            f"inference={classes[0]}({new}={value!r})."
        )
    if name in NETWORK_SETTINGS:
        return f"{name} is a setting of the network now: network=MLP({name}={value!r})."
    if name in REMOVED:
        return f"{name}={value!r} was removed in version 0.2: it made no fit better."
    return None


def refuse_moved(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise one sentence for an argument of version 0.1 that is not known any more."""
    known = set(known)
    for name, value in given.items():
        sentence = None if name in known else place_of(name, value)
        if sentence is not None:
            raise TypeError(sentence)
