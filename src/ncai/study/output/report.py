"""One page with all claims, tables and figures of the studies."""

import base64
import datetime
import html
import platform
from importlib.metadata import version
from pathlib import Path

import jinja2

from ncai.runtime.atomic_write import replacing
from ncai.study.engine import AnyStudy, Scale
from ncai.study.engine.store import Store
from ncai.study.output.claims import claims_table
from ncai.study.output.figures import write_figures
from ncai.study.output.tables import BOLD, Table
from ncai.study.registry import TABLES

PACKAGES = ("ncai", "jax", "jaxlib", "numpy", "scipy", "optax", "blackjax")
STALE_NOTE = (
    " **Some of them are stale**: the present code did not compute them, and may find "
    "other numbers. Each study says below how many of its cells are."
)
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The paper's experiments, {{ scale }} scale</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1200px;
  padding: 0 1rem; color: #222; background: #fff; }
h1, h2, h3 { line-height: 1.2; }
h2 { margin-top: 3rem; border-bottom: 1px solid #ccc; padding-bottom: .3rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; }
th, td { padding: .3rem .7rem; text-align: left; border-bottom: 1px solid #e4e4e4;
  vertical-align: top; }
th { border-bottom: 2px solid #999; }
td { font-variant-numeric: tabular-nums; }
img { max-width: 100%; }
.note { color: #555; font-size: 13px; }
nav a { margin-right: 1rem; }
</style>
</head>
<body>
<h1>The paper's experiments</h1>
<p>Scale <b>{{ scale }}</b>; written {{ date }} with <code>ncai study report --scale
{{ scale }}</code>. {{ versions }}.{{ warning }}</p>
<nav><a href="#claims">Claims</a>{% for s in studies %}<a href="#{{ s.name }}">
{{ s.name }}</a>{% endfor %}</nav>
<h2 id="claims">Claims</h2>
{{ claims }}
{% for s in studies %}
<h2 id="{{ s.name }}">{{ s.title }}</h2>
<p class="note">{{ s.state }}</p>
{% for f in s.figures %}
<p><img alt="{{ f.name }}" src="data:image/png;base64,{{ f.data }}"></p>
{% endfor %}
{% for t in s.tables %}{{ t }}{% endfor %}
{% endfor %}
</body>
</html>
"""


def _with_bold(text: str) -> str:
    return BOLD.sub(r"<b>\1</b>", html.escape(text))


def table_html(table: Table) -> str:
    """Return a table with heading and note; text is escaped, **bold** becomes bold."""
    text = _with_bold
    head = "".join(f"<th>{text(column)}</th>" for column in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return (
        f"<h3>{text(table.title)}</h3><div class='scroll'><table><thead><tr>{head}</tr>"
        f"</thead><tbody>{body}</tbody></table></div>"
        f"<p class='note'>{text(table.note)}</p>"
    )


def state_of(study: AnyStudy, scale: Scale, store: Store) -> str:
    """State how many cells are done, and how many of these are stale, and why."""
    cells = study.cells(scale, store)
    done = [cell for cell in cells if store.is_done(cell)]
    marks = [mark for cell in done if (mark := store.stale(cell))]
    said = f"{len(done)} of {len(cells)} cells done."
    if marks:
        reasons = dict.fromkeys(f"since {m['since']}: {m['reason']}" for m in marks)
        said += f" **{len(marks)} of them are stale** {'; '.join(reasons)}"
    return said


def _is_stale(state: str) -> bool:
    return "stale" in state


def page_of_tables(studies: list[AnyStudy], scale: Scale, store: Store) -> str:
    """Return all claims and tables as one page of Markdown."""
    states = {study.name: state_of(study, scale, store) for study in studies}
    warning = "" if not any(map(_is_stale, states.values())) else STALE_NOTE
    parts = [
        f"# The paper's experiments, {scale.name} scale: tables\n",
        f"Made by `ncai study tables --scale {scale.name}` from the results so far."
        f"{warning}\n",
        f"## Claims\n\n{claims_table(scale, store).markdown()}",
    ]
    for study in studies:
        parts.append(f"## {study.title}\n\n`{study.name}`: {states[study.name]}\n")
        if study.name in TABLES:
            parts += [table.markdown() for table in TABLES[study.name](scale, store)]
    return "\n".join(parts)


def write_text(path: Path, text: str) -> None:
    """Write a text file, completely or not at all."""
    with replacing(path) as temporary:
        Path(temporary).write_text(text)


def write_report(studies: list[AnyStudy], scale: Scale, store: Store) -> Path:
    """Write FOLDER/report.html, a single file, from the results so far."""
    store.folder.mkdir(parents=True, exist_ok=True)
    shown = []
    for study in studies:
        paths = write_figures(study.name, scale, store, store.folder / "figures")
        found = TABLES[study.name](scale, store) if study.name in TABLES else []
        shown.append(
            {
                "name": study.name,
                "title": study.title,
                "state": _with_bold(state_of(study, scale, store)),
                "figures": [
                    {
                        "name": path.stem,
                        "data": base64.b64encode(path.read_bytes()).decode(),
                    }
                    for path in paths
                ],
                "tables": [table_html(table) for table in found],
            }
        )
    # Titles are our own and tables escape their cells, so nothing is escaped twice.
    page = jinja2.Environment(autoescape=False).from_string(PAGE)
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    text = page.render(
        scale=scale.name,
        date=datetime.date.today().isoformat(),
        versions=f"Python {platform.python_version()}, {versions}",
        claims=table_html(claims_table(scale, store)),
        warning=_with_bold(STALE_NOTE)
        if any(_is_stale(s["state"]) for s in shown)
        else "",
        studies=shown,
    )
    path = store.folder / "report.html"
    write_text(path, text)
    return path
