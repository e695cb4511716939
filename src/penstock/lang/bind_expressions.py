"""Scalar expressions as written to typed expressions.

Types and implicit casts come from `expressions.functions`; the binder inserts the casts, folds those of literals and
refuses what does not fit. Aggregates are not its business: it hands them to an `Aggregates`.
"""

from __future__ import annotations

import math
from typing import Protocol

from sqlglot import exp

from penstock.expressions import functions
from penstock.expressions.tree import Call, Cast, Column, Expression, Literal
from penstock.lang.dialect import span_of
from penstock.lang.durations import parse_date, parse_timestamp
from penstock.lang.places import QueryText, Span, did_you_mean
from penstock.lang.scope import Scope
from penstock.lang.symbols import BINARY, symbol
from penstock.types import SqlType

DEEPEST = 100
"""Levels of an expression; what reads the tree later recurses over it."""

_BITS = {SqlType.TINYINT: 7, SqlType.SMALLINT: 15, SqlType.INT: 31, SqlType.BIGINT: 63}

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_RANGES = (exp.In, exp.Like, exp.Between)

_OF_THE_CLOCK = frozenset({"now", "current_timestamp", "current_date", "rand", "random", "uuid", "randn"})


def previous(column: str) -> str:
    """What a table's column from before the event's own changes is called in typed expressions."""
    return f"PREV({column})"


class Aggregates(Protocol):
    """What becomes of an aggregate in an expression: bound or refused."""

    def recognises(self, name: str) -> bool: ...

    def names(self) -> list[str]: ...

    def bind(self, node: exp.Expr) -> Expression: ...


class ExpressionBinder:
    """Binds expressions in one scope."""

    def __init__(self, source: QueryText, scope: Scope, aggregates: Aggregates) -> None:
        self._source = source
        self._scope = scope
        self._aggregates = aggregates

    def bind(self, node: exp.Expr, depth: int = 0) -> Expression:
        if depth > DEEPEST:
            raise self._source.refusal(
                f"this expression is more than {DEEPEST} levels deep",
                span_of(node),
                "split it: compute a part in a subquery, or write IN (...) for many comparisons",
            )
        depth += 1
        if isinstance(node, exp.Paren):
            return self.bind(node.this, depth)
        if isinstance(node, exp.Column):
            found = self._scope.resolve(node, self._source)
            return found if isinstance(found, Expression) else self._without_aliases().bind(found, depth)
        if isinstance(node, exp.Literal):
            return self._literal(node, negative=False)
        if isinstance(node, exp.Null):
            return Literal(None, SqlType.NULL)
        if isinstance(node, exp.Boolean):
            return Literal(bool(node.this), SqlType.BOOLEAN)
        if isinstance(node, exp.Interval):
            return Literal(int(node.this.this), SqlType.INTERVAL)
        if isinstance(node, exp.Anonymous | exp.Filter | exp.WithinGroup | exp.Window):
            return self._function(node, depth)
        if isinstance(node, exp.Cast):
            return self._cast(node, depth)
        if isinstance(node, exp.Case):
            return self._case(node, depth)
        return self._operator(node, depth)

    def condition(self, node: exp.Expr, clause: str) -> Expression:
        """An expression that must be BOOLEAN."""
        bound = self.bind(node)
        if bound.type not in (SqlType.BOOLEAN, SqlType.NULL):
            raise self._source.refusal(
                f"{clause} needs a condition, and this is {_article(bound.type)}",
                span_of(node),
                "write a comparison, such as x > 0",
            )
        return self.converted(bound, SqlType.BOOLEAN, node)

    def _without_aliases(self) -> ExpressionBinder:
        return ExpressionBinder(self._source, self._scope.without_aliases(), self._aggregates)

    # -- leaves ---------------------------------------------------------------------------------------------

    def _literal(self, node: exp.Literal, negative: bool) -> Literal:
        text = str(node.this)
        if node.is_string:
            return Literal(text, SqlType.STRING)
        sign = -1 if negative else 1
        if text.isascii() and text.isdigit() and len(text) <= 19:
            value = sign * int(text)
            for type_ in (SqlType.INT, SqlType.BIGINT):
                if -(2 ** _BITS[type_]) <= value < 2 ** _BITS[type_]:
                    return Literal(value, type_)
        try:
            number = float(text)
        except ValueError:
            raise self._source.refusal("this is no number", span_of(node)) from None
        if text.isdigit():
            raise self._source.refusal(
                "this number does not fit BIGINT", span_of(node), "write it with a point to make it a DOUBLE"
            )
        if not math.isfinite(number):
            raise self._source.refusal("this number does not fit DOUBLE", span_of(node))
        return Literal(sign * number, SqlType.DOUBLE)

    # -- calls ----------------------------------------------------------------------------------------------

    def _call(self, name: str, args: tuple[Expression, ...], nodes: list[exp.Expr], node: exp.Expr) -> Expression:
        """A typed call with its arguments, bound from `nodes`, cast to what the function takes."""
        function = functions.FUNCTIONS[name]
        if len(args) < function.least or (function.most is not None and len(args) > function.most):
            raise self._source.refusal(
                f"{symbol(name)} takes {_arity(function.least, function.most)}, not {len(args)}",
                span_of(node),
                f"{symbol(name)}: {function.description}",
            )
        for position in function.literals:
            if position < len(args) and not isinstance(args[position], Literal):
                raise self._source.refusal(
                    f"argument {position + 1} of {symbol(name)} must be a literal", span_of(nodes[position])
                )
        types = functions.coerce(name, tuple(arg.type for arg in args))
        converted = None if types is None else tuple(map(self.converted, args, types, nodes))
        result = None if converted is None else functions.resolve(name, tuple(arg.type for arg in converted))
        if converted is None or result is None:
            given = ", ".join(str(arg.type) for arg in args)
            raise self._source.refusal(
                f"{symbol(name)} cannot be applied to {given}",
                span_of(node),
                f"{symbol(name)}: {function.description}; CAST(x AS type) changes a type",
            )
        if name == "date_trunc":
            self._check_unit(converted[0], nodes[0])
        return Call(name, converted, result)

    def _check_unit(self, unit: Expression, node: exp.Expr) -> None:
        if not isinstance(unit, Literal) or str(unit.value).lower() not in functions.DATE_TRUNC_UNITS:
            raise self._source.refusal(
                "date_trunc does not know this unit",
                span_of(node),
                f"the units are {', '.join(functions.DATE_TRUNC_UNITS)}",
            )

    def _bound_call(self, name: str, nodes: list[exp.Expr], node: exp.Expr, depth: int) -> Expression:
        args = tuple(self.bind(n, depth) for n in nodes)
        return self._call(name, args, nodes, node)

    def _function(self, node: exp.Expr, depth: int) -> Expression:
        inner = node
        while isinstance(inner, exp.Filter | exp.WithinGroup | exp.Window):
            inner = inner.this
        name = inner.name
        start = inner.meta.get("start", 0)
        name_span = (start, start + len(name))
        if self._aggregates.recognises(name):
            return self._aggregates.bind(node)
        if inner is not node:
            raise self._source.refusal(
                f"'{name}' is no aggregate, so FILTER, WITHIN GROUP and OVER mean nothing", name_span
            )
        if name.upper() in ("PREV", "LAG") and self._scope.tables:
            return self._previous(inner, depth)
        canonical = functions.ALIASES.get(name.lower(), name.lower())
        if canonical not in functions.FUNCTIONS:
            raise self._unknown_function(name, name_span)
        if canonical == "like" or any(isinstance(arg, exp.Distinct) for arg in inner.expressions):
            raise self._source.refusal(f"{name} cannot be written like this", span_of(node))
        return self._bound_call(canonical, inner.expressions, node, depth)

    def _previous(self, node: exp.Expr, depth: int) -> Expression:
        """`PREV(t.col)`: the column as it was before the event's own changes, a column of that name. In a table of the
        latest rows that is the event before with the same key, which others call LAG."""
        argument = node.expressions[0] if len(node.expressions) == 1 else None
        bound = self.bind(argument, depth) if isinstance(argument, exp.Column) else None
        if not isinstance(bound, Column) or bound.name.partition(".")[0].lower() not in self._scope.tables:
            raise self._source.refusal(
                f"{node.name.upper()} takes a column of a table",
                span_of(node),
                f"the tables here are {', '.join(sorted(self._scope.tables))}",
            )
        return Column(previous(bound.name), bound.type)

    def _unknown_function(self, name: str, span: Span) -> Exception:
        if name.lower() in _OF_THE_CLOCK:
            return self._source.refusal(
                f"there is no function '{name}'", span, "results depend on the events alone; use a column of the stream"
            )
        known = [*functions.FUNCTIONS, *functions.ALIASES, *self._aggregates.names()]
        hint = did_you_mean(name, known) or "the functions are listed in the documentation of the language"
        return self._source.refusal(f"unknown function '{name}'", span, hint)

    def _cast(self, node: exp.Cast, depth: int) -> Expression:
        target = SqlType(node.args["to"].this)
        operand = node.this
        bound = self.bind(operand, depth)
        if not functions.can_cast(bound.type, target):
            raise self._source.refusal(f"{bound.type} cannot be cast to {target}", span_of(node))
        return self.converted(bound, target, operand)

    def _case(self, node: exp.Case, depth: int) -> Expression:
        args: list[Expression] = []
        nodes: list[exp.Expr] = []
        for branch in node.args["ifs"]:
            condition, value = branch.this, branch.args["true"]
            if node.this is None:
                args.append(self.condition(condition, "WHEN"))
            else:
                args.append(self._bound_call("eq", [node.this, condition], condition, depth))
            args.append(self.bind(value, depth))
            nodes += [condition, value]
        default = node.args.get("default")
        args.append(Literal(None, SqlType.NULL) if default is None else self.bind(default, depth))
        nodes.append(node if default is None else default)
        return self._call("case", tuple(args), nodes, node)

    def _operator(self, node: exp.Expr, depth: int) -> Expression:
        if _is_chained(node):
            raise self._source.refusal(
                "comparisons cannot be chained", span_of(node), "write a < b AND b < c, or use parentheses"
            )
        function = BINARY.get(type(node))
        if function in ("and", "or", "concat"):
            return self._bound_call(function, _flattened(node), node, depth)
        if function is not None:
            return self._bound_call(function, [node.this, node.expression], node, depth)
        if isinstance(node, exp.Neg):
            operand = node.this.unnest()
            if isinstance(operand, exp.Literal) and not operand.is_string:
                literal = self._literal(operand, negative=True)
                # -0.0 stays a call: as a literal it would equal 0.0, and equal expressions are computed once
                if literal.value != 0.0 or literal.type is not SqlType.DOUBLE:
                    return literal
            return self._bound_call("negate", [node.this], node, depth)
        if isinstance(node, exp.Not):
            inner = node.this.unnest()
            if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
                return self._bound_call("is_not_null", [inner.this], node, depth)
            return self._bound_call("not", [node.this], node, depth)
        if isinstance(node, exp.Between):
            low = self._bound_call("ge", [node.this, node.args["low"]], node, depth)
            high = self._bound_call("le", [node.this, node.args["high"]], node, depth)
            return Call("and", (low, high), SqlType.BOOLEAN)
        if isinstance(node, exp.In):
            return self._bound_call("in", [node.this, *node.expressions], node, depth)
        if isinstance(node, exp.Like):
            like = self._bound_call("like", [node.this, node.expression], node, depth)
            return Call("not", (like,), SqlType.BOOLEAN) if node.args.get("negate") else like
        if isinstance(node, exp.Is):
            return self._is(node, depth)
        if isinstance(node, exp.Star):
            raise self._source.refusal("'*' cannot stand here", span_of(node), "'*' is for SELECT * and COUNT(*)")
        raise self._source.refusal("this form of expression is not available", span_of(node))

    def _is(self, node: exp.Is, depth: int) -> Expression:
        if isinstance(node.expression, exp.Null):
            return self._bound_call("is_null", [node.this], node, depth)
        if isinstance(node.expression, exp.Boolean):
            return self._bound_call("eq_null_safe", [node.this, node.expression], node, depth)
        raise self._source.refusal("after IS stands NULL, TRUE, FALSE or DISTINCT FROM", span_of(node))

    def converted(self, expression: Expression, target: SqlType, node: exp.Expr) -> Expression:
        """A cast, done at once where a literal allows, so that a bad date is refused and not rejected later."""
        if expression.type is target:
            return expression
        if isinstance(expression, Literal):
            value = expression.value
            if value is None:
                return Literal(None, target)
            if isinstance(value, str) and target in (SqlType.TIMESTAMP, SqlType.DATE):
                parsed = parse_timestamp(value) if target is SqlType.TIMESTAMP else parse_date(value)
                if parsed is None:
                    example = "2024-03-01 12:30:00" if target is SqlType.TIMESTAMP else "2024-03-01"
                    raise self._source.refusal(f"this is no {target}", span_of(node), f"write '{example}'")
                return Literal(parsed, target)
            if expression.type.is_integer and isinstance(value, int):
                if target is SqlType.DOUBLE:
                    return Literal(float(value), target)
                if target.is_integer and -(2 ** _BITS[target]) <= value < 2 ** _BITS[target]:
                    return Literal(value, target)
        return Cast(expression, target)


def _is_chained(node: exp.Expr) -> bool:
    """Whether it compares what is a comparison without parentheses."""
    if isinstance(node, exp.NullSafeEQ):
        return isinstance(node.this, _RANGES)
    sides = (node.this, node.expression) if isinstance(node, _COMPARISONS) else ()
    return any(isinstance(side, (*_COMPARISONS, *_RANGES)) for side in sides)


def _flattened(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain of one associative operator, left to right; chains may be thousands long."""
    kind = type(node)
    operands: list[exp.Expr] = []
    pending = [node]
    while pending:
        current = pending.pop()
        if type(current) is kind:
            pending += [current.args["expression"], current.this]
        else:
            operands.append(current)
    return operands


def _article(type_: SqlType) -> str:
    return f"an {type_}" if str(type_)[0] in "AEIOU" else f"a {type_}"


def _arity(least: int, most: int | None) -> str:
    if most is None:
        return f"at least {least} argument{'s' if least > 1 else ''}"
    if least == most:
        return f"{least} argument{'s' if least != 1 else ''}"
    return f"{least} to {most} arguments"
