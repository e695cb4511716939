"""Comparisons that Catalyst can hand down to the source, so that files are read only where they may match.

What is pushed down is what every query over a stream asks for in its WHERE:

    SELECT ... FROM s [RANGE 1 HOUR SLIDE 1 MINUTE] WHERE price > 100 AND upper(k) = 'A'      price > 100
    the same beside ... WHERE price > 100 AND volume > 0                                      price > 100
    the same beside a query without WHERE                                                     nothing

The full WHERE is computed again by our own evaluator, so answers cannot differ. But events that fail it still move
the time of their stream. So the source is read a second time, just its time column (`frame_parts`), for the clock
alone. That pays for files, where columns and row groups can be left out, and is not done for other sources.

Rows that are to be rejected pass, whatever else they hold. Events that fail WHERE are not counted when they are late.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.expressions import tree
from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import Call, Expression, Literal
from penstock.lang.query import StreamDef
from penstock.plan.nodes import AggregateNode, Node, ProjectNode, RelationNode, StreamNode, children
from penstock.types import SqlType

_COMPARE = {"eq": "__eq__", "lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__"}

_FILES = re.compile(r"FileSource\[|Relation \[.*\] (parquet|orc|csv|json)\b")
"""How the plan of a DataFrame shows that it comes from files, streaming or static."""


def common_comparisons(stream: StreamDef, nodes: Iterable[Node]) -> tuple[Expression, ...]:
    """The comparisons that every reader of the stream asks for."""
    if stream.late_into is not None:
        return ()
    asked = [asks for node in nodes for asks in _asked(node, stream.name)]
    if not asked or not all(asked):
        return ()
    return tuple(comparison for comparison in asked[0] if all(comparison in other for other in asked[1:]))


def reads_files(frame: DataFrame) -> bool:
    plan = getattr(frame, "_jdf", None)  # Spark Connect has none
    return plan is not None and _FILES.search(plan.queryExecution().analyzed().toString()) is not None


def pushed_down(frame: DataFrame, stream: StreamDef, comparisons: tuple[Expression, ...]) -> DataFrame:
    """The rows of the frame that may matter."""
    condition = F.lit(True)
    for comparison in comparisons:
        condition = condition & _column(comparison)
    for field in stream.schema:
        if not field.nullable or field.name == stream.event_time:
            condition = condition | F.col(_quoted(field.name)).isNull()
    return frame.where(condition)


def _asked(node: Node, stream: str) -> list[tuple[Expression, ...]]:
    """What each reader of the stream below a node asks for; nothing where it cannot be told."""
    if isinstance(node, AggregateNode | RelationNode | ProjectNode) and isinstance(node.input, StreamNode):
        if node.input.name != stream:
            return []
        first = isinstance(node, ProjectNode) or node.filter_first
        return [_comparisons(node.where) if first and node.where is not None and is_total(node.where) else ()]
    if isinstance(node, StreamNode):
        return [()] if node.name == stream else []
    return [asks for child in children(node) for asks in _asked(child, stream)]


def _comparisons(where: Expression) -> tuple[Expression, ...]:
    if isinstance(where, Call) and where.function == "and":
        return tuple(found for arg in where.args for found in _comparisons(arg))
    return (where,) if _is_simple(where) else ()


def _is_simple(expression: Expression) -> bool:
    """A column compared with values that are not NULL, where Spark means what we mean."""
    if not isinstance(expression, Call) or not isinstance(expression.args[0], tree.Column):
        return False
    values = expression.args[1:]
    known = all(isinstance(value, Literal) and value.value is not None for value in values)
    return known and (expression.function in _COMPARE or expression.function == "in")


def _column(expression: Expression) -> Column:
    assert isinstance(expression, Call)
    column, *values = expression.args
    assert isinstance(column, tree.Column)
    subject = F.col(_quoted(column.name))
    literals = [_literal(value) for value in values]
    if expression.function == "in":
        return subject.isin(*literals)
    compared: Column = getattr(subject, _COMPARE[expression.function])(literals[0])
    return compared


def _literal(expression: Expression) -> Column:
    assert isinstance(expression, Literal)
    if expression.type is SqlType.TIMESTAMP:
        return F.timestamp_micros(F.lit(expression.value))
    if expression.type is SqlType.DATE:
        return F.date_from_unix_date(F.lit(expression.value))
    return F.lit(expression.value).cast(str(expression.type))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
