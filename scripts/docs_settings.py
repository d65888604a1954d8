"""The tables of docs/use/settings.md: `python scripts/docs_settings.py`.

They list every setting of every method with the value that each preset gives. A test
compares the page with the code, so run this after a default has changed.
"""

from pathlib import Path
from typing import Any

from ncai import BNNLVRegressor
from ncai.inference.registry import METHODS, PRESETS

PAGE = Path(__file__).parents[1] / "docs" / "use" / "settings.md"
BEGIN = "<!-- Written by scripts/docs_settings.py: do not edit by hand. -->\n"
END = "<!-- End of the tables. -->\n"
PLACES = ("estimator", "network", "method")
NETWORK = ("hidden", "activation", "latent_layer", "latent_hidden")
# Not chosen by a preset, or known only after a fit.
LEFT_OUT = ("inference", "preset", "rounding_steps")
NO_VALUE = {"time_limit": "no limit", "start": "the method's own"}


def place_of(name: str, estimator: set[str]) -> str:
    """Where a user gives the setting: to the estimator, the network or the method."""
    if name in NETWORK:
        return "network"
    return "estimator" if name in estimator else "method"


def shown(name: str, value: Any) -> str:
    return NO_VALUE[name] if value is None else f"`{value!r}`"


def table_of(name: str) -> str:
    values = [
        BNNLVRegressor(inference=name, preset=preset).resolved_settings().to_dict()
        for preset in PRESETS
    ]
    estimator = set(BNNLVRegressor().get_params(deep=False))
    presets = " | ".join(f'`preset="{preset}"`' for preset in PRESETS)
    lines = [
        f'### `{METHODS[name].__name__}`, or `inference="{name}"`',
        "",
        f"| setting | of the | {presets} |",
        "|" + "---|" * (2 + len(PRESETS)),
    ]
    settings = [(place_of(setting, estimator), setting) for setting in values[0]]
    for place, setting in sorted(settings, key=lambda s: (PLACES.index(s[0]), s[1])):
        if setting in LEFT_OUT:
            continue
        cells = [shown(setting, value[setting]) for value in values]
        lines.append(f"| `{setting}` | {place} | {' | '.join(cells)} |")
    return "\n".join(lines)


def tables() -> str:
    return "\n\n".join(table_of(name) for name in METHODS)


def with_tables(page: str) -> str:
    """The page with its tables written anew."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{tables()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
