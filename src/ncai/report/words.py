"""Numbers and values as text for readers."""

import math
from typing import Any

import numpy as np
import pandas as pd

MINUS = "\u2212"
MISSING = "\u2013"
# Whole numbers below this are written in full, because they may be ids.
_LARGEST_WHOLE = 1e15
_LONGEST_CELL = 40


def nice(value: float | None, digits: int = 3) -> str:
    """A number with this many significant digits, mostly without an exponent."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == int(value) and abs(value) < 1e6:
        return f"{value:,.0f}".replace("-", MINUS)
    size = math.floor(math.log10(abs(value)))
    if size < -4 or size > 8:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        text = f"{mantissa}e{int(exponent)}"
    else:
        decimals = digits - 1 - size
        text = f"{round(value, decimals):,.{max(0, decimals)}f}"
    return text.replace("-", MINUS)


def short(value: float) -> str:
    """Two digits in few characters, for ticks that stand close together."""
    if value and not 1e-3 <= abs(value) < 1e5:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", MINUS)
    return nice(value, 2)


def fixed(value: float | None, decimals: int = 3, sign: bool = False) -> str:
    """A number with fixed decimals, for columns that line up.

    With `sign`, positive numbers have a sign, too.
    """
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{value:{'+' if sign else ''},.{decimals}f}".replace("-", MINUS)


def percent(share: float | None, decimals: int = 0) -> str:
    """A share as a percentage."""
    if share is None or not math.isfinite(share):
        return MISSING
    return f"{100 * share:.{decimals}f}\u202f%"


def count(number: int, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def shorten(text: str, length: int) -> str:
    """The text, cut off with an ellipsis where it is longer."""
    return text if len(text) <= length else text[: max(length - 1, 1)] + "\u2026"


def sentence(text: str) -> str:
    """The text with a capital letter at its start."""
    return f"{text[:1].upper()}{text[1:]}"


def cell(value: Any) -> str:
    """One value of the user's table."""
    if (
        value is None
        or value is pd.NA
        or (isinstance(value, float) and np.isnan(value))
    ):
        return MISSING
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | float | np.integer | np.floating):
        whole = float(value).is_integer() and abs(value) < _LARGEST_WHOLE
        return f"{float(value):{'.0f' if whole else '.6g'}}".replace("-", MINUS)
    return shorten(str(value), _LONGEST_CELL)
