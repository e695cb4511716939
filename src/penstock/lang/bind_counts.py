"""Conditions of a change that count rows of the table itself: (SELECT COUNT(*) FROM t AS o WHERE ...), EXISTS (...).

ON leaves DELETE FROM spots WHERE NOT EXISTS (SELECT * FROM spots AS o WHERE o.pos = spots.pos AND o.car <> leaves.car)

Each becomes a column, `#0`, `#1` and so on, of the condition around it (`table_defs.RowCount`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from penstock.expressions.evaluate import is_total
from penstock.expressions.tree import Call, Column, Expression, Literal, transform
from penstock.lang.bind_aggregates import RefusedAggregates
from penstock.lang.bind_expressions import ExpressionBinder
from penstock.lang.dialect import span_of
from penstock.lang.places import QueryText
from penstock.lang.query import TableRef
from penstock.lang.scope import Scope
from penstock.lang.table_defs import RowCount
from penstock.types import Schema, SqlType


class CountingBinder(ExpressionBinder):
    """Binds the condition of a change of a table; `counts` gets what it counts."""

    def __init__(
        self,
        source: QueryText,
        scope: Scope,
        aggregates: RefusedAggregates,
        table: TableRef,
        find: Callable[[str], TableRef | None],
        counts: list[RowCount],
    ) -> None:
        super().__init__(source, scope, aggregates)
        self._refused = aggregates
        self._table = table
        self._find = find
        self._counts = counts

    def bind(self, node: exp.Expr, depth: int = 0) -> Expression:
        if isinstance(node, exp.Exists):
            count = self._count(node.this)
            return Call("gt", (count, Literal(0, SqlType.BIGINT)), SqlType.BOOLEAN)
        return self._count(node) if isinstance(node, exp.Subquery) else super().bind(node, depth)

    def _count(self, node: exp.Expr) -> Column:
        named = node.args["table"]
        self._check_table(named)
        alias = node.args["alias"]
        own = alias.name.lower()
        streams = [side for side in self._scope.sides if side.lower() != self._table.name.lower()]
        if own in map(str.lower, streams):
            raise self._source.refusal(
                f"the stream and the table are both named '{alias.name}' here", span_of(alias), "write FROM table AS o"
            )
        name = f"#{len(self._counts)}"
        condition = None
        if node.args["where"] is not None:
            binder = ExpressionBinder(self._source, self._inside(alias.name, own), self._refused)
            condition = _renamed(binder.condition(node.args["where"], "WHERE"), f"{alias.name}.", f"{name}.")
            if not is_total(condition):
                raise self._source.refusal(
                    "a condition on rows that are counted cannot be one that may fail",
                    span_of(node.args["where"]),
                    "compute what may fail in a query before: INSERT INTO d SELECT ...; ON d ...",
                )
        self._counts.append(RowCount(name, condition))
        return Column(name, SqlType.BIGINT)

    def _check_table(self, named: exp.Expr) -> None:
        if named.name.lower() == self._table.name.lower():
            return
        if self._find(named.name) is None:
            raise self._source.refusal(
                f"a change of '{self._table.name}' counts rows of that table alone",
                span_of(named),
                f"write FROM {self._table.name} AS o",
            )
        raise self._source.refusal(
            f"a change of '{self._table.name}' cannot read another table",
            span_of(named),
            f"look it up before: INSERT INTO d SELECT ... FROM stream LEFT JOIN {named.name} ON ...; ON d ...",
        )

    def _inside(self, alias: str, own: str) -> Scope:
        """The columns of the scope around, and those of the rows that are counted, which hide a side of their name."""
        sides = tuple(side for side in self._scope.sides if side.lower() != own)
        around = [f for f in self._scope.schema if f.name.partition(".")[0] in sides]
        rows = [replace(f, name=f"{alias}.{f.name}") for f in self._table.schema]
        qualifiers = frozenset(side.lower() for side in (*sides, alias))
        return Scope(Schema((*around, *rows)), qualifiers, False, sides=(*sides, alias))


def _renamed(condition: Expression, before: str, after: str) -> Expression:
    def change(node: Expression) -> Expression:
        if isinstance(node, Column) and node.name.startswith(before):
            return Column(after + node.name.removeprefix(before), node.type)
        return node

    return transform(condition, change)
