"""Whether the rows of a join can go by key to several places, and by which.

    FROM a [RANGE 1 HOUR] x JOIN b [RANGE 1 HOUR] y ON x.id = y.id        id of a and id of b
    FROM a [ROWS 100] x JOIN b [RANGE 1 HOUR] y ON x.id = y.id            one place: it counts the rows of all keys

Rows that match have the same key where one class of equalities has a part on every side.
"""

from __future__ import annotations

from penstock.expressions.tree import Column, Expression, transform
from penstock.lang.query import Emit
from penstock.plan.joins.steps import Keys
from penstock.plan.nodes import AggregateNode, JoinNode


def join_keys(node: JoinNode | AggregateNode) -> tuple[tuple[str, Keys], ...] | str:
    """The key of each stream, or why there is none."""
    groups = node if isinstance(node, AggregateNode) else None
    join = node if groups is None else groups.input
    assert isinstance(join, JoinNode)
    if not join.joins_streams:
        return "it joins subqueries, whose rows belong together"
    if not all(side.window.extent.is_told_by_times for side in join.sides):
        return "a window of the join counts the rows of the whole stream"
    emission = node.emission
    if emission.order_by or emission.limit is not None:
        return "ORDER BY and LIMIT compare all rows of an evaluation"
    if emission.distinct or emission.emit in (Emit.ISTREAM, Emit.DSTREAM):
        return "DISTINCT, ISTREAM and DSTREAM compare all rows of an evaluation"
    if join.sides[0].window.is_per_event and emission.emit is not Emit.EVENT_GROUP:
        return "every event shows all rows of the join"
    for keys in _classes(join):
        found = _by_stream(join, keys)
        if found is not None and (groups is None or _groups_by(groups, join, keys)):
            return found
    return (
        "no equality holds between all sides"
        if groups is None
        else ("the groups are not those of a key that all sides have in common")
    )


def _classes(join: JoinNode) -> list[list[tuple[int, Keys]]]:
    """Keys that are equal in every row of the join, each with its side."""
    classes: list[list[tuple[int, Keys]]] = []
    for equality in join.equalities:
        left, right = (equality.left, equality.left_keys), (equality.right, equality.right_keys)
        touching = [known for known in classes if left in known or right in known]
        merged = list(dict.fromkeys([*(member for known in touching for member in known), left, right]))
        classes = [known for known in classes if known not in touching] + [merged]
    return classes


def _by_stream(join: JoinNode, keys: list[tuple[int, Keys]]) -> tuple[tuple[str, Keys], ...] | None:
    found: dict[str, Keys] = {}
    if {place for place, _ in keys} != set(range(len(join.sides))):
        return None
    for place, own in keys:
        stream = join.inputs[join.sides[place].input].stream_name
        assert stream is not None
        if found.setdefault(stream, own) != own:
            return None
    return tuple(found.items())


def keys_by_side(join: JoinNode) -> tuple[Keys, ...] | None:
    """A key of each side that rows which match have in common, the same for all sides of an input; None if there is
    none."""
    inputs = [side.input for side in join.sides]
    for members in _classes(join):
        found: dict[int, Keys] = {}
        for number in dict.fromkeys(inputs):
            own = [[key for place, key in members if place == side] for side, at in enumerate(inputs) if at == number]
            common = [key for key in own[0] if all(key in keys for keys in own[1:])]
            if not common:
                break
            found[number] = common[0]
        else:
            return tuple(found[number] for number in inputs)
    return None


def _groups_by(node: AggregateNode, join: JoinNode, keys: list[tuple[int, Keys]]) -> bool:
    """Whether groups of different keys are different: some side's whole key is among the grouped expressions. With
    outer joins it may be NULL in one place and not in another."""
    if not join.is_inner:
        return False
    return any(all(_named(join.sides[place].alias, key) in node.group_by for key in own) for place, own in keys)


def _named(alias: str, expression: Expression) -> Expression:
    def named(part: Expression) -> Expression:
        return Column(f"{alias}.{part.name}", part.type) if isinstance(part, Column) else part

    return transform(expression, named)
