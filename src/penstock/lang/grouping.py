"""What an aggregating SELECT may show: group keys, as columns `#0`, `#1`, ..., and aggregates, `$0`, `$1`, ..."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from penstock.expressions.tree import Call, Cast, Column, Expression
from penstock.lang.dialect import span_of
from penstock.lang.places import QueryText, Span


class Grouping:
    """Rewrites bound expressions over the input to expressions over the row of a group."""

    def __init__(
        self,
        source: QueryText,
        group_by: tuple[Expression, ...],
        is_aggregate: Callable[[str], bool],
    ) -> None:
        self._source = source
        self._keys = {key: Column(f"#{i}", key.type) for i, key in enumerate(group_by)}
        self._is_aggregate = is_aggregate

    def over_groups(self, expression: Expression, node: exp.Expr) -> Expression:
        """`expression` was bound from `node`, which gives the place of a column that is not grouped."""
        key = self._keys.get(expression)
        if key is not None:
            return key
        if isinstance(expression, Call):
            args = tuple(self.over_groups(arg, node) for arg in expression.args)
            return Call(expression.function, args, expression.type)
        if isinstance(expression, Cast):
            return Cast(self.over_groups(expression.operand, node), expression.type)
        if isinstance(expression, Column) and not expression.name.startswith("$"):
            raise self._source.refusal(
                f"column '{expression.name}' is neither grouped nor aggregated",
                self._place_of(expression.name, node),
                f"add it to GROUP BY, or write an aggregate such as LAST({expression.name})",
            )
        return expression

    def _place_of(self, column: str, node: exp.Expr) -> Span | None:
        """Where the column stands outside of any aggregate."""
        lowered = column.lower()
        pending = [node]
        while pending:
            current = pending.pop(0)
            if isinstance(current, exp.Column) and current.name.lower() in (lowered, lowered.partition(".")[2]):
                return span_of(current)
            if isinstance(current, exp.Anonymous) and self._is_aggregate(current.name):
                continue
            pending += [child for child in current.iter_expressions() if not isinstance(current, exp.Filter)]
            if isinstance(current, exp.Filter):
                pending.append(current.this)
        return span_of(node)
