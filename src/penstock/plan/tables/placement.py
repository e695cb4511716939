"""By which keys the streams around tables that change may be spread."""

from __future__ import annotations

from penstock.expressions.tree import Column, Expression, transform
from penstock.plan.tables.nodes import LookupNode

Keys = tuple[Expression, ...]


def keys_of_tables(node: LookupNode) -> tuple[tuple[str, Keys], ...] | str:
    """For each stream that reads or writes the tables the key of their rows, over its own columns; or why there is
    none. All must be of the same types: only then do equal keys come together."""
    stream = node.input.stream_name
    assert stream is not None
    found: dict[str, set[Keys]] = {}
    for lookup in node.lookups:
        if not lookup.writes:
            continue
        if not lookup.is_keyed:
            return f"events look the table {lookup.table} up by something else than its key"
        found.setdefault(stream, set()).add(_own(lookup.keys, node.alias))
        for write in lookup.writes:
            if write.counted:
                return f"{write.stream} changes the table {lookup.table} by what other rows of it say"
            if not write.keys:
                return f"{write.stream} changes rows of the table {lookup.table} by something else than its key"
            found.setdefault(write.stream, set()).add(_own(write.keys, write.alias))
    types = {tuple(key.type for key in keys) for own in found.values() for keys in own}
    if any(len(own) > 1 for own in found.values()) or len(types) > 1:
        return "streams read and write the tables by different keys, or by keys of different types"
    if any(_foreign(keys) for own in found.values() for keys in own):
        return "a table is looked up by what another one says"
    return tuple((stream, next(iter(own))) for stream, own in found.items())


def _own(keys: Keys, alias: str) -> Keys:
    """Keys over the stream's own columns, without its alias."""
    prefix = f"{alias}."

    def plain(node: Expression) -> Expression:
        return Column(node.name.removeprefix(prefix), node.type) if isinstance(node, Column) else node

    return tuple(transform(key, plain) for key in keys)


def _foreign(keys: Keys) -> list[Column]:
    """Columns that are not the stream's: those that still have an alias."""
    found: list[Column] = []

    def note(node: Expression) -> Expression:
        if isinstance(node, Column) and "." in node.name:
            found.append(node)
        return node

    for key in keys:
        transform(key, note)
    return found
