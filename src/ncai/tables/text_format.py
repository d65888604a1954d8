"""How a text table is written: its encoding and what separates its values."""

import codecs
import csv
import io
from itertools import islice
from typing import NamedTuple

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    # Before UTF-16, whose mark theirs begins with; nobody writes tables so.
    codecs.BOM_UTF32_LE: None,
    codecs.BOM_UTF32_BE: None,
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_WORDS = {",": "','", ";": "';'", "\t": "tabs"}


class TextForm(NamedTuple):
    """How to read a text table."""

    encoding: str
    separator: str

    def assumed(self, expected: str) -> list[str]:
        """What is not as expected of a table, in words."""
        found = []
        if self.separator != expected:
            found.append(f"with values separated by {_WORDS[self.separator]}")
        if self.encoding == "utf-16":
            found.append("as UTF-16")
        return found


def text_form(start: bytes, separator: str) -> TextForm | None:
    """The form of a table that starts so; None if that is no text we read.

    Args:
        start: the first bytes, some kilobytes.
        separator: the one to expect, which is taken unless another makes more columns
            of both of the first two lines.
    """
    encoding = next(
        (name for mark, name in _MARKS.items() if start.startswith(mark)), "utf-8"
    )
    if encoding is None or (encoding != "utf-16" and b"\0" in start):
        return None
    text = start.decode(encoding, errors="ignore")
    # The last line may be cut off; the first is all that counts if there is no other.
    whole = text[: text.rfind("\n") + 1] or text
    candidates = dict.fromkeys((separator, *_WORDS))
    return TextForm(encoding, max(candidates, key=lambda one: _width(whole, one)))


def _width(text: str, separator: str) -> int:
    """Number of columns in the first two lines; 1 if they do not agree on it."""
    lines = filter(None, csv.reader(io.StringIO(text), delimiter=separator))
    try:
        widths = {len(line) for line in islice(lines, 2)}
    except csv.Error:  # told by who reads the whole table
        return 1
    return widths.pop() if len(widths) == 1 else 1
