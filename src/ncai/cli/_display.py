"""Tables that several commands print. Needs neither JAX nor pandas.

Texts of users go in as `Text`: square brackets in them are not markup.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ncai.tables.inspect import decimals_for

MOST_COLUMNS = 40
# Where y is rounded, coverage is computed from PIT values (see `row_scores`).
ROUNDED_COVERAGE = (
    "y is rounded, so intervals end at values of y and contain more than their level. "
    "To make coverage comparable with the level, a row at an end counts in part."
)


def plain_table(title: str, headings: Sequence[str]) -> Table:
    """A table without lines: names at the left, numbers at the right."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
    )
    table.add_column("")
    for name in headings:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def label_table(lines: Sequence[tuple[str, str]]) -> Table:
    """Labels at the left, sentences that wrap at the right."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=8, style="bold")
    table.add_column()
    for label, text in lines:
        table.add_row(Text(label), Text(text))
    return table


def column_table(notes: Mapping[str, str], most: int | None = MOST_COLUMNS) -> Table:
    """A line for each column of the user's table."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, max_width=24)
    table.add_column()
    for name, note in list(notes.items())[:most]:
        table.add_row(Text(name), Text(note))
    if most is not None and len(notes) > most:
        more = f"and {len(notes) - most} more; `ncai inspect` shows all"
        table.add_row("...", more)
    return table


def score_table(scores: Sequence[Mapping[str, Any]], num_rows: int | None) -> Table:
    """Scores on the test rows, a line for each method."""
    headings = ("log-lik.", "CRPS", "in 50%", "in 80%", "in 95%")
    table = plain_table(f"On {num_rows} rows that nothing was fitted to", headings)
    decimals = decimals_for([score["crps"] for score in scores])
    for score in scores:
        table.add_row(
            Text(score["name"]),
            f"{score['log_likelihood']:.3f}",
            f"{score['crps']:.{decimals}f}",
            *(f"{score[f'coverage_{level}']:.1%}" for level in (50, 80, 95)),
        )
    return table
