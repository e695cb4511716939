"""Rules as written to typed queries: a rule is a query for its condition, and queries that read its firings.

    WHEN condition THEN EMIT INTO s SELECT a                one query: INSERT INTO s SELECT a FROM (condition's edges)
    CREATE RULE r WHEN condition THEN EMIT INTO s, CALL f() INSERT INTO r (condition's edges); INSERT INTO s SELECT *
                                                            FROM r; and f is called for each row of r

Where a condition *becomes* true depends on what it is (`edges`):

    a window with a SLIDE, or RSTREAM    groups that are in this evaluation and were not in the one before
    ... without aggregates               rows, likewise: ISTREAM
    a window at every event              the arriving event's group passes HAVING and did not when last looked at
    SELECT without a window              the event passes WHERE and the one before, of the same BY key, did not
    ISTREAM, DSTREAM, sessions, joins    each row: it has just come about
    UNION ALL                            each branch for itself
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from penstock.expressions.tree import Column, Expression
from penstock.lang.bind_aggregates import RefusedAggregates
from penstock.lang.bind_expressions import ExpressionBinder
from penstock.lang.bind_query import QueryBinder
from penstock.lang.bind_select import SelectBinder
from penstock.lang.dialect import span_of
from penstock.lang.places import QueryText, did_you_mean
from penstock.lang.query import (
    WINDOW_FIELDS,
    Call,
    Edge,
    Emit,
    Output,
    Select,
    Source,
    StreamRef,
    Union,
    columns_of,
    is_windowed,
)
from penstock.lang.scope import Scope
from penstock.lang.syntax import (
    CallAction,
    EmitAction,
    FromItem,
    Name,
    QuerySyntax,
    RuleStatement,
    SelectItem,
    SelectSyntax,
    UnionSyntax,
)
from penstock.types import Field, Schema, SqlType

Body = Select | Union | Edge

KEY = "idempotency_key"
"""What calls carry besides their arguments: the same whenever the same firing is told."""


@dataclass(frozen=True)
class Emitted:
    """`EMIT INTO target`: what is selected of a stream of the rule's name; None for all of it, if that is all that is
    done."""

    target: Name
    selected: Select | None


@dataclass(frozen=True)
class BoundRule:
    condition: Body
    emits: tuple[Emitted, ...]
    calls: tuple[Call, ...]


class RuleBinder:
    """`functions` are the names of what can be called."""

    def __init__(self, source: QueryText, binder: QueryBinder, functions: Collection[str]) -> None:
        self._source = source
        self._binder = binder
        self._functions = {name.lower(): name for name in functions}

    def add_function(self, name: str) -> None:
        self._functions[name.lower()] = name

    def knows(self, function: str) -> bool:
        return function.lower() in self._functions

    def bind(self, statement: RuleStatement, name: str) -> BoundRule:
        condition: Body = self._binder.bind(statement.condition)
        keys = self._keys(statement)
        if not statement.every:
            condition = self._edges(condition, keys, statement.condition)
        fired = StreamRef(name, columns_of(condition))
        emits: list[Emitted] = []
        calls: list[Call] = []
        for action in statement.actions:
            if isinstance(action, EmitAction):
                is_all = not action.items and len(statement.actions) == 1
                items = action.items or (SelectItem(None, None, Name("", action.span), action.span),)
                emits.append(Emitted(action.target, None if is_all else self._select(fired, items, action)))
            elif isinstance(action, CallAction):
                calls.append(self._call(fired, action))
        return BoundRule(condition, tuple(emits), tuple(calls))

    def _call(self, fired: StreamRef, action: CallAction) -> Call:
        name = action.function
        found = self._functions.get(name.text.lower())
        if found is None:
            hint = did_you_mean(name.text, self._functions.values()) or (
                f"declare it before: CREATE FUNCTION {name.text} AS HTTP POST 'https://...'; "
                f"functions in Python need the library: App(..., functions={{'{name.text}': function}})"
            )
            raise self._source.refusal(f"unknown function '{name.text}'", name.span, hint)
        outputs = self._select(fired, action.arguments, action).outputs if action.arguments else ()
        if any(output.name.lower() == KEY for output in outputs):
            raise self._source.refusal(f"every call carries {KEY}", action.span, "rename the argument with AS")
        return Call(found, outputs)

    def _select(self, fired: StreamRef, items: tuple[SelectItem, ...], action: EmitAction | CallAction) -> Select:
        """What an action takes of the firings: a SELECT without a window."""
        source = FromItem(Name(fired.name, action.span), None, None, action.span)
        syntax = SelectSyntax(None, None, items, source, None, (), None, (), None, None, action.span)
        scope = Scope(fired.schema, frozenset({fired.name.lower()}), False)
        return SelectBinder(self._source, self._binder.known, syntax, scope).bind(fired, None)

    # -- where a condition becomes true ---------------------------------------------------------------------

    def _keys(self, statement: RuleStatement) -> tuple[Expression, ...]:
        if not statement.by:
            return ()
        syntax, span = statement.condition, span_of(statement.by[0])
        if statement.every:
            raise self._source.refusal(
                "BY says whose condition becomes true, and EVERY asks for every row", span, "leave one of them out"
            )
        if isinstance(syntax, UnionSyntax) or not self._binder.is_plain(syntax):
            raise self._source.refusal(
                "BY is for conditions without a window",
                span,
                "windows have GROUP BY: the rule looks at each group for itself",
            )
        refused = RefusedAggregates(
            self._binder.known, self._source, "an aggregate cannot stand in BY", "write columns of the stream"
        )
        binder = ExpressionBinder(self._source, self._binder.scope_of(syntax), refused)
        keys: dict[Expression, None] = {}
        for node in statement.by:
            key = binder.bind(node)
            if key.type in (SqlType.NULL, SqlType.INTERVAL):
                raise self._source.refusal(f"a value of type {key.type} cannot be a key", span_of(node))
            keys[key] = None
        return tuple(keys)

    def _edges(self, body: Source, keys: tuple[Expression, ...], syntax: QuerySyntax) -> Body:
        if isinstance(body, Union):
            return edges_of_union(body)
        assert isinstance(body, Select), "a condition is a SELECT"
        if _is_plain(body) and body.where is None and not keys:
            raise self._source.refusal(
                "this condition is always true, so the rule would fire once and never again",
                syntax.span,
                "write WHERE, or EVERY before THEN to fire at each event",
            )
        return edges(body, keys)


def edges_of_union(union: Union) -> Union:
    inputs = tuple(edges(branch) if isinstance(branch, Select) else branch for branch in union.inputs)
    schema = columns_of(union) if not is_windowed(inputs[0]) else union.schema
    return Union(inputs, schema)


def edges(select: Select, keys: tuple[Expression, ...] = ()) -> Select | Edge:
    """The condition's rows where it becomes true."""
    if _is_plain(select):
        return Edge(select.source, keys, select.where, select.outputs, select.schema)
    if not is_windowed(select) or select.emit in (Emit.ISTREAM, Emit.DSTREAM):
        return select
    if select.window is not None and select.window.extent.closes:
        return select
    if select.emit is Emit.EVENT_GROUP:
        return _edges_of_events(select) if select.aggregating else select
    return replace(select, emit=Emit.EDGE if select.aggregating and not select.distinct else Emit.ISTREAM)


def _edges_of_events(select: Select) -> Edge:
    """At each event its group is looked at. Those that fail HAVING must be seen, too, so it is the edge that tests it:
    below, every group shows its keys and aggregates as they are."""
    keys = tuple(Column(f"#{i}", key.type) for i, key in enumerate(select.group_by))
    values = tuple(Column(f"${i}", call.type) for i, call in enumerate(select.aggregates))
    raw = replace(
        select,
        outputs=tuple(Output(column.name, column) for column in (*keys, *values)),
        having=None,
        distinct=False,
        schema=Schema(tuple(Field(column.name, column.type) for column in (*keys, *values))),
    )
    carried = tuple(Output(field.name, Column(field.name, field.type)) for field in WINDOW_FIELDS)
    schema = Schema(WINDOW_FIELDS + select.schema.fields)
    return Edge(raw, keys, select.having, carried + select.outputs, schema)


def _is_plain(select: Select) -> bool:
    """Whether each row of the select is one of its source, which passes WHERE."""
    return select.window is None and isinstance(select.source, StreamRef | Select | Union | Edge)
