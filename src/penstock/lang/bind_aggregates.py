"""Aggregate calls as written to `AggregateCall`s, each distinct call once.

The caller binds a select list, HAVING and ORDER BY through one `AggregateBinder`; it then holds the aggregates of that
SELECT, which the bound expressions refer to as columns `$0`, `$1`, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from sqlglot import exp

from penstock.aggregates.signatures import ALIASES, SIGNATURES, AggregateCall
from penstock.expressions.functions import implicit_cast
from penstock.expressions.tree import Column, Expression, Literal
from penstock.lang.bind_expressions import ExpressionBinder
from penstock.lang.dialect import span_of
from penstock.lang.places import QueryText, Span
from penstock.lang.scope import Scope
from penstock.types import SqlType


class UserSignature(Protocol):
    """What the binder must know of a user-defined aggregate: the types it takes and the type it returns."""

    @property
    def argument_types(self) -> tuple[SqlType, ...]: ...

    @property
    def result_type(self) -> SqlType: ...


class KnownAggregates:
    """The aggregates that exist: the built-in ones and the user's."""

    def __init__(self, user_aggregates: Mapping[str, UserSignature]) -> None:
        self.users = {name.upper(): aggregate for name, aggregate in user_aggregates.items()}

    def recognises(self, name: str) -> bool:
        return canonical_name(name) in SIGNATURES or name.upper() in self.users

    def names(self) -> list[str]:
        return [*SIGNATURES, *ALIASES, *self.users]


class RefusedAggregates:
    """For a clause where no aggregate may stand; `message` and `hint` say why."""

    def __init__(self, known: KnownAggregates, source: QueryText, message: str, hint: str) -> None:
        self.recognises = known.recognises
        self.names = known.names
        self._source = source
        self._message = message
        self._hint = hint

    def bind(self, node: exp.Expr) -> Expression:
        raise self._source.refusal(self._message, span_of(node), self._hint)


class AggregateBinder:
    """Collects the aggregates of one SELECT over the columns of `scope`."""

    def __init__(self, known: KnownAggregates, source: QueryText, scope: Scope) -> None:
        self.recognises = known.recognises
        self.names = known.names
        self._users = known.users
        self._source = source
        nested = RefusedAggregates(
            known,
            source,
            "an aggregate cannot stand inside an aggregate",
            "aggregate in a subquery first: FROM (SELECT ... FROM s [window]) [window]",
        )
        self._arguments = ExpressionBinder(source, scope, nested)
        self._index: dict[AggregateCall, int] = {}
        self.over_places: dict[int, Span | None] = {}
        """The lengths of windows that stand behind OVER, and where."""

    @property
    def calls(self) -> tuple[AggregateCall, ...]:
        return tuple(self._index)

    def bind(self, node: exp.Expr) -> Expression:
        if isinstance(node, exp.Window):
            over = int(node.args["over"].this)
            self.over_places.setdefault(over, span_of(node))
            call = replace(self._call(node.this), over=over)
        else:
            call = self._call(node)
        index = self._index.setdefault(call, len(self._index))
        return Column(f"${index}", call.type)

    def _call(self, node: exp.Expr) -> AggregateCall:
        condition = None
        if isinstance(node, exp.Filter):
            condition = self._arguments.condition(node.expression, "FILTER")
            node = node.this
        ordered: exp.Ordered | None = None
        if isinstance(node, exp.WithinGroup):
            ordered, node = node.expression, node.this
        written, nodes = node.name, list(node.expressions)
        name = canonical_name(written)
        name_span = (node.meta["start"], node.meta["start"] + len(written))
        takes_fraction = name in SIGNATURES and SIGNATURES[name].takes_fraction
        if ordered is not None and not takes_fraction:
            raise self._source.refusal(f"WITHIN GROUP is for percentiles, not for {written}", name_span)
        if name == "COUNT":
            return self._count(nodes, condition, node)
        if nodes and isinstance(nodes[0], exp.Distinct):
            raise self._source.refusal(
                f"DISTINCT in {written} is not available",
                span_of(node),
                "only COUNT(DISTINCT x) is; to aggregate distinct values, read FROM (SELECT DISTINCT ...) [window]",
            )
        if any(isinstance(n, exp.Star) for n in nodes):
            raise self._source.refusal(f"{written}(*) has no meaning", span_of(node), "name a column; * is for COUNT")
        parameter = None
        if takes_fraction:
            nodes, parameter = self._percentile(name, nodes, ordered, node)
        args = tuple(self._arguments.bind(n) for n in nodes)
        user = self._users.get(name) if name not in SIGNATURES else None
        if user is not None:
            args = self._user_arguments(user, args, written, nodes, span_of(node))
            return AggregateCall(name, args, condition, None, user.result_type)
        return AggregateCall(name, args, condition, parameter, self._result_type(name, args, written, span_of(node)))

    def _user_arguments(
        self,
        user: UserSignature,
        args: tuple[Expression, ...],
        written: str,
        nodes: list[exp.Expr],
        span: Span | None,
    ) -> tuple[Expression, ...]:
        wanted = tuple(user.argument_types)
        fit = len(args) == len(wanted) and all(implicit_cast(a.type, t) for a, t in zip(args, wanted, strict=True))
        if not fit:
            raise self._source.refusal(
                f"{written} takes ({', '.join(map(str, wanted))}), not ({', '.join(str(a.type) for a in args)})",
                span,
                "CAST(x AS type) changes a type",
            )
        return tuple(map(self._arguments.converted, args, wanted, nodes))

    def _count(self, nodes: list[exp.Expr], condition: Expression | None, node: exp.Expr) -> AggregateCall:
        """COUNT of a literal that is not NULL counts events, like COUNT(*)."""
        name = "COUNT"
        if nodes and isinstance(nodes[0], exp.Distinct):
            name, nodes = "COUNT_DISTINCT", nodes[0].expressions
        if len(nodes) != 1:
            raise self._source.refusal(
                f"COUNT takes one argument, not {len(nodes)}", span_of(node), "or write COUNT(*)"
            )
        if name == "COUNT" and isinstance(nodes[0], exp.Star):
            return AggregateCall(name, (), condition, None, SqlType.BIGINT)
        arg = self._arguments.bind(nodes[0])
        if name == "COUNT" and isinstance(arg, Literal) and arg.value is not None:
            return AggregateCall(name, (), condition, None, SqlType.BIGINT)
        self._check_typed((arg,), span_of(node))
        return AggregateCall(name, (arg,), condition, None, SqlType.BIGINT)

    def _percentile(
        self, name: str, nodes: list[exp.Expr], ordered: exp.Ordered | None, node: exp.Expr
    ) -> tuple[list[exp.Expr], float]:
        """The value and the fraction, for both `P(0.9) WITHIN GROUP (ORDER BY x)` and `P(x, 0.9)`."""
        example = f"{name}(x, 0.9) or {name}(0.9) WITHIN GROUP (ORDER BY x)"
        expected = 2 if ordered is None else 1
        if len(nodes) != expected:
            raise self._source.refusal(f"{node.name} takes a value and a fraction", span_of(node), f"write {example}")
        fraction_node, value_node = (nodes[1], nodes[0]) if ordered is None else (nodes[0], ordered.this)
        bound = self._arguments.bind(fraction_node)
        fraction = bound.value if isinstance(bound, Literal) else None
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise self._source.refusal("the fraction must be a number from 0 to 1", span_of(fraction_node), example)
        if ordered is not None and ordered.args.get("desc"):
            raise self._source.refusal(
                "percentiles are ordered ascending", span_of(ordered), f"write {name}({1 - fraction:g}) without DESC"
            )
        return [value_node], float(fraction)

    def _result_type(self, name: str, args: tuple[Expression, ...], written: str, span: Span | None) -> SqlType:
        types = tuple(arg.type for arg in args)
        signature = SIGNATURES[name]
        arity = signature.arity
        if len(args) != arity:
            raise self._source.refusal(
                f"{written} takes {arity} argument{'s' if arity > 1 else ''}, not {len(args)}",
                span,
                signature.description,
            )
        self._check_typed(args, span)
        result = signature.returns(types)
        if result is None:
            given = ", ".join(map(str, types))
            raise self._source.refusal(f"{written} cannot be applied to {given}", span, signature.description)
        return result

    def _check_typed(self, args: tuple[Expression, ...], span: Span | None) -> None:
        for arg in args:
            if arg.type in (SqlType.NULL, SqlType.INTERVAL):
                raise self._source.refusal(
                    f"a value of type {arg.type} cannot be aggregated", span, "CAST it, such as CAST(NULL AS DOUBLE)"
                )


def canonical_name(written: str) -> str:
    upper = written.upper()
    return ALIASES.get(upper, upper)
