"""Tables beside windows: what the windows (or their join) show is looked up, as of the evaluation.

FROM a [RANGE 1 MINUTE] x, b [RANGE 1 MINUTE] y, t WHERE x.id = y.id AND t.id = x.zone

└─ look up t for every row        as of its time: that of the event, or the last microsecond before the boundary
   └─ join of x and y             with all columns that are read above, named alias.column
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.errors import QueryError
from penstock.expressions.conjuncts import conjunction, conjuncts
from penstock.expressions.tree import Column, Expression, columns, transform
from penstock.lang.query import Emit, Join, JoinKind, JoinSide, Output, Select, Source, TableRef, columns_of
from penstock.plan.nodes import WINDOW_COLUMNS, Node
from penstock.plan.tables.lookups import clocks_of, looked_up, lookups_of
from penstock.plan.tables.matches import asks_only
from penstock.plan.tables.nodes import LookupNode
from penstock.types import Field, Schema


def build_windowed_lookup(select: Select, join: Join, build: Callable[[Source], Node]) -> Node:
    streams = [side for side in join.sides if not isinstance(side.source, TableRef)]
    tables = [side for side in join.sides if isinstance(side.source, TableRef)]
    _refuse(select, join, streams)
    known = {side.alias for side in streams}
    inner = [c for side in tables if side.kind is JoinKind.INNER for c in conjuncts(side.on)]
    pool = conjuncts(select.where) + inner
    below_where = [c for c in pool if asks_only(c, known)]
    lookups, rest = lookups_of(tables, known, [c for c in pool if c not in below_where])
    read = set().union(
        *(columns(o.expression) for o in select.outputs), *(columns(c) for c in rest), *looked_up(lookups)
    )
    shown = [field for field in join.schema if field.name in read and field.name.partition(".")[0] in known]
    shown = shown or [next(field for field in join.schema if field.name.partition(".")[0] in known)]
    below = build(_windows(select, join, streams, conjunction(below_where), shown))
    carried = tuple(Output(field.name, Column(field.name, field.type)) for field in WINDOW_COLUMNS)
    return LookupNode(
        below,
        clocks_of(below, join),
        "",
        None,
        lookups,
        conjunction(rest),
        (*carried, *select.outputs),
        Schema(WINDOW_COLUMNS + select.schema.fields),
        1 if _is_per_event(join) else 0,
    )


def _is_per_event(join: Join) -> bool:
    return join.window is not None and join.window.is_per_event


def _windows(
    select: Select, join: Join, streams: list[JoinSide], where: Expression | None, shown: list[Field]
) -> Select:
    """The windows alone, with the columns that are read above."""
    outputs = tuple(Output(field.name, Column(field.name, field.type)) for field in shown)
    alone = replace(select, where=where, outputs=outputs, schema=Schema(tuple(shown)))
    if len(streams) > 1:
        fields = tuple(f for f in join.schema if f.name.partition(".")[0] in {side.alias for side in streams})
        return replace(alone, source=Join(tuple(streams), Schema(fields)))
    (only,) = streams
    assert not isinstance(only.source, TableRef)
    prefix = f"{only.alias}."

    def own(node: Expression) -> Expression:
        return Column(node.name.removeprefix(prefix), node.type) if isinstance(node, Column) else node

    assert all(columns_of(only.source).find(field.name.removeprefix(prefix)) for field in shown)
    return replace(
        alone,
        source=only.source,
        window=only.window,
        where=None if where is None else transform(where, own),
        outputs=tuple(Output(o.name, transform(o.expression, own)) for o in outputs),
    )


def _refuse(select: Select, join: Join, streams: list[JoinSide]) -> None:
    hint = "put them into a subquery: FROM (SELECT ... FROM a [RANGE 1 HOUR SLIDE 1 MINUTE], t WHERE ...)"
    if select.aggregating:
        raise QueryError(
            "aggregates cannot stand over windows and tables",
            hint=f"{hint} [RANGE 1 MINUTE SLIDE 1 MINUTE]",
        )
    usual = Emit.EVENT_GROUP if _is_per_event(join) else Emit.RSTREAM
    if select.distinct or select.order_by or select.limit is not None or select.emit is not usual:
        raise QueryError(
            "DISTINCT, ORDER BY, LIMIT and ISTREAM cannot stand over windows and tables at once", hint=hint
        )
    if list(join.sides[: len(streams)]) != streams:
        raise QueryError("tables stand behind the windows that they are joined with", hint="write FROM a [window], t")
