"""What is said about columns, and the limits by which they are treated."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple


class Surprise(NamedTuple):
    """Values of a column that the training rows did not have."""

    column: str
    what: str
    count: int
    examples: tuple[str, ...] = ()


class Learned(NamedTuple):
    """What was learnt from the training rows of a column.

    Attributes:
        plan: turns later rows into numbers.
        note: a few words on what was done.
        parsed: the training rows, read; what `plan.values` takes.
    """

    plan: Any
    note: str
    parsed: Any


class Limits(NamedTuple):
    """From which number of rows on something gets a column of its own."""

    max_levels: int
    min_rows: int


def tell_surprises(surprises: Iterable[Surprise]) -> list[str]:
    """A sentence for each column and kind of surprise, over all pieces of a table."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    examples: dict[tuple[str, str], set[str]] = defaultdict(set)
    for found in surprises:
        counts[found.column, found.what] += found.count
        examples[found.column, found.what].update(found.examples)
    sentences = []
    for (column, what), count in counts.items():
        name = quoted(column)
        rows = f"{count} row{'s' if count != 1 else ''}"
        if what == "missing":
            sentences.append(
                f"column {name} lacks its value in {rows}, though none was missing in "
                "training: its usual value was taken."
            )
        elif what == "far outside":
            (span,) = examples[column, what]
            sentences.append(
                f"column {name} lies far outside its training values ({span}) in "
                f"{rows}: predictions there are guesses."
            )
        else:
            shown = ", ".join(map(repr, sorted(examples[column, what])[:3]))
            sentences.append(
                f"column {name} has levels not seen in training in {rows} (such as "
                f"{shown}): they count as rare or average ones."
            )
    return sentences


def quoted(name: object) -> str:
    """A name of the user's in quotes, as it is: escapes are for programmers."""
    plain = isinstance(name, str) and name.isprintable()
    return f"'{name}'" if plain else repr(name)


def counted(number: int, noun: str) -> str:
    """A number and its noun, one or many."""
    return f"{number} {noun}{'s' if number != 1 else ''}"
