"""Comparisons that Catalyst can hand down to the source, so that files are read only where they may match.

What is pushed down is what every query over a stream asks for in its WHERE:

    SELECT ... FROM s [RANGE 1 HOUR SLIDE 1 MINUTE] WHERE volume > 9 AND upper(k) = 'A'      volume > 9
    the same beside ... WHERE volume > 9 AND price < 1                                       volume > 9
    the same beside a query without WHERE                                                    nothing

The full WHERE is computed again by our own evaluator, so answers cannot differ. But events that fail it still move
the time of their stream. So the source is read a second time, just its time column, for the clock alone. That pays for
columnar files, where columns and row groups can be left out, and is not done for other sources.

Invariants:
1. Both readings see the same files: a clock that is ahead of its events would make them late. A static DataFrame has
   its list of files; in a streaming one both are the same relation, for which Spark makes one source with one offset
   per micro-batch. Where Spark has made two relations of it (`is_one_source`), nothing is pushed down.
2. What is pushed down keeps every row that WHERE keeps, also by the statistics and dictionaries of files: those leave
   out NaN, which is greater than every number, and tell -0.0 from 0.0, which is equal to it.
3. Windows see no difference: those that need the first or last event of the whole stream themselves are left alone.

Rows that are to be rejected pass, whatever else they hold. Events that fail WHERE are not counted, nor when late.

Why: docs/decisions/spark-filters-early.md
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.engine.builder import quoted
from penstock.expressions import tree
from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import Call, Expression, Literal
from penstock.lang.query import StreamDef
from penstock.plan.nodes import AggregateNode, Node, ProjectNode, RelationNode, StreamNode, children
from penstock.plan.placement import Spread
from penstock.spark.shares import Share
from penstock.types import SqlType

_COMPARE = {"eq": "__eq__", "lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__"}

_COLUMNAR = frozenset({"parquet", "orc"})

_TRANSPARENT = frozenset({"Project", "Filter", "SubqueryAlias", "EventTimeWatermark"})
"""Nodes of Spark's plans that cost little when they run twice, and then give the same rows."""


def common_comparisons(stream: StreamDef, shares: Iterable[Share]) -> tuple[Expression, ...]:
    """The comparisons that every reader of the stream asks for."""
    if stream.late_into is not None:
        return ()
    asked = [
        asks
        for share in shares
        for node in share.nodes
        for asks in _asked(node, stream.name, whole=share.placement.spread is Spread.ONE_PLACE)
    ]
    if not asked or not all(asked):
        return ()
    return tuple(comparison for comparison in asked[0] if all(comparison in other for other in asked[1:]))


def reads_columnar_files(frame: DataFrame) -> bool:
    """Whether the frame is nothing but columns and rows of Parquet or ORC files."""
    plan = _analyzed(frame)
    if plan is None or not plan.deterministic():
        return False
    while plan.nodeName() in _TRANSPARENT:
        plan = plan.children().head()
    if plan.nodeName() == "StreamingRelation":
        return str(plan.dataSource().className()).lower() in _COLUMNAR
    return plan.toString().startswith("Relation ") and plan.toString().split()[-1].lower() in _COLUMNAR


def is_one_source(frame: DataFrame) -> bool:
    """Whether all that the frame reads is the same list of files, in every micro-batch."""
    plan = _analyzed(frame)
    return plan is not None and (not frame.isStreaming or plan.collectLeaves().distinct().size() == 1)


def _analyzed(frame: DataFrame) -> Any:
    """Spark's plan; Spark Connect shows none."""
    frame_in_java = getattr(frame, "_jdf", None)
    return None if frame_in_java is None else frame_in_java.queryExecution().analyzed()


def pushed_down(frame: DataFrame, stream: StreamDef, comparisons: tuple[Expression, ...]) -> DataFrame:
    """The rows of the frame that may matter."""
    condition = F.lit(True)
    for comparison in comparisons:
        condition = condition & _column(comparison)
    for field in stream.schema:
        if not field.nullable or field.name == stream.event_time:
            condition = condition | F.col(quoted(field.name)).isNull()
    return frame.where(condition)


def _asked(node: Node, stream: str, *, whole: bool) -> list[tuple[Expression, ...]]:
    """What each reader of the stream below a node asks for; nothing where it cannot be told. `whole` if the window
    finds out for itself where the stream ends."""
    match node:
        case StreamNode(name):
            return [()] if name == stream else []
        case (
            AggregateNode(input=StreamNode(name))
            | RelationNode(input=StreamNode(name))
            | ProjectNode(input=StreamNode(name))
        ):
            if name != stream:
                return []
            return [_comparisons(node.where) if node.where is not None and _may_be_first(node, whole) else ()]
        case _:
            return [asks for child in children(node) for asks in _asked(child, stream, whole=whole)]


def _may_be_first(node: AggregateNode | RelationNode | ProjectNode, whole: bool) -> bool:
    """Whether results stay the same if events that fail WHERE never come, apart from the clock."""
    assert node.where is not None
    if not is_total(node.where):
        return False
    match node:
        case ProjectNode():
            return True
        case AggregateNode() | RelationNode():
            return node.filter_first and not whole and not node.partition_by and not node.window.when_full
        case other:
            assert_never(other)


def _comparisons(where: Expression) -> tuple[Expression, ...]:
    if isinstance(where, Call) and where.function == "and":
        return tuple(found for arg in where.args for found in _comparisons(arg))
    return (where,) if _is_simple(where) else ()


def _is_simple(expression: Expression) -> bool:
    """A column compared with values that are not NULL, where Spark and the files mean what we mean."""
    if not isinstance(expression, Call) or not isinstance(expression.args[0], tree.Column):
        return False
    column, *values = expression.args
    known = all(isinstance(value, Literal) and value.value is not None for value in values)
    if not known or expression.function not in {*_COMPARE, "in"}:
        return False
    if column.type not in (SqlType.FLOAT, SqlType.DOUBLE):
        return True
    zero = any(isinstance(value, Literal) and value.value == 0 for value in values)
    return expression.function not in ("gt", "ge") and not zero


def _column(expression: Expression) -> Column:
    assert isinstance(expression, Call)
    column, *values = expression.args
    assert isinstance(column, tree.Column)
    subject = F.col(quoted(column.name))
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
