"""Notes and warnings about columns, and the limits that decide what is done to them."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np


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
    """The most levels of a category, and the fewest rows that a level or mark needs."""

    max_levels: int
    min_rows: int


def surprise_sentences(surprises: Iterable[Surprise]) -> list[str]:
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
                f"column {name} has no value in {rows}, although none was missing in "
                "training; its typical training value is used instead."
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
                f"{shown}); they are treated as a rare or an average level."
            )
    return sentences


def quoted(name: object) -> str:
    """A name of the user's in quotes, without escapes where it can be printed."""
    plain = isinstance(name, str) and name.isprintable()
    return f"'{name}'" if plain else repr(name)


def counted(number: int | np.integer, noun: str) -> str:
    """A number and its noun, one or many."""
    return f"{number} {noun}{'s' if number != 1 else ''}"
