"""`ncai inspect`: what a model file holds."""

from collections.abc import Mapping
from typing import Any

from ncai.cli._arguments import AsJson, Model, print_json

EXAMPLES = ("ncai inspect houses.ncai", "ncai inspect houses.ncai --json")
MOST_SHOWN = 30
# Settings that a person looks for first.
_FIRST = ("inference", "preset", "hidden", "activation", "latent_dim", "n_restarts")
_FIRST = (*_FIRST, "max_steps", "time_limit", "target_transform")
_NOT_SHOWN = ("progress", "random_state", "rounding_steps")


def inspect(model: Model, as_json: AsJson = False) -> None:
    """Show what a model file holds, without running it.

    Columns, settings, versions and scores; all of it is in the header of the file.
    """
    from ncai.tables.inspect import inspect_model

    found = inspect_model(model)
    if as_json:
        print_json(found)
        return
    from rich.console import Console

    from ncai.cli._display import column_table, label_table, score_table

    console = Console()
    console.print(label_table(_lines(found)))
    if found["columns"]:
        console.print("\nColumns", style="bold")
        console.print(column_table(found["columns"], most=None))
    if found["scores"]:
        console.print()
        console.print(score_table(found["scores"], found["num_test"]))


def _lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a person wants to know: labels and texts."""
    from ncai.tables.inspect import learned_as, rows_sentence

    versions = ", ".join(
        f"{name} {number}"
        for name, number in {"ncai": found["ncai"], **found["versions"]}.items()
    )
    rows = []
    if found["num_train"]:
        rows = [("Rows", rows_sentence(found))]
    lines = [
        ("File", f"{found['file']} ({found['bytes']:,} bytes)"),
        ("Model", f"{found['estimator']}, {found['num_weights']} weights"),
        ("Written by", versions),
        ("Target", learned_as(found["settings"], found["target"])),
        ("Inputs", _names(found)),
        ("Settings", _settings_text(found["settings"])),
        ("Seed", "none given" if found["seed"] is None else str(found["seed"])),
        *rows,
        *zip(("Stages", *[""] * 9), found["stop_reasons"], strict=False),
        *([("Note", found["cut_short"])] if found["cut_short"] else []),
        *zip(("Warnings", *[""] * 99), found["warnings"], strict=False),
    ]
    if found["diagnosis"]:
        lines += [
            ("Latent", found["diagnosis"].get("independence_verdict", "")),
            ("", found["diagnosis"].get("prior_verdict", "")),
        ]
    if found["command"]:
        lines.append(("Command", found["command"]))
    return lines


def _settings_text(settings: Mapping[str, Any]) -> str:
    """Settings that the method reads, the main ones first."""
    names = [*_FIRST, *(name for name in settings if name not in _FIRST)]
    return ", ".join(
        f"{name}={_plain(settings[name])}"
        for name in names
        if settings.get(name) is not None and name not in _NOT_SHOWN
    )


def _plain(value: Any) -> str:
    """Without blanks, as an option takes it: 50,50."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _names(found: Mapping[str, Any]) -> str:
    names = found["inputs"]
    if not names:
        return f"{found['num_inputs']}, without names"
    more = f", and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return f"{len(names)}: {', '.join(names[:MOST_SHOWN])}{more}"
