"""From inputs to one HTML file that needs nothing but itself."""

import base64
import hashlib
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from ncai.report.draw.densities import densities_over
from ncai.report.inputs import ReportInputs, Subject
from ncai.report.sections import answer, facts, noise
from ncai.report.sections.latents import latents, verdict
from ncai.report.sections.quality import quality, score_rows
from ncai.report.sections.ridges import ridgelines
from ncai.report.sections.rows import row_titles, rows_for_script
from ncai.report.sections.split import split
from ncai.report.sections.training import training
from ncai.runtime.atomic_write import check_writable, replacing
from ncai.tables.inspect import learned_as


def write_report(path: str | Path, inputs: ReportInputs) -> None:
    """Write a report on a fitted model; an existing file is replaced in one step.

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
    """The page."""
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
    """All that the template places."""
    subject = Subject(inputs)
    found = quality(subject)
    parts = split(subject)
    importance = noise.importance(subject)
    features = noise.chosen_features(subject, importance)
    of_z, no_z = latents(subject, features[0])
    titles = row_titles(subject)
    densities = [densities_over(subject, feature) for feature in features]
    explorers = [noise.explorer(subject, one, titles) for one in densities]
    columns, columns_left_out = facts.column_table(subject)
    most_important = None if importance is None else importance.first()
    # Scores that are handed in are of all rows, the pictures of some if they are many.
    num_scored = subject.num_judged_from if inputs.scores else len(subject.judged)
    script = _text("report.js")
    return {
        "subject": subject,
        "title": inputs.title or f"Predicting {subject.target_name}",
        "when": datetime.now().astimezone().strftime("%-d %B %Y, %H:%M %Z"),
        "sentences": answer.sentences(subject, found, parts, of_z, most_important),
        "cut_short": answer.cut_short_sentence(subject),
        "badges": answer.badges(subject, found, of_z),
        "learned_as": learned_as(subject.model.settings_),
        "rounded": any(subject.model.settings_.get("rounding_steps") or ()),
        "columns": columns,
        "columns_left_out": columns_left_out,
        "quality": found,
        "scores": score_rows(found.scores, num_scored),
        "num_scored": num_scored,
        "importance": noise.importance_rows(importance),
        "most_important": most_important,
        "explorers": explorers,
        "thumbnails": noise.thumbnails(subject, densities[0]),
        "ridgelines": ridgelines(subject),
        "split": parts,
        "latents": of_z,
        "no_latents": no_z,
        "verdict": verdict,
        "training": training(subject),
        "settings": facts.settings_table(subject),
        "versions": facts.versions(),
        "seed": subject.model.seed_,
        "data": {
            "rows": rows_for_script(subject),
            "explorers": {one["id"]: one["data"] for one in explorers},
        },
        "style": _text("report.css"),
        "script": script,
        "script_hash": base64.b64encode(
            hashlib.sha256(script.encode()).digest()
        ).decode(),
    }


def _text(name: str) -> str:
    return files("ncai.report").joinpath(f"templates/{name}").read_text("utf-8")
