"""FROM with several sides to a typed `Join`, and the scope of what is written over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.expressions.tree import Expression
from penstock.lang.bind_aggregates import KnownAggregates, RefusedAggregates
from penstock.lang.bind_expressions import ExpressionBinder
from penstock.lang.join_checks import check_order, check_sides, padded
from penstock.lang.places import QueryText
from penstock.lang.query import Join, JoinKind, JoinSide, Source, TableRef, columns_of
from penstock.lang.scope import Scope
from penstock.lang.syntax import FromItem, JoinItem, Name, SelectSyntax
from penstock.lang.table_checks import check_tables
from penstock.types import Field, Schema
from penstock.windows.spec import WindowSpec

Bound = tuple[Source | TableRef, WindowSpec | None]
"""What stands on one side, and its window."""


class JoinBinder:
    """Binds the sides of one FROM; `bind_side` binds what stands on one, wherever that is."""

    def __init__(self, source: QueryText, known: KnownAggregates, bind_side: Callable[[FromItem], Bound]) -> None:
        self._source = source
        self._bind_side = bind_side
        self._refused = RefusedAggregates(
            known, source, "an aggregate cannot stand in ON", "ON compares events; write HAVING to filter groups"
        )

    def bind(self, syntax: SelectSyntax) -> tuple[Join, Scope, WindowSpec | None]:
        """The join, what can be named over it, and the window that stands for those of all sides."""
        check_order(self._source, syntax.joins)
        items = [syntax.source, *(join.item for join in syntax.joins)]
        aliases = self._aliases(items)
        bound = [self._bind_side(item) for item in items]
        sides = [
            JoinSide(source, window, alias, JoinKind.INNER if number == 0 else syntax.joins[number - 1].kind, None)
            for number, ((source, window), alias) in enumerate(zip(bound, aliases, strict=True))
        ]
        check_sides(self._source, sides, items)
        check_tables(self._source, sides, items)
        for number, join in enumerate(syntax.joins, 1):
            sides[number] = replace(sides[number], on=self._on(join, sides[: number + 1]))
        result = Join(tuple(sides), _schema(sides))
        return result, _scope(sides), _evaluation(sides)

    def _aliases(self, items: Sequence[FromItem]) -> list[str]:
        found: dict[str, str] = {}
        for item in items:
            name = item.alias or (item.source if isinstance(item.source, Name) else None)
            if name is None:
                raise self._source.refusal(
                    "a subquery in a join needs a name", item.span, "write FROM (SELECT ...) [window] AS x, ..."
                )
            if name.text.lower() in found:
                raise self._source.refusal(
                    f"two sides of this join are named '{name.text}'",
                    name.span,
                    f"give each an alias: {name.text} [window] AS x",
                )
            if "." in name.text or name.text[:1] in ("$", "#", ""):
                raise self._source.refusal(
                    "the name of a side has no dot, does not begin with '$' or '#' and is not empty",
                    name.span,
                    "give it an alias: AS x",
                )
            found[name.text.lower()] = name.text
        return list(found.values())

    def _on(self, join: JoinItem, sides: Sequence[JoinSide]) -> Expression | None:
        if join.on is None:
            return None
        return ExpressionBinder(self._source, _scope(sides), self._refused).condition(join.on, "ON")


def _columns(source: Source | TableRef) -> Schema:
    return source.schema if isinstance(source, TableRef) else columns_of(source)


def _schema(sides: Sequence[JoinSide]) -> Schema:
    return Schema(
        tuple(
            Field(f"{side.alias}.{field.name}", field.type, field.nullable or nulls)
            for side, nulls in zip(sides, padded(sides), strict=True)
            for field in _columns(side.source)
        )
    )


def _scope(sides: Sequence[JoinSide]) -> Scope:
    aliases = tuple(side.alias for side in sides)
    windowed = any(side.window is not None for side in sides)
    tables = frozenset(side.alias.lower() for side in sides if isinstance(side.source, TableRef))
    return Scope(_schema(sides), frozenset(alias.lower() for alias in aliases), windowed, sides=aliases, tables=tables)


def _evaluation(sides: Sequence[JoinSide]) -> WindowSpec | None:
    """All slide alike; a window that counts rows comes first, for such a join cannot be drained."""
    windows = [side.window for side in sides if side.window is not None]
    return min(windows, key=lambda window: not window.extent.counts_rows, default=None)
