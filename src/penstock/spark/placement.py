"""Which bucket an event goes to.

A query is split by its group keys when the rows of one group never depend on events of another:

    SELECT k, SUM(v) FROM s [RANGE 1 HOUR SLIDE 10 SECONDS] GROUP BY k            by k
    SELECT upper(k), SUM(v) FROM s [RANGE ...] GROUP BY upper(k)                  by upper(k)
    SELECT SUM(v) FROM s [RANGE ...]                                              one bucket: there is no key
    ... GROUP BY k ORDER BY n LIMIT 10                                            one bucket: all groups are compared

Everything else runs in one bucket too, with the same answers and without parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.expressions.tree import Expression
from penstock.plan.nodes import AggregateNode, Node, StreamNode
from penstock.windows.spec import Range, TimeSlide


@dataclass(frozen=True)
class Placement:
    """`keys` are expressions over the stream's columns; without keys `reason` says why there is one bucket."""

    keys: tuple[Expression, ...]
    reason: str = ""


def place(node: Node) -> Placement:
    if not isinstance(node, AggregateNode) or not (
        isinstance(node.window.extent, Range) and isinstance(node.window.slide, TimeSlide)
    ):
        return Placement((), "only RANGE windows with a time slide and GROUP BY are split")
    if not node.group_by:
        return Placement((), "there is no GROUP BY to split by")
    if node.emission.needs_whole_evaluations or node.emission.limit is not None:
        return Placement((), "DISTINCT, ORDER BY, LIMIT, ISTREAM and DSTREAM compare all groups of an evaluation")
    if node.window.when_full:
        return Placement((), "WHEN FULL depends on the first event of the whole stream")
    if not isinstance(node.input, StreamNode):
        return Placement((), "where the last event of a subquery is, no bucket can tell alone")
    return Placement(node.group_by)
