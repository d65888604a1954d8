"""The sections of the report, one file each, in the order of the page.

How to add a section:

1. Write `sections/NAME.py` with a frozen dataclass of what the page shows.
2. In that file, write `@shared def NAME(subject: Subject)`, which returns it.
3. Take predictions from `subject.on_shown` and `subject.on_eval`, computed once.
4. Add `Section("NAME", "text of the link", NAME)` to `SECTIONS` below.
5. Place its fields in `templates/report.html.j2`, inside `<section id="NAME">`.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from ncai.report.sections.answer import answer
from ncai.report.sections.data import data
from ncai.report.sections.latents import latents
from ncai.report.sections.noise import noise
from ncai.report.sections.quality import quality
from ncai.report.sections.settings import settings
from ncai.report.sections.split import split
from ncai.report.sections.training import training
from ncai.report.subject import Subject


@runtime_checkable
class BuildsSection(Protocol):
    """A section's function: from the subject to what the template places."""

    def __call__(self, subject: Subject, /) -> Any:
        """Compute the texts, tables and charts of the section."""
        ...


class Section(NamedTuple):
    """A section of the page.

    Attributes:
        name: its name in the template, and its address in the page.
        link: the text of its link at the top of the page.
        build: its function.
    """

    name: str
    link: str
    build: BuildsSection


SECTIONS = (
    Section("answer", "Answer", answer),
    Section("data", "Data", data),
    Section("quality", "How good", quality),
    Section("noise", "The noise", noise),
    Section("split", "Uncertainty", split),
    Section("latents", "z", latents),
    Section("training", "Training", training),
    Section("settings", "Settings", settings),
)
