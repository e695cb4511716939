"""EXPLAIN of a pattern: what gets into the state, the orders that are looked for, and when conditions are decided."""

from __future__ import annotations

from penstock.lang.query import Role
from penstock.lang.render import render, render_duration
from penstock.plan.patterns.columns import kept_columns
from penstock.plan.patterns.nodes import Between, OrderPlan, PatternNode

_MARKS = {Role.PLAIN: "", Role.REPEATED: "+"}


def names_in(node: PatternNode) -> dict[str, str]:
    """What is written for the columns of a pattern's matches."""
    names = {
        f"{element.name}.{column}": f"{element.name}.{column}"
        for element in node.elements
        for column in node.inputs[element.input].schema.names
    }
    for repeat in node.repeats:
        for number, answer in zip(repeat.numbers, repeat.answers, strict=True):
            names[f"${number}"] = f"COUNT({node.elements[repeat.element].name}.*)"
            if answer.state >= 0:
                state = repeat.states[answer.state]
                arguments = ", ".join(render(arg, names) for arg in state.args)
                names[f"${number}"] = f"{state.wants[answer.want].function}({arguments})"
    return names


def describe_pattern(node: PatternNode) -> tuple[str, list[str]]:
    """The title of the pattern and what is said below it."""
    lines = []
    for number, element in enumerate(node.elements):
        stored = f"input {element.input + 1}" + (", ONE" if element.one else "")
        if element.keys:
            stored += f", by {', '.join(map(render, element.keys))}"
        if element.filter is not None:
            stored += f", where {render(element.filter)}"
        lines.append(f"{_shown(node, number):8} {stored}")
    for order in node.orders:
        lines += _order(node, order)
    kept = sum(len(kept_columns(node, number)) for number in range(len(node.inputs)))
    if node.apart:
        lines.append("takes    an event into one match at most")
    duration = render_duration(max(e.keep for e in node.elements))
    lines.append(f"stores   events for {duration}, {kept} column{'s' if kept != 1 else ''} of them")
    return f"pattern within {render_duration(node.within)}", lines


def _shown(node: PatternNode, number: int) -> str:
    element = node.elements[number]
    return f"!{element.name}" if element.role is Role.ABSENT else f"{element.name}{_MARKS[element.role]}"


def _order(node: PatternNode, order: OrderPlan) -> list[str]:
    names = names_in(node)
    shown = [_shown(node, number) for number in order.plain]
    betweens: list[Between] = sorted((*order.repeated, *order.absent), key=lambda b: (b.lower, b.element))
    for between in reversed(betweens):
        shown.insert(between.lower + 1, _shown(node, between.element))
    end = (
        f"{render_duration(node.within)} after {node.elements[order.plain[0]].name}"
        if order.waits
        else f"with {node.elements[order.plain[-1]].name}"
    )
    lines = [f"finds    {', '.join(shown)}: {end}"]
    for step in order.steps:
        lines += [f"         {_shown(node, order.plain[step.place])}: {render(c, names)}" for c in step.conditions]
    for between in betweens:
        lines += [f"         {_shown(node, between.element)}: {render(c, names)}" for c in between.conditions]
    return lines + [f"         at last: {render(c, names)}" for c in order.last]
