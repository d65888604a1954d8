"""Tables that the commands print, and files of comparisons. Needs neither JAX nor data.

Texts of users go in as `Text`: square brackets in them are not markup.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from ncai.runtime.atomic_write import replacing
from ncai.tables.number_format import decimals_for

if TYPE_CHECKING:
    import pandas as pd

MOST_COLUMNS = 40
FEWEST_TO_JUDGE = 10  # rows, of calibration
_METRIC_NAMES = {
    "log_likelihood": "log-likelihood a row",
    "crps": "CRPS",
    "rmse": "RMSE",
    "mae": "mean absolute error",
}


def label_table(lines: list[tuple[str, str]]) -> Table:
    """Labels at the left, sentences that wrap at the right."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=8, style="bold")
    table.add_column()
    for label, text in lines:
        table.add_row(Text(label), Text(text))
    return table


def column_table(notes: dict[str, str], most: int | None = MOST_COLUMNS) -> Table:
    """A line for each column of the table."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, max_width=24)
    table.add_column()
    for name, note in list(notes.items())[:most]:
        table.add_row(Text(name), Text(note))
    if most is not None and len(notes) > most:
        more = f"and {len(notes) - most} more; `ncai inspect` shows all"
        table.add_row("...", more)
    return table


def score_table(scores: list[dict[str, Any]], num_rows: int) -> Table:
    """Held-out scores, a method a line."""
    table = Table(
        title=f"On {num_rows} rows that nothing was fitted to",
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
    )
    table.add_column("")
    for name in ("log-lik.", "CRPS", "in 50%", "in 80%", "in 95%"):
        table.add_column(name, justify="right", no_wrap=True)
    decimals = decimals_for([score["crps"] for score in scores])
    for score in scores:
        table.add_row(
            Text(score["name"]),
            f"{score['log_likelihood']:.3f}",
            f"{score['crps']:.{decimals}f}",
            *(f"{score[f'coverage_{level}']:.1%}" for level in (50, 80, 95)),
        )
    return table


# Where y is rounded coverage is by PIT values (see `evaluation.row_scores`).
ROUNDED_COVERAGE = (
    "y is rounded, so intervals end at values of y and hold more than their level; to "
    "be compared with it, coverage counts a row at an end in part."
)


def metric_table(found: dict[str, Any]) -> Table:
    """All metrics of `ncai evaluate`, with their intervals."""
    table = Table(
        title=f"{found['target']}, {found['rows']} row{'s' * (found['rows'] > 1)}",
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
    )
    table.add_column("")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("95% interval", justify="right", no_wrap=True)
    for name, metric in found["metrics"].items():
        low, high = metric["lower_95"], metric["upper_95"]
        if name.startswith("coverage"):
            shown = f"{metric['value']:.1%}", f"{low:.1%} to {high:.1%}"
        else:
            shown = f"{metric['value']:.4g}", f"{low:.4g} to {high:.4g}"
        table.add_row(_metric_name(name), *shown)
    return table


def _metric_name(name: str) -> str:
    kind, _, level = name.rpartition("_")
    words = {
        "coverage": f"in the {level}% interval",
        "width": f"width of the {level}% interval",
        "interval_score": f"interval score, {level}%",
    }
    return words.get(kind, _METRIC_NAMES.get(name, name))


def calibration_sentence(found: dict[str, float], rows: int) -> str:
    """Whether predictions say how often what happens."""
    if rows < FEWEST_TO_JUDGE:
        few = "1 row is" if rows == 1 else f"{rows} rows are"
        return f"Calibration: {few} too few to judge; it takes {FEWEST_TO_JUDGE}."
    verdict = (
        "the ranks of y in their predictions look uniform"
        if found["p_value"] > 0.05
        else "the ranks of y in their predictions are not uniform"
    )
    return f"Calibration: {verdict} (KS {found['ks']:.3f}, p {found['p_value']:.2g})."


def comparison_table(summary: "pd.DataFrame", folds: int) -> Table:
    """Mean and standard error over folds, best likelihood first."""
    table = Table(
        title=f"Mean over {folds} folds, and its standard error",
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
    )
    table.add_column("")
    for name in ("log-lik.", "CRPS", "RMSE", "in 50%", "in 95%", "s a fit"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in summary.to_dict("records"):
        if not row["folds"]:
            table.add_row(Text(row["method"]), "failed", *[""] * 5)
            continue
        table.add_row(
            Text(row["method"]),
            f"{row['log_likelihood']:.3f} ± {row['log_likelihood_se']:.3f}",
            f"{row['crps']:.4g}",
            f"{row['rmse']:.4g}",
            f"{row['coverage_50']:.1%}",
            f"{row['coverage_95']:.1%}",
            f"{row['seconds']:.1f}",
        )
    return table


def write_comparison(
    results: "pd.DataFrame", summary: "pd.DataFrame", path: Path
) -> None:
    """Scores of every fold as CSV, or those and the summary as JSON."""
    with replacing(path) as temporary:
        if path.suffix.lower() == ".csv":
            results.to_csv(temporary, index=False)
            return
        parts = {"folds": results, "summary": summary}
        words = {
            name: json.loads(str(part.to_json(orient="records")))
            for name, part in parts.items()
        }
        temporary.write_text(json.dumps(words, indent=2) + "\n", encoding="utf-8")
