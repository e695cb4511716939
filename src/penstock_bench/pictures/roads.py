"""A picture of the roads of Linear Road: segments coloured by their speed, their tolls as bars, and the accidents.

Each expressway is two strips, the one to the east above the one to the west. The steps of the colour differ in
brightness, too. What a segment is can be read by pointing at it.
"""

from __future__ import annotations

from xml.etree import ElementTree

from penstock_bench.workloads.linear_road.reports import SEGMENTS
from penstock_bench.workloads.linear_road.roads import NOT_AHEAD, Roads

_SPEEDS = ((25, "crawl", "below 25"), (40, "slow", "25 to 39"), (55, "dense", "40 to 54"), (999, "free", "55 and more"))
_CELL, _STRIP, _BAR, _LEFT, _TOP, _GAP = 9, 16, 22, 92, 44, 18
_MOST = 12
"""So many expressways are drawn."""

_STYLE = """
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #1f2328; }
.title { font-weight: 600; font-size: 14px; }
.quiet { fill: #59636e; }
.sheet { fill: #ffffff; }
.empty { fill: #e7eaee; }
.free { fill: #7fd0a5; } .dense { fill: #e8cf55; } .slow { fill: #dd8132; } .crawl { fill: #a3263a; }
.toll { fill: #2b5f9e; }
.zone { fill: none; stroke: #1f2328; stroke-width: 1.2; }
.accident { fill: #1f2328; font-weight: 700; }
@media (prefers-color-scheme: dark) {
  text, .accident { fill: #e6edf3; }
  .quiet { fill: #9198a1; }
  .sheet { fill: #0d1117; }
  .empty { fill: #20262d; }
  .toll { fill: #6ea8e6; }
  .zone { stroke: #e6edf3; }
}
"""


def roads_picture(roads: Roads, title: str, *, styled: bool = True) -> str:
    """The roads as SVG; of very many expressways the first ones. Without styles it has those of the page around it."""
    expressways = min(len(roads.speed) // 2, _MOST)
    each = 2 * (_BAR + _STRIP) + _GAP
    width, height = _LEFT + SEGMENTS * _CELL + 24, _TOP + expressways * each + 34
    root = ElementTree.Element(
        "svg",
        {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {width} {height}", "role": "img"},
    )
    ElementTree.SubElement(root, "title").text = title
    if styled:
        ElementTree.SubElement(root, "style").text = _STYLE
    _rectangle(root, "sheet", 0, 0, width, height)
    _text(root, f"{title}: minute {roads.minute}", 12, 22, "title")
    for expressway in range(expressways):
        top = _TOP + expressway * each
        _text(root, f"xway {expressway}", 12, top + _BAR - 6, "quiet")
        for way, name in enumerate(("east →", "← west")):
            down = top + way * (_BAR + _STRIP) + _BAR
            _text(root, name, 12, down + 12, "")
            _strip(root, roads, 2 * expressway + way, down)
    _legend(root, height - 14)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _strip(root: ElementTree.Element, roads: Roads, road: int, top: int) -> None:
    group = ElementTree.SubElement(root, "g", {"data-road": str(road)})
    dearest = max(int(roads.toll.max()), 1)
    for segment in range(SEGMENTS):
        speed, cars, toll = (int(grid[road, segment]) for grid in (roads.speed, roads.cars, roads.toll))
        left = _LEFT + segment * _CELL
        kind = "empty" if speed < 0 else next(style for below, style, _ in _SPEEDS if speed < below)
        cell = _rectangle(group, kind, left, top, _CELL - 1, _STRIP)
        words = f"segment {segment}: " + ("empty" if speed < 0 else f"{cars} cars, {speed} mph, toll {toll}")
        ElementTree.SubElement(cell, "title").text = words
        if toll:
            tall = max(round((_BAR - 6) * (toll / dearest) ** 0.5), 2)
            _rectangle(group, "toll", left, top - 1 - tall, _CELL - 1, tall)
        if roads.ahead[road, segment] < NOT_AHEAD:
            _rectangle(group, "zone", left - 0.5, top + 0.5, _CELL, _STRIP - 1)
        if roads.ahead[road, segment] == 0:
            mark = _text(group, "✕", left, top - 4, "accident")
            mark.set("data-accident", str(segment))


def _legend(root: ElementTree.Element, level: int) -> None:
    left = 12
    kinds = [(style, f"{words} mph") for _, style, words in _SPEEDS]
    for style, words in [*kinds, ("toll", "toll"), ("zone", "accident zone")]:
        _rectangle(root, style, left, level - 10, 12, 12)
        _text(root, words, left + 18, level, "quiet")
        left += 18 + round(len(words) * 7.25) + 20
    _text(root, "✕ accident", left, level, "quiet")


def _rectangle(
    parent: ElementTree.Element, style: str, x: float, y: float, width: float, height: float
) -> ElementTree.Element:
    size = {"x": f"{x:g}", "y": f"{y:g}", "width": f"{width:g}", "height": f"{height:g}"}
    return ElementTree.SubElement(parent, "rect", {"class": style, **size})


def _text(parent: ElementTree.Element, text: str, x: float, y: float, style: str) -> ElementTree.Element:
    made = ElementTree.SubElement(parent, "text", {"x": f"{x:g}", "y": f"{y:g}", "class": style})
    made.text = text
    return made
