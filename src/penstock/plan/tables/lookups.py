"""From a join of one stream with tables to a look-up: which rows are found by what.

    FROM s, t WHERE s.id = t.id AND t.zone = 3     t by its key, then zone
    FROM s JOIN t ON s.zone = t.zone               t by an index on zone
    FROM s JOIN t ON s.slot = t.tod DIV 10 * 10    t by an index on tod DIV 10 * 10
    FROM s LEFT JOIN t ON s.x > t.low              all rows of t are compared

Conditions of WHERE and of inner joins are one pool: each is checked as soon as all its columns are there. Tables are
looked up in the order of FROM, with one exception: a table that is found by its key, and gives at most one row, goes
before a table that is not found by its key yet. That changes neither the rows nor their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.expressions.conjuncts import conjunction, conjuncts
from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import Column, Expression, columns
from penstock.lang.query import Join, JoinKind, JoinSide, Select, Source, TableRef, TableScan
from penstock.lang.table_defs import TableDef, TableWrite
from penstock.plan.nodes import Node, StreamNode, walk
from penstock.plan.tables.matches import as_key, asks_only, matched
from penstock.plan.tables.narrowing import narrowed
from penstock.plan.tables.nodes import Lookup, LookupNode, ScanNode


def build_lookup(select: Select, join: Join, build: Callable[[Source], Node]) -> Node:
    """A SELECT over one stream and tables, none with a window."""
    (stream,) = (side for side in join.sides if not isinstance(side.source, TableRef))
    assert not isinstance(stream.source, TableRef)
    below = build(stream.source)
    known = {stream.alias}
    inner = [c for side in join.sides if side.kind is JoinKind.INNER for c in conjuncts(side.on)]
    pool = conjuncts(select.where) + inner
    first = [c for c in pool if asks_only(c, known) and is_total(c)]
    pool = [c for c in pool if c not in first]
    lookups, rest = lookups_of([side for side in join.sides if side is not stream], known, pool)
    return LookupNode(
        below,
        clocks_of(below, join),
        stream.alias,
        conjunction(first),
        lookups,
        conjunction(rest),
        select.outputs,
        select.schema,
    )


def lookups_of(
    tables: Sequence[JoinSide], known: set[str], pool: Sequence[Expression]
) -> tuple[tuple[Lookup, ...], list[Expression]]:
    """How tables are looked up, in turn, by the sides that are known before; and the conditions that remain."""
    lookups: list[Lookup] = []
    waiting, before, known, rest = list(tables), frozenset(known), set(known), list(pool)
    while waiting:
        side = _next(waiting, known, rest)
        waiting.remove(side)
        lookup, rest = _lookup(side, known, rest)
        lookups.append(lookup)
        known.add(side.alias)
    return narrowed(lookups, before, rest), rest


def looked_up(lookups: Sequence[Lookup]) -> list[set[str]]:
    """The columns that look-ups compare."""
    return [columns(e) for lookup in lookups for e in (*lookup.keys, *((lookup.on,) if lookup.on is not None else ()))]


def read_behind(node: LookupNode) -> list[set[str] | None]:
    """For each table, the columns that are read once its rows are found; None if something may fail then, for rows are
    rejected with all their columns."""
    later = [output.expression for output in node.outputs] + ([] if node.where is None else [node.where])
    found: list[set[str] | None] = []
    for lookup in reversed(node.lookups):
        later += [] if lookup.on is None else [lookup.on]
        found.append({name for e in later for name in columns(e)} if all(map(is_total, later)) else None)
        later += [*lookup.keys, *(() if lookup.narrowed is None else lookup.narrowed.keys)]
    return found[::-1]


def build_scan(scan: TableScan) -> ScanNode:
    clocks = tuple(StreamNode(writer.name, writer.schema) for writer in scan.table.writers)
    assert scan.table.definition is not None
    return ScanNode(scan.table.name, scan.slide, clocks, scan.schema, scan.table.definition, scan.table.writes)


def _next(waiting: Sequence[JoinSide], known: set[str], pool: Sequence[Expression]) -> JoinSide:
    if waiting[0].kind is not JoinKind.INNER or _lookup(waiting[0], known, pool)[0].is_keyed:
        return waiting[0]
    for side in waiting:
        if side.kind is not JoinKind.INNER:
            break
        if _lookup(side, known, pool)[0].is_keyed:
            return side
    return waiting[0]


def _lookup(side: JoinSide, known: set[str], pool: Sequence[Expression]) -> tuple[Lookup, list[Expression]]:
    """How a table is looked up by what is known before, and the conditions that remain."""
    table = side.source
    assert isinstance(table, TableRef)
    left = side.kind is JoinKind.LEFT
    # What can fail stays where it was written: it fails only for rows that pass what stands before it.
    asked = conjuncts(side.on) if left else [c for c in pool if asks_only(c, known | {side.alias}) and is_total(c)]
    rest = list(pool) if left else [c for c in pool if c not in asked]
    found: dict[Expression, tuple[Expression, Expression]] = {}
    for condition in asked:
        match = matched(condition, side.alias, known)
        if match is not None and (not left or isinstance(match.own, Column)):
            found.setdefault(match.own, (match.other, condition))
    by = as_key(tuple(found), table.key)
    on = [c for c in asked if c not in [found[own][1] for own in by]]
    keys = tuple(found[own][0] for own in by)
    assert table.definition is not None
    how = (by, keys, conjunction(on), left, table.definition, table.writes)
    return Lookup(table.name, side.alias, table.schema, table.key, *how), rest


def clocks_of(below: Node, join: Join) -> tuple[StreamNode, ...]:
    """The streams that write the tables, besides the one that is read."""
    writers = [writer for side in join.sides if isinstance(side.source, TableRef) for writer in side.source.writers]
    found = {
        writer.name: StreamNode(writer.name, writer.schema) for writer in writers if writer.name != below.stream_name
    }
    return tuple(found.values())


def expressions(node: LookupNode) -> list[Expression]:
    """All that a look-up computes."""
    found = [e for e in (node.first, node.where) if e is not None]
    for lookup in node.lookups:
        found += lookup.keys
        if lookup.on is not None:
            found.append(lookup.on)
    return found + [output.expression for output in node.outputs]


def stream_columns(node: LookupNode) -> set[str]:
    """The columns of the stream that a look-up reads, by their own names."""
    prefix = f"{node.alias}." if node.alias else ""
    read = set().union(*(columns(e) for e in expressions(node)))
    return {name.removeprefix(prefix) for name in read if name.startswith(prefix)}


def written_columns(write: TableWrite) -> set[str]:
    """The columns of the stream that a change of a table reads."""
    prefix = f"{write.alias}."
    conditions = (write.where, write.match, *(count.condition for count in write.counted))
    read = [*write.keys, *(e for _, e in write.sets), *(e for e in conditions if e is not None)]
    return {name.removeprefix(prefix) for e in read for name in columns(e) if name.startswith(prefix)}


def tables_of(node: Node) -> dict[str, tuple[TableDef, tuple[TableWrite, ...]]]:
    """The tables that a plan reads, and what changes them."""
    found: dict[str, tuple[TableDef, tuple[TableWrite, ...]]] = {}
    for below in walk(node):
        reads = below.lookups if isinstance(below, LookupNode) else (below,) if isinstance(below, ScanNode) else ()
        for read in reads:
            found[read.table] = read.definition, read.writes
    return found
