"""EXPLAIN of a join: what each side keeps, how rows are found, and what is checked then."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from penstock.expressions.tree import Column, Expression, transform
from penstock.lang.query import JoinKind
from penstock.lang.render import render, render_duration, render_window
from penstock.plan.joins.reads import kept_columns
from penstock.plan.joins.sharing import joins
from penstock.plan.nodes import Band, Equality, JoinNode, Node


def describe_join(node: JoinNode) -> tuple[str, list[str]]:
    """The title of the join and what is said below it, emission aside."""
    lines = []
    for place, side in enumerate(node.sides):
        kind = f"{side.kind.value.lower()} " if place and side.kind is not JoinKind.INNER else ""
        kept = ", ".join(kept_columns(node, place)) or "no columns"
        where = f", where {_shown(side.where)}" if side.where is not None else ""
        lines.append(
            f"side     {kind}{side.alias}: input {side.input + 1} {render_window(side.window)}, keeps {kept}{where}"
        )
    lines += [f"key      {_equality(node, equality)}" for equality in node.equalities]
    for narrowing in node.narrowings:
        lines.append(f"key      {_equality(node, narrowing.equality)}; rows for which it fails are compared with all")
    lines += [f"band     {_band(node, band)}, searched where these are the events' times" for band in node.bands]
    lines += [f"checks   {_shown(condition.expression)}" for condition in node.conditions]
    if node.where is not None:
        lines.append(f"where    {_shown(node.where)}  (after the join)")
    if node.is_theta:
        lines.append(f"warning  {THETA}")
    return f"join of {len(node.sides)} windows", lines


THETA = "no equality or band leads to every side: an event is compared with all rows of a window"


def warn_of_theta(nodes: Mapping[str, Node]) -> None:
    """Says which queries compare all rows: that may be meant, but is seldom."""
    for name, node in nodes.items():
        if any(join.is_theta for join in joins(node)):
            warnings.warn(f"{name}: {THETA}", stacklevel=4)


def _shown(expression: Expression) -> str:
    names = {c.name: c.name for c in _columns(expression)}
    return render(expression, names)


def _columns(expression: Expression) -> list[Column]:
    found: list[Column] = []

    def note(part: Expression) -> Expression:
        if isinstance(part, Column):
            found.append(part)
        return part

    transform(expression, note)
    return found


def _equality(node: JoinNode, equality: Equality) -> str:
    left, right = node.sides[equality.left].alias, node.sides[equality.right].alias
    pairs = zip(equality.left_keys, equality.right_keys, strict=True)
    return " and ".join(f"{_of(left, one)} = {_of(right, other)}" for one, other in pairs)


def _of(alias: str, expression: Expression) -> str:
    return render(expression, {c.name: f"{alias}.{c.name}" for c in _columns(expression)})


def _band(node: JoinNode, band: Band) -> str:
    difference = f"{node.sides[band.side].alias}.{band.column} - {node.sides[band.other].alias}.{band.other_column}"
    low = None if band.low is None else _signed(band.low)
    high = None if band.high is None else _signed(band.high)
    if low is not None and high is not None:
        return f"{difference} from {low} to {high}"
    return f"{difference} at least {low}" if low is not None else f"{difference} at most {high}"


def _signed(micros: int) -> str:
    return f"-{render_duration(-micros)}" if micros < 0 else render_duration(micros)
