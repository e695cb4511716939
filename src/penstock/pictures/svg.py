"""A sheet to draw boxes and lines on: well-formed SVG that follows the reader's light or dark theme.

Letters are of one width, so that the size of a box is known without a browser. The caller says where things are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

LETTER = 7.25
LINE = 16
PADDING = 10
MARGIN = 24
_LONGEST_LINE = 46

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_STYLE = """
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #1f2328; }
.title { font-weight: 600; font-size: 14px; }
.quiet { fill: #59636e; }
.sheet { fill: #ffffff; }
.box rect { fill: #eef4fb; stroke: #2b5f9e; stroke-width: 1.3; }
.window rect { fill: #fdf1e7; stroke: #b5501a; }
.query rect { fill: #eaf6ec; stroke: #2c7a3f; }
.sink rect { fill: #f3f3f3; stroke: #6e7781; }
.dummy rect { fill: none; stroke: #6e7781; stroke-dasharray: 4 3; }
.line { fill: none; stroke: #6e7781; stroke-width: 1.3; }
.weak { stroke-dasharray: 4 4; stroke-width: 1; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .quiet { fill: #9198a1; }
  .sheet { fill: #0d1117; }
  .box rect { fill: #14263c; stroke: #6ea8e6; }
  .window rect { fill: #38220f; stroke: #e59a5c; }
  .query rect { fill: #12301b; stroke: #5fbf77; }
  .sink rect { fill: #20262d; stroke: #9198a1; }
  .dummy rect { fill: none; stroke: #9198a1; }
  .line { stroke: #9198a1; }
}
"""


@dataclass(frozen=True)
class Box:
    """What it is (`kind`, one of the styles), its name, the lines in it, and the full text for its tooltip."""

    kind: str
    name: str
    lines: tuple[str, ...]
    tip: str = ""
    least_width: float = 0

    @property
    def width(self) -> float:
        return max(self.least_width, *(text_width(line) + 2 * PADDING for line in self.lines))

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + PADDING


@dataclass(frozen=True)
class Placed:
    """A box with its upper left corner."""

    box: Box
    x: float
    y: float

    @property
    def right(self) -> float:
        return self.x + self.box.width

    @property
    def bottom(self) -> float:
        return self.y + self.box.height

    @property
    def middle(self) -> tuple[float, float]:
        return self.x + self.box.width / 2, self.y + self.box.height / 2


class Sheet:
    """
    >>> sheet = Sheet("A title")
    >>> stream = sheet.place(Box("stream", "calls", ("stream", "calls")), 0, 0)
    >>> "calls" in sheet.render()
    True
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._lines: list[ElementTree.Element] = []
        self._rest: list[ElementTree.Element] = []
        self.right = self.bottom = 0.0

    def place(self, box: Box, x: float, y: float) -> Placed:
        placed = Placed(box, x, y)
        group = ElementTree.Element("g", {"class": f"box {box.kind}", "data-kind": box.kind, "data-name": box.name})
        ElementTree.SubElement(group, "title").text = box.tip or box.name
        size = {"x": _n(x), "y": _n(y), "width": _n(box.width), "height": _n(box.height), "rx": "5"}
        ElementTree.SubElement(group, "rect", size)
        for number, line in enumerate(box.lines):
            at = {"x": _n(x + PADDING), "y": _n(y + PADDING / 2 + (number + 0.75) * LINE)}
            ElementTree.SubElement(group, "text", at | ({"class": "quiet"} if number else {})).text = line
        self._rest.append(group)
        self._reach(placed.right, placed.bottom)
        return placed

    def write(self, text: str, x: float, y: float, style: str = "") -> None:
        element = ElementTree.Element("text", {"x": _n(x), "y": _n(y), "class": style})
        element.text = text
        self._rest.append(element)
        self._reach(x + text_width(text, style), y)

    def join_across(self, start: Placed, end: Placed) -> None:
        """From the right side of one to the left side of the other."""
        x1, y1, x2, y2 = start.right, start.middle[1], end.x, end.middle[1]
        bend = max(24.0, (x2 - x1) / 2)
        self._draw(
            start, end, f"M{_n(x1)} {_n(y1)}C{_n(x1 + bend)} {_n(y1)} {_n(x2 - bend)} {_n(y2)} {_n(x2)} {_n(y2)}", ""
        )

    def join_down(self, start: Placed, end: Placed, *, strong: bool = True) -> None:
        """From the bottom of one to the top of the other. Weak lines are dashed and end at the side, where they do not
        pass behind what stands above."""
        (x1, _), (x2, level) = start.middle, end.middle
        y1, y2 = start.bottom, end.y
        if strong:
            half = _n((y1 + y2) / 2)
            self._draw(start, end, f"M{_n(x1)} {_n(y1)}C{_n(x1)} {half} {_n(x2)} {half} {_n(x2)} {_n(y2)}", "")
        else:
            side = end.right if x1 > x2 else end.x
            self._draw(start, end, f"M{_n(x1)} {_n(y1)}Q{_n(x1)} {_n(level)} {_n(side)} {_n(level)}", " weak")

    def _draw(self, start: Placed, end: Placed, path: str, style: str) -> None:
        names = {"data-from": start.box.name, "data-to": end.box.name}
        self._lines.append(ElementTree.Element("path", {"class": f"line{style}", "d": path, **names}))

    def _reach(self, right: float, bottom: float) -> None:
        self.right, self.bottom = max(self.right, right), max(self.bottom, bottom)

    def render(self, *, styled: bool = True) -> str:
        width, height = self.right + 2 * MARGIN, self.bottom + 2 * MARGIN
        root = ElementTree.Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "viewBox": f"{-MARGIN} {-MARGIN} {_n(width)} {_n(height)}",
                "width": _n(width),
                "height": _n(height),
                "role": "img",
            },
        )
        ElementTree.SubElement(root, "title").text = self._title
        if styled:
            ElementTree.SubElement(root, "style").text = _STYLE
        corner = {"x": str(-MARGIN), "y": str(-MARGIN)}
        ElementTree.SubElement(root, "rect", {"class": "sheet", **corner, "width": _n(width), "height": _n(height)})
        root.extend(self._lines)
        root.extend(self._rest)
        ElementTree.indent(root)
        return _NOT_IN_XML.sub("\ufffd", ElementTree.tostring(root, encoding="unicode")) + "\n"


def text_width(text: str, style: str = "") -> float:
    return len(text) * LETTER * (14 / 12 if style == "title" else 1)


def shortened(lines: Sequence[str], longest: int = _LONGEST_LINE) -> tuple[str, ...]:
    """Lines that fit a box; what is cut ends in dots."""
    return tuple(line if len(line) <= longest else line[: longest - 1] + "…" for line in lines)


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
