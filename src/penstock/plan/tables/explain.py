"""EXPLAIN of look-ups in tables and of what changes them."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.expressions.tree import Expression, columns
from penstock.lang.render import render, render_duration
from penstock.lang.table_defs import ChangeKind, TableDef, TableWrite
from penstock.lang.table_options import ttl_of
from penstock.plan.tables.cost import GRACE_EVENTS, GRACE_ROWS
from penstock.plan.tables.nodes import Lookup, LookupNode, is_key


def describe_lookup(node: LookupNode) -> tuple[str, list[str]]:
    details = [] if node.first is None else [f"where    {_text(node.first)}  (before the look-up)"]
    for lookup in node.lookups:
        details += [*_lookup(lookup), *(f"         {kept}" for kept in describe_ttl(lookup.definition))]
    if node.where is not None:
        details.append(f"where    {_text(node.where)}")
    if node.clocks:
        waits = ", ".join(stream.name for stream in node.clocks)
        details.append(f"waits    until {waits}, which the tables are written by, have come as far")
    details.append("outputs  " + ", ".join(f"{_text(o.expression)} AS {o.name}" for o in node.outputs))
    tables = ", ".join(lookup.table for lookup in node.lookups)
    what = f"event of {node.alias}" if node.alias else "row of the windows"
    return f"look up {tables} for every {what}, as of its time", details


def describe_ttl(table: TableDef) -> list[str]:
    """For how long a table's rows are there; nothing where that is for ever."""
    ttl = ttl_of(table)
    return [] if ttl is None else [f"rows are there for less than {render_duration(ttl)} after their last change"]


def _lookup(lookup: Lookup) -> list[str]:
    shown = lookup.table if lookup.alias == lookup.table else f"{lookup.table} AS {lookup.alias}"
    kind = "left join" if lookup.left else "join"
    also = [] if lookup.on is None else [f"         and {_text(lookup.on)}"]
    if (shorter := lookup.narrowed) is not None:
        lines = _found(lookup, f"{kind:8s} {shown}", shorter.by, shorter.keys)
        return [*lines, "         where the key of an event or row cannot be computed, pairs are compared", *also]
    if not lookup.by:
        return [f"{kind:8s} {shown} by comparing every event with every row: name its key in an equality", *also]
    first, *more = _found(lookup, f"{kind:8s} {shown}", lookup.by, lookup.keys)
    return [first, *also, *more]


def _found(lookup: Lookup, what: str, by: tuple[Expression, ...], keys: tuple[Expression, ...]) -> list[str]:
    equal = " AND ".join(f"{_own(lookup, own)} = {_text(key)}" for own, key in zip(by, keys, strict=True))
    if is_key(by, lookup.key):
        grace = f"         hash join; batch grace from {GRACE_ROWS:,} rows and {GRACE_EVENTS} events a partition on"
        return [f"{what} by its key: {equal}", grace]
    return [f"{what} by an index on {', '.join(map(_text, by))}: {equal}"]


def _own(lookup: Lookup, expression: Expression) -> str:
    return render(expression, {name: f"{lookup.alias}.{name}" for name in columns(expression)})


def describe_writes(writes: Iterable[TableWrite]) -> list[str]:
    """What events change, a line for each statement; nothing where there is none."""
    lines = [f"├─ {_write(write)}" for write in writes]
    return ["\ntables are changed", *lines[:-1], lines[-1].replace("├", "└", 1)] if lines else []


def _write(write: TableWrite) -> str:
    where = "" if write.where is None else f" that passes {_text(write.where)}"
    what = f"every event of {write.stream}{where}: {write.kind.value} {write.table}"
    match = "" if write.match is None else render(write.match, _match_names(write))
    if write.keys:
        key = ", ".join(map(_text, write.keys))
        also = f", if {match}" if match else ""
        alone = "; one event after the other" if write.counted else ""
        return f"{what} by its key {key}{also}{alone}"
    found = f" {match}" if match else ""
    assert write.kind in (ChangeKind.UPDATE, ChangeKind.DELETE), "new rows have a key"
    return f"{what} by comparing every row{found}: name its key in an equality"


def _match_names(write: TableWrite) -> dict[str, str]:
    """The columns of the condition as they were written, and what it counts."""
    assert write.match is not None
    names = {name: name for name in columns(write.match)}
    for count in write.counted:
        where = ""
        if count.condition is not None:
            of_rows = f"{count.name}."
            own = {n: n.replace(of_rows, "other.", 1) for n in columns(count.condition)}
            where = f" WHERE {render(count.condition, own)}"
        names[count.name] = f"(SELECT COUNT(*) FROM {write.table} AS other{where})"
    return names


def _text(expression: Expression) -> str:
    """With the names of columns as they were written: `alias.column`."""
    return render(expression, {name: name for name in columns(expression)})
