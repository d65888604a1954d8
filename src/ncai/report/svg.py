"""A chart in SVG.

Colours are classes, so that the style sheet can change them for dark screens and for
print. All text is escaped here, so the result is safe to place in a page.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from ncai.report.axes import Axis
from ncai.report.words import shorten

# How far marks may reach beyond the frame, so that no dot is cut in half.
_PEEK = 4


def number(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


@dataclass(frozen=True)
class Scale:
    """Linear map from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value):
        """Pixels of a value, or of an array of them."""
        share = (np.asarray(value, float) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


class Chart:
    """A frame with two axes, and what is drawn in it.

    Args:
        x: horizontal axis.
        y: vertical axis.
        width: width of the whole chart, in pixels before the page scales it.
        height: height of the whole chart.
        title: text that screen readers read aloud.
        kind: class of the SVG element.
        x_ticks: largest number of ticks across.
        y_ticks: largest number of ticks up.
        right: free pixels to the right of the frame.
    """

    def __init__(
        self,
        x: Axis,
        y: Axis,
        width: int = 420,
        height: int = 280,
        *,
        title: str = "",
        kind: str = "",
        x_ticks: int = 6,
        y_ticks: int = 6,
        right: int = 14,
    ):
        self.x_axis, self.y_axis = x, y
        self.width, self.height, self.title = width, height, title
        # A narrow screen shrinks wide charts more; the style sheet corrects the text.
        wide = width > 600
        size = "wide" if wide else "medium" if width > 380 else "small"
        self.kind = f"{size} {kind}".strip()
        self._x_marks, self._y_marks = x.marks(x_ticks), y.marks(y_ticks)
        # Room for the longest number, and for the label of the axis next to it.
        longest = max((len(text) for _, text in self._y_marks), default=0)
        name_room = 20 if y.label else 0
        self.left = 14 + name_room + 7.2 * longest
        if wide:  # a phone shows larger numbers, and the label above the frame
            self.left = max(self.left, 14 + 12 * longest)
        self.right, self.top = right, 12
        # On a phone the words of a wide chart are twice as tall.
        self._tick_room = 21 if wide else 17
        named = self._tick_room + (34 if wide else 27)
        numbered = self._tick_room + 9
        self.bottom = 10
        if self._x_marks or x.label:
            self.bottom = named if x.label else numbered
        self.x = Scale(x.low, x.high, self.left, width - self.right)
        self.y = Scale(y.low, y.high, height - self.bottom, self.top)
        self._marks: list[str] = []
        self._overlay: list[str] = []

    # ----- Marks ----------------------------------------------------------------------

    def add(self, element: str) -> "Chart":
        """Add any element, already escaped."""
        self._marks.append(element)
        return self

    def over(self, element: str) -> "Chart":
        """Add an element on top of all others, which may reach beyond the frame."""
        self._overlay.append(element)
        return self

    def line(
        self, x, y, kind: str, method: str | None = None, opacity: float | None = None
    ) -> "Chart":
        """A line through points; it breaks where a value is not finite."""
        path, faded = _path(self.x(x), self.y(y)), ""
        if opacity is not None:
            faded = f' stroke-opacity="{opacity:.2f}"'
        return self.add(f'<path class="{kind}"{_method(method)}{faded} d="{path}"/>')

    def band(self, x, low, high, kind: str, method: str | None = None) -> "Chart":
        """The area between two lines."""
        there = _path(self.x(x), self.y(low))
        back = _path(self.x(x)[::-1], self.y(high)[::-1]).replace("M", "L", 1)
        return self.add(f'<path class="{kind}"{_method(method)} d="{there}{back}Z"/>')

    def points(
        self,
        x,
        y,
        kind: str,
        rows: Iterable[int] | None = None,
        method: str | None = None,
        radius: float = 2.4,
        titles: Sequence[str] | None = None,
    ) -> "Chart":
        """Dots; with `rows`, each carries the number of its row."""
        x, y = self.x(x), self.y(y)
        numbers = [""] * len(x) if rows is None else [f' data-row="{r}"' for r in rows]
        texts = [""] * len(x) if titles is None else titles
        dots = []
        for px, py, row, text in zip(x, y, numbers, texts, strict=True):
            start = f'<circle cx="{number(px)}" cy="{number(py)}" r="{radius}"{row}'
            inner = f"><title>{escape(text)}</title></circle>" if text else "/>"
            dots.append(start + inner)
        return self.add(f'<g class="{kind}"{_method(method)}>{"".join(dots)}</g>')

    def bar(self, x0, x1, y0, y1, kind: str, method: str | None = None) -> "Chart":
        """A rectangle between values."""
        left, right = sorted((float(self.x(x0)), float(self.x(x1))))
        top, bottom = sorted((float(self.y(y0)), float(self.y(y1))))
        return self.add(
            f'<rect class="{kind}"{_method(method)} x="{number(left)}" '
            f'y="{number(top)}" width="{number(right - left)}" '
            f'height="{number(bottom - top)}"/>'
        )

    def image(self, data_uri: str, x0, x1, y0, y1, method: str | None) -> "Chart":
        """A picture stretched between values."""
        left, right = float(self.x(x0)), float(self.x(x1))
        top, bottom = float(self.y(y1)), float(self.y(y0))
        return self.add(
            f'<image class="shade"{_method(method)} href="{data_uri}" '
            f'x="{number(left)}" y="{number(top)}" width="{number(right - left)}" '
            f'height="{number(bottom - top)}" preserveAspectRatio="none"/>'
        )

    # ----- The whole ------------------------------------------------------------------

    def render(self, attributes: str = "") -> Markup:
        """The SVG element."""
        name = str(escape(self.title))
        return Markup(
            f'<svg class="chart {self.kind}" viewBox="0 0 {self.width} {self.height}" '
            f'role="img" aria-label="{name}" {attributes}>'
            f"{self._rules()}{self._clipped()}{self._frame()}{''.join(self._overlay)}</svg>"
        )

    def plot_area(self) -> dict[str, float]:
        """Ends of the frame in pixels and values, for the script."""
        return {
            "left": self.left,
            "right": self.width - self.right,
            "top": self.top,
            "bottom": self.height - self.bottom,
            "xLow": self.x_axis.low,
            "xHigh": self.x_axis.high,
            "yLow": self.y_axis.low,
            "yHigh": self.y_axis.high,
        }

    def _clipped(self) -> str:
        """The marks in a frame that cuts off what lies outside."""
        left, top = self.left - _PEEK, self.top - _PEEK
        width = self.width - self.right + _PEEK - left
        height = self.height - self.bottom + _PEEK - top
        box = f"{number(left)} {number(top)} {number(width)} {number(height)}"
        return (
            f'<svg x="{number(left)}" y="{number(top)}" width="{number(width)}" '
            f'height="{number(height)}" viewBox="{box}">{"".join(self._marks)}</svg>'
        )

    def _rules(self) -> str:
        right, parts = self.width - self.right, []
        for value, _ in self._y_marks:
            y = number(float(self.y(value)))
            parts.append(f"M{number(self.left)} {y}H{right}")
        return f'<path class="rules" d="{"".join(parts)}"/>' if parts else ""

    def _frame(self) -> str:
        base = self.height - self.bottom
        line = f"M{number(self.left)} {base}H{self.width - self.right}"
        parts = [f'<path class="axis" d="{line}"/>']
        for value, text in self._x_marks:
            x = number(float(self.x(value)))
            parts.append(
                f'<text class="tick" text-anchor="middle" x="{x}" '
                f'y="{base + self._tick_room}">{escape(text)}</text>'
            )
        for value, text in self._y_marks:
            parts.append(
                f'<text class="tick" text-anchor="end" x="{number(self.left - 7)}" '
                f'y="{number(float(self.y(value)) + 4)}">{escape(text)}</text>'
            )
        if self.x_axis.label:
            middle = (self.left + self.width - self.right) / 2
            parts.append(
                f'<text class="label" text-anchor="middle" x="{number(middle)}" '
                f'y="{self.height - 6}">{escape(shorten(self.x_axis.label, 44))}</text>'
            )
        if self.y_axis.label:
            middle = (self.top + base) / 2
            room = int((base - self.top) / 6.5)
            parts.append(
                '<text class="label upright" text-anchor="middle" '
                f'transform="translate(13 {number(middle)}) rotate(-90)">'
                f"{escape(shorten(self.y_axis.label, room))}</text>"
            )
        return "".join(parts)


def _method(method: str | None) -> str:
    return "" if method is None else f' data-method="{escape(method)}"'


def _path(x, y) -> str:
    parts, pen_up = [], True
    for px, py in zip(np.atleast_1d(x), np.atleast_1d(y), strict=True):
        if not (math.isfinite(px) and math.isfinite(py)):
            pen_up = True
            continue
        parts.append(f"{'M' if pen_up else 'L'}{number(px)} {number(py)}")
        pen_up = False
    return "".join(parts)
