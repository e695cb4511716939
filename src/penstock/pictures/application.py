"""One sheet of an application: its shared plan, and below it the sliding graphs of its streams."""

from __future__ import annotations

from penstock.lang.query import Program
from penstock.pictures import plans
from penstock.pictures.sliding_graphs import GraphPicture, slides_of
from penstock.pictures.svg import Sheet
from penstock.plan.physical.rules import plan_program

_BETWEEN = 48
_LEAST_WIDTH = 900
"""Graphs stand side by side as far as the plan goes, or so far."""


def picture(program: Program, title: str) -> str:
    """The application as SVG."""
    physical = plan_program(program)
    nodes = {planned.name: planned.node for planned in physical.queries}
    sheet = Sheet(title)
    plans.draw(plans.plan_of(program, physical), sheet, 0, 0)
    across = max(sheet.right, _LEAST_WIDTH)
    x, y = 0.0, sheet.bottom + _BETWEEN
    for slides in slides_of(nodes):
        graph = GraphPicture(slides)
        if x and x + graph.width > across:
            x, y = 0.0, sheet.bottom + _BETWEEN
        graph.draw(sheet, x, y)
        x += graph.width + _BETWEEN
    return sheet.render()


def plan_picture(program: Program, title: str, *, styled: bool = True) -> str:
    """Its plan alone; without `styled` the page that shows it says how boxes and lines look."""
    sheet = Sheet(title)
    plans.draw(plans.plan_of(program, plan_program(program)), sheet, 0, 0)
    return sheet.render(styled=styled)
