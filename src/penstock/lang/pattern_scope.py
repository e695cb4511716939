"""What names mean in a pattern: columns are those of its elements, `a.id`, and aggregates are over repeated ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from penstock.aggregates.signatures import AggregateCall
from penstock.expressions.tree import Column, Expression, columns
from penstock.lang.bind_aggregates import AggregateBinder, KnownAggregates
from penstock.lang.dialect import span_of
from penstock.lang.places import QueryText, did_you_mean
from penstock.lang.query import PatternAggregate, Role
from penstock.lang.scope import Scope
from penstock.types import Schema


@dataclass(frozen=True)
class Named:
    """An element with the columns of its input."""

    name: str
    role: Role
    schema: Schema


@dataclass(frozen=True)
class PatternScope(Scope):
    """Columns of those elements that have one of the `roles`; `clause` says where, for refusals."""

    elements: tuple[Named, ...] = ()
    roles: frozenset[Role] = field(default_factory=frozenset)
    clause: str = ""

    @classmethod
    def of(cls, elements: tuple[Named, ...], roles: frozenset[Role], clause: str) -> PatternScope:
        return cls(Schema(()), frozenset(), False, elements=elements, roles=roles, clause=clause)

    def resolve(self, node: exp.Column, source: QueryText) -> Column | exp.Expr:
        if node.args.get("db") or not isinstance(node.this, exp.Identifier):
            raise source.refusal("this is no column", span_of(node), "write element.column")
        qualifier = node.args.get("table")
        element = self._only(node, source) if qualifier is None else self._named(qualifier, source)
        found = element.schema.find(node.name)
        if found is None:
            hint = did_you_mean(node.name, element.schema.names)
            raise source.refusal(f"unknown column '{node.name}' of '{element.name}'", span_of(node.this), hint)
        if element.role not in self.roles:
            raise self._out_of_place(element, found.name, node, source)
        return Column(f"{element.name}.{found.name}", found.type)

    def _named(self, qualifier: exp.Identifier, source: QueryText) -> Named:
        for element in self.elements:
            if element.name.lower() == qualifier.name.lower():
                return element
        names = [element.name for element in self.elements]
        hint = did_you_mean(qualifier.name, names) or f"the elements are {', '.join(names)}"
        raise source.refusal(f"no element '{qualifier.name}' in this PATTERN", span_of(qualifier), hint)

    def _only(self, node: exp.Column, source: QueryText) -> Named:
        found = [element for element in self.elements if element.schema.find(node.name) is not None]
        if len(found) == 1:
            return found[0]
        if found:
            names = " or ".join(f"{element.name}.{node.name}" for element in found)
            raise source.refusal(f"several elements have a column '{node.name}'", span_of(node), f"write {names}")
        known = [f"{element.name}.{name}" for element in self.elements for name in element.schema.names]
        hint = did_you_mean(node.name, known) or "write element.column"
        raise source.refusal(f"unknown column '{node.name}'", span_of(node), hint)

    def _out_of_place(self, element: Named, column: str, node: exp.Column, source: QueryText) -> Exception:
        if element.role is Role.REPEATED:
            return source.refusal(
                f"'{element.name}' stands for several events",
                span_of(node),
                f"write an aggregate, such as FIRST({element.name}.{column}) or COUNT({element.name}.*)",
            )
        return source.refusal(
            f"'{element.name}' must not come, so it has no value {self.clause}",
            span_of(node),
            "its columns may stand in WHERE, outside of aggregates",
        )


class PatternAggregates:
    """Collects the aggregates of one pattern, which expressions refer to as columns `$0`, `$1`, ..."""

    def __init__(self, known: KnownAggregates, source: QueryText, elements: Sequence[Named]) -> None:
        self.recognises = known.recognises
        self.names = known.names
        self._source = source
        self._elements = tuple(elements)
        roles = frozenset((Role.PLAIN, Role.REPEATED))
        scope = PatternScope.of(self._elements, roles, "in an aggregate")
        self._calls = AggregateBinder(known, source, scope)
        self._index: dict[PatternAggregate, int] = {}

    @property
    def found(self) -> tuple[PatternAggregate, ...]:
        return tuple(self._index)

    def bind(self, node: exp.Expr) -> Expression:
        if isinstance(node, exp.Window):
            raise self._source.refusal("OVER is not available over a pattern", span_of(node))
        written, counted = self._starred(node)
        column = self._calls.bind(written)
        assert isinstance(column, Column)
        call = self._calls.calls[int(column.name[1:])]
        element = self._element(call, node) if counted is None else counted
        index = self._index.setdefault(PatternAggregate(element, call), len(self._index))
        return Column(f"${index}", call.type)

    def _starred(self, node: exp.Expr) -> tuple[exp.Expr, int | None]:
        """COUNT(c.*) as COUNT(*), and the element that it counts."""
        call = node.this if isinstance(node, exp.Filter) else node
        argument = call.expressions[0] if isinstance(call, exp.Anonymous) and call.expressions else None
        if not isinstance(argument, exp.Column) or not isinstance(argument.this, exp.Star):
            return node, None
        if call.name.upper() != "COUNT" or argument.args.get("table") is None:
            raise self._source.refusal("'*' cannot stand here", span_of(call), "'*' is for SELECT * and COUNT(c.*)")
        name = argument.args["table"].name
        number = next((i for i, e in enumerate(self._elements) if e.name.lower() == name.lower()), None)
        if number is None or self._elements[number].role is not Role.REPEATED:
            raise self._source.refusal(
                f"no repeated element '{name}' in this PATTERN",
                span_of(argument),
                "COUNT(c.*) counts the events of an element that is written C+ c",
            )
        copy = node.copy()
        (copy.this if isinstance(copy, exp.Filter) else copy).set("expressions", [exp.Star()])
        return copy, number

    def _element(self, call: AggregateCall, node: exp.Expr) -> int:
        """The repeated element that an aggregate is over."""
        repeated = [i for i, e in enumerate(self._elements) if e.role is Role.REPEATED]
        read = set().union(*(columns(e) for e in (*call.args, *([] if call.filter is None else [call.filter]))))
        named = {name.partition(".")[0] for name in read}
        over = [i for i in repeated if self._elements[i].name in named]
        if not over and not call.args and len(repeated) == 1:
            over = repeated
        if len(over) == 1:
            return over[0]
        if not repeated or (not over and call.args):
            raise self._source.refusal(
                "an aggregate over a pattern is over a repeated element",
                span_of(node),
                "write C+ c in the pattern and SUM(c.x) here; a pattern's matches are aggregated by an outer query",
            )
        raise self._source.refusal(
            "it is not clear which repeated element this is over",
            span_of(node),
            "write " + " or ".join(f"COUNT({self._elements[i].name}.*)" for i in repeated),
        )
