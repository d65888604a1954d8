"""How numbers are written in tables, on the screen and in reports."""

import math


def decimals_for(values) -> int:
    """Decimals that suit a column of numbers: about four digits of the largest."""
    sizes = [abs(value) for value in values if value is not None]
    largest = max((size for size in sizes if math.isfinite(size)), default=1.0)
    if 0 < largest < 0.1:
        return min(2 - math.floor(math.log10(largest)), 12)
    return max(0, 3 - max(0, math.floor(math.log10(max(largest, 1.0)))))
