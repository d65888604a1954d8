"""Missing values in a column: what counts as missing, and how it is replaced.

A missing number, boolean or date becomes the median of the training rows. If enough of
them are missing, a further column of 0 and 1 marks the rows. In a category missing
values are a level of their own.
"""

import re
from collections.abc import Mapping

import numpy as np

from ncai.preprocessing.columns.column import Limits, Surprise, counted, quoted

# The level of a category that stands for missing values.
MISSING_LEVEL = "(missing)"
_WORDS_FOR_MISSING = {"missing", "unknown", "none", "nil", "nd", "n.d."}
_WORDS_FOR_MISSING |= {"n.a.", "n.a", "k.a."}


def means_missing(text: str) -> bool:
    """Return whether a text among numbers can only be a mark of a missing value."""
    return not re.search(r"\w", text) or text.lower() in _WORDS_FOR_MISSING


def learn_filling(values: np.ndarray, limits: Limits) -> tuple[float, bool, bool]:
    """Return the median, whether values are missing, and whether to mark their rows."""
    missing = int(np.isnan(values).sum())
    fill = float(np.nanmedian(values))
    return fill, missing > 0, missing >= limits.min_rows


def fill_in(values: np.ndarray, plan, name: str | None = None) -> dict[str, np.ndarray]:
    """Replace missing values by the median, and add the mark if there is one.

    Args:
        values: the numbers, NaN where missing.
        plan: has the median, and whether there is a mark.
        name: name of the filled column; the plan's name if not given.
    """
    missing = np.isnan(values)
    found = {name or plan.name: np.where(missing, plan.fill, values)}
    if plan.marked:
        found[mark_name(plan.name)] = missing.astype(np.float64)
    return found


def mark_name(name: str) -> str:
    """The column of 0 and 1 that marks missing values of a column."""
    return f"{name} missing"


def filling_note(values: np.ndarray, plan, unit: str = "") -> str:
    """Describe how missing values were filled, as a part of the note on a column."""
    missing = int(np.isnan(values).sum())
    if not missing:
        return ""
    median = f"{plan.fill:.6g}{unit}"
    note = f"; {counted(missing, 'missing value')} became the median, {median}"
    return note + (f", marked in '{mark_name(plan.name)}'" if plan.marked else "")


def note_of_shared_mark(note: str, name: str, equals: Mapping[str, str]) -> str:
    """The note on a column whose mark may have been dropped, as it equals another mark.

    Args:
        note: the note so far.
        name: name of the column.
        equals: for each dropped part of the column, the column that has the same.
    """
    mark = mark_name(name)
    if mark not in equals:
        return note
    return note.replace(
        f"marked in '{mark}'", f"in the same rows as {quoted(equals[mark])}"
    )


def level_note(missing: int) -> str:
    """The same as `filling_note`, for a category."""
    if not missing:
        return ""
    whose = "its" if missing == 1 else "their"
    return f"; {counted(missing, 'missing value')} as a level of {whose} own"


def new_missing(name: str, missing: np.ndarray, had_missing: bool) -> list[Surprise]:
    """Return missing values, if the training rows had none."""
    count = int(np.sum(missing))
    return [Surprise(name, "missing", count)] if count and not had_missing else []


def with_missing_level(
    examples: Mapping[str, str | None], has_missing: bool
) -> dict[str, str | None]:
    """Return levels with an example of each, including missing values if any."""
    return {**examples, **({MISSING_LEVEL: None} if has_missing else {})}
