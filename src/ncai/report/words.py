"""Numbers as people read them."""

import math

MINUS = "\u2212"


def nice(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, mostly without an exponent."""
    if value is None or not math.isfinite(value):
        return "\u2013"
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
    """Two digits, in few letters: for ticks that stand close together."""
    if value and not 1e-3 <= abs(value) < 1e5:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", MINUS)
    return nice(value, 2)


def fixed(value: float | None, decimals: int = 3, sign: bool = False) -> str:
    """A number with so many decimals, for columns that line up; `sign` also if plus."""
    if value is None or not math.isfinite(value):
        return "\u2013"
    return f"{value:{'+' if sign else ''},.{decimals}f}".replace("-", MINUS)


def percent(share: float | None, decimals: int = 0) -> str:
    """A share as a percentage."""
    if share is None or not math.isfinite(share):
        return "\u2013"
    return f"{100 * share:.{decimals}f}\u202f%"


def count(number: int, what: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
