"""What MATCH_RECOGNIZE stands for: a SELECT over a pattern in which nothing may come between two rows.

PATTERN (A B) DEFINE B AS B.x > PREV(B.x), PARTITION BY k
FROM PATTERN SEQ(s A, !s between, s B) WHERE A.k = between.k AND between.k = B.k AND B.x > A.x
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from penstock.lang.dialect import column_at, span_of
from penstock.lang.places import QueryText, Span, did_you_mean
from penstock.lang.syntax import ElementSyntax, FromItem, Name, OperatorSyntax, PatternSyntax, SelectItem, SelectSyntax

_NAVIGATION = ("FIRST", "LAST", "PREV")
_REFUSED = ("NEXT", "CLASSIFIER", "MATCH_NUMBER")


@dataclass(frozen=True)
class Variable:
    """A variable of the pattern and how many rows it has."""

    name: Name
    times: int


@dataclass(frozen=True)
class Recognized:
    """MATCH_RECOGNIZE as written; `apart`: AFTER MATCH SKIP PAST LAST ROW."""

    stream: Name
    partition_by: tuple[Name, ...]
    measures: tuple[tuple[exp.Expr, Name], ...]
    variables: tuple[Variable, ...]
    defined: Mapping[str, exp.Expr]
    within: int
    apart: bool
    span: Span


def select_of(source: QueryText, written: Recognized) -> SelectSyntax:
    """The SELECT over a pattern that gives the partition and the measures of each match."""
    return _Translation(source, written).select()


class _Translation:
    """Row i of a match is element `rows[i]`; variable v has the rows `of[v]`."""

    def __init__(self, source: QueryText, written: Recognized) -> None:
        self._source = source
        self._written = written
        self._rows: list[str] = []
        self._of: dict[str, list[int]] = {}
        for variable in written.variables:
            name = variable.name.text
            begin = len(self._rows)
            self._rows += [name] if variable.times == 1 else [f"{name} {i}" for i in range(1, variable.times + 1)]
            self._of[name.lower()] = list(range(begin, len(self._rows)))

    def select(self) -> SelectSyntax:
        written, span = self._written, self._written.span
        elements: list[ElementSyntax | OperatorSyntax] = []
        for number, row in enumerate(self._rows):
            if number:
                elements.append(self._element(f"between {number}", absent=True))
            elements.append(self._element(row, absent=False))
        root = OperatorSyntax("SEQ", tuple(elements), span)
        pattern = PatternSyntax(root, self._where(), written.within, span, written.apart)
        last = self._rows[-1]
        items = [SelectItem(column_at(key.span, key.text, last), key, None, key.span) for key in written.partition_by]
        for expression, name in written.measures:
            measured = self._translated(expression, len(self._rows) - 1, None)
            items.append(SelectItem(measured, name, None, span_of(expression) or name.span))
        source = FromItem(pattern, None, None, span)
        return SelectSyntax(None, None, tuple(items), source, None, (), None, (), None, None, span)

    def _element(self, name: str, *, absent: bool) -> ElementSyntax:
        span = self._written.stream.span
        return ElementSyntax(self._written.stream, Name(name, span), absent, False, False, span)

    def _where(self) -> exp.Expr | None:
        conditions: list[exp.Expr] = []
        for key in self._written.partition_by:
            for number in range(1, len(self._rows)):
                between = f"between {number}"
                for one, other in ((self._rows[number - 1], between), (between, self._rows[number])):
                    sides = (column_at(key.span, key.text, one), column_at(key.span, key.text, other))
                    conditions.append(exp.EQ(this=sides[0], expression=sides[1]))
        for name, condition in self._written.defined.items():
            if name not in self._of:
                hint = did_you_mean(name, self._of) or "it must stand in PATTERN"
                raise self._source.refusal(f"no variable '{name}' in this PATTERN", span_of(condition), hint)
            conditions += [self._translated(condition, row, name) for row in self._of[name]]
        if not conditions:
            return None
        where = conditions[0]
        for condition in conditions[1:]:
            where = exp.And(this=where, expression=condition)
        return where

    def _translated(self, expression: exp.Expr, row: int, own: str | None) -> exp.Expr:
        """As it is at a row of the match: in the condition of variable `own`, or at the end, in a measure."""

        def change(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Anonymous) and node.name.upper() in _REFUSED:
                raise self._source.refusal(f"{node.name.upper()} is not available here", span_of(node))
            if isinstance(node, exp.Anonymous) and node.name.upper() in _NAVIGATION:
                return self._navigated(node, row, own)
            if isinstance(node, exp.Column):
                return self._referred(node, self._row_of(node, row, own))
            return node

        return expression.transform(change)

    def _navigated(self, node: exp.Anonymous, row: int, own: str | None) -> exp.Expr:
        """FIRST(A.x), LAST(A.x) and PREV(A.x, n)."""
        function, arguments = node.name.upper(), list(node.expressions)
        column = arguments[0] if arguments else None
        steps = arguments[1] if len(arguments) == 2 else None
        fits = isinstance(column, exp.Column) and len(arguments) <= (2 if function == "PREV" else 1)
        if not fits or (steps is not None and not (isinstance(steps, exp.Literal) and str(steps.this).isdigit())):
            raise self._source.refusal(
                f"{function} takes a column" + (" and a number" if function == "PREV" else ""), span_of(node)
            )
        assert isinstance(column, exp.Column)
        if function != "PREV":
            rows = self._rows_of(column, row, own)
            return self._referred(column, rows[0] if function == "FIRST" else rows[-1])
        back = self._row_of(column, row, own) - (1 if steps is None else int(str(steps.this)))
        if back < 0:
            raise self._source.refusal(
                "PREV goes back behind the first row of the match",
                span_of(node),
                "begin the PATTERN with a variable that has no condition: PATTERN (START DOWN)",
            )
        return self._referred(column, back)

    def _row_of(self, node: exp.Column, row: int, own: str | None) -> int:
        """The row that a column is of: the last one of its variable."""
        return self._rows_of(node, row, own)[-1]

    def _rows_of(self, node: exp.Column, row: int, own: str | None) -> list[int]:
        table = node.args.get("table")
        if table is None:
            return [row] if own is None else self._seen(own, row)
        name = table.name.lower()
        if name not in self._of:
            hint = did_you_mean(table.name, self._of) or f"the variables are {', '.join(self._of)}"
            raise self._source.refusal(f"no variable '{table.name}' in this PATTERN", span_of(table), hint)
        found = self._seen(name, row)
        if not found:
            raise self._source.refusal(
                f"'{table.name}' comes later in this PATTERN", span_of(node), "a condition sees the rows before its own"
            )
        return found

    def _seen(self, name: str, row: int) -> list[int]:
        return [number for number in self._of[name] if number <= row]

    def _referred(self, node: exp.Column, row: int) -> exp.Expr:
        return column_at(span_of(node) or self._written.span, node.name, self._rows[row])
