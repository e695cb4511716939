"""One SELECT as written to a typed `Select`: outputs, groups and aggregates taken apart, clauses checked."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from penstock.aggregates.signatures import of_nothing
from penstock.expressions.tree import Column, Expression, Literal
from penstock.lang.bind_aggregates import AggregateBinder, KnownAggregates, RefusedAggregates
from penstock.lang.bind_expressions import ExpressionBinder
from penstock.lang.dialect import column_at, span_of
from penstock.lang.grouping import Grouping
from penstock.lang.join_checks import check_join_aggregates
from penstock.lang.places import QueryText
from penstock.lang.query import Emit, Join, Order, Output, Select, Source
from penstock.lang.scope import WINDOW_COLUMNS, Scope
from penstock.lang.select_checks import check_clauses, check_outputs, check_over, check_partitions
from penstock.lang.syntax import Name, SelectItem, SelectSyntax
from penstock.types import Field, Schema, SqlType
from penstock.windows.spec import WindowSpec


@dataclass(frozen=True)
class Item:
    """One output before binding; a star is already taken apart."""

    name: Name
    node: exp.Expr


class SelectBinder:
    """Binds one SELECT in the scope of what stands in its FROM. Used once."""

    def __init__(self, source: QueryText, known: KnownAggregates, syntax: SelectSyntax, scope: Scope) -> None:
        self._source = source
        self._known = known
        self._syntax = syntax
        self._scope = scope
        self._items = self._expanded()
        self._aliases = {item.name.text.lower(): item.node for item in self._items}
        self._aggregates = AggregateBinder(known, source, scope)

    def bind(self, source: Source, window: WindowSpec | None) -> Select:
        """`window` is that of FROM; over a join the one that stands for those of all sides."""
        syntax = self._syntax
        check_clauses(self._source, syntax, window)
        where = self._where()
        group_by = self._group_by()
        outputs = [self._binder(self._scope).bind(item.node) for item in self._items]
        having = None
        if syntax.having is not None:
            scope = self._scope.with_aliases(self._aliases, first=False)
            having = self._binder(scope).condition(syntax.having, "HAVING")
        order_nodes = [self._ordinal(item.expression, "ORDER BY") for item in syntax.order_by]
        order_binder = self._binder(self._scope.with_aliases(self._aliases, first=True))
        order = [order_binder.bind(node) for node in order_nodes]

        aggregating = bool(group_by or self._aggregates.calls)
        check_partitions(self._source, syntax, window, group_by, outputs, aggregating=aggregating)
        if aggregating:
            self._check_window(window)
            if isinstance(source, Join):
                check_join_aggregates(self._source, syntax, window, self._aggregates.over_places)
            check_over(self._source, window, self._aggregates.over_places)
            grouping = Grouping(self._source, group_by, self._known.recognises)
            outputs = [grouping.over_groups(e, item.node) for e, item in zip(outputs, self._items, strict=True)]
            order = [grouping.over_groups(e, node) for e, node in zip(order, order_nodes, strict=True)]
            if having is not None and syntax.having is not None:
                having = grouping.over_groups(having, syntax.having)
        elif syntax.having is not None:
            raise self._source.refusal(
                "HAVING needs GROUP BY or an aggregate", span_of(syntax.having), "write WHERE to filter events"
            )
        names = [item.name for item in self._items]
        check_outputs(self._source, syntax, names, outputs, order, windowed=window is not None)
        fields = (Field(name.text, e.type, self._nullable(e, group_by)) for name, e in zip(names, outputs, strict=True))
        return Select(
            source=source,
            window=None if isinstance(source, Join) else window,
            where=where,
            group_by=group_by,
            aggregates=self._aggregates.calls,
            outputs=tuple(Output(name.text, e) for name, e in zip(names, outputs, strict=True)),
            having=having,
            distinct=syntax.distinct is not None,
            order_by=tuple(
                Order(e, item.descending, item.nulls_first) for e, item in zip(order, syntax.order_by, strict=True)
            ),
            limit=syntax.limit[0] if syntax.limit else None,
            emit=self._emit(window),
            aggregating=aggregating,
            drain=syntax.drain is not None,
            schema=Schema(tuple(fields)),
        )

    def _binder(self, scope: Scope) -> ExpressionBinder:
        return ExpressionBinder(self._source, scope, self._aggregates)

    # -- the select list ------------------------------------------------------------------------------------

    def _expanded(self) -> list[Item]:
        items: list[Item] = []
        for written in self._syntax.items:
            if written.star is not None:
                items += self._star(written.star)
            elif written.expression is not None and not self._is_carried(written):
                items.append(Item(self._name(written, written.expression), written.expression))
        if not items:
            raise self._source.refusal(
                "nothing is selected besides the window's own columns",
                self._syntax.items[0].span,
                "name a column or an aggregate; window_start and window_end come with every row",
            )
        return items

    def _star(self, star: Name) -> list[Item]:
        if star.text and star.text.lower() not in self._scope.qualifiers:
            raise self._source.refusal(f"no stream '{star.text}' in this FROM", star.span, "write * for all columns")
        items = []
        for field in self._scope.schema:
            side, _, name = field.name.partition(".") if self._scope.sides else ("", "", field.name)
            if self._scope.windowed and name.lower() in WINDOW_COLUMNS:
                continue
            if side and star.text and side.lower() != star.text.lower():
                continue
            node = column_at(star.span, name, side)
            items.append(Item(Name(self._scope.shown_name(field), star.span), node))
        return items

    def _is_carried(self, item: SelectItem) -> bool:
        """Whether the item is window_start or window_end of this query's own window, which every row has anyway."""
        node = item.expression
        if not self._scope.windowed or not isinstance(node, exp.Column) or node.name.lower() not in WINDOW_COLUMNS:
            return False
        if self._scope.sides and node.args.get("table") is not None:
            return False  # that of a subquery
        if item.alias is None or item.alias.text.lower() == node.name.lower():
            return True
        if not self._scope.named(node.name):
            raise self._source.refusal(
                f"{node.name.lower()} keeps its name",
                item.alias.span,
                f"leave the alias out, or rename it in an outer query: SELECT {node.name.lower()} AS ... FROM (...)",
            )
        return False

    def _name(self, item: SelectItem, node: exp.Expr) -> Name:
        """The alias, the column's name, or the expression as written with single blanks."""
        if item.alias is not None:
            return item.alias
        if isinstance(node, exp.Column):
            qualifier = node.args.get("table")
            found = self._scope.named(node.name, None if qualifier is None else qualifier.name)
            if not found:
                return Name(node.name, item.span)
            return Name(found[0].name.partition(".")[2] if self._scope.sides else found[0].name, item.span)
        return Name(" ".join(self._source.text[item.span[0] : item.span[1]].split()), item.span)

    # -- clauses --------------------------------------------------------------------------------------------

    def _where(self) -> Expression | None:
        if self._syntax.where is None:
            return None
        refused = RefusedAggregates(
            self._known,
            self._source,
            "an aggregate cannot stand in WHERE",
            "WHERE filters events; write HAVING to filter groups",
        )
        return ExpressionBinder(self._source, self._scope, refused).condition(self._syntax.where, "WHERE")

    def _group_by(self) -> tuple[Expression, ...]:
        refused = RefusedAggregates(
            self._known,
            self._source,
            "an aggregate cannot stand in GROUP BY",
            "group by columns of the input; to group by an aggregate, compute it in a subquery",
        )
        binder = ExpressionBinder(self._source, self._scope.with_aliases(self._aliases, first=False), refused)
        keys: dict[Expression, None] = {}
        for written in self._syntax.group_by:
            node = self._ordinal(written, "GROUP BY")
            key = binder.bind(node)
            if key.type in (SqlType.NULL, SqlType.INTERVAL):
                raise self._source.refusal(f"a value of type {key.type} cannot be grouped by", span_of(written))
            keys[key] = None
        return tuple(keys)

    def _ordinal(self, node: exp.Expr, clause: str) -> exp.Expr:
        """`GROUP BY 1` and `ORDER BY 1` mean the first output."""
        if not isinstance(node, exp.Literal) or node.is_string:
            return node
        text = str(node.this)
        position = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        if not 1 <= position <= len(self._items):
            raise self._source.refusal(
                f"{clause} {text[:20]} names no output",
                span_of(node),
                f"the outputs are numbered from 1 to {len(self._items)}",
            )
        return self._items[position - 1].node

    def _check_window(self, window: WindowSpec | None) -> None:
        if window is not None:
            return
        source = self._syntax.source.source
        shown = source.text if isinstance(source, Name) else "(SELECT ...)"
        raise self._source.refusal(
            "aggregates and GROUP BY need a window",
            self._syntax.span if not isinstance(source, Name) else source.span,
            f"write FROM {shown} [RANGE 1 HOUR SLIDE 1 MINUTE], or [RANGE 1 HOUR] for a row per event",
        )

    def _emit(self, window: WindowSpec | None) -> Emit:
        if self._syntax.emit is not None:
            return self._syntax.emit[0]
        return Emit.EVENT_GROUP if window is not None and window.is_per_event else Emit.RSTREAM

    def _nullable(self, expression: Expression, group_by: tuple[Expression, ...]) -> bool:
        """Whether a NULL may come out; True where it is not plain."""
        if isinstance(expression, Literal):
            return expression.value is None
        if not isinstance(expression, Column):
            return True
        if expression.name.startswith("$"):
            return of_nothing(self._aggregates.calls[int(expression.name[1:])].function) is None
        if expression.name.startswith("#"):
            return self._nullable(group_by[int(expression.name[1:])], ())
        found = self._scope.schema.find(expression.name)
        return found is None or found.nullable
