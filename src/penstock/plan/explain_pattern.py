"""EXPLAIN of a pattern: what gets into the state, the orders that are looked for, and when conditions are decided."""

from __future__ import annotations

from penstock.lang.query import Role
from penstock.lang.render import render, render_duration
from penstock.plan.pattern_columns import kept_columns
from penstock.plan.pattern_nodes import Between, OrderPlan, PatternNode

_MARKS = {Role.PLAIN: "", Role.ABSENT: "!", Role.REPEATED: "+"}


def describe_pattern(node: PatternNode) -> tuple[str, list[str]]:
    """The title of the pattern and what is said below it."""
    lines = []
    for element in node.elements:
        stored = f"input {element.input + 1}" + (", ONE" if element.one else "")
        if element.keys:
            stored += f", by {', '.join(map(render, element.keys))}"
        if element.filter is not None:
            stored += f", where {render(element.filter)}"
        lines.append(f"{_shown(node, element_number(node, element.name)):8} {stored}")
    for order in node.orders:
        lines += _order(node, order)
    kept = sum(len(kept_columns(node, number)) for number in range(len(node.inputs)))
    lines.append(f"stores   events for {render_duration(max(e.keep for e in node.elements))}, {kept} columns of them")
    return f"pattern within {render_duration(node.within)}", lines


def element_number(node: PatternNode, name: str) -> int:
    return next(i for i, element in enumerate(node.elements) if element.name == name)


def _shown(node: PatternNode, number: int) -> str:
    element = node.elements[number]
    mark = _MARKS[element.role]
    return f"!{element.name}" if mark == "!" else f"{element.name}{mark}"


def _order(node: PatternNode, order: OrderPlan) -> list[str]:
    names = [_shown(node, number) for number in order.plain]
    betweens: list[Between] = sorted((*order.repeated, *order.absent), key=lambda b: (b.lower, b.element))
    for between in reversed(betweens):
        names.insert(between.lower + 1, _shown(node, between.element))
    end = (
        f"{render_duration(node.within)} after {node.elements[order.plain[0]].name}"
        if order.waits
        else f"with {node.elements[order.plain[-1]].name}"
    )
    lines = [f"finds    {', '.join(names)}: {end}"]
    for step in order.steps:
        lines += [f"         {_shown(node, order.plain[step.place])}: {render(c)}" for c in step.conditions]
    for between in betweens:
        lines += [f"         {_shown(node, between.element)}: {render(c)}" for c in between.conditions]
    return lines + [f"         at last: {render(c)}" for c in order.last]
