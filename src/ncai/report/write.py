"""From inputs to one HTML file that needs no other file and no network."""

import base64
import hashlib
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from ncai.report.inputs import ReportInputs
from ncai.report.sections import SECTIONS
from ncai.report.subject import Subject
from ncai.runtime.atomic_write import check_writable, replacing


def write_report(path: str | Path, inputs: ReportInputs) -> None:
    """Write a report on a fitted model; it replaces an existing file in one step.

    Example:
        >>> from ncai.report import ReportInputs, write_report
        >>> write_report("r.html", ReportInputs(model, X, y))  # doctest: +SKIP
    """
    path = Path(path)
    check_writable(path)  # before the work, not after it
    page = render(inputs)
    with replacing(path) as unfinished:
        unfinished.write_text(page, encoding="utf-8")


def render(inputs: ReportInputs) -> str:
    """The page as HTML."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("ncai.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(**content(inputs))


def content(inputs: ReportInputs) -> dict[str, Any]:
    """What the template places: each section under its name, and the frame."""
    subject = Subject(inputs)
    sections = {section.name: section.build(subject) for section in SECTIONS}
    script = _text("report.js")
    return {
        **sections,
        "subject": subject,
        "sections": SECTIONS,
        "title": inputs.title or f"Predicting {subject.target_name}",
        "when": datetime.now().astimezone().strftime("%-d %B %Y, %H:%M %Z"),
        "for_script": {
            "rows": sections["data"].rows,
            "explorers": {
                one["id"]: one["data"] for one in sections["noise"].explorers
            },
        },
        "style": _text("report.css"),
        "script": script,
        "script_hash": base64.b64encode(
            hashlib.sha256(script.encode()).digest()
        ).decode(),
    }


def _text(name: str) -> str:
    return files("ncai.report").joinpath(f"templates/{name}").read_text("utf-8")
