"""`SELECT ... FROM PATTERN ...` as written to a `Select` over a typed `Pattern`.

The pattern gives matches as rows of the columns that the select list reads; the select list is computed over those,
row by row, as over any stream without a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from penstock.aggregates.signatures import of_nothing
from penstock.expressions.tree import Call, Column, Expression, Literal, columns, walk
from penstock.lang.bind_aggregates import KnownAggregates
from penstock.lang.bind_expressions import ExpressionBinder
from penstock.lang.dialect import column_at, span_of
from penstock.lang.pattern_orders import Orders, elements_of
from penstock.lang.pattern_scope import Named, PatternAggregates, PatternScope
from penstock.lang.places import QueryText
from penstock.lang.query import Element, Emit, Output, Pattern, Role, Select, Source, columns_of
from penstock.lang.select_checks import check_clauses, check_outputs
from penstock.lang.syntax import ElementSyntax, Name, PatternSyntax, QuerySyntax, SelectItem, SelectSyntax
from penstock.types import Field, Schema

MOST_ELEMENTS = 100
"""Of one pattern; each event is linked to all of them."""

_SHOWN = frozenset((Role.PLAIN,))
_COMPARED = frozenset(Role)


class PatternBinder:
    """Binds one SELECT over a pattern; `read` binds what an element reads. Used once."""

    def __init__(self, source: QueryText, known: KnownAggregates, read: Callable[[Name | QuerySyntax], Source]) -> None:
        self._source = source
        self._known = known
        self._read = read
        self._named: tuple[Named, ...] = ()

    def bind(self, syntax: SelectSyntax, pattern: PatternSyntax) -> Select:
        self._check_select(syntax)
        inputs: dict[Source, int] = {}
        elements: list[Element] = []
        numbers: dict[ElementSyntax, int] = {}
        for written in elements_of(pattern.root):
            if len(elements) == MOST_ELEMENTS:
                raise self._source.refusal(
                    f"a pattern has at most {MOST_ELEMENTS} elements",
                    written.span,
                    "find parts of it in queries of their own and use these as elements",
                )
            numbers[written] = len(elements)
            elements.append(self._element(written, inputs))
        orders = Orders(self._source, numbers, [e.role for e in elements]).of(pattern.root)
        sources = tuple(inputs)
        self._named = tuple(Named(e.name, e.role, columns_of(sources[e.input])) for e in elements)
        aggregates = PatternAggregates(self._known, self._source, self._named)
        where = self._where(pattern.where, aggregates)
        items = self._items(syntax)
        shown = ExpressionBinder(self._source, self._scope(_SHOWN, "to show"), aggregates)
        outputs = [shown.bind(node) for _, node in items]
        names = [name for name, _ in items]
        check_outputs(self._source, syntax, names, outputs, [], windowed=False)
        optional = {i for i in range(len(elements)) if any(i not in order for order in orders)}
        matches = self._matches(outputs, aggregates, optional)
        bound = Pattern(
            sources, tuple(elements), orders, where, aggregates.found, pattern.within, matches, pattern.apart
        )
        schema = Schema(
            tuple(Field(n.text, e.type, _nullable(e, matches)) for n, e in zip(names, outputs, strict=True))
        )
        return Select(
            source=bound,
            window=None,
            where=None,
            group_by=(),
            aggregates=(),
            outputs=tuple(Output(n.text, e) for n, e in zip(names, outputs, strict=True)),
            having=None,
            distinct=False,
            order_by=(),
            limit=None,
            emit=Emit.RSTREAM,
            aggregating=False,
            drain=False,
            schema=schema,
        )

    def _check_select(self, syntax: SelectSyntax) -> None:
        check_clauses(self._source, syntax, None)
        hint = "put the pattern into a subquery: FROM (SELECT ... FROM PATTERN ... WITHIN ...) [window] GROUP BY ..."
        for clause, node in (("GROUP BY", syntax.group_by[:1]), ("HAVING", (syntax.having,))):
            if node and node[0] is not None:
                raise self._source.refusal(f"{clause} cannot stand over a pattern", span_of(node[0]), hint)

    def _element(self, written: ElementSyntax, inputs: dict[Source, int]) -> Element:
        name, span = written.alias.text, written.alias.span
        if "." in name or name[:1] in ("$", "#"):
            raise self._source.refusal("an element's name has no dot and does not begin with '$' or '#'", span)
        source = self._read(written.source)
        if any(e.name.lower() == name.lower() for e in self._named):
            raise self._source.refusal(
                f"two elements are named '{name}'", span, "give each a name of its own: SEQ(A a1, A a2)"
            )
        role = Role.ABSENT if written.absent else Role.REPEATED if written.repeated else Role.PLAIN
        self._named = (*self._named, Named(name, role, columns_of(source)))
        return Element(name, inputs.setdefault(source, len(inputs)), role, written.one)

    def _scope(self, roles: frozenset[Role], clause: str) -> PatternScope:
        return PatternScope.of(self._named, roles, clause)

    # -- WHERE ----------------------------------------------------------------------------------------------

    def _where(self, node: exp.Expr | None, aggregates: PatternAggregates) -> tuple[Expression, ...]:
        """The conditions that AND connects, each by itself."""
        found: list[Expression] = []
        binder = ExpressionBinder(self._source, self._scope(_COMPARED, "in WHERE"), aggregates)
        for part in [] if node is None else _conjuncts(node):
            condition = binder.condition(part, "WHERE")
            for one in condition.args if isinstance(condition, Call) and condition.function == "and" else (condition,):
                self._check_condition(one, part)
                found.append(one)
        return tuple(found)

    def _check_condition(self, condition: Expression, node: exp.Expr) -> None:
        read = columns(condition)
        aggregated = any(name.startswith("$") for name in read)
        named = {name.partition(".")[0] for name in read}
        absent = [e.name for e in self._named if e.role is Role.ABSENT and e.name in named]
        repeated = [e.name for e in self._named if e.role is Role.REPEATED and e.name in named]
        if len(absent) > 1 or len(repeated) > 1 or (absent and repeated):
            first, second = (*absent, *repeated)[:2]
            raise self._source.refusal(
                f"a condition cannot compare '{first}' with '{second}': neither is one event of the match",
                span_of(node),
                "compare each with plain elements or with an aggregate, such as LAST(c.x)",
            )
        if repeated and aggregated:
            raise self._source.refusal(
                f"whether an event belongs to '{repeated[0]}' cannot depend on an aggregate",
                span_of(node),
                "aggregates are known once all its events are",
            )

    # -- the select list ------------------------------------------------------------------------------------

    def _items(self, syntax: SelectSyntax) -> list[tuple[Name, exp.Expr]]:
        items: list[tuple[Name, exp.Expr]] = []
        for written in syntax.items:
            if written.star is not None:
                items += self._star(written.star)
            elif written.expression is not None:
                items.append((self._name(written, written.expression), written.expression))
        return items

    def _star(self, star: Name) -> Iterator[tuple[Name, exp.Expr]]:
        """The columns of plain elements: under their own names where those are unique, else `element_column`."""
        plain = [e for e in self._named if e.role is Role.PLAIN]
        if star.text and star.text.lower() not in {e.name.lower() for e in plain}:
            raise self._source.refusal(
                f"no plain element '{star.text}' in this PATTERN", star.span, "write * for all columns"
            )
        names = [name.lower() for e in plain for name in e.schema.names]
        for element in plain:
            if star.text and star.text.lower() != element.name.lower():
                continue
            for name in element.schema.names:
                shown = name if names.count(name.lower()) == 1 else f"{element.name}_{name}"
                yield Name(shown, star.span), column_at(star.span, name, element.name)

    def _name(self, item: SelectItem, node: exp.Expr) -> Name:
        if item.alias is not None:
            return item.alias
        if isinstance(node, exp.Column):
            found = (e.schema.find(node.name) for e in self._named)
            return Name(next((field.name for field in found if field is not None), node.name), item.span)
        return Name(" ".join(self._source.text[item.span[0] : item.span[1]].split()), item.span)

    def _matches(self, outputs: list[Expression], aggregates: PatternAggregates, optional: set[int]) -> Schema:
        """The columns of matches that outputs read, one at least; those of `optional` elements may be NULL."""
        fields: dict[str, Field] = {}
        for expression in outputs:
            for column in _columns(expression):
                if column.name.startswith("$"):
                    found = aggregates.found[int(column.name[1:])]
                    sure = of_nothing(found.call.function) is not None and found.element not in optional
                    fields[column.name] = Field(column.name, column.type, not sure)
                else:
                    fields[column.name] = self._field(column.name, optional)
        if not fields:
            plain = next(e for e in self._named if e.role is Role.PLAIN)
            name = f"{plain.name}.{plain.schema.names[0]}"
            fields[name] = self._field(name, optional)
        return Schema(tuple(fields.values()))

    def _field(self, column: str, optional: set[int]) -> Field:
        name, _, rest = column.partition(".")
        number, element = next((i, e) for i, e in enumerate(self._named) if e.name == name)
        found = element.schema.find(rest)
        assert found is not None, "the scope resolved it"
        return Field(column, found.type, found.nullable or number in optional)


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The operands of AND, left to right; chains may be thousands long."""
    pending = [node]
    while pending:
        current = pending.pop().unnest()
        if isinstance(current, exp.And):
            pending += [current.args["expression"], current.this]
        else:
            yield current


def _columns(expression: Expression) -> list[Column]:
    return [node for node in walk(expression) if isinstance(node, Column)]


def _nullable(expression: Expression, schema: Schema) -> bool:
    if isinstance(expression, Literal):
        return expression.value is None
    if not isinstance(expression, Column):
        return True
    found = schema.find(expression.name)
    return found is None or found.nullable
